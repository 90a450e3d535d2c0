"""Sentences about records of measurements, and about what is looked up in them."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "records.missing": "cannot open records '{path}': there is no such file",
    "records.open": "cannot open records '{path}': {why}",
    "records.folder_read_only": "cannot open records '{path}' to write: its folder is read-only",
    "records.log_read_only": "cannot open records '{path}': '{log}' is in a read-only folder",
    "records.no_sqlite": "cannot open records '{path}': it is no SQLite file",
    "records.other_database": "cannot open records '{path}': it is another program's database",
    "records.version": "cannot open records '{path}': expected version {expected}, not {version}",
    "records.read": "cannot read records '{path}': {why}",
    "records.write": "cannot write records '{path}': {why}",
    "records.refine": "cannot refine what records have: it was measured already",
    "records.function": (
        "cannot take from records what is pipelined already: expected it as it was tuned"
    ),
    "record.samples": "expected times above 0, not {least} us",
    "record.failure": "expected a record with either times or a failure",
    "record.negative": "expected {name} to be at least 0, not {value}",
    "record.condition": "expected condition '{name}' to be a text, not {value}",
}
