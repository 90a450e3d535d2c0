"""pipeliner.bench and peers: the protocol of measuring on a stand-in for torch, and the peers' IR."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pipeliner import bench, cli, peers
from pipeliner.bench import Claim, Contender, Problem, Report, Result
from pipeliner.errors import TargetError, WorkloadError
from pipeliner.request import Request
from pipeliner.schedules import Gemm
from pipeliner.targets import cuda_target, gpu

from . import fake_torch

GEMM = Gemm(32, 16, 24, dtype="fp16", layout="NN")


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench, "require_gpu", lambda: fake_torch)
    monkeypatch.setattr(bench, "device_name", lambda: "a stand-in")
    return fake_torch


def takes(milliseconds: float, wrong: float = 0.0, gemm: Gemm = GEMM):
    """A contender's ``make``: right up to ``wrong``, and of a known duration."""

    def run(a, b, c) -> None:
        fake_torch.Clock.now += milliseconds
        left = a.data if gemm.layout[0] == "N" else a.data.swapaxes(-1, -2)
        right = b.data if gemm.layout[1] == "N" else b.data.swapaxes(-1, -2)
        c.data[...] = left.astype("float64") @ right.astype("float64") + wrong

    return lambda: (run, f"{milliseconds} ms")


def measured(*contenders: Contender, gemm: Gemm = GEMM, rounds: int = 5) -> Report:
    report = Report("a stand-in")
    bench.measure(Problem(gemm, contenders), report, rounds, say=lambda text: None)
    return report


def test_times_are_medians_in_microseconds() -> None:
    report = measured(
        Contender("fast", takes(0.5), "float16"), Contender("slow", takes(2.0), "float32")
    )
    fast, slow = report.results
    assert (fast.contender, fast.rounds, fast.failure) == ("fast", 5, "")
    assert fast.us == pytest.approx(500)
    assert slow.us == pytest.approx(2000)
    assert fast.tflops == pytest.approx(GEMM.flops() / 500e-6 * 1e-12)
    assert 0 < fast.worst <= 1
    assert report.best(GEMM.name, "") is fast


@pytest.mark.parametrize("dtype", ["fp16", "fp32", "int8"])
@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
def test_types_and_layouts(dtype: str, layout: str) -> None:
    gemm = Gemm(32, 16, 24, dtype=dtype, layout=layout)
    report = measured(Contender("it", takes(1.0, gemm=gemm), gemm.out), gemm=gemm)
    assert [result.failure for result in report.results] == [""]


def test_a_wrong_contender_is_not_timed() -> None:
    report = measured(
        Contender("wrong", takes(0.1, wrong=1.0), "float16"),
        Contender("right", takes(1.0), "float16"),
    )
    failures = {result.contender: result.failure for result in report.results}
    assert failures["wrong"].startswith("wrong: largest error")
    assert failures["right"] == ""
    assert report.best(GEMM.name, "").contender == "right"


def test_an_unwritten_element_is_wrong() -> None:
    def run(a, b, c) -> None:
        exact = a.data.astype("float64") @ b.data.astype("float64")
        c.data[1:] = exact[1:]

    report = measured(Contender("gap", lambda: (run, ""), "float16"))
    assert report.results[0].failure.startswith("wrong: largest error nan")


def test_a_race_that_shows_late_is_wrong() -> None:
    calls = []

    def run(a, b, c) -> None:
        calls.append(1)
        c.data[...] = a.data.astype("float64") @ b.data.astype("float64") + (len(calls) > 3)

    report = measured(Contender("racy", lambda: (run, ""), "float16"))
    (result,) = report.results
    assert result.failure.startswith("wrong after timing")


def test_a_failure_is_isolated() -> None:
    def broken():
        raise RuntimeError("first line\nnvcc said no")

    report = measured(
        Contender("broken", broken, "float16"), Contender("fine", takes(1.0), "float16")
    )
    assert [(r.contender, r.failure) for r in report.results] == [
        ("broken", "nvcc said no"),
        ("fine", ""),
    ]


def test_an_interrupt_keeps_what_was_measured() -> None:
    turns = []

    def run(a, b, c) -> None:
        turns.append(1)
        if len(turns) == 8:
            raise KeyboardInterrupt
        fake_torch.Clock.now += 1.0
        c.data[...] = a.data.astype("float64") @ b.data.astype("float64")

    report = measured(Contender("long", lambda: (run, ""), "float16"), rounds=100)
    assert report.interrupted
    (result,) = report.results
    assert 1 < result.rounds < 100


def test_turns_rotate() -> None:
    order = []

    def named(name: str):
        def run(a, b, c) -> None:
            order.append(name)
            fake_torch.Clock.now += 1.0
            c.data[...] = a.data.astype("float64") @ b.data.astype("float64")

        return Contender(name, lambda: (run, ""), "float16")

    measured(named("a"), named("b"), rounds=4)
    timed = order[2:-2]
    firsts = timed[0::2]
    assert set(firsts) == {"a", "b"}
    assert timed.count("a") == timed.count("b") == 4 + bench.WARM_UP


def report_with(**tflops: float) -> Report:
    half = Gemm(4096, 4096, 4096, dtype="fp16", layout="NN").name
    report = Report("a stand-in")
    for name, rate in tflops.items():
        report.results.append(Result(half, name.replace("_", " "), us=1 / rate, tflops=rate))
    return report


