"""``pipeliner bench``, on problems whose times are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeliner import bench, cli
from pipeliner.bench import Contender, Problem, timing
from pipeliner.commands.lab import bench as command
from pipeliner.diagnostics import Reason
from pipeliner.measuring import operands
from pipeliner.schedules import ConvTile, GemmTile, conv2d
from tests.refusals import told

from .makers import GEMM, known


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(["bench", *argv, "--target", "h100"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def suites(torch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small GEMMs; ours at 0.8 and 0.5 of cuBLAS, one TVM that fails."""
    times = {"near": 0.8, "far": 0.5}

    def contenders(spec, target, request, *, plain, peers, label, hot) -> Problem:
        asked = {"pipeliner": 1.0, "cuBLAS": times[label]}
        asked |= {"pipeliner,_depth_1": 1.5} if plain else {}
        made = known(label, **asked)
        if "tvm" not in peers:
            return made
        broken = Contender("TVM stock", lambda: 1 / 0, "float32")
        return Problem(GEMM, (*made.contenders, broken), label)

    monkeypatch.setattr(bench, "suite", lambda name, dtype: dict.fromkeys(times, GEMM))
    monkeypatch.setattr(bench, "contenders", contenders)


def test_a_suite_is_one_table(suites, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "gemm", "--rounds", "4", "--depth-one", "--dtype", "bf16")
    assert code == 0
    assert "gemm, bfloat16" in out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert rows["near"][6] == "0.800"
    assert rows["far"][-1] == "1.500"
    assert "of cuBLAS: geometric mean 0.632, minimum 0.500 (far), of 2" in out
    assert "gain of the depth: geometric mean 1.500" in out
    assert "near: TVM stock: division by zero" in out
    assert "medians of 4 rounds" in out
    assert "[1/2] " in err
    assert "far: " in err


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["gemm"], "L2 overwritten before each run"),
        (["gemm", "--flush", "read"], "L2 filled by reading before each run"),
        (["decode"], "L2 filled by reading before each run"),
        (["decode", "--flush", "written"], "L2 overwritten before each run"),
    ],
)
def test_what_fills_the_cache_is_said(suites, capsys, asked: list[str], said: str) -> None:
    code, out, _ = run(capsys, *asked, "--rounds", "4")
    assert code == 0
    assert said in out


def test_the_gain_of_the_depth_stands_beside_each_convolution(
    suites, capsys: pytest.CaptureFixture[str]
) -> None:
    for suite, option, shown in (
        ("conv", [], True),
        ("conv", ["--no-depth-one"], False),
        ("gemm", [], False),
    ):
        code, out, _ = run(capsys, suite, "--rounds", "2", *option)
        assert code == 0
        assert ("gain of the depth: geometric mean 1.500" in out) is shown


def test_its_json_has_everything(suites, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "gemm", "--rounds", "4", "--json")
    report = json.loads(out)
    assert code == 0
    assert set(report) == {
        "version", "device", "results", "claims", "interrupted", "suite", "rounds", "conditions",
        "sm_clocks", "roofs", "flush", "ratios", "summaries", "noise", "db",
    }  # fmt: skip
    assert (report["suite"], report["rounds"], report["interrupted"]) == ("gemm, float16", 4, False)
    assert {"problem", "contender", "us", "low_us", "high_us", "rounds", "tflops", "worst", "detail",
            "failure", "workload", "hot_us", "not_hot"} == set(report["results"][0])  # fmt: skip
    ratios = {(r["problem"], r["peer"]): r["ratio"] for r in report["ratios"]}
    assert ratios["near", "cuBLAS"] == pytest.approx(0.8)
    assert ratios["far", "TVM stock"] is None
    (summary,) = report["summaries"]
    assert summary["geometric_mean"] == pytest.approx(0.4**0.5)
    assert (summary["peer"], summary["worst"], summary["missing"]) == ("cuBLAS", "far", [])
    assert report["conditions"]["gpu"] == "a stand-in"


def test_only_and_peers(suites, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "gemm", "--only", "ar", "--rounds", "2", "--json", "--peers", "cublas")
    results = json.loads(out)["results"]
    assert {result["problem"] for result in results} == {"near", "far"}
    assert {result["contender"] for result in results} == {"pipeliner", "cuBLAS"}
    code, _, err = run(capsys, "gemm", "--only", "middle")
    assert (code, err) == (
        1,
        "pipeliner: cannot time --only middle: expected a part of one of near, far\n",
    )


