"""What a terminal shows while something runs, and what JSON has where it fails."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from examples import the_idea
from pipeliner import cli
from pipeliner.commands.shared import console
from pipeliner.diagnostics import Reason

pytest.importorskip("rich")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What is drawn on stderr from now on; pytest sets stderr anew behind a fixture."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return terminal


def test_a_bar_has_a_count_and_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with console.steps("running mutants", 3) as step:
        for _ in range(3):
            step()
    shown = terminal.getvalue()
    assert "running mutants" in shown
    assert "3/3" in shown
    assert "/s" in shown


def test_what_is_counted_later_has_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with console.counted("running") as told:
        told("one", 1, 8)
        told("two", 8, 8)
    shown = terminal.getvalue()
    assert "running: two" in shown
    assert "8/8" in shown
    assert "/s" in shown


def test_a_spinner_says_which_of_how_many_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with console.progress("making sass", 2, 3):
        pass
    shown = terminal.getvalue()
    assert "making sass (2 of 3)" in shown
    assert "0:00:00" in shown


@pytest.mark.parametrize("width", [30, 50, 79, 80])
def test_a_narrow_terminal_cuts_the_text_alone(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(width))
    with console.counted("running") as told:
        told("x" * 200, 399, 400)
        told("x" * 200, 400, 400)
    with console.progress("y" * 200):
        pass
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.getvalue())
    lines = re.split(r"[\r\n]+", shown)
    assert max(map(len, lines)) <= width
    assert any("400/400" in line and "/s" in line for line in lines)
    assert any("yyy" in line and "0:00:00" in line for line in lines)
    assert any("━" in line for line in lines) == (width >= 80)


def test_no_color_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    with console.progress("making sass", 2, 3), console.steps("running", 3) as step:
        step()
    assert terminal.getvalue() == "making sass (2 of 3) ...\nrunning (3) ...\n"


def failed(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, object]:
    try:
        code = cli.main(argv)
    except SystemExit as exited:
        code = exited.code
    out, err = capsys.readouterr()
    assert code
    error = json.loads(out)["error"]
    assert error["text"] in err
    return error


def test_a_failure_is_an_object_where_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    error = failed(capsys, "plan", "gemm", "--json", "--dtype", "fp17")
    assert (error["code"], error["type"]) == ("workload.dtype", "WorkloadError")
    assert error["args"]["value"] == "fp17"
    assert failed(capsys, "plan", "gemm", "--json", "--dtpe", "x")["code"] == "usage"
    assert failed(capsys, "nonsense", "--json")["code"] == "usage"
    error = failed(capsys, "inspect", "gemm", "--json", "-o", "somewhere")
    assert error["code"] == "option.json_output"


def test_also_an_interrupt_and_a_bug(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising(error: BaseException) -> None:
        def run(*_: object) -> int:
            raise error

        monkeypatch.setattr(cli.doctor, "run", run)

    raising(KeyboardInterrupt())
    assert failed(capsys, "doctor", "--json")["code"] == "interrupted"
    raising(ImportError(Reason("function.option", option="depht")))
    error = failed(capsys, "doctor", "--json")
    assert (error["code"], error["args"]) == ("function.option", {"option": "depht"})
    raising(ZeroDivisionError("last"))
    error = failed(capsys, "doctor", "--json")
    assert (error["code"], error["type"]) == ("unexpected", "ZeroDivisionError")


SMALL = ("gemm", "--m", "64", "--n", "64", "--k", "128", "--tile", "64x64x32", "--target", "a100")


def test_inspect_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", *SMALL, "--emit", "cuda,plan", "--annotate", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["emitted"]["plan"]["kernel"] == found["kernel"]
    lines = found["emitted"]["cuda"].splitlines()
    copies = [one for one in found["origins"] if one["op"] == "B_shared" and one["stage"] == 0]
    assert copies
    assert any("cp_async" in lines[one["line"] - 1] for one in copies)
    assert copies[0]["places"] == [{"buffer": "B_shared", "slot": "0"}]


def test_differences_and_passes_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("inspect", *SMALL, "--json", "--condense")
    assert cli.main([*options, "--emit", "tir", "--diff", "depth=2,3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["option"], found["values"]) == ("depth", ["2", "3"])
    assert found["differences"]["tir"].startswith("--- depth=2\n+++ depth=3\n")
    assert cli.main([*options, "--passes", "Expand"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["passes"]
    assert run["name"] == "pipeliner.Expand"
    assert "\n+" in run["diff"]


@pytest.mark.nvcc
def test_build_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, mine = tmp_path / "k.cu", f"{Path(the_idea.__file__)}:reverse"
    assert cli.main(["build", mine, "--target", "a100", "--json", "--line-info", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["resources"][found["kernel"]]["registers"] > 0
    assert found["line_info"] == str(file)
    assert "// region prologue" in file.read_text()
