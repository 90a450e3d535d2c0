"""Leave out a nest that masks a tile wherever it would change no element of it.

    for i, j: S[i, j] = T.if_then_else(k * 64 + j <= q * 64 + i, S[i, j], -inf)
 => if not k * 64 + 63 <= q * 64 + 0:
        for i, j: S[i, j] = T.if_then_else(..)

A condition that is affine in the nest's variables holds for all elements if it does where it is
least true, at a corner of the tile. All threads agree on that, so only tiles that a mask cuts pay
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tvm import tirx

from ..ir.indexing import conjunction, conjuncts
from ..ir.linear import affine
from ..ir.nodes import Expr, TensorLoad, has, i32
from ..ir.patterns import Nest, is_call, is_element_of

_COMPARED: Final[Mapping[type, tuple[int, Callable[[Expr, Expr], Expr]]]] = {
    tirx.LT: (1, lambda a, b: a < b),
    tirx.LE: (1, lambda a, b: a <= b),
    tirx.GT: (-1, lambda a, b: a > b),
    tirx.GE: (-1, lambda a, b: a >= b),
}
"""Comparisons that hold of 0 on the right: whether of little or of much, and how they are made."""


def changes_something(nest: Nest) -> Expr | None:
    """Return when ``nest`` may change an element; None if it is no mask, or that is not known."""
    value = nest.store.value
    if not is_call(value, "if_then_else") or not is_element_of(value.args[1], nest.store):
        return None
    corners = [_everywhere(nest, part) for part in conjuncts(value.args[0])]
    if not corners or any(corner is None for corner in corners):
        return None
    holds = conjunction([corner for corner in corners if corner is not None])
    return None if holds is None else tirx.Not(holds)


def _everywhere(nest: Nest, part: Any) -> Expr | None:
    """Return when the comparison ``part`` holds in all iterations of ``nest``, if it is known."""
    if type(part) not in _COMPARED or has(part, TensorLoad):
        return None
    sign, compared = _COMPARED[type(part)]
    known = affine(part.a - part.b, nest.vars)
    if known is None:
        return None
    worst: Expr = known.base
    for var, coefficient in known.coefficients.items():
        most = coefficient * (nest.extent_of[var] - 1)
        worst = worst + (max(0, most) if sign > 0 else min(0, most))
    return compared(worst, i32(0))
