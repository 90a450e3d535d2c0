"""Sentences about files that cannot be read or written."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "file.read": "cannot read '{path}': {why}",
    "file.write": "cannot write '{path}': {why}",
    "file.no_folder": "cannot write '{path}': there is no folder '{folder}'",
    "file.no_text": "it is no text",
}
