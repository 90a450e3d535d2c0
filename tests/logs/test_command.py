"""``pipeliner record`` as far as it goes without a GPU."""

from __future__ import annotations

import pytest

from pipeliner.cli import main
from pipeliner.records.log import SHIPPED
from pipeliner.targets import gpu
from tests.refusals import told


def test_the_grid_is_listed(capsys, tmp_path) -> None:
    log = str(tmp_path / "log.csv")
    asked = ["record", "--list", "--target", "h100", "--log", log, "--only", "decode16,rn50_3x3_7"]
    assert main([*asked, "--dtype", "float16", "--limit", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[0] == "decode16 float16 wgmma/tma 16x256x64 d1"
    assert {line.split()[0] for line in lines} == {"decode16", "rn50_3x3_7"}


@pytest.mark.parametrize(
    ("options", "code", "args"),
    [
        (["--only", "sq4096,no"], "command.record_only", {"value": "no"}),
        (["--limit", "0"], "option.least", {"option": "limit", "value": 0}),
        (["--jobs", "0"], "option.least", {"option": "jobs", "value": 0}),
    ],
)
def test_what_makes_no_sense_is_refused(capsys, tmp_path, options, code, args) -> None:
    asked = ["record", "--list", "--target", "h100", "--log", str(tmp_path / "log.csv")]
    assert main([*asked, *options]) == 1
    told(capsys.readouterr().err, code, **args)


@pytest.mark.parametrize("command", ["replay", "regret"])
def test_a_log_without_times_judges_nothing(capsys, tmp_path, command) -> None:
    """Rather than that every rule is perfect."""
    log = tmp_path / "log.csv"
    header = next(line for line in SHIPPED["h100"].read_text().splitlines() if line[0] != "#")
    failed = "decode16,float16,wgmma/tma 16x256x64 d2,,,,,,cannot compile: no"
    for text in ("", f"{header}\n", f"{header}\n{failed}\n"):
        log.write_text(text)
        assert main([command, "--log", str(log)]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        told(err, "command.log_without_time", log=str(log))


def test_a_half_without_workloads_is_not_judged(capsys, tmp_path) -> None:
    log = tmp_path / "log.csv"
    lines = SHIPPED["h100"].read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if line.startswith("decode16,float16,")))
    assert main(["regret", "--log", str(log)]) == 0
    out = capsys.readouterr().out
    assert "half never fitted to: mean" in out
    assert "half to fit to: mean" not in out


@pytest.mark.skipif(gpu() is not None, reason="a GPU is visible")
def test_without_a_gpu_it_says_so(capsys, tmp_path) -> None:
    assert main(["record", "--log", str(tmp_path / "log.csv")]) == 1
    told(capsys.readouterr().err, "gpu.none")
