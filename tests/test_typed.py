"""Misspelt options and values are errors of mypy, before anything runs."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from dataclasses import MISSING, fields
from importlib.util import find_spec
from pathlib import Path

import pytest

from pipeliner.emulator.emulate import EmulateOptions, emulate
from pipeliner.schedules.workloads.conv import ConvOptions, WindowOptions, conv
from pipeliner.schedules.workloads.conv_shape import ConvShape

ROOT = Path(__file__).parents[1]

PROGRAM = """\
import pipeliner
from pipeliner import Request
from pipeliner.passes import SoftwarePipeline
from pipeliner.schedules import Gemm, GemmTile, conv2d, schedule_gemm
from pipeliner.timeline import timeline

schedule = schedule_gemm(Gemm(m=64, n=64, k=64), GemmTile(64, 64, 32))
kernel = pipeliner.build(schedule, "h100", depth=3, mechanism="tma", pdl="auto")
kernel.emulate(1, 2, 3, timing="early", seed=1)
conv2d(1, 8, 8, 64, 64, 3, 3, pad=1, dtype="bfloat16")
SoftwarePipeline("auto", instruction="mma")
pipeliner.pipeline(schedule, "h100", depht=3)  # call-arg
pipeliner.pipeline(schedule, "h100", mechanism="dma")  # arg-type
pipeliner.build(schedule, "h100", warps=4)  # arg-type
kernel.emulate(1, 2, 3, timming="early")  # call-arg
conv2d(1, 8, 8, 64, 64, 3, 3, padding=1)  # call-arg
conv2d(1, 8, 8, 64, 64, 3, 3, dtype=16)  # arg-type
SoftwarePipeline(deph=3)  # call-arg
SoftwarePipeline(instruction="hmma")  # arg-type
timeline(schedule, "h100", epilog="rolled")  # call-arg
Request(roles="two")  # arg-type
Gemm(m=64, n=64, k=64, kind="float16")  # call-arg
"""


def test_the_types_of_options_are_those_that_are_taken() -> None:
    assert set(EmulateOptions.__annotations__) < set(inspect.signature(emulate).parameters)
    defaults = {one.name for one in fields(ConvShape) if one.default is not MISSING}
    assert set(ConvOptions.__annotations__) == defaults
    windows = set(inspect.signature(conv).parameters) & set(WindowOptions.__annotations__)
    assert set(WindowOptions.__annotations__) == defaults | windows
    assert windows == {"stride", "pad", "dilation"}


@pytest.mark.deep("test_the_types_of_options_are_those_that_are_taken")
@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is missing")
def test_mypy_catches_what_is_misspelt(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = re.findall(r"program\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.M)
    expected = [
        (str(at), line.partition("  # ")[2])
        for at, line in enumerate(PROGRAM.splitlines(), 1)
        if "  # " in line
    ]
    assert found == expected, done.stdout + done.stderr
