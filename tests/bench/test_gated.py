"""Gated GEMMs beside their peers: who computes what, and which ratios are stated."""

from __future__ import annotations

import pytest

from pipeliner.bench import gated_claims, gated_problems
from pipeliner.bench.results import TORCH, Report, Result
from pipeliner.plan.request import Request
from pipeliner.records.record import OURS
from pipeliner.schedules import GatedGemm, Gemm


def test_each_gated_gemm_stands_beside_one_product_of_the_same_work() -> None:
    problems = gated_problems("h200", Request(), "", ("torch", "cublas"), plain=False)
    assert len(problems) == 8
    for gated, one in zip(problems[::2], problems[1::2], strict=True):
        assert isinstance(gated.spec, GatedGemm)
        assert type(one.spec) is Gemm
        assert gated.spec.flops() == one.spec.flops()
        assert (gated.spec.dtype, one.spec.dtype) == ("bfloat16", "bfloat16")
        assert [peer.name for peer in gated.contenders] == [OURS, TORCH]
        assert [peer.name for peer in one.contenders] == [OURS]


def test_claims_are_ratios_of_rates() -> None:
    gated, one = gated_problems("h200", Request(), "", ("torch",), plain=False)[:2]
    report = Report("made up")
    for problem, name, tflops in (
        (gated, OURS, 660.0),
        (gated, TORCH, 600.0),
        (one, OURS, 720.0),
    ):
        report.results.append(Result(problem.name, name, us=1.0, tflops=tflops))
    to_plain, to_torch = gated_claims(report)
    assert (to_plain.value, to_plain.met) == (pytest.approx(660 / 720), False)
    assert (to_torch.value, to_torch.met) == (pytest.approx(1.1), True)
