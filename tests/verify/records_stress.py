"""Records under many writers and under sudden death: a minute of the one, 50 times the other.

python -m tests.verify.records_stress [--seconds 60] [--kills 50]
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from pipeliner.records import Records

ROOT = Path(__file__).parents[2]
WRITERS = 8
LONGEST_LIFE = 0.25
"""Seconds from a writer's first record to its end: enough for dozens, so it dies anywhere in one."""


def writer(path: Path, name: str, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.verify.records_writer", str(path), name, str(seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def kept(path: Path) -> list[str]:
    with Records(path, create=False) as records:
        return [record.candidate for record in records.find(plans=False)]


def write_at_once(path: Path, seconds: float, processes: int = WRITERS) -> tuple[int, list[str]]:
    """How many records ``processes`` committed at once, and which of them are lost or there twice."""
    running = [writer(path, str(at), seconds) for at in range(processes)]
    said = {name: process.communicate()[0].split() for name, process in enumerate(running)}
    assert all(process.returncode == 0 for process in running)
    expected = Counter(f"{name}.{at}" for name, lines in said.items() for at in lines)
    found = Counter(kept(path))
    return expected.total(), sorted((expected - found) + (found - expected))


def kill(path: Path, times: int, seed: int = 0) -> tuple[int, list[str]]:
    """Kill a writer (SIGKILL) at random moments; how many it committed, and what is lost of it."""
    rng = random.Random(seed)
    expected: list[str] = []
    for turn in range(times):
        process = writer(path, str(turn), 60.0)
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(rng.uniform(0.0, LONGEST_LIFE))
        process.kill()
        lines = (first + process.communicate()[0]).splitlines(keepends=True)
        expected += [f"{turn}.{int(line)}" for line in lines if line.endswith("\n")]
    return len(expected), sorted(set(expected) - set(kept(path)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        count, lost = write_at_once(Path(folder) / "writers", options.seconds)
        print(f"records: {count} of {WRITERS} writers at once, {len(lost)} lost or twice")
        killed, gone = kill(Path(folder) / "killed", options.kills)
        print(f"records: {killed} of {options.kills} writers that were killed, {len(gone)} lost")
    return 1 if lost or gone or not count or not killed else 0


if __name__ == "__main__":
    sys.exit(main())
