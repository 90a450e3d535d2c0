"""What a benchmark leaves in a file of records, and who reads it there."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from pipeliner import bench, cli
from pipeliner.bench import OURS_PLAIN, Contender, Problem, Report
from pipeliner.bench.problems import OURS
from pipeliner.plan.request import Request
from pipeliner.records import Records
from pipeliner.records.candidate import Candidate, workload_key
from pipeliner.schedules import Gemm, GemmTile

from .makers import takes

GEMM = Gemm(64, 64, 64, layout="NN")
SUITE = "gemm, float16"


def contender(name: str, milliseconds: float, depth: int = 0, **made: float) -> Contender:
    """Ours where it has a depth."""
    asked = Candidate(GemmTile(64, 64, 32), Request(depth=depth)) if depth else None
    make = takes(milliseconds, gemm=GEMM, **made)
    return Contender(name, make, GEMM.out, candidate=asked)


@pytest.fixture
def problem(torch) -> Problem:
    made = (
        contender(OURS, 1.0, 2),
        contender(OURS_PLAIN, 1.5, 1),
        contender("cuBLAS", 0.8),
        contender("TVM stock, 3 slots", 2.0),
        contender("TVM stock, 4 slots", 0.1, wrong=1.0),
    )
    return Problem(GEMM, made, "small")


def measured(problem: Problem, db: Path | None) -> Report:
    report = Report("a stand-in", suite=SUITE)
    bench.measure([problem], report, "h100", rounds=4, db=db, say=lambda text: None)
    return report


def test_every_contender_is_a_record_and_each_run_adds_its_own(problem, tmp_path) -> None:
    db = tmp_path / "r.sqlite"
    measured(problem, db)
    with Records(db) as records:
        found = records.find()
        assert [(one.contender, one.label, len(one.samples)) for one in found] == [
            (OURS, OURS, 4),
            (OURS, OURS_PLAIN, 4),
            ("cuBLAS", "cuBLAS", 4),
            ("TVM stock", "TVM stock, 3 slots", 4),
            ("TVM stock", "TVM stock, 4 slots", 0),
        ]
        assert {(one.workload, one.machine, one.source, one.experiment) for one in found} == {
            (workload_key(GEMM), "h100", "bench", f"bench {SUITE}")
        }
        assert [one.us for one in found[:3]] == pytest.approx([1000, 1500, 800])
        assert Candidate.from_json(found[1].candidate).request.depth == 1
        assert found[-1].failure.code == "measure.wrong"
        measured(problem, db)
        assert len(records.find()) == 10


def test_without_a_file_nothing_is_kept(problem, tmp_path) -> None:
    assert measured(problem, None).find("small", OURS) is not None
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_keeps_the_problems_before_it(problem, tmp_path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    later = dataclasses.replace(problem, contenders=(Contender("s", stop, GEMM.out),), label="l")
    report = Report("a stand-in")
    db = tmp_path / "r.sqlite"
    said: list[str] = []
    bench.measure([problem, later, problem], report, "h100", rounds=4, db=db, say=said.append)
    assert (report.interrupted, report.problems) == (True, ("small",))
    assert [text for text in said if text.startswith("[")] == [
        f"[1/3] {GEMM.title}",
        f"[2/3] {GEMM.title}",
    ]
    with Records(db) as records:
        assert len(records) == 5


def test_the_command_says_where_and_others_read_it(
    problem, tmp_path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "r.sqlite"
    monkeypatch.setattr(bench, "spine", lambda target, peers: [problem])
    asked = ["bench", "--only", "small", "--rounds", "4", "--target", "h100"]
    assert cli.main([*asked, "--db", str(db), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["db"] == str(db)
    assert captured.err.splitlines()[-1].startswith(f"recorded in {db}")
    assert cli.main(["regret", "--log", str(db), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["candidates"] == 2
    assert cli.main(["replay", "--log", str(db), "--json"]) == 0
    (share,) = json.loads(capsys.readouterr().out)["workloads"]
    assert share["shares"][-1] == 1.0
    page = tmp_path / "page.html"
    assert cli.main(["report", "--db", str(db), "-o", str(page), "--kernels", "0"]) == 0
    assert "cuBLAS" in page.read_text()
    capsys.readouterr()
    monkeypatch.setenv("PIPELINER_DB", str(tmp_path / "other.sqlite"))
    cli.main([*asked, "--json"])
    assert json.loads(capsys.readouterr().out)["db"] == str(tmp_path / "other.sqlite")
