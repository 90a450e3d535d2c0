"""The examples run, and print what they say they print."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

PRINTS = {
    "broadcast_the_weights.py": "   3  tile 3  buffer 1                  1  tile 2  buffer 0   release it: empty",
    "change_the_plan.py": "refused: cannot give depth 99",
    "first_hour.py": "emulated: no hazards",
    "in_pytorch.py": "left to PyTorch: ",
    "inside_tvm.py": "the plan travels on the function: RingPlan(buffer='A_shared'",
    "known_bugs.py": "matmul_update_o      |  .  .  .  .  .  .  . 0?",
    "language_models.py": "left to PyTorch: ",
    "pipeline_a_convolution.py": "right in every timing, against the exact result in float64",
    "pipeline_a_gemm.py": "hazards: 0",
    "pipeline_your_own.py": "right, without hazards",
    "read_the_kernel.py": "__syncthreads();",
    "resnet50.py": "kernels: ",
    "see_the_slots.py": "A_shared[3] is ready, and not yet read, for ",
    "streaming.py": "right, without hazards",
    "the_idea.py": "II 300 cycles, stages {'load': 0, 'use': 1}, 2 slots",
    "tune_your_own.py": "us predicted: {'threads': 8, 'rows': 4, 'step': 16} {'mechanism': 'register'}",
    "why_not.py": "i: every load is loop-carried: it reads 'A', which earlier iterations write",
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    assert PRINTS[path.name] in capsys.readouterr().out


def test_an_example_runs_by_itself() -> None:
    path = ROOT / "examples" / "streaming.py"
    done = run(str(path))
    assert done.returncode == 0, done.stderr
    assert PRINTS[path.name] in done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_answers_a_question(path: Path) -> None:
    question = path.read_text().splitlines()[0]
    assert question.startswith('"""')
    assert question.endswith("?")


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv],
        cwd=ROOT,
        env={**__import__("os").environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
