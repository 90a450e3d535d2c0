"""The records of one file: add, find, the best of a key."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from ..diagnostics import Reason, Why
from ..errors import RecordsError
from .opening import connect, reason
from .record import OURS, Record

_APART: Final = ("plan", "trace")
"""Fields of a record that have a table of their own."""

_COLUMNS: Final = tuple(one.name for one in fields(Record) if one.name not in _APART)
_JSON: Final = ("samples", "beside", "resources", "conditions")
_TUPLES: Final = ("samples", "beside")

_ATOMIC: Final = '%"reduction": "atomic"%'
"""What is like a candidate whose sums are added in no order."""

_CODED: Final = '{"code": '
"""How a failure begins that is a code with arguments; others are words."""

_INSERT: Final = (
    f"INSERT INTO records ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
)


class Records:
    """A file of records, made where there is none unless ``create=False``.

    RecordsError, from every method: the file is something else, damaged, or cannot be read or
    written. A connection belongs to the process and thread that made it.
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self.path = Path(path)
        self._connection = connect(self.path, create=create)

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; nothing waits to be written."""
        self._connection.close()

    def add(self, *records: Record) -> None:
        """Add all of ``records`` or none; when it returns, they are on the disk."""
        with self._reported("records.write"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for record in records:
                    self._insert(record)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def amend(self, record: Record) -> None:
        """Replace the plan of a record that the file has; on the disk when this returns."""
        where, values = _where(
            workload=record.workload,
            machine=record.machine,
            versions=record.versions,
            candidate=record.candidate,
        )
        rows = f"SELECT id FROM records {where} AND made = ?"
        with self._reported("records.write"):
            self._connection.execute(
                f"INSERT OR REPLACE INTO plans SELECT id, ?, ? FROM ({rows})",
                [record.plan, record.trace, *values, record.made],
            )

    def find(
        self,
        workload: str | None = None,
        machine: str | None = None,
        versions: str | None = None,
        *,
        plans: bool = True,
    ) -> list[Record]:
        """The records of a key, in the order in which they were added; None: of any.

        ``plans=False`` leaves plan and trace empty: thousands are then read in some milliseconds.
        """
        where, values = _where(workload=workload, machine=machine, versions=versions)
        return self._select(f"{where} ORDER BY id", values, plans)

    def best(self, workload: str, machine: str, versions: str | None = None) -> Record | None:
        """The fastest of our records of a key; None: there is none with a time.

        Sums in no order are left out: they are not the same bits in every run, and nobody who takes
        the best has asked for them.
        """
        where, values = _where(
            workload=workload, machine=machine, versions=versions, contender=OURS
        )
        kept = f"{where} AND failure = '' AND candidate NOT LIKE ?"
        found = self._select(f"{kept} ORDER BY us LIMIT 1", [*values, _ATOMIC], True)
        return found[0] if found else None

    def keys(self) -> list[tuple[str, str, str]]:
        """Every workload, machine and versions that there are records of, in order."""
        with self._reported("records.read"):
            return self._connection.execute(
                "SELECT DISTINCT workload, machine, versions FROM records ORDER BY 1, 2, 3"
            ).fetchall()

    def __len__(self) -> int:
        with self._reported("records.read"):
            return int(self._connection.execute("SELECT count(*) FROM records").fetchone()[0])

    def _insert(self, record: Record) -> None:
        values = [_stored(name, getattr(record, name)) for name in _COLUMNS]
        row = self._connection.execute(_INSERT, values).lastrowid
        if record.plan or record.trace:
            self._connection.execute(
                "INSERT INTO plans VALUES (?, ?, ?)", (row, record.plan, record.trace)
            )

    def _select(self, rest: str, values: list[str], plans: bool) -> list[Record]:
        columns = ", ".join(_COLUMNS)
        joined = ""
        if plans:
            columns += ", coalesce(plan, ''), coalesce(trace, '')"
            joined = "LEFT JOIN plans ON plans.record = records.id"
        with self._reported("records.read"):
            rows = self._connection.execute(
                f"SELECT {columns} FROM records {joined} {rest}", values
            ).fetchall()
            return [_record(row) for row in rows]

    @contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError) as err:
            raise RecordsError(what, path=str(self.path), why=reason(err)) from err


def _where(**asked: str | None) -> tuple[str, list[str]]:
    given = {name: value for name, value in asked.items() if value is not None}
    tests = " AND ".join(f"{name} = ?" for name in given) or "1"
    return f"WHERE {tests}", list(given.values())


def _stored(name: str, value: Any) -> Any:
    if isinstance(value, Reason):
        return json.dumps(value.as_dict())
    return json.dumps(value) if name in _JSON else value


def _record(row: tuple[Any, ...]) -> Record:
    values = dict(zip((*_COLUMNS, *_APART), row))
    for name in _JSON:
        read = json.loads(values[name])
        values[name] = tuple(read) if name in _TUPLES else read
    values["failure"] = _failure(values["failure"])
    return Record(**values)


def _failure(text: str) -> Why:
    """The failure of which ``_stored`` made ``text``; words where its code is not known here."""
    if not text.startswith(_CODED):
        return text
    try:
        data = json.loads(text)
    except ValueError:
        return text
    try:
        return Reason.from_dict(data)
    except (LookupError, TypeError, AttributeError):
        return str(data.get("text", text))
