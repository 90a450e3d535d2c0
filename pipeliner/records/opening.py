"""Make a file of records, or refuse one that is something else before a byte of it is touched."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ..errors import RecordsError

APPLICATION_ID: Final = 0x70697065
"""``pipe`` in the header of the file: whose it is (SQLite's PRAGMA application_id)."""

SCHEMA_VERSION: Final = 1

WAIT_SECONDS: Final = 60.0
"""For other writers, each of which holds the file for some milliseconds."""

SCHEMA: Final = """
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    workload TEXT NOT NULL,
    machine TEXT NOT NULL,
    versions TEXT NOT NULL,
    candidate TEXT NOT NULL,
    contender TEXT NOT NULL,
    us REAL NOT NULL,
    failure TEXT NOT NULL,
    predicted_us REAL NOT NULL,
    source TEXT NOT NULL,
    experiment TEXT NOT NULL,
    label TEXT NOT NULL,
    made REAL NOT NULL,
    samples TEXT NOT NULL,
    beside TEXT NOT NULL,
    resources TEXT NOT NULL,
    conditions TEXT NOT NULL
);
CREATE INDEX fastest ON records (workload, machine, versions, us);
CREATE TABLE plans (
    record INTEGER PRIMARY KEY REFERENCES records (id),
    plan TEXT NOT NULL,
    trace TEXT NOT NULL
);
"""

MAGIC: Final = b"SQLite format 3\0"
_HEADER: Final = 100  # bytes, SQLite's file format, section 1.3
_USER_VERSION: Final = slice(60, 64)
_APPLICATION_ID: Final = slice(68, 72)


def connect(path: Path, *, create: bool) -> sqlite3.Connection:
    """A connection to the records at ``path``, which are made where there are none.

    RecordsError: it is no file of records, or of a newer library, or cannot be opened; nothing of
    it has been changed.
    """
    try:
        if not path.exists():
            if not create:
                raise RecordsError("records.missing", path=str(path))
            _make(path)
        _check_header(path)
        named, is_uri = _name(path, create)
        connection = sqlite3.connect(named, timeout=WAIT_SECONDS, isolation_level=None, uri=is_uri)
    except (OSError, sqlite3.Error) as err:
        raise RecordsError("records.open", path=str(path), why=reason(err)) from err
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as err:
        connection.close()
        raise RecordsError("records.open", path=str(path), why=reason(err)) from err
    return connection


def _name(path: Path, create: bool) -> tuple[str, bool]:
    """What SQLite is to open, and whether that is a URI; RecordsError: it is not to be written.

    Who reads a write-ahead log writes beside it, to tell writers, which a read-only folder does not
    allow; nor does it have writers, so that the file by itself is all there is.
    """
    if os.access(path.parent, os.W_OK):
        return str(path), False
    log = path.with_name(f"{path.name}-wal")
    if create:
        raise RecordsError("records.folder_read_only", path=str(path))
    if log.exists() and log.stat().st_size:
        raise RecordsError("records.log_read_only", path=str(path), log=log.name)
    return f"file:{quote(str(path))}?immutable=1", True


def reason(err: Exception) -> str:
    """What went wrong, in one line."""
    text = getattr(err, "strerror", None) or str(err)
    return " ".join(text.split())


def _make(path: Path) -> None:
    """An empty file of records at ``path``, all at once: of several makers, one's file stays."""
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        made = Path(folder) / "records"
        with closing(sqlite3.connect(made, isolation_level=None)) as connection:
            connection.executescript(
                f"PRAGMA application_id = {APPLICATION_ID};"
                f"PRAGMA user_version = {SCHEMA_VERSION};"
                "PRAGMA synchronous = FULL; BEGIN;" + SCHEMA + "COMMIT;"
                # Kept in the file's header: whoever opens it uses a write-ahead log.
                "PRAGMA journal_mode = WAL;"
            )
        try:
            os.link(made, path)
        except FileExistsError:
            return


def _check_header(path: Path) -> None:
    """RecordsError for a file that is not ours, found out without SQLite, which might write."""
    with path.open("rb") as file:
        header = file.read(_HEADER)
    if len(header) < _HEADER or not header.startswith(MAGIC):
        raise RecordsError("records.no_sqlite", path=str(path))
    if int.from_bytes(header[_APPLICATION_ID], "big") != APPLICATION_ID:
        raise RecordsError("records.other_database", path=str(path))
    version = int.from_bytes(header[_USER_VERSION], "big")
    if version != SCHEMA_VERSION:
        raise RecordsError(
            "records.version", path=str(path), expected=SCHEMA_VERSION, version=version
        )
