"""Every corpus function: the plan a person expected, and right answers through our lowering."""

from __future__ import annotations

import copy
import shutil
from functools import cache
from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.diagnostics import Why, joined
from pipeliner.plan import KernelPlan

from ..refusals import says
from . import annotated, branches, generated, loops, stencils, tiles
from .case import Case, Declined, Pipelined
from .harness import assert_right, run

CASES = [
    *loops.CASES,
    *branches.CASES,
    *tiles.CASES,
    *stencils.CASES,
    *generated.CASES,
    *annotated.CASES,
]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@cache
def pipelined(name: str) -> Any:
    """The function of that name, pipelined with every choice left to the library."""
    case = next(case for case in CASES if case.name == name)
    return pipeliner.pipeline(case.build(), case.arch)


def inputs_and_truth(case: Case) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    inputs = case.inputs(np.random.default_rng(0))
    return inputs, case.reference(copy.deepcopy(inputs))


def reasons(plan: KernelPlan) -> list[Why]:
    """All that the plan says on why a loop is as it is."""
    return [*plan.reasons, *(reason for loop in plan.loops for reason in loop.reasons)]


def test_the_corpus_is_large_enough() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 28
    assert sum(isinstance(case.expect, Pipelined) for case in CASES) >= 15


@every_case
def test_plan_is_the_expected_one(case: Case) -> None:
    plan = pipeliner.plan_of(pipelined(case.name))
    overlapping = [loop for loop in plan.loops if loop.pipelined and loop.stages > 1]
    match case.expect:
        case Pipelined(min_depth=depth, loops=count):
            deep = [loop for loop in overlapping if loop.stages >= depth]
            assert len(deep) >= count, joined(reasons(plan))
        case Declined(reason=code):
            assert not overlapping, [loop.name for loop in overlapping]
            assert says(code, reasons(plan)), joined(reasons(plan))


@every_case
@pytest.mark.part(2)
def test_its_own_plan_is_obeyed(case: Case) -> None:
    """Also where loops that are declined go by the name of one that is pipelined."""
    plan = pipeliner.plan_of(pipelined(case.name))
    names = [loop.name for loop in plan.loops if loop.pipelined]
    assert len(names) == len(set(names))
    again = pipeliner.pipeline(case.build(), case.arch, plan=plan)
    assert pipeliner.plan_of(again).loops == plan.loops


@every_case
def test_result_is_right(case: Case) -> None:
    inputs, truth = inputs_and_truth(case)
    emulation = run(pipelined(case.name), inputs, truth, arch=case.arch)
    assert_right(emulation, truth, case.tolerance)


@pytest.mark.part(4)
@every_case
def test_result_is_right_when_copies_land_early(case: Case) -> None:
    inputs, truth = inputs_and_truth(case)
    emulation = run(pipelined(case.name), inputs, truth, arch=case.arch, timing="early")
    assert_right(emulation, truth, case.tolerance)


@pytest.mark.part(18)
@pytest.mark.nvcc
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
@pytest.mark.parametrize("case", [c for c in CASES if c.nvcc], ids=lambda case: case.name)
def test_nvcc_compiles_it_without_spilling(case: Case) -> None:
    resources = pipeliner.build(pipelined(case.name)).resources
    assert resources.spill_stores == resources.spill_loads == 0
