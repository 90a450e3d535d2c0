"""Steps of zeros in the last tile of a loop: found, left out, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.explain.inspect import emit, instruction_counts
from pipeliner.passes.recognise.facts import recognise
from pipeliner.schedules.gemm import GemmTile
from pipeliner.schedules.workloads import LAYOUTS, Gemm
from tests.refusals import refused

from .lowering_tools import prepared
from .tiles import run, scheduled

TILE = GemmTile(64, 64, 64, warps=(1, 1))


def k_last(gemm: Gemm, tile: GemmTile) -> int:
    _, kernel = recognise(prepared(scheduled(gemm, tile)))
    (loop,) = kernel.info.loops
    return next(op.k_last for op in loop.ops if hasattr(op, "k_last"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize(("k", "last"), [(64, 32), (65, 1), (80, 16), (95, 31), (96, 32)])
@pytest.mark.part(2)
def test_what_the_last_tile_has_of_k(layout: str, batch: int | None, k: int, last: int) -> None:
    assert k_last(Gemm(40, 48, k, layout=layout, batch=batch), GemmTile(32, 32, 32)) == last


def test_what_is_not_known_is_the_whole_tile() -> None:
    assert k_last(Gemm(64, 64, 1000, batch=2), GemmTile(32, 32, 32, splits=2)) == 32
    assert k_last(Gemm(64, 64, 1000), GemmTile(32, 32, 32, splits=2)) == 32


@pytest.mark.part(18)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "k", "depth"),
    [  # every two of them together
        (layout, k, 2 + (number + at) % 2)
        for number, layout in enumerate(LAYOUTS)
        for at, k in enumerate((136, 144, 152, 248))
    ],
)
def test_a_peeled_epilogue_without_them_is_right(layout: str, k: int, depth: int) -> None:
    gemm = Gemm(72, 64, k, layout=layout)
    run(gemm, TILE, depth=depth, epilogue="peeled", instruction="mma")


def test_they_are_left_out_where_that_saves_a_hundredth() -> None:
    def epilogue(k: int) -> str:
        done = pipeliner.pipeline(scheduled(Gemm(512, 512, k), TILE), "a100", instruction="mma")
        return pipeliner.plan_of(done).loops[0].epilogue

    assert epilogue(64 * 40 + 16) == "peeled"  # 3 of 164 steps
    assert epilogue(64 * 40 + 64) == "clamped"  # none
    assert epilogue(64 * 400 + 16) == "clamped"  # 3 of 1604


def tensor_instructions(k: int) -> int:
    """Tensor core instructions in the machine code of a kernel of three tiles, fully peeled."""
    func = scheduled(Gemm(32, 32, k), GemmTile(32, 32, 64, warps=(1, 1)))
    done = pipeliner.pipeline(func, "sm_80", instruction="mma", depth=3, epilogue="peeled")
    return instruction_counts(emit(pipeliner.build(done, "sm_80"), "sass"))[
        "tensor core instructions"
    ]


@pytest.mark.nvcc
@pytest.mark.deep("the CUDA is that of verify/test_fixed_plans.py")
def test_the_machine_code_has_fewer_instructions() -> None:
    each = (32 // 16) * (32 // 8)  # of one step of the only warp
    assert tensor_instructions(4 * 64 - 48) == tensor_instructions(4 * 64) - 3 * each


def test_a_plan_that_leaves_out_more_is_refused() -> None:
    func = scheduled(Gemm(64, 64, 64 * 40 + 32), TILE)
    plan = pipeliner.plan_of(pipeliner.pipeline(func, "a100", instruction="mma", epilogue="peeled"))
    (loop,) = plan.loops
    assert [op.name for op in loop.ops if op.skips_k_tail and op.kind == "mma"] == [
        "matmul_update_o.k2",
        "matmul_update_o.k3",
    ]
    ops = tuple(
        replace(op, skips_k_tail=True) if op.name == "matmul_update_o.k1" else op for op in loop.ops
    )
    edited = plan.with_loop(replace(loop, ops=ops))
    with refused("k_tail.no_padding", PlanError, op="matmul_update_o.k1"):
        pipeliner.pipeline(func, "a100", plan=edited)
