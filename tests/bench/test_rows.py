"""GEMMs with statistics of rows beside the plain one: who computes what, and what is stated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeliner.bench import grouped_claims, grouped_problems, row_claims, row_problems
from pipeliner.bench.libraries import grouped_by_torch
from pipeliner.bench.results import CUBLAS, TORCH_GROUPED, Report, Result
from pipeliner.errors import WorkloadError
from pipeliner.measuring.truth import random_inputs, truths
from pipeliner.plan.request import Request
from pipeliner.records.record import OURS
from pipeliner.schedules import Gemm, GroupedGemm, RowGemm
from pipeliner.schedules.workloads import STATISTICS, Statistic
from tests import fake_torch
from tests.refusals import refused


def test_each_statistic_stands_beside_the_plain_product() -> None:
    problems = row_problems("h200", Request(), "", ("cublas", "torch"), plain=False)
    assert len(problems) == 2 * (len(STATISTICS) + 1)
    for plain, *rows in (problems[:4], problems[4:]):
        assert type(plain.spec) is Gemm
        assert not plain.beside
        assert [one.name for one in plain.contenders] == [OURS, CUBLAS]
        for problem, statistic in zip(rows, STATISTICS, strict=True):
            assert isinstance(problem.spec, RowGemm)
            assert problem.spec.statistic == statistic
            assert problem.spec.flops() == plain.spec.flops()
            assert problem.beside
            assert [one.name for one in problem.contenders] == [OURS]


def test_claims_are_ratios_of_rates() -> None:
    plain, rms, *_ = row_problems("h200", Request(), "", (), plain=False)[:4]
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


def test_rows_in_groups_stand_beside_torch() -> None:
    problems = grouped_problems("h200", Request(), "", ("cublas", "torch"), plain=False)
    assert [problem.spec.dtype for problem in problems] == ["bfloat16"] * 3
    report = Report("made up")
    for problem, us in zip(problems, (2.0, 4.0, 5.0)):
        assert [one.name for one in problem.contenders] == [OURS, TORCH_GROUPED]
        report.results.append(Result(problem.name, OURS, us=us, tflops=100 / us))
        report.results.append(Result(problem.name, TORCH_GROUPED, us=4.0, tflops=25.0))
    assert [claim.value for claim in grouped_claims(report)] == [2.0, 1.0, 0.8]


def test_the_truth_of_groups_is_that_of_their_experts(torch) -> None:
    what = GroupedGemm(4, 21, 10, 8, "float16")
    inputs = random_inputs(fake_torch, what)
    arrays = [tensor.data for tensor in inputs]
    assert arrays[2].tolist() == what.offsets().tolist()
    (found,) = truths(fake_torch, what, inputs)
    np.testing.assert_allclose(found.exact.data, what.reference(*arrays), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.magnitude.data, what.magnitude(*arrays), rtol=1e-12)


def test_torch_is_given_the_ends_of_groups(torch, monkeypatch: pytest.MonkeyPatch) -> None:
    what = GroupedGemm(3, 9, 4, 8, "float16")
    asked: list[Any] = []

    def product(a: Any, b: Any, *, offs: Any, out_dtype: Any) -> Any:
        asked.append((b.shape, offs.data.tolist(), out_dtype))
        return a

    monkeypatch.setattr(fake_torch, "_grouped_mm", product, raising=False)
    inputs = [fake_torch.Tensor(array) for array in what.inputs(1)]
    grouped_by_torch(what)(*inputs, fake_torch.Tensor(np.empty((9, 4), "float16")))
    assert asked == [((3, 8, 4), what.offsets(1)[1:].tolist(), np.dtype("float16"))]
    with refused("peer.torch_grouped", WorkloadError):
        grouped_by_torch(Gemm(64, 64, 64))
