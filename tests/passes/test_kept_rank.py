"""A CTA's rank in its cluster is read once, before all loops."""

from __future__ import annotations

import pytest

import pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.verdict import verify_workload
from tests.verify.modes import modes_of

READ = "tvm_builtin_cluster_ctaid_x())"


@pytest.mark.parametrize("cluster", [1, 2, 4])
def test_the_rank_is_read_once(cluster: int) -> None:
    gemm = Gemm(256, 256, 256)
    kernel = pipeliner.build(schedule_gemm(gemm, GemmTile(64, 64, 64)), "h200", cluster=cluster)
    lines = kernel.cuda.splitlines()
    assert [line.strip() for line in lines if READ in line] == [
        f"int rank = ((int){READ};" for _ in range(cluster > 1)
    ]
    verdict = verify_workload(kernel, gemm, **modes_of(cluster))
    assert verdict.ok, verdict
