"""Pairs of products beside their peers: who computes what, and which ratios are stated."""

from __future__ import annotations

import pytest

from pipeliner.bench import (
    back_to_back_claims,
    back_to_back_problems,
    gated_claims,
    gated_problems,
)
from pipeliner.bench.results import TORCH, Report, Result
from pipeliner.plan.request import Request
from pipeliner.records.record import OURS
from pipeliner.schedules import BackToBackGemm, GatedGemm, Gemm


def test_each_gated_gemm_stands_beside_one_product_of_the_same_work() -> None:
    problems = gated_problems("h200", Request(), "", ("torch", "cublas"), plain=False)
    assert len(problems) == 8
    for gated, one in zip(problems[::2], problems[1::2], strict=True):
        assert isinstance(gated.spec, GatedGemm)
        assert type(one.spec) is Gemm
        assert gated.spec.flops() == one.spec.flops()
        assert (gated.beside, one.beside) == (False, True)
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


def test_back_to_back_products_stand_beside_two_kernels_of_the_same_work() -> None:
    problems = back_to_back_problems("h200", Request(), "", ("torch", "cublas"), plain=False)
    assert len(problems) == 12
    for both, first, second in zip(*(iter(problems),) * 3, strict=True):
        assert isinstance(both.spec, BackToBackGemm)
        assert [one.beside for one in (both, first, second)] == [False, True, True]
        assert first.spec.epilogue == (both.spec.activation,)
        assert both.spec.flops() == first.spec.flops() + second.spec.flops()
        assert [peer.name for peer in both.contenders] == [OURS, TORCH]
        assert [peer.name for peer in (*first.contenders, *second.contenders)] == [OURS, OURS]
    report = Report("made up")
    for problem, name, us in zip(problems, (OURS,) * 3, (40.0, 36.0, 28.0)):
        report.results.append(Result(problem.name, name, us=us, tflops=1.0))
    report.results.append(Result(problems[0].name, TORCH, us=80.0, tflops=0.5))
    to_torch, to_two = back_to_back_claims(report)
    assert (to_torch.value, to_two.value) == (pytest.approx(2.0), pytest.approx(1.6))
