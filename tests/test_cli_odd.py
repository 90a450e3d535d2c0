"""The command on odd input: one line, code 1 or 2, never a traceback."""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeliner import cli
from pipeliner.commands.shared import specs
from pipeliner.commands.shared.usage import did_you_mean
from pipeliner.diagnostics import Reason
from pipeliner.schedules.workloads.base.epilogue import STEPS
from tests.refusals import printed, told

ROOT = Path(__file__).parents[1]

SMALL = ("--m", "128", "--n", "64", "--k", "64", "--tile", "64x64x32", "--target", "a100")

RUN = ("plan", "timeline", "inspect")
"""Commands that are run for real; of others only the options are read: they take a GPU, or long."""

NONSENSE = (
    "", " ", "-1", "0", "x", "1x", "0x0", "99999999999999", "1e9", "nan", "None", "{}", "a=b", "=2",
    ",", "A=1,A=1", "../nowhere", "/dev/null/x", "\N{COLLISION SYMBOL}", "sm_1", "cuda -arch", "1,2,3,4,5,6,7",
)  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    try:
        code = cli.main(argv)
    except SystemExit as exited:
        code = int(str(exited.code))
    return code, capsys.readouterr().err


def options_of(command: str) -> list[argparse.Action]:
    actions = cli.parser()._actions
    (commands,) = (one for one in actions if isinstance(one, argparse._SubParsersAction))
    known: Any = commands.choices[command]
    return [one for one in known._actions if one.option_strings and one.nargs != 0]


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_odd_values(
    command: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    if command not in RUN:
        monkeypatch.setattr(cli.COMMANDS[command], "run", lambda args: 0)
    rng = random.Random(command)
    options = [one for one in options_of(command) if one.dest not in ("nvcc", "output", "emit")]
    for _ in range(12 if command in RUN else 6):
        option, value = rng.choice(options or [None]), rng.choice(NONSENSE)
        chosen = [] if option is None else [f"{option.option_strings[-1]}={value}"]
        takes = command in RUN or command in ("verify", "build")
        argv = [command, *(["gemm", *SMALL] if takes else []), *chosen]
        code, err = run(capsys, *argv)
        assert code in (0, 1, 2), argv
        assert "Traceback" not in err, (argv, err)
        assert "unexpected" not in err, (argv, err)
        if code == 1:
            *notes, _ = err.splitlines()
            assert all(": note: " in note for note in notes), (argv, err)
        if code == 2:
            *usage, last = err.splitlines()
            assert usage[0].startswith(f"usage: pipeliner {command}"), (argv, err)
            assert last.startswith(f"pipeliner {command}: error: "), (argv, err)


STEP = Reason("usage.names", choices=STEPS, value="rlu", near="relu")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["plan", "gemm", "--tle", "3"], "--tle 3; did you mean '--tile'?"),
        (["plan", "gemm", "--fuse", "rlu"], f"argument --fuse: {STEP}"),
        (["verify", "gemm", "--seed", "-1"], Reason("usage.integer", least=0, value="-1")),
        (["verify", "gemm", "--seed", "x"], Reason("usage.integer", least=0, value="x")),
        (["plan", "gemm", "--tile", "64"], Reason("usage.sizes", sizes="MxNxK", value="64")),
        (
            ["plan", "conv2d", "--stride", "a"],
            Reason("usage.numbers", such="1 or 1,2", value="a"),
        ),
        (["tune", "gemm", "--devices", "a"], Reason("usage.numbers", such="0,1", value="a")),
    ],
)
def test_usage_is_of_the_command(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = run(capsys, *argv)
    assert code == 2
    assert says in err.splitlines()[-1]
    assert err.startswith(f"usage: pipeliner {argv[0]}")


def test_a_command_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = run(capsys, "plam", "gemm")
    assert code == 2
    assert err.endswith("; did you mean 'plan'?\n")


@pytest.mark.parametrize(
    ("argv", "code", "args"),
    [
        (
            ["plan", "gemm", "--tile", "64x64x1000000000"],
            "option.tile",
            {"bytes": 256_000_000_000},
        ),
        (
            ["plan", "gemm", "--m", "99999999999999"],
            "workload.large_extent",
            {"name": "m", "most": 2147483647},
        ),
        *(
            (["plan", workload, f"--{name}", "0"], "workload.extent", {"name": name, "value": "0"})
            for workload in ("gemm", "rows", "scaled", "back_to_back", "grouped")
            for name in ("m", "k", *(["experts"] if workload == "grouped" else []))
        ),
        (["plan", "gemn"], "command.workload", {"value": "gemn", "near": "gemm"}),
        (["plan", "gemm", "--target", "cuda -arch"], "target.made", {"value": "'cuda -arch'"}),
        (["plan", "gemm", "--target", "sm_1"], "machine.unknown", {"arch": "sm_1"}),
        (
            ["inspect", "gemm", *SMALL, "--passes", "Expnd"],
            "option.pass",
            {"value": "Expnd", "near": "Expand"},
        ),
    ],
)
def test_one_line(
    argv: list[str], code: str, args: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    status, err = run(capsys, *argv)
    assert status == 1
    told(err, code, **args)


@pytest.mark.parametrize("text", ["{}", "[" * 100_000, "null", '{"version": 1}'])
def test_a_plan_that_is_none(text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    code, err = run(capsys, "plan", "gemm", *SMALL, "--plan", str(path))
    assert code == 1
    assert printed(err).code in ("plan.version", "plan.deep", "plan.fields")


MINE = """
import tvm
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def add(A: T.Buffer((4096,), "float32"), C: T.Buffer((4096,), "float32")):
    for i in range(4096):
        with T.sblock("add"):
            v = T.axis.spatial(4096, i)
            C[v] = A[v] + T.float32(1)


def scheduled():
    made = tvm.s_tir.Schedule(add)
    (i,) = made.get_loops(made.get_sblock("add"))
    made.split(i, [3, 4])
    return made


def needs(size):
    return add
"""


@pytest.mark.parametrize(
    ("name", "code", "args"),
    [
        ("", "user_file.no_name", {"defined": ("add", "scheduled")}),
        (":ad", "user_file.not_defined", {"defined": ("add", "scheduled"), "near": "add"}),
        (":scheduled", "user_file.failed", {"error": "ScheduleError"}),
        (":needs", "user_file.failed", {"error": "TypeError"}),
    ],
)
def test_functions_of_a_file(
    name: str,
    code: str,
    args: dict[str, object],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    status, err = run(capsys, "plan", f"{path}{name}", "--target", "a100")
    assert status == 1
    told(err, code, **args)
    if name == ":scheduled":
        assert str(printed(err)["where"]).endswith("mine.py:17: ")


@pytest.mark.deep("test_cli.py::test_a_closed_pipe_is_quiet")
def test_a_reader_that_has_enough_is_no_error() -> None:
    command = f"{sys.executable} -m pipeliner plan gemm"
    command += f" {' '.join(SMALL)} | head -c 1 > /dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_the_steps_of_an_epilogue_are_those_of_the_workloads() -> None:
    assert specs.STEPS == STEPS


def test_what_is_near() -> None:
    assert did_you_mean("DEPHT", ["depth", "store"]) == "; did you mean 'depth'?"
    assert did_you_mean("zzz", ["depth"]) == ""
