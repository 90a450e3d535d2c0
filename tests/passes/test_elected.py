"""The one thread that issues a role's copies has all that they need in uniform registers."""

from __future__ import annotations

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
    schedule = schedule_gemm(GEMM, GemmTile(64, 64, 64, raster_group=4))
    kernel = pipeliner.build(schedule, "h200", **BY_TMA, cluster=8)
    consumers, producer = kernel.cuda.split("  } else {\n    tvm_builtin_ptx_setmaxnreg_dec")
    assert consumers.rstrip().endswith("cluster_sync();")
    assert "cluster_sync" not in producer
    assert pipeliner.verify(kernel).ok
