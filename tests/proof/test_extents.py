"""Kernels with symbolic extents, proved for every value of these: what a walk that leaves more open
than one value must not overlook, each with a twin that is right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tvm import tirx

from pipeliner.proof.proof import KernelProof
from pipeliner.proof.prove import prove
from pipeliner.proof.running.subjects import host_and_kernels, symbolic

from ..emulator.raw import lower
from ..verify.proof_extents import hazards
from . import extents
from .extents import bounded, grids, ordered_by, peeled, ragged, ring, roles, tiles, two

Kernel = Callable[[], Any]

EQ = tirx.EQ


def proof_of(func: Any, **given: int) -> KernelProof:
    (found,) = prove(lower(func), extents=given, seconds=600.0).kernels
    return found


def values(found: KernelProof) -> dict[str, int]:
    """The values for which a kernel is wrong."""
    assert found.refuted is not None, found.statement
    return {one.name: int(one.only) for one in found.values}


def names(lowered: Any) -> list[str]:
    """The scalar arguments of a kernel."""
    host, _ = host_and_kernels(lowered)
    return sorted(symbolic(host))


def is_for_all(found: KernelProof) -> bool:
    """Whether a kernel is right for all values of its extents, and as many iterations as they give."""
    all_values = bool(found.values) and not any(one.least or one.only for one in found.values)
    return found.ok and all_values and not any(loop.only for loop in found.loops)


RIGHT: dict[str, Kernel] = {
    "three ahead": ring,
    "as far as before": lambda: ring(
        again=lambda i, n: n - 3 > i, distance=3, copies=extents.never
    ),
    "not seven": lambda: ring(unwaited=lambda i, n: EQ(n, 7) & EQ(i, 7)),
    "not in it": lambda: ring(unwaited=lambda i, n: EQ(i, n + 17)),
    "counted twice": lambda: ring(unwaited=lambda i, n: EQ(2 * i + 7, 2 * n)),
    "the slot that is free": lambda: ring(
        clears=lambda i, n: (n >= 9) & EQ(i, n - 1), slot=lambda i, n: (n - 2) % 4
    ),
    "a slot by two remainders": lambda: ring(
        clears=lambda i, n: (n >= 9) & (n % 4 < 2) & EQ(i, n - 1), slot=lambda i, n: 1
    ),
    "peeled": peeled,
    "at most four": lambda: bounded(lambda n: tirx.min(n, 4)),
    "one barrier at least": lambda: ordered_by(lambda n: n + 1),
    "few barriers": lambda: ordered_by(lambda n: (n + 30) // 3 - 8),
    "two loops": lambda: two(lambda j, n, m, made: EQ(j, m)),
    "two counts": lambda: two(lambda j, n, m, made: EQ(j, m) & EQ(made, 7)),
    "tiles": tiles,
    "ragged tiles": ragged,
    "the last tile": lambda: ragged(lambda t, n: t * 8 + 8 >= n),
    "roles": roles,
    "roles, not in it": lambda: roles(lambda k, n: EQ(k, n + 5)),
    "grids": lambda: grids(uneven=False),
}

WRONG: dict[str, tuple[Kernel, dict[str, int]]] = {
    "five ahead": (lambda: ring(again=lambda i, n: i + 5 < n), {"n": 6}),
    "four ahead": (lambda: ring(again=lambda i, n: i + 4 < n, distance=4), {"n": 5}),
    "seven": (lambda: ring(unwaited=lambda i, n: EQ(n, 7)), {"n": 7}),
    "17 to go": (lambda: ring(unwaited=lambda i, n: EQ(i + 18, n)), {"n": 18}),
    "8 to go, of some": (
        lambda: ring(unwaited=lambda i, n: EQ(i + 8, n) & EQ(i % 3, 2)),
        {"n": 10},
    ),
    "23 to go, behind 5": (lambda: ring(unwaited=lambda i, n: EQ(i + 23, n) & (i > 5)), {"n": 29}),
    "counted twice": (lambda: ring(unwaited=lambda i, n: EQ(2 * i + 8, 2 * n)), {"n": 4}),
    "first rows": (lambda: ring(first=lambda s, n: s <= n), {"n": 0}),
    "one row more": (lambda: ring(copies=lambda i, n: i + 3 <= n), {"n": 3}),
    "a remainder": (
        lambda: ring(
            clears=lambda i, n: EQ(n % 5, 2) & EQ(i, n - 1), slot=lambda i, n: (i + n) % 4
        ),
        {"n": 12},
    ),
    "the slot that is read": (
        lambda: ring(
            clears=lambda i, n: (n >= 9) & EQ(i, n - 1), slot=lambda i, n: (2 * n + 3) % 4
        ),
        {"n": 12},
    ),
    "a slot by two remainders": (
        lambda: ring(
            clears=lambda i, n: (n >= 9) & (n % 4 < 2) & EQ(i, n - 1), slot=lambda i, n: 0
        ),
        {"n": 9},
    ),
    "peeled, one short": (lambda: peeled(1), {"n": 2}),
    "peeled, two short": (lambda: peeled(2), {"n": 1}),
    "at most five": (lambda: bounded(lambda n: tirx.min(n, 5)), {"n": 5}),
    "no barrier": (lambda: ordered_by(lambda n: n), {"n": 0}),
    "two values": (
        lambda: two(lambda j, n, m, made: EQ(m, 3) & EQ(n, 2)),
        {"m": 3, "n": 2},
    ),
    "two counts": (
        lambda: two(lambda j, n, m, made: EQ(j + 2, m) & EQ(made, 7)),
        {"m": 2, "n": 7},
    ),
    "tiles of two": (lambda: tiles(lambda i, k: EQ(k, 2)), {"k": 2, "m": 1}),
    "tiles, nine to go": (lambda: tiles(lambda i, k: EQ(i + 9, k)), {"k": 9, "m": 1}),
    "roles, four to go": (lambda: roles(lambda k, n: EQ(k + 3, n)), {"n": 3}),
    "roles, the last one": (lambda: roles(lambda k, n: EQ(k, n) & (n > 6)), {"n": 7}),
    "a ragged tile of three": (
        lambda: ragged(lambda t, n: EQ((n - 1) % 8, 2) & (t * 8 + 16 >= n)),
        {"n": 11},
    ),
    "a tile before the last": (lambda: ragged(lambda t, n: EQ(t * 8 + 20, n)), {"n": 20}),
}


REFUSED: dict[str, tuple[Kernel, str, str]] = {
    "counted down": (lambda: extents.counted_down(2), "proof.of_extents", "n"),
    "counted down, right": (lambda: extents.counted_down(1), "proof.of_extents", "n"),
    "another trip count": (
        lambda: two(lambda j, n, m, made: j + 2 < n),
        "proof.of_extents",
        "n <= j + 2",
    ),
    "two extents": (lambda: two(lambda j, n, m, made: n > m), "proof.of_extents", "n <= m"),
    "a product": (
        lambda: ring(unwaited=lambda i, n: EQ(i * n, 40)),
        "proof.of_extents",
        "i * n != 40",
    ),
    "a share": (lambda: ring(unwaited=lambda i, n: EQ(i, n // 3 + 8)), "proof.of_extents", "n, 3"),
    "a row of many": (lambda: grids(uneven=True), "proof.grid_grows", "bx <= 40"),
    "steps by place": (extents.steps_by_place, "proof.grid_grows", "100 - bx"),
    "many values": (lambda: ring(unwaited=lambda i, n: EQ(n, 900)), "proof.many_values", ""),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_for_every_value(name: str) -> None:
    found = proof_of(RIGHT[name]())
    assert is_for_all(found), found.statement


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_for_few_values(name: str) -> None:
    """The values that are found are the least ones, and wrong by themselves."""
    kernel, expected = WRONG[name]
    func = kernel()
    assert values(proof_of(func)) == expected
    assert proof_of(func, **expected).refuted is not None


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_said(name: str) -> None:
    """Nothing is proved: some of these are wrong for some values, others right for all."""
    kernel, code, decides = REFUSED[name]
    found = proof_of(kernel())
    assert found.why.has(code), found.statement
    assert found.refuted is None
    assert decides in str(found.why)


@pytest.mark.parametrize("name", ["three ahead", "counted twice", "peeled", "two counts", "tiles"])
def test_the_emulator_agrees_at_random_values(name: str) -> None:
    lowered = lower(RIGHT[name]())
    rng = random.Random(name)
    for _ in range(3):
        assert not hazards(lowered, {one: rng.randrange(24) for one in names(lowered)})


@pytest.mark.parametrize("name", ["five ahead", "a remainder", "peeled, one short", "two counts"])
def test_the_emulator_agrees_where_it_is_wrong(name: str) -> None:
    kernel, expected = WRONG[name]
    assert hazards(lower(kernel()), expected)
