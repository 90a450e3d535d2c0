"""The command that mutates, what it prints and what it leaves when interrupted."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import pipeliner
from pipeliner import cli
from pipeliner.diagnostics import Reason
from pipeliner.mutation import Campaign
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.shrunk import handed_over

from .mutation_kernels import count_in_cuda

SMALL = ("gemm", "--m", "32", "--n", "32", "--tile", "32x32x16", "--target", "a100", "--depth", "3")


@pytest.mark.deep("test_command_says_what_survives")
def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", *SMALL, "--k", "80", "--mutate"]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    counts = re.search(r"(\d+) of (\d+) mutants killed, 0 proved equivalent, 0 survive", last)
    assert counts
    assert counts[1] == counts[2] == str(len(table) - 2)
    assert last.startswith("right: gemm_32x32x80_float16_nt: ")


def test_command_says_which_ctas_ran(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", *SMALL, "--m", "96", "--k", "16", "--mutate"]) == 0
    *_, ran, last = capsys.readouterr().out.splitlines()
    assert ran == f"ran {Reason('mutation.ends', total=3)}"
    assert last.startswith("right: ")
    assert cli.main(["verify", *SMALL, "--m", "96", "--k", "16", "--mutate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ran"]["code"] == "mutation.ends"


@pytest.mark.deep("test_command_says_which_ctas_ran; tests/verify/test_mutation_reports.py")
def test_command_as_json_with_the_line_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", *SMALL, "--k", "16", "--mutate", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    kernel = pipeliner.build(schedule_gemm(Gemm(32, 32, 16), GemmTile(32, 32, 16)), "a100", depth=3)
    lines = kernel.cuda.splitlines()
    barriers = [fate for fate in data["fates"] if fate["kind"] == "barrier"]
    assert barriers
    assert all("__syncthreads" in lines[fate["line"] - 1] for fate in barriers)
    assert data["operations"] == count_in_cuda(kernel.cuda)
    assert any(fate["run"].endswith("K = 32") for fate in data["fates"])


def test_command_says_what_survives(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeliner.commands.kernels.mutate.TRIPS", (1,))
    assert cli.main(["verify", *SMALL, "--k", "16", "--mutate"]) == 1
    out = capsys.readouterr().out
    assert "SURVIVES" in out
    assert re.search(r"^survives: .*\n  CUDA line \d+: \S", out, re.MULTILINE)
    assert out.splitlines()[-1].startswith("WRONG: ")


def test_an_interrupt_prints_what_was_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Campaign.run

    def interrupted(campaign: Campaign) -> Any:
        fates = run(campaign)
        yield next(fates)
        yield next(fates)
        raise KeyboardInterrupt

    monkeypatch.setattr(Campaign, "run", interrupted)
    assert cli.main(["verify", *SMALL, "--k", "80", "--mutate"]) == 130
    captured = capsys.readouterr()
    title, _, *rows = captured.out.splitlines()[:-1]
    assert title.startswith("line  operation")
    assert len(rows) == 2
    assert re.search(r"2 of \d+ mutants killed, .* [1-9]\d* not run", captured.out)
    assert captured.err.endswith("pipeliner: interrupted\n")


def test_a_persistent_plan_is_handed_to_one_step() -> None:
    """Its loop over tiles was never asked to be pipelined."""
    options = {"instruction": "wgmma", "prove": False}
    tile = GemmTile(64, 64, 64, persistent=3)
    plan = pipeliner.build(schedule_gemm(Gemm(256, 128, 256), tile), "h100", **options).plan
    short = handed_over(schedule_gemm(Gemm(256, 128, 64), tile), "h100", plan)
    assert [ring.depth for ring in short.plan.loops[0].rings] == [
        ring.depth for ring in plan.loops[0].rings
    ]
