"""A tensor as boxes see it: neighbouring dimensions that are walked together are one.

    Y[x // 196, x // 14 % 14, x % 14, c]   of [8, 14, 14, 64]
    =>
    Y[x, c]                                of [1568, 64]

Rows of pixels lie one behind the other where nothing is between them, so what is counted over all
of them is one dimension of a box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .indexing import together
from .ir import Expr, const_int, simplify


@dataclass(frozen=True)
class View:
    """A row-major tensor of ``shape``, read or written at ``indices``."""

    shape: tuple[Expr, ...]
    indices: tuple[Expr, ...]


def flattened(view: View, ranges: Any) -> View | None:
    """``view`` with outer dimensions taken as one, as many as can be; None: there are none.

    Two are one where the inner index provably stays inside its extent. The last dimension, which a
    box's rows run along, is left alone. ``ranges``: an analyzer that knows every variable.
    """
    *outer, last = zip(view.shape, view.indices)
    if len(outer) < 2:
        return None
    extents = [const_int(extent) for extent, _ in outer]
    first = len(outer) - 1
    while first and _stays_inside(outer[first][1], extents[first], ranges):
        first -= 1
    if first == len(outer) - 1:
        return None
    size, index = outer[first]
    for extent, inner in outer[first + 1 :]:
        size, index = size * extent, index * extent + inner
    shape, indices = zip(*outer[:first], (simplify(size), together(index, ranges)), last)
    return View(shape, indices)


def _stays_inside(index: Expr, extent: int | None, ranges: Any) -> bool:
    if extent is None:
        return False
    found = ranges.const_int_bound(ranges.simplify(index))
    return int(found.min_value) >= 0 and int(found.max_value) < extent
