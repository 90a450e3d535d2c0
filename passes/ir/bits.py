"""Compute which bits of an index can be one, and how large it can be.

    x % 4 + 8   =>   bits 0, 1 and 3; at most 11

TVM's analyzer bounds values and divisors, but not bits. That ``x % 4 + 8`` is ``x % 4 | 8`` is what
allows a constant to be moved out of the exclusive or of a swizzle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from tvm import tirx

from .nodes import Expr, Var
from .wide_indices import WIDE


@dataclass(frozen=True, slots=True)
class KnownBits:
    """A value in ``0 .. high`` all of whose one bits are in ``mask``."""

    mask: int
    high: int

    @classmethod
    def upto(cls, high: int) -> KnownBits:
        """Return any value in ``0 .. high``."""
        return cls((1 << high.bit_length()) - 1, high)


_Unknown: TypeAlias = "KnownBits | None"


class Bits:
    """Computes what is known of expressions from the bounds of their variables."""

    def __init__(self) -> None:
        self._bounds: dict[Any, KnownBits] = {}

    def bound(self, var: Var, high: int) -> None:
        """Record that ``var`` lies in ``0 .. high``."""
        self._bounds[var] = KnownBits.upto(high)

    def of(self, expr: Expr) -> KnownBits | None:
        """Return what is known of an integer expression; None if it may be negative."""
        if isinstance(expr, tirx.IntImm):
            value = int(expr.value)
            return None if value < 0 else KnownBits(value, value)
        if isinstance(expr, tirx.Add):
            return _sum(self.of(expr.a), self.of(expr.b))
        if isinstance(expr, tirx.BitwiseXor):
            return _xor(self.of(expr.a), self.of(expr.b))
        if isinstance(expr, tirx.Mul | tirx.FloorDiv | tirx.FloorMod):
            return self._by_constant(expr)
        if isinstance(expr, tirx.Cast):
            return self.of(expr.value) if str(expr.ty.dtype) == WIDE else None
        if isinstance(expr, tirx.Min):
            return _least(self.of(expr.a), self.of(expr.b))
        if isinstance(expr, tirx.Select):
            return _either(self.of(expr.true_value), self.of(expr.false_value))
        return self._bounds.get(expr) if isinstance(expr, Var) else None

    def _by_constant(self, expr: Any) -> KnownBits | None:
        by = int(expr.b.value) if isinstance(expr.b, tirx.IntImm) else 0
        if by <= 0:
            return None
        value, shift = self.of(expr.a), by.bit_length() - 1
        whole = by == 1 << shift
        if isinstance(expr, tirx.FloorMod):
            if whole and value is not None:
                mask = value.mask & (by - 1)
                return KnownBits(mask, min(mask, value.high))
            return KnownBits.upto(by - 1 if value is None else min(by - 1, value.high))
        if value is None:
            return None
        if isinstance(expr, tirx.FloorDiv):
            return (
                KnownBits(value.mask >> shift, value.high // by)
                if whole
                else KnownBits.upto(value.high // by)
            )
        return (
            KnownBits(value.mask << shift, value.high * by)
            if whole
            else KnownBits.upto(value.high * by)
        )


def _sum(a: _Unknown, b: _Unknown) -> _Unknown:
    if a is None or b is None:
        return None
    if a.mask & b.mask:
        return KnownBits.upto(a.high + b.high)
    return KnownBits(a.mask | b.mask, a.high + b.high)


def _xor(a: _Unknown, b: _Unknown) -> _Unknown:
    if a is None or b is None:
        return None
    mask = a.mask | b.mask
    return KnownBits(mask, mask)


def _least(a: _Unknown, b: _Unknown) -> _Unknown:
    return None if a is None or b is None else _either(a, b, min(a.high, b.high))


def _either(a: _Unknown, b: _Unknown, high: int | None = None) -> _Unknown:
    if a is None or b is None:
        return None
    return KnownBits(a.mask | b.mask, max(a.high, b.high) if high is None else high)
