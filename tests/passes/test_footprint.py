"""Whether accesses to shared memory can meet, compared with every value of their variables."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm import sym, tirx
from tvm.ir import Range

from pipeliner.passes.dependence import footprint
from pipeliner.passes.dependence.differences import Differences
from pipeliner.passes.ir import nodes as ir

STEPS = 24
"""Values of the loop variable: more than any modulus and offset here."""


def slot_of(k: Any, shift: int, depth: int | None, last: int | None) -> Any:
    """``(k + shift) % depth`` as expressions, ``k + shift`` at most ``last``."""
    at = k + shift
    at = at if last is None else tirx.min(at, ir.i32(last))
    return at if depth is None else tirx.floormod(at, ir.i32(depth))


def slot_at(k: int, shift: int, depth: int | None, last: int | None) -> int:
    """The same as a number."""
    at = k + shift if last is None else min(k + shift, last)
    return at if depth is None else at % depth


slots = st.tuples(
    st.integers(0, 6),
    st.sampled_from([None, 2, 3, 4, 5]),
    st.sampled_from([None, STEPS - 1]),
)


@given(slots, slots)
@settings(deadline=None)
def test_slots_that_differ_are_never_equal(one: Any, other: Any) -> None:
    prover, k = sym.Analyzer(), ir.Var("k", "int32")
    prover.bind(k, Range(0, STEPS))
    found = Differences(prover)
    differ = found.differ(slot_of(k, *one), slot_of(k, *other), [])
    meet = any(slot_at(at, *one) == slot_at(at, *other) for at in range(STEPS))
    assert not (differ and meet)
    assert found.differ(slot_of(k, *one), slot_of(k, *other), []) == differ


def test_slots_of_a_ring_are_told_apart() -> None:
    prover, k = sym.Analyzer(), ir.Var("k", "int32")
    prover.bind(k, Range(0, STEPS))
    found = Differences(prover)
    assert found.differ(tirx.floormod(k + 3, 4), tirx.floormod(k, 4), [])
    assert found.differ(tirx.floormod(k + 3, 4), k % 4, [])
    assert not found.differ(tirx.floormod(k + 4, 4), tirx.floormod(k, 4), [])
    assert not found.differ(None, ir.i32(0), [])


def test_what_a_condition_tells_apart_is_forgotten_behind_it() -> None:
    prover, i = sym.Analyzer(), ir.Var("i", "int32")
    prover.bind(i, Range(0, 8))
    found = Differences(prover)
    assert not found.differ(i, ir.i32(5), [{i: 8}])
    with found.assuming(i < 4):
        assert found.differ(i, ir.i32(5), [{i: 8}])
    assert not found.differ(i, ir.i32(5), [{i: 8}])


def test_a_variable_that_differs_between_two_sides_is_not_cancelled() -> None:
    prover, i = sym.Analyzer(), ir.Var("i", "int32")
    prover.bind(i, Range(0, 8))
    found = Differences(prover)
    assert found.differ(i + 1, i, [])
    assert not found.differ(i + 1, i, [{i: 8}])


THREADS, LANES, SHARED = 6, 3, 2

terms = st.tuples(
    st.sampled_from(["plain", "quotient", "remainder", "xor"]),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(0, 2),
    st.integers(0, 3),
)
indices = st.lists(terms, min_size=1, max_size=2)


def index_of(term: Any, thread: Any, lane: Any, step: Any) -> Any:
    """An index into shared memory, of expressions or of numbers."""
    form, by_thread, by_lane, by_step, start = term
    plain = thread * by_thread + lane * by_lane + step * by_step + start
    if form == "quotient":
        return plain // 2
    if form == "remainder":
        return plain % 5
    return plain ^ 1 if form == "xor" else plain


def guard_of(term: Any, thread: Any, lane: Any, step: Any) -> Any:
    """A condition of an access, of expressions or of numbers; None: there is none."""
    if term is None:
        return None
    relation, by_thread, by_lane, by_step, bound = term
    value = thread * by_thread + lane * by_lane + step * by_step
    rest = value % 2
    even = rest == 0 if isinstance(rest, int) else tirx.EQ(rest, ir.i32(0))
    return {"less": value < bound, "not less": value >= bound, "even": even}[relation]


guards = st.none() | st.tuples(
    st.sampled_from(["less", "not less", "even"]),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(0, 1),
    st.integers(0, 8),
)


@example([("plain", 0, 0, 0, 1)], [("plain", 1, 0, 0, 0)], 1, None, ("even", 1, 0, 0, 0))
@given(indices, indices, st.sampled_from([1, 2]), guards, guards)
@settings(deadline=None)
def test_elements_are_apart_as_for_every_thread(
    one: Any, other: Any, unit: int, guard: Any, other_guard: Any
) -> None:
    prover = sym.Analyzer()
    thread, step, mine, theirs = (ir.Var(name, "int32") for name in ("t", "k", "i", "j"))
    for var, extent in ((thread, THREADS), (step, SHARED), (mine, LANES), (theirs, LANES)):
        prover.bind(var, Range(0, extent))
    dims = list(zip(one, other))
    a = tuple(index_of(x, thread, mine, step) for x, _ in dims)
    b = tuple(index_of(y, thread, theirs, step) for _, y in dims)
    known = guard_of(guard, thread, mine, step), guard_of(other_guard, thread, theirs, step)
    found = footprint.disjoint(
        a,
        {mine: LANES},
        b,
        {theirs: LANES},
        {thread: THREADS},
        prover,
        unit,
        tuple([] if one is None else [one] for one in known),
    )

    def is_made(term: Any, t: int, lane: int, k: int) -> bool:
        return term is None or bool(guard_of(term, t, lane, k))

    def touched(terms: Any, term: Any, t: int, k: int) -> set[tuple[int, ...]]:
        made = [lane for lane in range(LANES) if is_made(term, t, lane, k)]
        return {tuple(index_of(x, t, lane, k) for x in terms) for lane in made}

    disjoint = all(
        touched([x for x, _ in dims], guard, t, k).isdisjoint(
            touched([y for _, y in dims], other_guard, u, k)
        )
        for k in range(SHARED)
        for t, u in itertools.permutations(range(THREADS), 2)
        if t // unit != u // unit
    )
    # A step that cancels out of the indices may be any: conditions with it say nothing then.
    by_step = any(term is not None and term[3] for term in (guard, other_guard))
    assert not found or disjoint if by_step else found == disjoint
