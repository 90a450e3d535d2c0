"""Logs: what is written is what is read."""

from __future__ import annotations

import pytest

from pipeliner.errors import WorkloadError
from pipeliner.logs import Entry, LogCandidate, append, by_workload, noise, read_log
from tests.refusals import refused

ONE = LogCandidate("wgmma", "tma", 128, 256, 64, 4, persistent=132)
OTHER = LogCandidate("mma", "cp_async", 64, 64, 32, 2, splits=3)
ENTRIES = [
    Entry("sq1024", "float16", ONE, us=12.5, spread=0.01, again=12.75, registers=168),
    Entry("sq1024", "float16", OTHER, us=20.0, spread=0.02, registers=96, spills=8),
    Entry("sq2048", "float32", OTHER, failure='wrong, by "much"'),
]


def test_what_is_appended_is_read(tmp_path) -> None:
    path = tmp_path / "log.csv"
    append(path, ENTRIES[:1], ("a GPU", "driver 1"))
    append(path, ENTRIES[1:])
    assert read_log(path) == ENTRIES
    assert path.read_text().splitlines()[:2] == ["# a GPU", "# driver 1"]
    assert {group: len(found) for group, found in by_workload(ENTRIES).items()} == {
        ("sq1024", "float16"): 2
    }


def test_what_is_measured_again_replaces_what_was(tmp_path) -> None:
    path = tmp_path / "log.csv"
    append(path, ENTRIES)
    later = Entry("sq1024", "float16", ONE, us=11.0)
    append(path, [later])
    assert read_log(path) == [later, *ENTRIES[1:]]


@pytest.mark.parametrize(
    "line", ["sq1024,float16", "sq1024,float16,mma 1x2,1,,,,,", "s,float16,mma/tma 1x2x3 d1,x,,,,,"]
)
def test_a_line_that_is_none_is_named(tmp_path, line) -> None:
    path = tmp_path / "log.csv"
    append(path, ENTRIES[:1])
    with path.open("a") as out:
        out.write(line + "\n")
    with refused("log.line", WorkloadError, line=3):
        read_log(path)


def test_a_log_that_is_missing_is_named(tmp_path) -> None:
    with refused("log.read", WorkloadError, why="No such file or directory"):
        read_log(tmp_path / "none.csv")


def test_noise_is_of_what_was_timed_twice() -> None:
    assert noise(ENTRIES) == pytest.approx(0.02)
    assert noise(ENTRIES[1:]) == 0.0
