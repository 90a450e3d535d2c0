"""Sentences about the constants of the cost model."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "constant.unknown": "no constant has '{part}' in its name; without a name all are listed",
}