def test_a_chart_is_written(suites, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "chart.svg"
    code, _, err = run(capsys, "gemm", "--rounds", "2", "--chart", str(path))
    assert code == 0
    assert "near, pipeliner: 0.8" in path.read_text()
    assert err.endswith(f"{path}\n")
    code, out, err = run(capsys, "gemm", "--chart", "chart.gif")
    assert (code, out) == (1, "")
    told(err, "chart.name", path="chart.gif")


def test_an_interrupt_prints_what_was_measured(
    suites, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = timing.tried

    def stopped(*asked, **options):
        if stops.pop() == 0:
            raise KeyboardInterrupt
        return right(*asked, **options)

    stops = [0, 1]
    monkeypatch.setattr(timing, "tried", stopped)
    code, out, _ = run(capsys, "gemm", "--rounds", "2")
    assert code == command.EXIT_INTERRUPTED
    assert "interrupted: what was measured so far" in out
    assert "of cuBLAS: geometric mean 0.800" in out
    assert "\nfar" not in out


def test_an_interrupt_in_a_kernel(
    torch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_):
        raise KeyboardInterrupt

    problems = [known("done", pipeliner=1.0), Problem(GEMM, (Contender("s", stop, "float16"),))]
    monkeypatch.setattr(bench, "spine", lambda target, peers: problems)
    code, out, _ = run(capsys, "--rounds", "2", "--json")
    report = json.loads(out)
    assert (code, report["interrupted"], report["claims"]) == (130, True, [])
    assert [result["problem"] for result in report["results"]] == ["done"]


def test_the_default_has_tables_and_claims(
    torch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = known("", **{"pipeliner": 1.0, "cuBLAS": 0.9})
    broken = Contender("broken", lambda: 1 / 0, "float16")
    problem = Problem(GEMM, (*made.contenders, broken))
    monkeypatch.setattr(bench, "spine", lambda target, peers: [problem])
    monkeypatch.setattr(bench.claims, "spine_gemms", lambda: [problem.spec])
    monkeypatch.setattr(bench.claims, "transformation_ms", lambda *_: 500.0)
    code, out, err = run(capsys, "--rounds", "4")
    assert code == 1
    assert "0.900" in out
    assert "division by zero" in out
    assert "slowest transformation, ms" in out
    assert "broken: division by zero" in err
    _, out, _ = run(capsys, "--rounds", "4", "--json")
    report = json.loads(out)
    assert report["device"].startswith("a stand-in")
    assert report["claims"][0]["value"] == 500.0
    _, out, _ = run(capsys, "--rounds", "4", "--json", "--only", "gemm")
    assert json.loads(out)["claims"] == []


def test_one_workload(
    torch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, tiles = [], []

    def contenders(spec, target, request, tile, peers, hot) -> Problem:
        asked.append(spec)
        tiles.append(tile)
        return Problem(spec, (Contender("broken", lambda: 1 / 0, spec.out),))

    monkeypatch.setattr(bench, "contenders", contenders)
    # Nothing here is right or wrong, and numpy takes a minute for a product of 4096^3.
    monkeypatch.setattr(operands, "truths", lambda *_: ())
    monkeypatch.setattr(operands, "random_inputs", lambda *_: ())
    small = ("--n", "1", "--h", "8", "--w", "8", "--c", "8", "--k", "8")
    code, out, _ = run(capsys, "conv2d", *small)
    assert asked == [conv2d(1, 8, 8, 8, 8, 3, 3, pad=1)]
    assert (code, "division by zero" in out) == (0, True)
    run(capsys, "gemm", "--m", "64", "--dtype", "bf16")
    assert asked[1].title == "bfloat16 GEMM 64 x 4096 x 4096 NT"
    run(capsys, "gemm", "--layout", "NN")
    assert asked[2].title == "float16 GEMM 4096 x 4096 x 4096 NN"
    run(capsys, "gemm", "--tile", "64x32x16")
    run(capsys, "conv2d", "--tile", "64x32x16")
    assert tiles == [None, None, None, GemmTile(64, 32, 16), ConvTile(64, 32, 16)]


@pytest.mark.parametrize(
    ("argv", "code", "args"),
    [
        (
            ["conv", "--stride", "2"],
            "option.not_of_suite",
            {"option": "stride", "suite": "conv"},
        ),
        (
            ["conv", "--tile", "64x64x32"],
            "option.not_of_suite",
            {"option": "tile", "suite": "conv"},
        ),
        (["default", "--m", "5"], "option.not_of_suite", {"option": "m", "suite": "default"}),
        (
            ["gemm", "--stride", "2"],
            "option.not_of_suite",
            {"option": "stride", "suite": "gemm"},
        ),
        (["gemm", "--dtype", "fp12"], "workload.dtype", {"value": "fp12"}),
        (["default", "--dtype", "fp12"], "workload.dtype", {"value": "fp12"}),
        (
            ["lstm"],
            "command.time",
            {"workload": "lstm", "suites": ("default", *command.SUITES)},
        ),
        (["gemm", "--jobs", "0"], "option.least", {"option": "jobs", "least": 1, "value": 0}),
        (["gemm", "--rounds", "1"], "option.least", {"option": "rounds", "least": 2, "value": 1}),
    ],
)
def test_what_makes_no_sense_is_one_line(
    torch, capsys: pytest.CaptureFixture[str], argv: list[str], code: str, args: dict[str, object]
) -> None:
    status, out, err = run(capsys, *argv)
    assert (status, out) == (1, "")
    told(err, code, **args)


def test_an_unknown_peer_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "gemm", "--peers", "cublas,mkl"])
    assert ended.value.code == 2
    reason = Reason("usage.names", choices=command.PEERS, value="mkl", near="")
    assert capsys.readouterr().err.endswith(f"{reason}\n")


def test_peers_have_one_list() -> None:
    assert tuple(bench.PEERS) == command.PEERS
    assert bench.USUAL_PEERS == command.USUAL_PEERS


def test_dtype_picks_from_the_default(
    torch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bench.spine("h100")
    monkeypatch.setattr(bench, "spine", lambda target, peers: whole)
    seen: list[str] = []
    monkeypatch.setattr(
        bench, "measure", lambda found, *_, **__: seen.extend(one.spec.dtype for one in found)
    )
    monkeypatch.setattr(bench, "spine_claims", lambda report, target: [])
    run(capsys, "--dtype", "bf16", "--jobs", "1")
    assert seen == ["bfloat16"] * 2
