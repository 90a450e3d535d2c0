"""Find how often a loop runs as a mean over its CTAs, where its extent follows from their index.

    for step in range(min((x * 128 + 255) // 128, 32))     blockIdx.x in 0 .. 31   =>   16.5

The last steps of a causal attention are no tile's that sees few keys. Predictions take the mean;
nothing else does.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import sym

from ..ir.nodes import Call, Expr, const_int, has, i32, is_buffer_var, substitute, variables

MOST: Final = 1 << 31
"""Bound of a variable from which on its range is taken as unknown."""

SAMPLES: Final = 64
"""Values of the variable, evenly spaced, that stand for all of them."""


def mean_trip(extent: Expr, ranges: Any) -> float | None:
    """Return the mean of ``extent``; None if it is not a function of one variable.

    ``ranges``: knows the ranges of all variables.
    """
    found = list(variables(extent))
    if len(found) != 1 or is_buffer_var(found[0]) or has(extent, Call):
        return None
    (var,) = found
    bound = ranges.const_int_bound(var)
    first, last = int(bound.min_value), int(bound.max_value)
    if last < first or max(abs(first), abs(last)) >= MOST:
        return None
    count = min(SAMPLES, last - first + 1)
    at = [first + (2 * i + 1) * (last - first + 1) // (2 * count) for i in range(count)]
    analyzer = sym.Analyzer()
    trips = [const_int(analyzer.simplify(substitute(extent, {var: i32(one)}))) for one in at]
    known = [max(0, trip) for trip in trips if trip is not None]
    return sum(known) / count if len(known) == count else None
