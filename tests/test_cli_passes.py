"""``pipeliner passes``: all of them in their order, or one with its documentation."""

from __future__ import annotations

import json

import pytest

from pipeliner import cli
from pipeliner.diagnostics import Reason
from pipeliner.passes.listed import PASSES


def test_every_pass_is_listed_with_its_file_and_first_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["passes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = [lines.index(f"{one.name}  {one.file}") for one in PASSES]
    assert at == sorted(at)
    assert [lines[line + 1].strip() for line in at] == [one.summary for one in PASSES]


def test_json_has_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["passes", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["passes"]
    assert [one["name"] for one in found] == [one.name for one in PASSES]
    assert cli.main(["passes", "expand", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["passes"]
    assert (one["name"], one["file"]) == ("Expand", "passes/expand/rewrite.py")
    assert (one["site"], one["run_by"]) == ("Pipeline", "passes/carry_out.py")
    assert "=>" in one["doc"]


def test_one_is_explained_by_its_docstring_and_its_neighbours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for at, one in enumerate(PASSES):
        assert cli.main(["passes", one.name]) == 0
        printed = capsys.readouterr().out
        assert printed.endswith(f"\n{one.doc}\n")
        assert (f"behind  {PASSES[at - 1].name}" in printed) == (at > 0)
        assert ("  before  " in printed.partition("\n\n")[0]) == (one is not PASSES[-1])


def test_an_unknown_name_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        cli.main(["passes", "Syncronise"])
    assert exited.value.code == 2
    reason = Reason("usage.pass", name="Syncronise", near="Synchronise")
    assert capsys.readouterr().err.endswith(f"error: {reason}\n")
