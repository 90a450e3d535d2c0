"""The help of the command: quick, complete, and of what is common before what is rare."""

from __future__ import annotations

import re
import resource
import subprocess
import sys

import pytest

from pipeliner import cli
from pipeliner.commands.shared import workload
from pipeliner.plan.request import EPILOGUES, INSTRUCTIONS, MECHANISMS, OPTIONS, STORES, Request

from .test_cli import ROOT


def test_help_loads_no_tvm_and_is_quick() -> None:
    code = (
        "import sys; sys.argv = ['pipeliner', '--help']\n"
        "from pipeliner import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'tvm', 'numpy', 'networkx', 'rich'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def test_help_is_quick() -> None:
    """Under 200 ms of processor time (130 where nothing else runs): TVM alone would take a second."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    command = [sys.executable, "-m", "pipeliner", "--help"]
    took = []
    for _ in range(5):
        before = spent()
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        took.append(spent() - before)
    assert min(took) < 0.200


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_each_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        cli.main([command, "--help"])
    assert exited.value.code == 0
    assert "usage: pipeliner" in capsys.readouterr().out


def test_help_has_examples_that_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    examples = [line for line in lines if line.startswith("pipeliner ")]
    assert len(examples) == 3
    for line in examples:
        cli.parser().parse_args(line.split("  ")[0].split()[1:])


def test_help_shows_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["plan", "--help-all"])
    out = capsys.readouterr().out
    for choices in (MECHANISMS, INSTRUCTIONS, EPILOGUES, STORES):
        assert f"{{{','.join(choices)}}}" in out


def test_help_shows_what_is_common_and_help_all_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = {}
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as exited:
            cli.main(["plan", flag])
        assert exited.value.code == 0
        listed = capsys.readouterr().out.partition("\noptions:")[2]
        shown[flag] = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", listed, re.M))
    common = {f"--{name.replace('_', '-')}" for name, how in OPTIONS.items() if how.common}
    every = {f"--{name.replace('_', '-')}" for name in OPTIONS}
    assert shown["--help"] & every == common
    assert every <= shown["--help-all"]
    assert len(shown["--help"]) < 25 < 40 < len(shown["--help-all"])


def test_each_option_is_asked_for_by_its_flag() -> None:
    """What the command makes of ``--name text`` is what Python asks for by ``name=value``."""
    said = {
        "depth": ("A_shared=4,B_shared=3", {"A_shared": 4, "B_shared": 3}),
        "mechanism": ("cp_async", "cp_async"),
        "instruction": ("mma", "mma"),
        "epilogue": ("peeled", "peeled"),
        "warps": ("2x4", (2, 4)),
        "thread_tile": ("8X4", (8, 4)),
        "roles": ("2", 2),
        "consumers": ("ping-pong", "ping-pong"),
        "cluster": ("2", 2),
        "store": ("tma", "tma"),
        "pdl": ("off", False),
        "reduction": ("atomic", "atomic"),
        "operand": ("registers", "registers"),
        "in_flight": ("1", 1),
        "accumulate": ("promoted", "promoted"),
    }
    assert [*said, "plan"] == list(OPTIONS)
    for name, (text, value) in said.items():
        args = cli.parser().parse_args(["plan", "gemm", f"--{name.replace('_', '-')}", text])
        assert workload.requested(args) == Request(**{name: value})
