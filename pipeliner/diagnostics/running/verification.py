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
    # What results may differ by
    "bound.equal": "equal to the bit",
    "bound.within": "{rtol:.3g} relative and {atol:.3g} absolute, {why}",
    "bound.asked": "as asked",
    "bound.unknown": "no bound is known: {why}",
    "bound.rounding": (
        "what rounding allows each element ({factor:.3g} x {roundoff:.3g} of the magnitude of its "
        "{terms:count term})"
    ),
    "bound.workload": "what rounding allows each element",
    "bound.overflow": "magnitudes overflow",
    "bound.compared": "values are compared ({expression})",
    "bound.divided": "there is a division by a value",
    "bound.called": "there is a call of {function}",
    # What else is wrong with results
    "verdict.strayed": "{count} of {size} elements of {name} changed that no CTA that ran owns",
    "verdict.nan": (
        "{count} of {size} elements of {name} are NaN in what was made, which is never right"
    ),
    "verdict.nan_wanted": (
        "{count} of {size} elements of {name} are NaN in what it is compared with, which is never "
        "right"
    ),
    "verdict.nan_both": (
        "{count} of {size} elements of {name} are NaN in both results, which is never right; give "
        "inputs for which there is none"
    ),
    "verdict.nan_either": (
        "{count} of {size} elements of {name} are NaN in one result or both, which is never right; "
        "give inputs for which there is none"
    ),
}
