"""The examples and the README run, and print what they say they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeliner import cli

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)

PRINTS = {
    "broadcast_the_weights.py": "   3  tile 3  buffer 1                  1  tile 2  buffer 0   give it back: empty",
    "change_the_plan.py": "refused: cannot give depth 99",
    "inside_tvm.py": "the plan travels on the function: RingPlan(buffer='A_shared'",
    "pipeline_a_convolution.py": "right in every timing, against the exact result in float64",
    "pipeline_a_gemm.py": "hazards: 0",
    "pipeline_your_own.py": "right, without hazards",
    "read_the_kernel.py": "__syncthreads();",
    "see_the_slots.py": "A_shared[3] is ready, and not yet read, for ",
    "streaming.py": "right, without hazards",
    "the_idea.py": "II 300 cycles, stages {'load': 0, 'use': 1}, 2 slots",
    "why_not.py": "i: every load is loop-carried: it reads 'A', which earlier iterations write",
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path: Path) -> None:
    done = run(str(path))
    assert done.returncode == 0, done.stderr
    assert PRINTS[path.name] in done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_answers_a_question(path: Path) -> None:
    question = path.read_text().splitlines()[0]
    assert question.startswith('"""')
    assert question.endswith("?")


def test_readme_python_prints_what_it_shows() -> None:
    """A python block followed by a text block prints those lines in that order; ... skips some."""
    shown = [
        at
        for at, (kind, _) in enumerate(BLOCKS[1:], 1)
        if kind == "text" and BLOCKS[at - 1][0] == "python"
    ]
    assert shown
    program = ""
    for at, (kind, text) in enumerate(BLOCKS):
        if kind != "python":
            continue
        program += text
        done = run("-c", program)
        assert done.returncode == 0, done.stderr
        if at + 1 in shown:
            assert_shows(done.stdout, BLOCKS[at + 1][1])


def test_readme_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Every ``pipeliner`` line works here, but for what needs a GPU or has been measured."""
    lines = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
    commands = [line.split("#")[0].split()[1:] for line in lines if line.startswith("pipeliner ")]
    assert commands
    for command in commands:
        measured = command[0] in ("bench", "tune", "experiment", "report")
        if command[0] == "demo" or (measured and "--dry-run" not in command):
            cli.parser().parse_args(command)
            continue
        assert cli.main(command) == 0, command
        assert capsys.readouterr().out


def test_readme_mentions_what_exists() -> None:
    text = (ROOT / "README.md").read_text()
    for target in re.findall(r"`make (\w+)`", text):
        assert f"\n{target}:" in (ROOT / "Makefile").read_text()
    for name in re.findall(r"\]\(([\w/.]+)\)", text):
        assert (ROOT / name).exists(), name


def assert_shows(output: str, expected: str) -> None:
    rest = output.splitlines()
    for line in expected.splitlines():
        if line.strip() == "...":
            continue
        assert line in rest, (
            f"the README shows {line!r}, which is not printed; it prints:\n{output}"
        )
        rest = rest[rest.index(line) + 1 :]


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv],
        cwd=ROOT,
        env={**__import__("os").environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
