"""What whoever watches a run of many checks is told while it goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from .runner import doing, found

ROOT = Path(__file__).parents[2]

# What a shell starts in the background ignores ^C, and so do its children.
RUN = """
import os, signal
from tests.verify.runner import run
from tests.verify.test_runner import check

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run("these", check, ["right", "wrong", "killed", "slow", "shrunk"], 1, silent=0.5, prepare=os.getpid)
"""


def check(item: str) -> Counter[str]:
    if item == "wrong":
        raise AssertionError("2 is not 3")
    if item == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if item == "slow":
        doing("what takes long")
        time.sleep(3)
    if item == "shrunk":
        found("AssertionError: 5 is not 6")
        found("AssertionError: 4 is not 6")
        time.sleep(60)
    return Counter({"right": 1})


def test_what_fails_dies_or_takes_long_is_named_and_kept() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", RUN],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        if "a failure is being shrunk" in line:
            break
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, _ = process.communicate(timeout=120)  # other tests may keep the machine busy
    assert process.returncode == 130
    said = "".join(told)
    assert re.search(r"these: slow: \d s, still running; what takes long\n", said)
    assert "these: shrunk fails, which is being shrunk:\nAssertionError: 5 is not 6\n" in said
    assert "4 is not 6" not in said + out
    assert "FAILED wrong" in out
    assert "AssertionError: 2 is not 3" in out
    assert "FAILED killed\nits process died" in out
    assert "FAILED shrunk, not shrunk to the end\nAssertionError: 5 is not 6" in out
    assert out.splitlines()[-1].startswith("these: 2 right; 3 failed; interrupted at 4 of 5; ")
