"""A log of measured candidates: a CSV file that grows by what was measured last.

Lines that start with ``#`` say under which conditions the lines behind them were measured.
"""

from __future__ import annotations

import csv
import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from ..errors import WorkloadError
from ..toolchain.machine_code import LoopCode
from ..values.failure import why
from .candidates import LogCandidate, candidate

SHIPPED: Final = {"h100": Path(__file__).parent / "h100.csv"}
"""Logs that come with the library, by the key of their machine."""

_LOOP: Final = ("instructions", "multiplies", "tensor", "conflicts", "spilling")
"""Of the loop in machine code, in the order of ``LoopCode``."""

_COLUMNS: Final = (
    "workload",
    "dtype",
    "candidate",
    "us",
    "spread",
    "again",
    "registers",
    "spills",
    *_LOOP,
    "failure",
)

_NAMES: Final = "workload,dtype,"
"""What the line of the columns' names begins with, in logs with fewer columns too."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of one candidate of a workload (a name of a suite, and a type).

    ``us``: median of its rounds in microseconds, of all candidates of the workload, interleaved; 0
    where it failed, for the reason ``failure``. ``spread``: interquartile range over the median.
    ``again``: the median of fresh rounds, the fastest candidates interleaved; 0: it was none.
    ``registers`` of a thread and bytes of its ``spills``, as ptxas reports them. ``loop``: the
    longest in machine code, where it is known.
    """

    workload: str
    dtype: str
    candidate: LogCandidate
    us: float = 0.0
    spread: float = 0.0
    again: float = 0.0
    registers: int = 0
    spills: int = 0
    loop: LoopCode | None = None
    failure: str = ""

    @property
    def best_us(self) -> float:
        """The fresh time where there is one."""
        return self.again or self.us

    @property
    def group(self) -> tuple[str, str]:
        """The workload and its type."""
        return self.workload, self.dtype


def read_log(path: Path) -> list[Entry]:
    """The entries of a log, the last of each candidate; WorkloadError names a line that is none."""
    found: dict[tuple[str, str, LogCandidate], Entry] = {}
    try:
        with path.open(newline="") as lines:
            for number, row in _rows(lines):
                entry = _entry(row, path, number)
                found[(*entry.group, entry.candidate)] = entry
    except OSError as err:
        raise WorkloadError("log.read", path=str(path), why=err.strerror) from err
    return list(found.values())


def append(path: Path, entries: Iterable[Entry], conditions: Sequence[str] = ()) -> None:
    """Add entries to a log, which is made where there is none; on the disk when this returns."""
    fresh = not path.exists()
    with path.open("a", newline="") as out:
        out.writelines(f"# {line}\n" for line in conditions)
        writer = csv.writer(out, lineterminator="\n")
        if fresh:
            writer.writerow(_COLUMNS)
        writer.writerows(map(_row, entries))
        out.flush()
        os.fsync(out.fileno())


def by_workload(entries: Iterable[Entry]) -> Mapping[tuple[str, str], list[Entry]]:
    """The entries with a time, by workload and type, in the order of the log."""
    found: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.us:
            found[entry.group].append(entry)
    return found


def noise(entries: Iterable[Entry]) -> float:
    """The median relative difference between the two times of those that have two."""
    twice = [abs(entry.again / entry.us - 1) for entry in entries if entry.us and entry.again]
    return statistics.median(twice) if twice else 0.0


def _rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of their line, without comments and the names of columns."""
    for number, line in enumerate(lines, 1):
        if not line.startswith(("#", _NAMES)):
            yield number, next(csv.reader([line]))


def _entry(row: list[str], path: Path, line: int) -> Entry:
    try:
        workload, dtype, key, us, spread, again, registers, spills, *loop, failure = row
        if loop and len(loop) != len(_LOOP):  # older ones have none of it
            raise WorkloadError("log.columns", expected=len(_COLUMNS), found=len(row))
        return Entry(
            workload,
            dtype,
            candidate(key),
            float(us or 0),
            float(spread or 0),
            float(again or 0),
            int(registers or 0),
            int(spills or 0),
            LoopCode(*(int(count or 0) for count in loop)) if any(loop) else None,
            failure,
        )
    except ValueError as err:  # a WorkloadError too
        raise WorkloadError("log.line", line=line, path=str(path), why=why(err)) from err


def _row(entry: Entry) -> list[str]:
    """Numbers to five digits, 0 as nothing."""
    loop = astuple(entry.loop) if entry.loop else (0,) * len(_LOOP)
    numbers = (entry.us, entry.spread, entry.again, entry.registers, entry.spills, *loop)
    texts = (f"{number:.5g}" if number else "" for number in numbers)
    return [entry.workload, entry.dtype, entry.candidate.key, *texts, entry.failure]
