"""Bounds of integer expressions: arithmetic that cannot leave its type needs no check.

A span is the pair of the least and the largest value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np

from .dtypes import is_int, numpy_dtype

Span = tuple[int, int]
"""The least and the largest value."""

_MAX_SHIFT: Final = 63
"""The largest shift whose result is bounded."""


@cache
def of_type(dtype: str) -> Span | None:
    """All values of an integer type; None for other types."""
    if dtype == "bool":
        return 0, 1
    if not is_int(dtype):
        return None
    info = np.iinfo(numpy_dtype(dtype))
    return int(info.min), int(info.max)


def within(span: Span | None, dtype: str) -> bool:
    """Whether all of ``span`` are values of ``dtype``."""
    bounds = of_type(dtype)
    return span is not None and bounds is not None and bounds[0] <= span[0] <= span[1] <= bounds[1]


def union(a: Span | None, b: Span | None) -> Span | None:
    """Return the least interval that holds both."""
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def combined(symbol: str, a: Span | None, b: Span | None) -> Span | None:
    """Return bounds of ``x symbol y`` without any wrap; None where nothing is known."""
    rule = _RULES.get(symbol)
    return None if rule is None or a is None or b is None else rule(a, b)


def _corners(operation: Callable[[int, int], int]) -> Callable[[Span, Span], Span]:
    """Return the rule of an operation that is monotonic in each operand."""

    def rule(a: Span, b: Span) -> Span:
        values = [operation(x, y) for x in a for y in b]
        return min(values), max(values)

    return rule


def _shifted(operation: Callable[[int, int], int]) -> Callable[[Span, Span], Span | None]:
    def rule(a: Span, b: Span) -> Span | None:
        return _corners(operation)(a, b) if b[0] >= 0 and b[1] <= _MAX_SHIFT else None

    return rule


def _divided(a: Span, b: Span) -> Span | None:
    return _corners(lambda x, y: x // y)(a, b) if b[0] > 0 else None


def _truncated(a: Span, b: Span) -> Span | None:
    return _divided(a, b) if a[0] >= 0 else (-max(-a[0], a[1]), max(-a[0], a[1]))


def _remainder(a: Span, b: Span) -> Span | None:
    if b[0] <= 0:
        return None
    return a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)


def _signed_remainder(a: Span, b: Span) -> Span | None:
    if a[0] >= 0:
        return _remainder(a, b)
    return (1 - b[1], b[1] - 1) if b[0] > 0 else None


def _masked(a: Span, b: Span) -> Span | None:
    least = [x[1] for x in (a, b) if x[0] >= 0]
    return (0, min(least)) if least else None


def _joined(a: Span, b: Span) -> Span | None:
    if a[0] < 0 or b[0] < 0:
        return None
    return 0, (1 << max(a[1], b[1]).bit_length()) - 1


_RULES: Final[dict[str, Callable[[Span, Span], Span | None]]] = {
    "+": _corners(lambda x, y: x + y),
    "-": _corners(lambda x, y: x - y),
    "*": _corners(lambda x, y: x * y),
    "<<": _shifted(lambda x, y: x << y),
    ">>": _shifted(lambda x, y: x >> y),
    "&": _masked,
    "|": _joined,
    "^": _joined,
    "floor_div": _divided,
    "trunc_div": _truncated,
    "floor_mod": _remainder,
    "trunc_mod": _signed_remainder,
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}
"""Bounds of each operation's result from those of its operands."""
