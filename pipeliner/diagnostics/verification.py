"""Sentences about verification: what outputs are compared with, and what cannot be run."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # What the outputs are compared with
    "verification.plain": "the same function, not pipelined",
    "verification.first_run": "the first run",
    "verification.reference": "the reference",
    "verification.exact": "the exact result in float64",
    # What cannot be run or compared
    "verification.modes": "expected at least one timing and one order",
    "verification.no_cta": "cannot run CTA ({block:list}): the grid has no such",
    "verification.reference_name": "expected a reference of {expected:list}, not of '{name}'",
    "verification.reference_shape": (
        "expected a reference of shape ({expected:list}), got ({shape:list})"
    ),
}
