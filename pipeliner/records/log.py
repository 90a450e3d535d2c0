"""A log: records of a declared grid of candidates as a CSV table, which a repository can hold.

Workloads and candidates go by their names; times are medians. Lines that start with ``#`` say under
which conditions the lines behind them were measured. ``read_any`` and ``add_to`` take a file of
records in its place.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, Final

from ..errors import WorkloadError
from ..machine import Machine
from ..schedules.suites import label_of, named
from ..schedules.workloads import Spec
from ..toolchain.machine_code import LoopCode
from ..values.failure import why
from .candidate import Candidate, workload_key, workload_of
from .names import name_of, named_candidate
from .opening import MAGIC
from .record import Record
from .store import Records

SHIPPED: Final = {
    key: Path(__file__).parents[1] / "logs" / f"{key}.csv" for key in ("h100", "h200")
}
"""Logs that come with the library, by the key of their machine."""

SOURCE: Final = "record"

AGAIN: Final = "again"
"""The label of a time of fresh rounds: the fastest candidates of a workload, interleaved."""

LOOP: Final = ("instructions", "multiplies", "tensor", "conflicts", "spilling")
"""Of the loop in machine code, in the order of ``LoopCode``."""

STORES: Final = (".sqlite", ".db")
"""How the names of files of records end; a log is any other."""

_NAMED: Final = ("workload", "dtype", "candidate")
_COLUMNS: Final = (*_NAMED, "us", "spread", "again", "registers", "spills", *LOOP, "failure")

_HEADER: Final = "workload,dtype,"
"""What the line of the columns' names begins with, in logs with fewer columns too."""


def find_log(file: str | None, target: str) -> Path:
    """The log that is named, or the shipped one of ``target``; WorkloadError: there is none."""
    if not file and target not in SHIPPED:
        raise WorkloadError("option.log", known=tuple(SHIPPED))
    return Path(file) if file else SHIPPED[target]


def read_log(path: Path, machine: Machine) -> list[Record]:
    """The records of a log of ``machine``, of each candidate the last.

    One that was timed twice has two, the second under the label ``AGAIN``. WorkloadError: a line
    that is none.
    """
    found: dict[tuple[str, ...], list[Record]] = {}
    conditions: list[str] = []
    fresh = True
    try:
        with path.open(newline="") as lines:
            for number, line in enumerate(lines, 1):
                if line.startswith("#"):
                    conditions = [] if fresh else conditions
                    conditions.append(line[1:].strip())
                    fresh = False
                elif not line.startswith(_HEADER):
                    fresh = True
                    row = next(csv.reader([line]))
                    try:
                        known = _records(row, machine, path.name, conditions)
                    except ValueError as err:  # a WorkloadError too
                        raise WorkloadError(
                            "log.line", line=number, path=str(path), why=why(err)
                        ) from err
                    found[tuple(row[: len(_NAMED)])] = known
    except OSError as err:
        raise WorkloadError("log.read", path=str(path), why=err.strerror) from err
    return [record for records in found.values() for record in records]


def append(
    path: Path, records: Iterable[Record], machine: Machine, conditions: Sequence[str] = ()
) -> None:
    """Add records to a log, which is made where there is none; on the disk when this returns."""
    fresh = not path.exists()
    rows: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        rows.setdefault((record.workload, record.candidate), []).append(record)
    with path.open("a", newline="") as out:
        out.writelines(f"# {line}\n" for line in conditions)
        writer = csv.writer(out, lineterminator="\n")
        if fresh:
            writer.writerow(_COLUMNS)
        writer.writerows(_row(found, machine) for found in rows.values())
        out.flush()
        os.fsync(out.fileno())


def loop_of(record: Record) -> LoopCode | None:
    """The longest loop of its kernel in machine code, as far as the record has it."""
    counts = [record.resources.get(f"loop_{name}", 0) for name in LOOP]
    return LoopCode(*counts) if any(counts) else None


def with_loop(resources: Mapping[str, int], loop: LoopCode | None) -> dict[str, int]:
    """``resources`` and the counts of ``loop``."""
    counts = {} if loop is None else dict(zip(LOOP, astuple(loop)))
    return {**resources, **{f"loop_{name}": count for name, count in counts.items() if count}}


def spills_of(record: Record) -> int:
    """Bytes that a thread of its kernel spills."""
    used = record.resources
    return used.get("spills", used.get("spill_stores", 0) + used.get("spill_loads", 0))


def _records(row: list[str], machine: Machine, source: str, conditions: list[str]) -> list[Record]:
    label, dtype, name, us, spread, again, registers, spills, *loop, failure = row
    if loop and len(loop) != len(LOOP):  # older ones have none of it
        raise WorkloadError("log.columns", expected=len(_COLUMNS), found=len(row))
    spec = named(label, dtype)
    counts = {"registers": registers, "spills": spills}
    counts |= {f"loop_{one}": count for one, count in zip(LOOP, loop)}
    made = Record(
        workload_key(spec),
        machine.key,
        source,
        named_candidate(name, spec, machine).to_json(),
        samples=() if failure else _quartiles(float(us), float(spread or 0)),
        failure=failure,
        source=SOURCE,
        made=0.0,
        resources={one: int(count) for one, count in counts.items() if count},
        conditions={"log": "; ".join(conditions)} if conditions else {},
    )
    if not again:
        return [made]
    return [made, replace(made, samples=(float(again),), us=0.0, label=AGAIN)]


def _quartiles(us: float, spread: float) -> tuple[float, ...]:
    """What is left of the samples in a log: a median, and quartiles so far apart."""
    return (us * (1 - spread / 2), us, us * (1 + spread / 2)) if spread else (us,)


def _row(records: Sequence[Record], machine: Machine) -> list[str]:
    """Numbers to five digits, 0 as nothing."""
    first = next(record for record in records if record.label != AGAIN)
    again = next((record.us for record in records if record.label == AGAIN), 0.0)
    spec = workload_of(first.workload)
    loop = [first.resources.get(f"loop_{name}", 0) for name in LOOP]
    registers = first.resources.get("registers", 0)
    numbers: tuple[Any, ...] = (
        first.us, first.spread, again, registers, spills_of(first), *loop
    )  # fmt: skip
    texts = (f"{number:.5g}" if number else "" for number in numbers)
    name = name_of(Candidate.from_json(first.candidate), spec, machine)
    return [*group_of(spec), name, *texts, str(first.failure)]


def group_of(spec: Spec) -> tuple[str, str]:
    """What a log calls a workload, and its type."""
    return label_of(spec) or spec.name, spec.types.dtype


def read_any(path: Path, machine: Machine) -> list[Record]:
    """The records of ``machine`` in a log, or in a file of records; errors are those of either."""
    if not is_store(path):
        return read_log(path, machine)
    with Records(path, create=False) as records:
        return records.find(machine=machine.key, plans=False)


def add_to(
    path: Path, records: Sequence[Record], machine: Machine, conditions: Sequence[str] = ()
) -> None:
    """Add records to a log, or to a file of records; on the disk when this returns."""
    if not is_store(path):
        append(path, records, machine, conditions)
        return
    said = {"log": "; ".join(conditions)} if conditions else {}
    with Records(path) as store:
        store.add(*(replace(one, conditions={**said, **one.conditions}) for one in records))


def is_store(path: Path) -> bool:
    """Whether ``path`` is a file of records, or is to be one, rather than a log."""
    if not path.is_file():
        return path.suffix in STORES
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC
