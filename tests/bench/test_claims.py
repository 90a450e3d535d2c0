"""The figures that this library states of itself."""

from __future__ import annotations

import pytest

from pipeliner import bench
from pipeliner.bench import Claim, Report, Result, claims
from pipeliner.schedules import Gemm, GemmTile


def report_with(**tflops: float) -> Report:
    half = Gemm(4096, 4096, 4096, dtype="fp16", layout="NN").name
    report = Report("a stand-in")
    for name, rate in tflops.items():
        report.results.append(Result(half, name.replace("_", " "), us=1 / rate, tflops=rate))
    return report


def test_claims_need_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "transformation_ms", lambda *_: 70.0)
    monkeypatch.setattr(claims, "default_tile", lambda *_: GemmTile(128, 128, 32))
    alone = bench.spine_claims(report_with(pipeliner=500.0), "h100")
    assert [claim.name for claim in alone] == ["slowest transformation, ms"]
    assert alone[0].met
    report = report_with(
        **{"pipeliner": 500.0, "TVM stock, 3 slots": 250.0, "TVM stock, 4 slots": 200.0}
    )
    named = {claim.name: claim for claim in bench.spine_claims(report, "h100")}
    over = named["float16 NN 4096^3 by mma.sync over TVM's stock fp16 NN"]
    assert (over.value, over.floor, over.goal, over.met) == (2.0, 1.6, 1.9, True)


def test_a_bound_from_above() -> None:
    assert Claim("ms", 149.0, 150.0, 150.0, at_most=True).met
    assert not Claim("ms", 151.0, 150.0, 150.0, at_most=True).met
    assert not Claim("ratio", 1.5, 1.6, 1.9).met


def test_transformation_is_timed() -> None:
    gemm = Gemm(256, 256, 256)
    assert 1 < bench.transformation_ms(gemm, "h100", GemmTile(128, 128, 32)) < 10_000


def test_spine_has_every_problem() -> None:
    problems = bench.spine("h100")
    names = [problem.spec.name for problem in problems]
    assert len(names) == len(set(names)) == 12
    ours = {p.spec.dtype: p.contenders[0].make.request.instruction for p in problems}
    assert ours == {"float16": "mma", "bfloat16": "mma", "float32": "auto"}
    contenders = {contender.name for contender in problems[0].contenders}
    assert {bench.OURS, bench.OURS_PLAIN, bench.CUBLAS} < contenders
    assert sum(name.startswith(bench.STOCK_PREFIX) for name in contenders) == 5


def test_spine_obeys_the_choice_of_peers() -> None:
    names = {c.name for problem in bench.spine("h100", ["triton"]) for c in problem.contenders}
    assert names == {bench.OURS, bench.OURS_PLAIN, bench.TRITON}
