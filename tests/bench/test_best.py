"""The vendor's best: ratios, names and roofs, in results, tables and by the command."""

from __future__ import annotations

import json
import types

import pytest

from pipeliner import bench, cli
from pipeliner.bench import roofs, tables
from pipeliner.bench.results import BEST, EVERY_ALGORITHM, EVERY_ENGINE, Report, Result
from pipeliner.bench.roofs import flops_per_us, moved
from pipeliner.commands.lab import bench as command
from pipeliner.machine import machine_for
from pipeliner.measuring import gpu_bench
from pipeliner.schedules import ConvInputGrad, ConvWeightGrad, Gemm, conv2d
from pipeliner.schedules.products import RANDOM, random_gemms
from tests.refusals import told

from .makers import GEMM, known


def result(contender: str, us: float, hot: float = 0.0, detail: str = "") -> Result:
    return Result("p", contender, us=us, hot_us=hot, tflops=1.0, detail=detail)


def searched() -> Report:
    report = Report("made up", suite="s")
    report.results = [
        result(bench.OURS, 10.0, 8.0),
        result(EVERY_ALGORITHM, 9.0, 7.0, "nvjet"),
        result(bench.CUBLAS, 9.5, 6.0),
    ]
    return report


def test_the_best_is_the_fastest_of_the_libraries_cold_and_hot() -> None:
    report = searched()
    assert report.peers() == (BEST,)
    assert report.ratio("p", BEST) == 0.9
    assert report.ratio("p", BEST, hot=True) == 0.75
    cold, hot = report.summaries()
    assert (cold.minimum, cold.hot, hot.minimum, hot.hot) == (0.9, False, 0.75, True)
    assert tables.best_lines(report) == [
        f"p: 9.0 us by {EVERY_ALGORITHM}: nvjet",
        f"p: 6.0 us hot by {bench.CUBLAS}",
    ]
    (entry,) = report.as_dict()["ratios"]
    assert (entry["peer"], entry["ratio"], entry["hot"]) == (BEST, 0.9, 0.75)
    assert "of the vendor's best, hot: geometric mean 0.750" in tables.summary_lines(report)[1]


def test_without_a_search_libraries_stand_by_their_names() -> None:
    report = searched()
    del report.results[1]
    assert report.peers() == (bench.CUBLAS,)
    assert tables.best_lines(report) == []


def test_what_was_not_timed_back_to_back_has_no_ratio_there() -> None:
    report = Report("made up", suite="s", results=[result(bench.OURS, 10.0)])
    report.results.append(result(EVERY_ENGINE, 9.0, 7.0))
    assert report.ratio("p", BEST, hot=True) is None
    row = tables.suite_table(report).rows[0]
    assert row[-3:] == ("1.0", "0.900", tables.NONE)


def test_a_roof_is_of_bytes_or_of_the_pipe() -> None:
    machine = machine_for("h100")
    cycles = machine.sms * machine.clock_ghz * 1e3
    small, large = Gemm(8, 4096, 4096), Gemm(8192, 8192, 8192)
    of = roofs({"small": small, "large": large}, machine, copied=3e6)
    assert of["small"] == pytest.approx(2 * (8 * 4096 * 2 + 4096 * 4096) / 3e6)
    assert of["large"] == pytest.approx(2 * 8192**3 / (4096 * cycles))
    depthwise = conv2d(1, 8, 8, 16, 16, 3, 3, pad=1, groups=16)
    for spec in (depthwise, ConvInputGrad(depthwise), Gemm(8, 8, 8, dtype="fp32")):
        assert flops_per_us(spec, machine) == pytest.approx(2 * 128 * cycles)
    halved = conv2d(2, 8, 8, 16, 4, 1, 1, stride=2)
    weights, images, outputs = 16 * 4, 2 * 64 * 16, 2 * 16 * 4
    assert moved(halved) == 2 * (weights + images / 4 + outputs)
    assert moved(ConvWeightGrad(halved)) == moved(halved)
    assert moved(ConvInputGrad(halved)) == 2 * (weights + images + outputs)


def test_a_seed_draws_the_same_products_each_time() -> None:
    drawn = random_gemms(7)
    assert len(drawn) == RANDOM
    assert drawn == random_gemms(7)
    assert drawn.keys().isdisjoint(random_gemms(8))
    assert {gemm.dtype for gemm in drawn.values()} == {"float16", "bfloat16"}
    for gemm in drawn.values():
        rows = gemm.m or 0
        assert gemm.n % 8 == gemm.k % 8 == 0
        assert rows % 8 == 0 or gemm.layout[0] == "N"


@pytest.fixture
def stood_in(torch, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Two contenders of each problem, captured into graphs that are lists of calls."""
    asked: list[object] = []

    def contenders(spec, target, request, *, plain, peers, label, hot) -> bench.Problem:
        asked.append((spec, peers, hot))
        found = known(label, pipeliner=1.0, **{EVERY_ALGORITHM.replace(" ", "_"): 0.9})
        return bench.Problem(GEMM, found.contenders, label)

    def captured(torch, call):
        return types.SimpleNamespace(replay=lambda: [call() for _ in range(gpu_bench.CALLS)])

    monkeypatch.setattr(bench, "contenders", contenders)
    monkeypatch.setattr(bench, "suite", lambda name, dtype: {"one": GEMM, "two": GEMM})
    monkeypatch.setattr(bench, "copied_per_us", lambda: 1e6)
    monkeypatch.setattr(gpu_bench, "captured", captured)
    return asked


@pytest.mark.parametrize("suite", command.OF_KINDS)
def test_the_command_states_best_hot_and_roof(stood_in, capsys, suite: str) -> None:
    argv = ["bench", suite, "--rounds", "2", "--peers", "best", "--hot", "--target", "h100"]
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert stood_in == [(GEMM, ("best",), True)] * 2
    rows = [line.split() for line in out.splitlines() if line.startswith("one ")]
    assert rows[0][-2:] == ["0.900", "0.900"]
    assert "of the roof" in out
    assert f"one: 900.0 us hot by {EVERY_ALGORITHM}: 0.9 ms" in out


def test_the_command_draws_products_by_a_seed(stood_in, capsys) -> None:
    argv = ["bench", "random", "7", "--rounds", "2", "--json", "--target", "h100"]
    assert cli.main([*argv, "--only", "float16_nt"]) == 0
    report = json.loads(capsys.readouterr().out)
    drawn = random_gemms(7)
    assert [spec for spec, *_ in stood_in] == list(drawn.values())
    assert set(report["roofs"]) == {name for name in drawn if "float16_nt" in name}
    assert report["suite"] == "random 7"
    assert cli.main(["bench", "gemm", "7"]) == 1
    told(capsys.readouterr().err, "option.seed", workload="gemm")
