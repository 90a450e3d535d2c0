"""A loop that is left alone is predicted by the copies that it has then, and can be handed back."""

from __future__ import annotations

import pytest
import tvm_ffi

import pipeliner
from pipeliner.choice.again import predicted, remade
from pipeliner.machine import A100
from pipeliner.plan.comparing import difference
from pipeliner.plan.request import Request
from pipeliner.schedules import GemmTile, schedule_gemm
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.workloads import Gemm
from pipeliner.space.ranking import choose
from tests.refusals import the

SQUARE = Gemm(1024, 1024, 1024)
RAGGED = Gemm(4000, 4104, 4040)
"""Of rows that begin inside sectors, for which cp.async has a layout of its own."""


@pytest.mark.parametrize(
    ("gemm", "tile"),
    [(SQUARE, GemmTile(16, 96, 64)), (RAGGED, GemmTile(16, 64, 64))],
    ids=["square", "ragged"],
)
def test_a_loop_left_alone_is_predicted_as_it_is(gemm: Gemm, tile: GemmTile) -> None:
    info = kernel_info(gemm, tile)
    plan = choose(info, A100, Request())
    (loop,) = plan.loops
    assert not loop.pipelined
    assert {copy.mechanism for copy in plan.copies} == {"register"}
    assert predicted(info, A100, plan).us == plan.predicted_us
    assert difference(plan.copies, remade(info, A100, plan).copies, "copies") is None
    func = schedule_gemm(gemm, tile)
    done = pipeliner.pipeline(func, "a100")
    assert pipeliner.plan_of(done).predicted_us == plan.predicted_us
    again = pipeliner.pipeline(func, "a100", plan=pipeliner.plan_of(done))
    assert tvm_ffi.structural_equal(
        again.without_attr("pipeliner.plan"), done.without_attr("pipeliner.plan")
    )


def test_a_loop_gets_a_ring_where_it_would_be_slower_alone() -> None:
    """One slot is as fast as more, but only with copies that it could not keep."""
    plan = choose(kernel_info(SQUARE, GemmTile(64, 160, 128)), A100, Request())
    (loop,) = plan.loops
    assert loop.pipelined
    assert all(ring.depth > 1 for ring in loop.rings)
    said = the("depth.left_alone", loop.reasons)
    assert said["us"] == pytest.approx(32.4, abs=0.05)
    assert said["ring_us"] == pytest.approx(plan.predicted_us, abs=0.05)
