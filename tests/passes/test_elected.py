"""Roles in SASS: copies are issued from uniform registers, clusters start without a MEMBAR."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

import pipeliner
from pipeliner.schedules import GemmTile, schedule_gemm
from pipeliner.schedules.workloads import Gemm
from pipeliner.toolchain import nvcc

from .sass import loop_around

BY_TMA: Final[dict[str, Any]] = {"instruction": "wgmma", "mechanism": "tma"}
GEMM: Final = Gemm(736, 592, 3064, dtype="bfloat16", layout="TN")


@pytest.mark.skipif(not nvcc.is_found(), reason="nvcc is missing")
@pytest.mark.parametrize("cluster", [1, 4, 8])
def test_a_step_of_the_producer_moves_nothing_to_uniform_registers(cluster: int) -> None:
    schedule = schedule_gemm(GEMM, GemmTile(64, 64, 64, raster_group=4))
    kernel = pipeliner.build(schedule, "h200", **BY_TMA, cluster=cluster)
    assert kernel.plan.cluster == cluster
    step = loop_around(kernel.sass, "UTMALDG")
    assert sum("UTMALDG" in one for one in step) == 2
    assert [one for one in step if "R2UR" in one or "BRA.U" in one or "ELECT" in one] == []
    assert len(step) < 40


def test_whoever_has_nothing_to_copy_exits_and_consumers_meet_their_peers() -> None:
    schedule = schedule_gemm(
        replace(GEMM, m=240, n=136, k=184), GemmTile(64, 64, 64, raster_group=4)
    )
    kernel = pipeliner.build(schedule, "h200", **BY_TMA, cluster=4)
    consumers, producer = kernel.cuda.split("  } else {\n    tvm_builtin_ptx_setmaxnreg_dec")
    assert consumers.rstrip().endswith("cluster_sync();")
    assert "cluster_sync" not in producer
    assert pipeliner.verify(kernel).ok


@pytest.mark.skipif(not nvcc.is_found(), reason="nvcc is missing")
def test_a_cluster_starts_without_waiting_for_memory() -> None:
    """Who arrives at its barrier releases nothing but what the fence before did."""
    schedule = schedule_gemm(GEMM, GemmTile(64, 64, 64, raster_group=4))
    kernel = pipeliner.build(schedule, "h200", **BY_TMA, cluster=4, prove=False)
    start, met, rest = kernel.sass.partition("UCGABAR_WAIT")
    assert met
    assert "SYNCS.EXCH" in start
    assert "MEMBAR" not in start
    assert "MEMBAR.ALL.GPU" in rest  # before the cluster meets at its end
