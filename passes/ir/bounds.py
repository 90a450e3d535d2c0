"""Compute the bounds of an index, and which of its bits can be one.

    x % 4 + 8   =>   8 .. 11; bits 0, 1 and 3

TVM's analyzer bounds values and divisors, but not bits. That ``x % 4 + 8`` is ``x % 4 | 8`` is what
allows a constant to be moved out of the exclusive or of a swizzle. It also bounds by what 32 bits
hold, so it does not say what passes them.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx

from .nodes import Expr, Var


@dataclass(frozen=True, slots=True)
class Bounds:
    """An integer in ``low .. high``; if it is not negative, all its one bits are in ``mask``."""

    low: int
    high: int
    mask: int = -1

    @classmethod
    def within(cls, low: int, high: int, mask: int = -1) -> Bounds:
        """Return any value in ``low .. high`` whose one bits are in ``mask``."""
        return cls(low, high, mask & ((1 << high.bit_length()) - 1) if low >= 0 else -1)

    @classmethod
    def only(cls, value: int) -> Bounds:
        """Return one value."""
        return cls(value, value, max(value, -1))

    def __add__(self, other: Bounds) -> Bounds:
        carries = bool(self.mask & other.mask)
        low, high = self.low + other.low, self.high + other.high
        return Bounds.within(low, high, -1 if carries else self.mask | other.mask)

    def __mul__(self, factor: int) -> Bounds:
        if factor < 0:
            return Bounds.within(self.high * factor, self.low * factor)
        shift = factor.bit_length() - 1
        mask = self.mask << shift if factor == 1 << max(shift, 0) else -1
        return Bounds.within(self.low * factor, self.high * factor, mask)

    @property
    def value(self) -> int | None:
        """The value, if there is one only."""
        return self.low if self.low == self.high else None

    @property
    def bits(self) -> int | None:
        """All bits that can be one; None if the value may be negative."""
        return self.mask if self.low >= 0 else None


def combined(kind: type, a: Bounds | None, b: Bounds | None) -> Bounds | None:
    """Return the bounds of what an operator makes of ``a`` and ``b``; None for unknown."""
    if kind is tirx.FloorMod and b is not None and b.low > 0:
        return _remainder(a, b)
    rule = _RULES.get(kind)
    return None if rule is None or a is None or b is None else rule(a, b)


def _product(a: Bounds, b: Bounds) -> Bounds:
    for one, other in ((a, b), (b, a)):
        if other.value is not None:
            return one * other.value
    corners = [x * y for x, y in itertools.product((a.low, a.high), (b.low, b.high))]
    return Bounds.within(min(corners), max(corners))


def _quotient(a: Bounds, b: Bounds) -> Bounds | None:
    if b.low <= 0:
        return None
    corners = [x // y for x, y in itertools.product((a.low, a.high), (b.low, b.high))]
    by = b.value or 0
    mask = a.mask >> (by.bit_length() - 1) if by and by & (by - 1) == 0 else -1
    return Bounds.within(min(corners), max(corners), mask)


def _remainder(a: Bounds | None, b: Bounds) -> Bounds:
    if a is not None and (by := b.value) is not None:
        if a.low // by == a.high // by:
            return Bounds.within(a.low % by, a.high % by, _low_bits(a, by))
        if a.low >= 0:
            mask = _low_bits(a, by)
            return Bounds.within(0, min(by - 1, a.high, mask if mask >= 0 else by), mask)
    most = b.high - 1 if a is None or a.low < 0 else min(a.high, b.high - 1)
    return Bounds.within(0, most)


def _low_bits(a: Bounds, by: int) -> int:
    """Return the bits that a remainder by a power of two keeps; all bits for another number."""
    return a.mask & (by - 1) if a.low >= 0 and by & (by - 1) == 0 else -1


def _flipped(a: Bounds, b: Bounds) -> Bounds | None:
    if a.bits is None or b.bits is None:
        return None
    return Bounds(0, a.bits | b.bits, a.bits | b.bits)


RANGES: Final = {
    "int32": range(-(1 << 31), 1 << 31),
    "int64": range(-(1 << 63), 1 << 63),
}
"""What an integer of each type can hold."""

_RULES: Final[Mapping[type, Callable[[Bounds, Bounds], Bounds | None]]] = {
    tirx.Add: operator.add,
    tirx.Sub: lambda a, b: a + b * -1,
    tirx.Mul: _product,
    tirx.FloorDiv: _quotient,
    tirx.Min: lambda a, b: Bounds.within(min(a.low, b.low), min(a.high, b.high), a.mask | b.mask),
    tirx.Max: lambda a, b: Bounds.within(max(a.low, b.low), max(a.high, b.high), a.mask | b.mask),
    tirx.BitwiseXor: _flipped,
}


class KnownBounds:
    """Computes the bounds of expressions from those of their variables."""

    def __init__(self) -> None:
        self._known: dict[Any, Bounds] = {}

    def bind(self, var: Var, low: int, high: int) -> None:
        """Record that ``var`` lies in ``low .. high``."""
        self._known[var] = Bounds.within(low, high)

    def of(self, expr: Expr, met: list[Bounds] | None = None) -> Bounds | None:
        """Return the bounds of an integer expression in whole numbers; None if they are unknown.

        ``met``: gets the bounds of each operator's result.
        """
        kind = type(expr)
        if kind is tirx.IntImm:
            return Bounds.only(int(expr.value))
        if kind is Var:
            return self._known.get(expr)
        if kind is tirx.Cast:
            found, allowed = self.of(expr.value, met), RANGES.get(str(expr.ty.dtype), range(0))
            return found if found and found.low in allowed and found.high in allowed else None
        if kind is tirx.Select:
            a, b = self.of(expr.true_value, met), self.of(expr.false_value, met)
            if a is None or b is None:
                return None
            return Bounds.within(min(a.low, b.low), max(a.high, b.high), a.mask | b.mask)
        if kind not in _RULES and kind is not tirx.FloorMod:
            return None
        found = combined(kind, self.of(expr.a, met), self.of(expr.b, met))
        if met is not None and found is not None:
            met.append(found)
        return found
