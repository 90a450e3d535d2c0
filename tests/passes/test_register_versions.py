"""Versions of register tiles that a thread has no registers for: the loop runs in program order."""

from __future__ import annotations

from typing import Any, Final

import pytest

import pipeliner
from pipeliner.kernel.compiled import Kernel
from pipeliner.schedules import Attention, AttentionTile, schedule_attention
from pipeliner.verification.accuracy import poisoned, worst_error

from ..refusals import says, the
from .row_kernels import scaled_steps

WIDE: Final[dict[str, Any]] = {"mechanism": "cp_async", "instruction": "wgmma"}


def built(what: Attention, n: int) -> Kernel:
    return pipeliner.build(schedule_attention(what, AttentionTile(64, n)), "h200", **WIDE)


def test_too_many_versions_are_not_kept() -> None:
    """Of 64 x 128 scores a thread has 64 registers, of the sums as many: two do not fit."""
    what = Attention(1, 1, 64, 4 * 128 - 3, 128)
    kernel = built(what, 128)
    (loop,) = kernel.plan.loops
    found = the("schedule.too_many_versions", loop.reasons)
    assert found["needed"] > found["room"]
    assert "scores_frag" in found["buffers"]
    assert loop.pipelined
    assert all(ring.depth == 1 for ring in loop.rings if ring.scope == "local")
    inputs = what.inputs(3)
    done = kernel.emulate(*inputs, poisoned(what.shapes()[-1], what.out), timing="late")
    assert not done.hazards
    got = done.outputs["Out"]
    assert worst_error(what, got, what.reference(*inputs), what.magnitude(*inputs)) <= 1


def test_versions_that_fit_are_kept() -> None:
    (loop,) = built(Attention(1, 1, 64, 512, 64), 64).plan.loops
    assert not says("schedule.too_many_versions", loop.reasons)


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.deep("test_too_many_versions_are_not_kept")
def test_nothing_spills() -> None:
    used = built(Attention(1, 1, 64, 4096, 128), 128).resources
    assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0)


def by_warps(n: int, dim: int) -> Kernel:
    what = Attention(1, 1, 64, 3 * n + 5, dim)
    return pipeliner.build(schedule_attention(what, AttentionTile(64, n)), "a100")


@pytest.mark.parametrize("dim", [64, 128])
def test_fragments_of_warps_that_do_not_fit_are_loaded_in_order(dim: int) -> None:
    """Of 128 keys a thread has 64 scores, 32 words of weights, and K and V of as many columns."""
    kernel = by_warps(128, dim)
    (loop,) = kernel.plan.loops
    found = the("schedule.too_many_alive", loop.reasons)
    assert found["needed"] > found["room"]
    assert loop.pipelined
    what = Attention(1, 1, 64, 3 * 128 + 5, dim)
    inputs = what.inputs(3)
    done = kernel.emulate(*inputs, poisoned(what.shapes()[-1], what.out), timing="late")
    assert not done.hazards
    got = done.outputs["Out"]
    assert worst_error(what, got, what.reference(*inputs), what.magnitude(*inputs)) <= 1


def test_those_that_fit_overlap() -> None:
    (loop,) = by_warps(64, 128).plan.loops
    assert not says("schedule.too_many_alive", loop.reasons)
    assert max(op.stage for op in loop.ops if op.kind == "mma") > 1


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.deep("test_fragments_of_warps_that_do_not_fit_are_loaded_in_order")
@pytest.mark.parametrize("dim", [64, 128])
def test_nothing_of_warps_spills(dim: int) -> None:
    used = by_warps(128, dim).resources
    assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0)


def test_tiles_that_live_across_steps_count_beside_an_accumulator() -> None:
    """Sums of 128 x 128 and those of a step: 64 registers of each with eight warps, not 128."""
    plan = pipeliner.plan_of(pipeliner.pipeline(scaled_steps(512, 512, 512), "a100"))
    (matmul,) = plan.matmuls
    assert (matmul.m, matmul.n, plan.threads) == (128, 128, 256)


def test_statistics_of_rows_do_not() -> None:
    """Three warpgroups have 160 registers: 64 of scores, 32 of weights, 32 of sums, 32 beside."""
    what = Attention(1, 1, 192, 256, 64)
    func = schedule_attention(what, AttentionTile(192, 128))
    plan = pipeliner.plan_of(pipeliner.pipeline(func, "h200"))
    assert plan.role("consumer").threads == 3 * 128
