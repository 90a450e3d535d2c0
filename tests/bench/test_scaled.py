"""Block-scaled GEMMs beside their peers: who computes what, and what is stated of them."""

from __future__ import annotations

import numpy as np
import pytest

from pipeliner.bench import scaled_claims, scaled_problems
from pipeliner.bench.peers import blockwise
from pipeliner.bench.results import CUBLAS, Report, Result
from pipeliner.errors import WorkloadError
from pipeliner.plan.request import Request
from pipeliner.records.record import OURS
from pipeliner.schedules import Gemm, ScaledGemm
from tests import fake_torch
from tests.refusals import refused


def test_each_stands_beside_cublas_and_the_same_with_one_scale() -> None:
    problems = scaled_problems("h200", Request(), "", ("cublas", "torch"), plain=False)
    assert len(problems) == 6
    for scaled, one in zip(problems[::2], problems[1::2], strict=True):
        assert isinstance(scaled.spec, ScaledGemm)
        assert type(one.spec) is Gemm
        assert (scaled.spec.flops(), scaled.spec.out) == (one.spec.flops(), one.spec.out)
        for problem in (scaled, one):
            assert [peer.name for peer in problem.contenders] == [OURS, CUBLAS]


def test_torch_is_given_the_scales_as_it_takes_them(torch) -> None:
    spec = ScaledGemm(5, 130, 300)
    inputs = [fake_torch.Tensor(array) for array in spec.inputs()]
    got = blockwise(spec)(*inputs, fake_torch.Tensor(np.empty((5, 130), "float32")))
    exact = spec.reference(*(one.data for one in inputs))
    np.testing.assert_allclose(got.data, exact, rtol=1e-5, atol=1e-4)
    with refused("peer.cublaslt", WorkloadError):
        blockwise(Gemm(64, 64, 64))


def test_claims_are_rates() -> None:
    scaled, one = scaled_problems("h200", Request(), "", ("cublas",), plain=False)[:2]
    report = Report("made up")
    for problem, name, tflops in ((scaled, OURS, 1200.0), (one, CUBLAS, 1500.0)):
        report.results.append(Result(problem.name, name, us=1.0, tflops=tflops))
    rate, bound = scaled_claims(report)
    assert (rate.value, rate.floor, rate.met) == (1200.0, 1100.0, True)
    assert bound.value == pytest.approx(0.8)
