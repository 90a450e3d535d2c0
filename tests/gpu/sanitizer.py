"""Python run under NVIDIA's compute-sanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OBJECTS = 9
"""Exit status that the sanitizer is asked for where it objects."""


def sanitized(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``python ARGUMENTS`` watched by ``tool``; skips where there is no sanitizer."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is missing")
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(OBJECTS), sys.executable]
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )


def assert_accepted(tool: str, *arguments: str) -> None:
    """Nothing is objected to in ``python ARGUMENTS``."""
    done = sanitized(tool, *arguments)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
