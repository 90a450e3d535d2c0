"""Pipelined GEMMs are right over the whole space of options, or refused with the reason.

The cases are a covering set: every pair of values of two options that a legal request can have is
in one of them, and likewise for illegal ones. The emulator lets copies land as late as the waits
allow; some cases run again with copies that land at once or at random times, which shows a slot
that is overwritten too early.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeliner.errors import LoweringError, WorkloadError
from pipeliner.schedules import Gemm
from tests.refusals import refused

from .requirements import refusal
from .sweep import FACTORS, Case, check, cover

LEGAL = cover(FACTORS, lambda case: case.is_possible and refusal(case) is None, Case)
MODES = [("late", "lockstep"), ("early", "reversed"), ("random", "random")]
DEMANDS = ("dtype", "tile", "warps", "thread_tile", "mechanism", "instruction", "target")
ILLEGAL = cover(
    {name: FACTORS[name] for name in DEMANDS}, lambda case: refusal(case) is not None, Case
)


@pytest.mark.part(24)
@pytest.mark.parametrize("case", LEGAL, ids=str)
def test_every_pair_of_options_computes_the_product(case: Case) -> None:
    kernel = case.kernel()
    again = LEGAL.index(case) % 4 == 0
    check(case, kernel, MODES if again else MODES[:1])
    assert not again or "__global__" in kernel.cuda
    depths = {
        ring.depth
        for loop in kernel.plan.loops
        for ring in loop.rings
        if ring.scope.startswith("shared")
    }
    if case.depth != "auto":
        assert depths == {case.depth}


@pytest.mark.parametrize("case", ILLEGAL, ids=str)
@pytest.mark.part(2)
def test_what_is_impossible_is_refused_with_its_numbers(case: Case) -> None:
    expected = refusal(case)
    assert expected is not None
    with pytest.raises(expected.error) as raised:
        case.kernel()
    assert expected.is_of(raised.value), raised.value


# Small tiles: what depends on extents does so at any size.
cases = st.builds(
    Case,
    **{name: st.sampled_from(values) for name, values in FACTORS.items()}
    | {
        "tile": st.sampled_from([(16, 16, 16), (32, 16, 16), (16, 8, 32)]),
        "warps": st.sampled_from([None, (1, 1)]),
        "thread_tile": st.none(),
        "batch": st.sampled_from([None, 2]),
        "trips": st.just(1),
        "dynamic": st.just(False),
        "sizes": st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 80)),
    },
)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(case=cases)
def test_any_extents_compute_the_product_or_are_refused(case: Case) -> None:
    expected = refusal(case)
    if expected is None:
        check(case, case.kernel())
        return
    with pytest.raises(expected.error) as raised:
        case.kernel()
    assert expected.is_of(raised.value), raised.value


@pytest.mark.parametrize("name", ["m", "n", "k"])
def test_a_gemm_without_extent_is_refused(name: str) -> None:
    sizes = {"m": 16, "n": 16, "k": 16, name: 0}
    with refused("workload.extent", WorkloadError, name=name, value="0"):
        Gemm(**sizes)


@pytest.mark.parametrize("tile", [(7, 5, 3), (20, 12, 16)])
def test_a_tile_that_no_mapping_fits_is_refused(tile: tuple[int, int, int]) -> None:
    with refused("mapping.simt_split", LoweringError, tile=tile[:2]):
        Case(tile=tile).kernel()
