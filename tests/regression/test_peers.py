"""Defects that users of other pipeliners reported: dependences, buffer counts, budgets, siblings."""

from __future__ import annotations

import numpy as np
import pytest

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.versions import refusal
from tests.refusals import refused

from ..corpus.annotated import gemm, simt_gemm
from ..corpus.loops import CASES as LOOPS
from . import functions
from .checks import check, data, gemm_inputs, pipelined_loop, product


def test_f15_crashing_tvm_ffi_is_refused() -> None:
    """With tvm-ffi 0.1.15 every ``Schedule.tensorize`` of TVM 0.27 is a segmentation fault; ours must
    refuse the pair in one line and accept the one that works."""
    refused = refusal("0.27.0.post1", "0.1.15.post2")
    assert refused is not None
    assert refused.has("versions.ffi_crashes")
    assert "\n" not in refused
    assert refusal("0.27.0.post1", "0.1.14.post1") is None


def test_atomics_order_what_they_touch() -> None:
    """Peers do not see dependences through atomics; ours must not load H ahead of the update."""
    inputs = {"A": data(16, 64, dtype="int32"), "H": np.zeros(64, "int32")}
    sums = inputs["A"].cumsum(0, dtype="int32")
    check(functions.atomic_then_read, inputs, {"C": sums, "H": sums[-1]})


@pytest.mark.parametrize("mechanism", ["cp_async", "register"])
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_rings_have_enough_slots(depth: int, mechanism: str) -> None:
    """Peers shipped rings one slot too small; ours must be free of hazards at every depth."""
    inputs = gemm_inputs()
    func = simt_gemm([], [], func=gemm(32, 64))
    plan = check(func, inputs, product(inputs), depth=depth, mechanism=mechanism)
    if depth > 1:
        loop = pipelined_loop(plan)
        assert {loop.ring(name).depth for name in ("A_shared", "B_shared")} == {depth}


def test_an_edited_plan_that_breaks_an_edge_is_refused() -> None:
    """Peers take any stage list; ours must check an edited plan, and name the edge that it breaks."""
    func = simt_gemm([], [], func=gemm(32, 64))
    plan = pipeliner.plan_of(pipeliner.pipeline(func, "sm_80", depth=3, mechanism="cp_async"))
    loop = pipelined_loop(plan)
    broken = plan.with_op(loop.name, "A_shared", stage=loop.stages, order=0)
    with refused("schedule.order", PlanError, ops=("A_shared.wait", "A_shared"), order=0):
        pipeliner.pipeline(func, "sm_80", plan=broken)


def test_depth_beyond_the_budget_is_refused_with_numbers() -> None:
    """Peers overflow shared memory at launch; ours must refuse in one line, naming the bytes."""
    func = simt_gemm([], [], func=gemm(32, 64))
    with refused("depth.smem", PlanError, smem=409600, most=166912) as err:
        pipeliner.pipeline(func, "sm_80", depth=200, mechanism="cp_async")
    assert "\n" not in str(err.value)


def test_automatic_depth_fits_the_budget() -> None:
    """As above, left to the library: the chosen depth fits."""
    plan = pipeliner.plan_of(pipeliner.pipeline(simt_gemm([], [], func=gemm(32, 64)), "sm_80"))
    assert plan.pipelined
    assert plan.smem.bytes <= plan.smem.budget


def test_siblings_of_different_depths() -> None:
    """Peers crash on two loops of one kernel with different depths; ours must give each its own."""
    case = next(case for case in LOOPS if case.name == "siblings")
    inputs = case.inputs(np.random.default_rng(0))
    depth = {"A_shared": 2, "B_shared": 4}
    plan = check(case.build(), inputs, case.reference(inputs), depth=depth)
    assert {ring.buffer: ring.depth for loop in plan.loops for ring in loop.rings} == depth
