"""The naive schedule: a thread for each output, right at ragged edges too."""

from __future__ import annotations

import pytest

import pipeliner
from pipeliner.errors import WorkloadError
from pipeliner.schedules import Gemm, NaiveTile, schedule_naive
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused


@pytest.mark.part(6)
@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_every_output_is_right(layout, dtype):
    gemm = Gemm(20, 37, 12, dtype=dtype, layout=layout, epilogue=("relu",))
    schedule = schedule_naive(gemm, NaiveTile(4, 16))
    kernel = pipeliner.build(schedule, "a100", depth=1)
    verdict = verify_workload(kernel, gemm)
    assert verdict.ok, verdict.hazards
    assert "__shared__" not in kernel.cuda


def test_what_it_cannot_do_is_refused():
    with refused("tile.batch", WorkloadError):
        schedule_naive(Gemm(16, 16, 16, batch=2), NaiveTile())
    with refused("tile.least", WorkloadError, name="n", value=0):
        NaiveTile(n=0)
