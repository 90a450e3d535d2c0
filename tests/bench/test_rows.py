"""GEMMs with statistics of rows beside the plain one: who computes what, and what is stated."""

from __future__ import annotations

import numpy as np
import pytest

from pipeliner.bench import row_claims, row_problems
from pipeliner.bench.results import CUBLAS, Report, Result
from pipeliner.measuring.truth import random_inputs, truths
from pipeliner.plan.request import Request
from pipeliner.records.record import OURS
from pipeliner.schedules import Gemm, RowGemm
from pipeliner.schedules.workloads import STATISTICS, Statistic
from tests import fake_torch


def test_each_statistic_stands_beside_the_plain_product() -> None:
    problems = row_problems("h200", Request(), "", ("cublas", "torch"), plain=False)
    assert len(problems) == 2 * (len(STATISTICS) + 1)
    for *rows, plain in (problems[:4], problems[4:]):
        assert type(plain.spec) is Gemm
        assert [one.name for one in plain.contenders] == [OURS, CUBLAS]
        for problem, statistic in zip(rows, STATISTICS, strict=True):
            assert isinstance(problem.spec, RowGemm)
            assert problem.spec.statistic == statistic
            assert problem.spec.flops() == plain.spec.flops()
            assert [one.name for one in problem.contenders] == [OURS]


def test_claims_are_ratios_of_rates() -> None:
    rms, *_, plain = row_problems("h200", Request(), "", (), plain=False)[:4]
    report = Report("made up")
    for problem, tflops in ((rms, 700.0), (plain, 750.0)):
        report.results.append(Result(problem.name, OURS, us=1.0, tflops=tflops))
    (claim,) = row_claims(report)
    assert claim.value == pytest.approx(700 / 750)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_every_result_has_its_truth(torch, statistic: Statistic) -> None:
    what = RowGemm(6, 10, 8, statistic)
    inputs = random_inputs(fake_torch, what)
    arrays = [tensor.data for tensor in inputs]
    found = truths(fake_torch, what, inputs)
    exact, magnitude = what.reference(*arrays), what.magnitude(*arrays)
    for one, value, scale in zip(found, exact, magnitude, strict=True):
        np.testing.assert_allclose(one.exact.data, value, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(one.magnitude.data, scale, rtol=1e-12)
        assert one.error(fake_torch.Tensor(value)) <= 1
        assert one.error(fake_torch.Tensor(value + 1)) > 1
