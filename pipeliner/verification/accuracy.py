"""How far a right result may be from the exact one: rounding, and another order of its sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np

from ..schedules.workloads import (
    SCALE_BLOCK,
    Attention,
    BackToBackGemm,
    GroupedGemm,
    PackedGemm,
    RowGemm,
    ScaledGemm,
)
from ..values.elements import element

if TYPE_CHECKING:
    from ..schedules.workloads import Spec

ROUNDOFF: Final = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
"""Unit roundoff: the largest relative error of rounding to nearest."""

TF32_TRUNCATION: Final = 2.0**-10
"""The tensor core reads 10 mantissa bits of a tf32 operand and ignores the rest."""

FP8_UNIT: Final = 2.0**-13
"""Hopper's tensor cores add the products of an instruction on fp8 and the sum so far as multiples
of this part of the largest of them, all cut toward zero (DeepSeek-V3 Technical Report,
arXiv 2412.19437, section 3.3.2: about 14 bits are kept; MMA-Sim, arXiv 2511.10909)."""

LARGEST: Final = 6
"""Standard deviations of the largest of the elements of a matrix of 8192^2, about."""

SUM_FACTOR: Final = 16
"""Allowed error of a sum, in roundoffs of ``sum(|a| |b|)``.

The error of a sum of K products of normal variates is about one such unit (standard deviation);
over all elements of a matrix of 8192^2 the largest is about six, and tensor cores truncate.
"""

POISON: Final = {"f": np.nan, "V": np.nan, "i": -85, "u": 85}
"""What outputs hold before a run, by numpy's kind of type: an element not written shows."""


def worst_error(
    spec: Spec,
    got: Any,
    exact: Any,
    magnitude: Any,
    parts: int = 0,
    run: int = 0,
    out: str = "",
) -> float:
    """The largest error over what is allowed; arrays of numpy or tensors of torch, in float64.

    ``magnitude``: ``sum(|a| |b|)`` of the operands, and what an epilogue adds. ``parts``: that were
    rounded, each, before they were added in the type of the output. ``run``, ``out``: as for
    ``allowed``.
    """
    if element(spec.storage).integer:
        return 0.0 if bool((got == as_stored(exact, got)).all()) else float("inf")
    got = got.astype(np.float64) if isinstance(got, np.ndarray) else got.double()
    error = abs(got - exact) / workload_bounds(spec, exact, magnitude, parts, run, out)
    return float(error.max())


def as_stored(exact: Any, like: Any) -> Any:
    """Exact integers in the type of ``like``, which keeps their low bits where it is narrower."""
    if isinstance(like, np.ndarray):
        return exact.astype(np.int64).astype(like.dtype)
    return exact.long().to(like.dtype)


def workload_bounds(
    spec: Spec, exact: Any, magnitude: Any, parts: int = 0, run: int = 0, out: str = ""
) -> Any:
    """What each element of a result may differ by; arguments as for ``worst_error``.

    Parts of a sum may be larger than the sum itself, but hardly than all other results, and no
    larger than its own magnitude.
    """
    rounding, summing = allowed(spec, run, out)
    bounds = rounding * abs(exact) + summing * magnitude + least_spacing(out or spec.out)
    if parts:
        largest = float(abs(exact).max())
        bounds = bounds + added_error(spec.out, parts) * magnitude.clip(max=largest)
    return bounds


def least_spacing(dtype: str) -> float:
    """Between the numbers next to 0, of which rounding errs by a half however small a value is."""
    describe: Callable[[Any], Any] = ml_dtypes.finfo
    return float(describe(dtype).smallest_subnormal)


def added_error(dtype: str, parts: int) -> float:
    """Allowed error of a sum of ``parts`` that are rounded to ``dtype``, as is every sum of some.

    Relative to the largest of them.
    """
    return 2 * parts * ROUNDOFF.get(dtype, 0.0)


def allowed(spec: Spec, run: int = 0, out: str = "") -> tuple[float, float]:
    """Allowed error of an element, relative to its value and to ``sum(|a| |b|)``.

    ``out``: type of the result, default the workload's. ``run``: products of fp8 that tensor cores
    add up by themselves; 0: all. Those of a block with a scale of its own are added up by
    themselves. Of attention relative to the root of the sum of squares of all summands: each weight
    is rounded, by itself, to the type of what it multiplies, which is far more than what sums in
    float32 are off.
    """
    if isinstance(spec, (Attention, BackToBackGemm)):
        return 2 * ROUNDOFF[spec.out], LARGEST * ROUNDOFF[spec.storage]
    operands = 2 * TF32_TRUNCATION if spec.dtype == "tfloat32" else 0.0
    value, total = 2 * ROUNDOFF[out or spec.out], SUM_FACTOR * ROUNDOFF[spec.accumulator] + operands
    if isinstance(spec, (RowGemm, GroupedGemm, PackedGemm)) or not spec.dtype.startswith("float8"):
        return value, total
    if isinstance(spec, ScaledGemm):
        of_value, of_total = cut_error(spec.blocks * SCALE_BLOCK, SCALE_BLOCK)
        return value + of_value, total + of_total
    what = spec.contraction()
    terms = math.prod(extent or 1 for _, extent in (*what.reduction_axes, what.k))
    of_value, of_total = cut_error(terms, run or terms)
    return value + of_value, total + of_total


def cut_error(terms: int, run: int) -> tuple[float, float]:
    """Allowed error of a sum of products of fp8, relative to its value and to ``sum(|a| |b|)``.

    Of ``terms`` products, of which tensor cores add up ``run`` before the sum of those is added to
    the others in float32. Each product is cut by up to ``u = FP8_UNIT * S``, with ``S`` the sum so
    far, where that is larger than they. Products of either sign are cut either way: the error is a
    random walk of ``terms`` steps, each uniform in 0 to ``u``, so of standard deviation
    ``u * sqrt(terms / 3)``. ``S`` itself goes to the value of its run, in root mean square
    ``1 / sqrt(3)`` of that, and strays from the way there by about ``sqrt(run)`` products in root
    mean square, which is at most ``pi / 2`` of the mean of normal variates' ``|a| |b|``. (A walk
    from 0 to 0 strays by 0.4 of that in root mean square, by 1 where the error is largest of all.)

    Products of one sign are all cut the same way: the error is up to ``terms * u``, most of the sum
    itself for some thousands of them, and no bound tells it from a defect.
    """
    walk = LARGEST * FP8_UNIT * math.sqrt(terms / 3)
    parts = terms / run
    return walk / math.sqrt(3) / parts, walk * math.pi / 2 * math.sqrt(run) / terms


def equal(got: Any, want: Any) -> Any:
    """Where two arrays are equal; NaN equals NaN."""
    same = got == want
    if got.dtype.kind in "fV":
        same |= np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    return same


def poisoned(shape: tuple[int, ...], dtype: str) -> Any:
    """An output in which no element is right yet."""
    from ..schedules.workloads import numpy_dtype

    kind = numpy_dtype(dtype)
    return np.full(shape, POISON[kind.kind], kind)
