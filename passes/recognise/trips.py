"""Find how often a loop runs in its CTAs, where its extent follows from their index.

    for step in range(min((x * 128 + 255) // 128, 32))     blockIdx.x in 0 .. 31
                                                           =>   16.5 as a mean, at most 32

The same of the tiles of a persistent CTA. The last steps of a causal attention are no tile's that
sees few keys. Predictions take both; nothing else does.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tvm import sym

from ..ir.nodes import Call, Expr, const_int, has, i32, is_buffer_var, substitute, variables

MOST: Final = 1 << 31
"""Bound of a variable from which on its range is taken as unknown."""

SAMPLES: Final = 64
"""Values of the variables, evenly spaced, that stand for all of them."""


def mean_and_most(extent: Expr, ranges: Any) -> tuple[float | None, int | None]:
    """Return the mean of ``extent`` and the most that it is.

    None, None: it is no function of a few variables of known ranges. ``ranges``: knows the ranges
    of all variables.
    """
    found = list(variables(extent))
    if not found or any(map(is_buffer_var, found)) or has(extent, Call):
        return None, None
    spans: list[tuple[int, int]] = []
    for var in found:
        bound = ranges.const_int_bound(var)
        first, last = int(bound.min_value), int(bound.max_value)
        if last < first or max(abs(first), abs(last)) >= MOST:
            return None, None
        spans.append((first, last - first + 1))
    every = math.prod(count for _, count in spans)
    count = min(SAMPLES, every)
    analyzer = sym.Analyzer()
    trips: list[int] = []
    samples = ((2 * sample + 1) * every // (2 * count) for sample in range(count))
    for place in (*samples, 0, every - 1):  # the longest is at an end, which may be no sample
        at, values = place, dict[Any, Expr]()
        for var, (first, span) in zip(found, spans, strict=True):
            at, own = divmod(at, span)
            values[var] = i32(first + own)
        trip = const_int(analyzer.simplify(substitute(extent, values)))
        if trip is None:
            return None, None
        trips.append(max(0, trip))
    return sum(trips[:count]) / count, max(trips)
