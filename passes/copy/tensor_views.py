"""Flatten a tensor for TMA boxes: neighbouring dimensions that are indexed together become one.

    Y[x // 196, x // 14 % 14, x % 14, c]   of [8, 14, 14, 64]
 => Y[x, c]                                of [1568, 64]

Rows of pixels are contiguous if nothing is between them, so what is counted over all of them is one
dimension of a box. So it is of the last dimensions, where channels are outside the image:

    Y[n, c, x // 14, x % 14]              of [8, 64, 14, 14]
 => Y[n, c, x]                            of [8, 64, 196]
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tvm import sym, tirx

from ...diagnostics import Reason
from ...mechanisms.tma import extent_obstacle
from ..ir.indexing import outside_quotients, together
from ..ir.linear import terms_of
from ..ir.nodes import Buffer, Expr, Var, const_int, i32, simplify, uses
from ..ir.wide_indices import ELEMENTS

_MANY: Final = 1 << 30


@dataclass(frozen=True)
class View:
    """A row-major tensor of ``shape``, read or written at ``indices``.

    ``when``: the condition, the same for a whole box, without which zero is read; None: always
    true.
    """

    shape: tuple[Expr, ...]
    indices: tuple[Expr, ...]
    when: Expr | None = None

    def apart(self, moving: Mapping[Var, int], ranges: Any) -> View:
        """Return it with ``moving`` outside of quotients that are the same for all of a box."""
        indices = list(map(ranges.simplify, self.indices))
        for var, extent in moving.items():
            indices = [outside_quotients(index, var, extent) for index in indices]
        return replace(self, indices=tuple(indices))


def inside(
    shape: Sequence[Expr], indices: Sequence[Expr], moving: Sequence[Var], analyzer: Any
) -> Expr:
    """Return the condition that ``indices`` are those of an element of a tensor of ``shape``.

    Each bound is included in several forms, because it is to prove conditions that were simplified:
    as it is, and simplified, because the simplifier divides by the common factor of all terms; for
    what is divided in it, ``a + x // 2 < 7`` for ``a * 2 + x < 14``; and, for an upper bound, with
    the minimum of the terms without ``moving`` variables, which no simplifier removes by itself.
    """
    found: Expr = tirx.const(True, "bool")
    for index, extent in zip(indices, shape):
        whole, by = _undivided(index)
        bounds = (i32(0) <= index, index < extent, i32(0) <= whole, whole < extent * by)
        for bound in (*bounds, *_without(index, extent, moving, analyzer)):
            found = tirx.And(tirx.And(found, bound), analyzer.simplify(bound))
    return found


def beyond(parts: Sequence[Expr], bounds: Expr, analyzer: Any) -> list[Expr]:
    """Return those of the conjuncts ``parts`` that do not follow from ``bounds``."""
    with analyzer.constraint_scope(bounds):
        strength = sym.ProofStrength.SYMBOLIC_BOUND
        return [part for part in parts if not analyzer.can_prove(part, strength)]


def tensor_obstacle(tensor: Buffer) -> Reason | None:
    """Return why TMA cannot have a map of ``tensor``, or None."""
    if len(tensor.strides):
        return Reason("tma.strides", buffer=str(tensor.name))
    unreached = extent_obstacle(str(tensor.name), [const_int(n) for n in tensor.shape])
    return Reason.of(unreached) if unreached else None


def _without(index: Expr, extent: Expr, moving: Sequence[Var], analyzer: Any) -> Iterator[Expr]:
    """Yield ``index < extent`` with the minimum of one term without ``moving`` variables, for each.

    It is divided by the common factor of the other terms' coefficients.
    """
    form = terms_of(index)
    terms, size = form.terms, const_int(extent)
    if size is None or not uses(index, moving):
        return
    for one in terms:
        by, term = one
        least = int(analyzer.const_int_bound(term * by).min_value)
        if uses(term, moving) or least < -_MANY:
            continue
        others = [other for other in terms if other is not one]
        common = math.gcd(*[factor for factor, _ in others])
        total = sum((other * (factor // common) for factor, other in others), start=i32(0))
        yield total < -(-(size - form.base - least) // common)


def _undivided(index: Expr) -> tuple[Expr, int]:
    """Return ``by * index``, with a term divided by that number left undivided, and ``by``."""
    for by, term in terms_of(index).terms:
        divisor = const_int(term.b) if isinstance(term, tirx.FloorDiv) else None
        if by == 1 and divisor is not None:
            return (index - term) * divisor + term.a, divisor
    return index, 1


def flattened(view: View, moving: Collection[Var], ranges: Any) -> View | None:
    """Return ``view`` with as many outer dimensions joined as possible; None if there are none.

    Two are joined if the inner index provably stays inside its extent and 32 bits count the
    elements of both. The last dimension, along which a box's rows run, stays. ``moving``: the
    variables that index the box. ``ranges``: an analyzer that knows the bounds of all of them.
    """
    *outer, last = zip(view.shape, view.indices)
    if len(outer) < 2:
        return None
    extents = [const_int(extent) for extent, _ in outer]
    first, count = len(outer) - 1, extents[-1] or 1
    while first and _stays_inside(outer[first][1], extents[first], ranges):
        count *= extents[first - 1] or 1
        if count > ELEMENTS:
            break
        first -= 1
    if first == len(outer) - 1:
        return None
    size, index = outer[first]
    for extent, inner in outer[first + 1 :]:
        size, index = size * extent, index * extent + inner
    shape, indices = zip(*outer[:first], (simplify(size), together(index, moving, ranges)), last)
    return View(shape, indices)


def joined(view: View, moving: Mapping[Var, int], ranges: Any) -> Iterator[View]:
    """Yield ``view`` with two, three and more of its last dimensions joined, but never all.

    They are joined as ``flattened`` joins the others. ``moving``: the variables that index the box,
    with their extents. What all of a box has in common, such as the image of its pixels, is said
    without them.
    """
    shape, indices = list(view.shape), list(view.indices)
    while len(shape) > 2 and _stays_inside(indices[-1], const_int(shape[-1]), ranges):
        inner, at = shape.pop(), indices.pop()
        index = together(indices[-1] * inner + at, moving, ranges)
        shape[-1], indices[-1] = simplify(shape[-1] * inner), index
        if (const_int(shape[-1]) or 0) > ELEMENTS:
            return
        yield View(tuple(shape), tuple(indices), view.when).apart(moving, ranges)


def _stays_inside(index: Expr, extent: int | None, ranges: Any) -> bool:
    if extent is None:
        return False
    found = ranges.const_int_bound(ranges.simplify(index))
    return int(found.min_value) >= 0 and int(found.max_value) < extent
