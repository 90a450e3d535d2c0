"""Gated GEMMs, two matmuls in one loop: right in every timing, and no synchronisation too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pipeliner
from pipeliner.kernel.compiled import Kernel
from pipeliner.mutation import mutate
from pipeliner.schedules import GatedGemm, GemmTile, schedule_gemm
from pipeliner.verification.verdict import verify_workload

from .mutation_kernels import unexplained

WAYS = {
    "sm_80": {"instruction": "mma", "mechanism": "cp_async"},
    "sm_90a": {"instruction": "wgmma", "mechanism": "tma"},
}


def gated(target: str, steps: int, depth: int = 3, **how: Any) -> Kernel:
    """Two CTAs of a gated GEMM, each with ``steps`` steps."""
    wide = target == "sm_90a"
    m, n, k = (64, 32, 64) if wide else (32, 32, 16)
    spec = GatedGemm(m, 2 * n, k * steps, dtype="bfloat16")
    asked = {**WAYS[target], "depth": depth, **how}
    return pipeliner.build(schedule_gemm(spec, GemmTile(m, n, k)), target, **asked)


@pytest.mark.parametrize("target", WAYS)
@pytest.mark.parametrize("activation", ["silu", "gelu", "relu"])
@pytest.mark.part(3)
def test_a_gated_gemm_is_right_in_every_timing(target: str, activation: str) -> None:
    spec = GatedGemm(200, 136, 200, dtype="float16", activation=activation)
    kernel = pipeliner.build(schedule_gemm(spec, GemmTile(128, 64, 64)), target, **WAYS[target])
    verdict = verify_workload(kernel, spec)
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("m", [1, 2])
def test_a_single_token_is_copied_by_tma_as_more_are(m: int) -> None:
    """A constant index of both sums was said to be in other registers of each."""
    spec = GatedGemm(m, 136, 200)
    kernel = pipeliner.build(schedule_gemm(spec, GemmTile(8, 64, 64)), "sm_90a", **WAYS["sm_90a"])
    assert kernel.plan.roles
    verdict = verify_workload(kernel, spec)
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("target", WAYS)
def test_every_mutant_of_a_gated_gemm_dies(target: str) -> None:
    def family() -> dict[str, Callable[[], Kernel]]:
        return {f"{steps} trips": lambda s=steps: gated(target, s) for steps in (2, 4, 5)}

    report = mutate(gated(target, 5), relatives=family())
    assert report.ok, unexplained(report.fates)


def test_both_matmuls_are_issued_before_either_is_waited_for() -> None:
    kernel = gated("sm_90a", 5)
    assert [pair.rings for pair in kernel.plan.mbarriers] == [
        ("A_shared", "B1_shared", "B2_shared")
    ]
    assert "wait_group_sync_aligned_2" in kernel.cuda  # both of this step stay in flight
    assert kernel.cuda.count("(uint)(0 < ") == 2  # the first step writes both accumulators