def test_claims_need_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "transformation_ms", lambda *_: 70.0)
    claims = bench.spine_claims(report_with(pipeliner=500.0), "h100")
    assert [claim.name for claim in claims] == ["slowest transformation, ms"]
    assert claims[0].met
    report = report_with(
        **{"pipeliner": 500.0, "TVM stock, 3 slots": 250.0, "TVM stock, 4 slots": 200.0}
    )
    named = {claim.name: claim for claim in bench.spine_claims(report, "h100")}
    over = named["float16 NN 4096^3 over TVM's stock fp16 NN"]
    assert (over.value, over.floor, over.goal, over.met) == (2.0, 1.6, 1.9, True)


def test_a_bound_from_above() -> None:
    assert Claim("ms", 149.0, 150.0, 150.0, at_most=True).met
    assert not Claim("ms", 151.0, 150.0, 150.0, at_most=True).met
    assert not Claim("ratio", 1.5, 1.6, 1.9).met


def test_transformation_is_timed() -> None:
    from pipeliner.schedules import GemmTile

    gemm = Gemm(256, 256, 256)
    assert 1 < bench.transformation_ms(gemm, "h100", GemmTile(128, 128, 32)) < 10_000


def test_spine_has_every_problem() -> None:
    problems = bench.spine("h100")
    names = [problem.gemm.name for problem in problems]
    assert len(names) == len(set(names)) == 12
    contenders = {contender.name for contender in problems[0].contenders}
    assert {bench.OURS, bench.OURS_PLAIN, bench.CUBLAS} < contenders
    assert sum(name.startswith(bench.STOCK_PREFIX) for name in contenders) == 5


@pytest.mark.nvcc
def test_our_contender_compiles() -> None:
    gemm = Gemm(256, 256, 256, layout="NN")
    problem = bench.contenders(gemm, cuda_target("h100"), Request(), stock=False)
    kernel, detail = problem.contenders[0].make()
    assert kernel.arch == "sm_90"
    assert "registers" in detail
    assert "depth" in detail


def test_the_command_prints_tables_and_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(
        GEMM,
        (
            Contender(bench.OURS, takes(1.0), "float16"),
            Contender(bench.CUBLAS, takes(0.9), "float16"),
            Contender("broken", lambda: 1 / 0, "float16"),
        ),
    )
    monkeypatch.setattr(bench, "spine", lambda target: [problem])
    monkeypatch.setattr(bench, "transformation_ms", lambda *_: 500.0)
    assert cli.main(["bench", "--rounds", "4", "--target", "h100", "--only", "gemm"]) == 1
    captured = capsys.readouterr()
    assert "0.900" in captured.out
    assert "division by zero" in captured.out
    assert "slowest transformation, ms" in captured.out
    assert "broken: division by zero" in captured.err
    cli.main(["bench", "--rounds", "4", "--target", "h100", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["device"] == "a stand-in"
    assert [result["contender"] for result in report["results"]][:1] == ["broken"]
    assert report["claims"][0]["value"] == 500.0


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_the_simt_peer_is_right(stages: int) -> None:
    gemm = Gemm(128, 128, 32, dtype="fp32", layout="NN")
    kernel = peers.stock_simt(gemm, cuda_target("a100"), stages)
    a, b = gemm.inputs()
    outcome = kernel.emulate(a, b, np.full((128, 128), np.nan, "float32"))
    assert not outcome.hazards
    np.testing.assert_allclose(outcome.outputs["C"], gemm.reference(a, b), rtol=0, atol=1e-4)


@pytest.mark.parametrize("stages", [1, 3, peers.NESTED])
def test_the_mma_peer_is_right(stages: int) -> None:
    gemm = Gemm(128, 2048, 128, dtype="fp16", layout="NN")
    kernel = peers.stock_mma(gemm, cuda_target("a100"), stages)
    a, b = gemm.inputs()
    outcome = kernel.emulate(a, b, np.full((128, 2048), np.nan, "float32"), blocks=[(3, 0, 0)])
    assert not outcome.hazards
    got = outcome.outputs["C"]
    done = ~np.isnan(got)
    assert done.any()
    np.testing.assert_allclose(got[done], gemm.reference(a, b)[done], rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("make", "gemm", "reason"),
    [
        (peers.stock_mma, Gemm(128, 2048, 32, dtype="bf16", layout="NN"), "expected float16"),
        (peers.stock_mma, Gemm(128, 2048, 32, layout="NT"), "layout NN"),
        (peers.stock_mma, Gemm(128, 1024, 32, layout="NN"), "multiples of 128, 2048, 32"),
        (peers.stock_simt, Gemm(100, 128, 32, dtype="fp32", layout="NN"), "multiples of 128, 128, 8"),
    ],
)  # fmt: skip
def test_peers_say_what_they_cannot(make, gemm: Gemm, reason: str) -> None:
    with pytest.raises(WorkloadError, match=reason):
        make(gemm, cuda_target("a100"), 3)


@pytest.mark.skipif(gpu() is not None, reason="a GPU is here")
def test_no_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(TargetError, match="no GPU is visible"):
        bench.require_gpu()
