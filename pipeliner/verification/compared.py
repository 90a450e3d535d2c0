"""The outputs of a run beside what they must be: the worst element, and what is odd about them.

Of a part of the grid, what its CTAs own is compared, and everything else must be as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..diagnostics import Reason
from .accessed import Block
from .arrays import Array
from .ownership import Owned
from .tolerance import Tolerance


@dataclass(frozen=True, slots=True)
class Compared:
    """``worst``: the largest error over what is allowed; NaN where an element is NaN."""

    worst: float
    notes: tuple[Reason, ...] = ()


def compare(
    rule: Tolerance,
    arrays: Mapping[str, Any],
    wanted: Mapping[str, Any],
    outputs: Mapping[str, Any],
    owned: Owned,
    ran: Sequence[Collection[Block]] | None = None,
    *,
    of_all: bool = False,
) -> Compared:
    """``outputs`` of a run on ``arrays`` against ``wanted``.

    ``ran``: blockIdx of the CTAs of each kernel that ran, None for all. ``of_all``: ``wanted`` is
    what all CTAs must make, not those that ran alone: an element counts once the last kernel that
    writes it has.
    """
    known = ran is not None and owned.trusts(ran)
    worst, notes = 0.0, list[Reason]()
    for name, want in wanted.items():
        got = outputs[name]
        was = _like(arrays[name], got)
        if ran is not None and known:
            some, done = (np.broadcast_to(part, got.shape) for part in owned.written(name, ran))
            mine = done if of_all else some
            others = ~some & ~_same_bits(got, was)
            if others.any():
                worst = float("inf")
                notes.append(Reason("verdict.strayed", name=name, **_count(others)))
        else:
            mine = np.ones(got.shape, bool)
            if ran is not None and of_all:  # and whose they are is not known
                mine = ~_same_bits(got, was)
        errors = np.where(mine, rule.errors(name, got, want), 0.0)
        nan = mine & (_is_nan(got) | _is_nan(want))
        if not owned.writes(name):
            nan &= ~_untouched(got, want, was)
        if nan.any():
            worst = float("nan")
            notes.append(_of_nan(name, nan, got, want))
        if errors.size:
            numbers = np.where(nan | (_is_nan(got) & _is_nan(want)), 0.0, errors)
            worst = float(np.maximum(worst, numbers.max()))
    return Compared(worst, tuple(notes))


def _untouched(got: Array, want: Array, was: Array) -> Array:
    """Elements of an argument that nobody is to write and that nobody wrote: NaN may stay there."""
    same = _same_bits(got, was) & _same_bits(_like(want, got), was)
    return same if bool(same.all()) else np.zeros(got.shape, bool)


def _of_nan(name: str, nan: Array, got: Array, want: Array) -> Reason:
    both = nan & _is_nan(got) & _is_nan(want)
    if not (nan & _is_nan(got)).any():
        return Reason("verdict.nan_wanted", name=name, **_count(nan))
    if not both.any():
        return Reason("verdict.nan", name=name, **_count(nan))
    if both.sum() == nan.sum():
        return Reason("verdict.nan_both", name=name, **_count(nan))
    return Reason("verdict.nan_either", name=name, **_count(nan))


def _count(found: Array) -> dict[str, int]:
    return {"count": int(found.sum()), "size": found.size}


def _is_nan(array: Array) -> Array:
    if array.dtype.kind in "iub":
        return np.zeros(array.shape, bool)
    return np.isnan(array.astype(np.float64))


def _like(array: Any, other: Array) -> Array:
    """``array`` in the type of ``other``; bits that stand for it stay bits."""
    found = np.asarray(array)
    if found.dtype == np.uint16 and other.dtype.name == "bfloat16":
        return found.view(other.dtype)
    with np.errstate(all="ignore"):
        return found.astype(other.dtype, copy=False)


def _same_bits(one: Array, other: Array) -> Array:
    """Where two arrays of one type hold the same bits."""
    if one.dtype.kind == "b" or one.dtype.itemsize not in (1, 2, 4, 8):
        return np.asarray(one == other)
    bits = f"u{one.dtype.itemsize}"
    first, second = (np.ascontiguousarray(array).view(bits) for array in (one, other))
    return np.asarray(first == second)
