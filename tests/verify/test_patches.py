"""Pixels that are a box, and those of a CTA's next tile that come to L2 ahead of their copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tvm import sym, tirx

import pipeliner
from pipeliner.compiled import Kernel
from pipeliner.cost.tma import patch_extents
from pipeliner.emulator.instruction import decode
from pipeliner.mutation import mutate
from pipeliner.passes.ir import const_int, substitute
from pipeliner.passes.kernels import bodies, thread_tag
from pipeliner.passes.operands import called
from pipeliner.schedules import ConvTile, schedule_conv
from pipeliner.schedules.workloads import Convolution, conv2d
from pipeliner.verification import verify_workload

from ..schedules.im2col_cases import PATCHES


def kernel_of(spec: Convolution, tile: ConvTile, **options: Any) -> Kernel:
    return pipeliner.build(schedule_conv(spec, tile), "h100", instruction="wgmma", **options)


@pytest.mark.parametrize("case", PATCHES)
def test_pixels_of_whole_rows_are_a_box(case: str) -> None:
    spec, tile = PATCHES[case]
    kernel = kernel_of(spec, tile, mechanism="tma")
    assert "tma (patch)" in {copy.way for copy in kernel.plan.copies}
    assert "im2col" not in kernel.cuda
    verdict = verify_workload(kernel, spec, seed=3)
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.parametrize(
    ("pixels", "counts", "extents"),
    [
        (224, (32, 56, 56), (1, 4, 56)),
        (98, (32, 7, 7), (2, 7, 7)),
        (16, (2, 6, 64), (1, 1, 16)),
        (256, (8, 64, 64), (1, 4, 64)),
        (256, (32, 56, 56), None),  # ends inside a row
        (192, (32, 28, 32), None),  # 28 rows are no multiple of 6
        (1024, (8, 2, 512), None),  # a box has at most 256 in a dimension
        (128, (1, 4, 16), None),  # more than there are
    ],
)
def test_which_pixels_are_a_box(
    pixels: int, counts: tuple[int, ...], extents: tuple[int, ...] | None
) -> None:
    assert patch_extents(pixels, counts) == extents


@pytest.mark.parametrize(
    ("spec", "tile"),
    [
        (conv2d(2, 8, 16, 64, 64, 3, 3, pad=1, stride=2), ConvTile(32, 64, 64)),
        (conv2d(3, 6, 7, 64, 64, 3, 3, pad=1), ConvTile(64, 32, 64)),
    ],
    ids=["strided", "inside rows"],
)
def test_other_pixels_are_gathered(spec: Convolution, tile: ConvTile) -> None:
    pixels, _ = kernel_of(spec, tile, mechanism="tma").plan.copies
    assert pixels.view == "im2col"


def test_every_defect_of_a_patch_shows() -> None:
    spec, tile = conv2d(2, 4, 16, 64, 16, 3, 3, pad=1), ConvTile(64, 16, 64, ctas=1)
    report = mutate(kernel_of(spec, tile, depth=3))
    assert report.mutants >= 20
    assert report.ok, [str(fate.mutant) for fate in report.unexplained]


AHEAD = {
    "gathered": (conv2d(3, 6, 7, 64, 64, 3, 3, pad=1), ConvTile(64, 32, 64, ctas=3)),
    "a box": (conv2d(5, 8, 16, 64, 64, 3, 3, pad=1), ConvTile(64, 32, 64, ctas=3)),
    "two panels": (conv2d(3, 6, 7, 128, 64, 3, 3, pad=1), ConvTile(64, 32, 128, ctas=2)),
    "even positions": (conv2d(3, 6, 7, 64, 64, 4, 3, pad=1), ConvTile(64, 32, 64, ctas=3)),
}


@pytest.mark.parametrize("case", AHEAD)
def test_what_comes_ahead_is_what_the_next_tile_copies_at_the_middle_position(case: str) -> None:
    spec, tile = AHEAD[case]
    kernel = kernel_of(spec, tile, mechanism="tma")
    pixels, filters = kernel.plan.copies
    assert (pixels.ahead, filters.ahead) == (True, False)
    issued = _issued(kernel, "X_map")
    copied = {(cta, number, step, box) for name, cta, number, step, box in issued if "g2s" in name}
    ahead = {
        (cta, number + 1, step, box)
        for name, cta, number, step, box in issued
        if "prefetch" in name
    }
    middle = 4  # r and s are 1, of 3 x 3 and of 4 x 3
    assert ahead == {one for one in copied if one[1] > 0 and one[2] == middle}
    assert ahead


def _issued(kernel: Kernel, tensor: str) -> list[tuple[str, int, int, int, tuple[int, ...]]]:
    """What the thread that copies issues for ``tensor``: instruction, CTA, tile, step and box."""
    thread = kernel.plan.role("producer").first
    found: list[Any] = []

    def value(expr: Any, env: Mapping[Any, int]) -> int | None:
        known = {var: tirx.const(number, "int32") for var, number in env.items()}
        return const_int(sym.Analyzer().simplify(substitute(expr, known)))

    def run(stmt: Any, env: dict[Any, int]) -> None:
        if isinstance(stmt, tirx.For):
            bound = thread_tag(stmt)
            extent = value(stmt.extent, env) or 0
            for number in [thread] if bound == "threadIdx.x" else range(extent):
                run(stmt.body, {**env, stmt.loop_var: number})
        elif isinstance(stmt, tirx.IfThenElse):
            taken = value(stmt.condition, env)
            branch = stmt.then_case if taken else stmt.else_case
            if taken is not None and branch is not None:
                run(branch, env)
        elif isinstance(stmt, tirx.Evaluate):
            name = called(stmt.value)
            if "bulk_tensor" in name and tensor in str(stmt.value):
                at = decode(stmt.value).operands
                box = tuple(value(x, env) for x in [*at["coords"], *at.get("im2col_info", [])])
                loops = [env[var] for var in env if "Idx" not in str(var.name)]
                found.append((name, next(iter(env.values())), *loops, box))
        else:
            for part in bodies(stmt):
                run(part, env)

    run(kernel.function.body, {})
    return found


def test_it_is_a_choice_of_the_plan() -> None:
    spec, tile = AHEAD["gathered"]
    kernel = kernel_of(spec, tile, mechanism="tma")
    assert "cp.async.bulk.prefetch.tensor.4d.L2.global.im2col" in kernel.ptx
    copies = tuple(replace(copy, ahead=False) for copy in kernel.plan.copies)
    without = kernel_of(spec, tile, plan=replace(kernel.plan, copies=copies))
    assert "prefetch" not in without.ptx
    assert "pixels of the next tile come to L2 meanwhile" in kernel.plan.copies[0].reason


@pytest.mark.parametrize(
    ("spec", "tile"),
    [
        (conv2d(3, 6, 7, 64, 64, 3, 3, pad=1), ConvTile(64, 32, 64)),
        (conv2d(9, 6, 7, 64, 64, 3, 3, pad=1, stride=2), ConvTile(64, 32, 64, ctas=1)),
        (conv2d(3, 6, 7, 64, 64, 1, 1), ConvTile(64, 32, 64, ctas=1)),
    ],
    ids=["a tile for each CTA", "strided", "1x1"],
)
def test_nothing_comes_ahead_where_no_tile_follows_or_rings_do(
    spec: Convolution, tile: ConvTile
) -> None:
    kernel = kernel_of(spec, tile, mechanism="tma")
    assert not any(copy.ahead for copy in kernel.plan.copies)
    assert "prefetch" not in kernel.cuda
