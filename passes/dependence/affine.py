"""Compute the distance, in iterations of a loop, at which two accesses can meet.

    S[k + 2] in iteration k, S[k] in iteration k + d     =>  d = 2
    S[k % 4] and S[i], i in 0 .. 3                       =>  any d

An index becomes ``c * k + symbols + [low, high]``. If it is linear in the loop variable ``k``, it
gives an interval of distances. Anything else leaves its dimension unconstrained, which can add a
dependence but never lose one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

from ..ir.nodes import Expr, literal

Interval: TypeAlias = "tuple[float, float]"
VariableBounds: TypeAlias = "Mapping[Var, tuple[int, int] | None]"
"""Variables that differ between two instances of a statement, with inclusive bounds if known."""

ANY: Final[Interval] = (-math.inf, math.inf)
NEVER: Final[Interval] = (math.inf, -math.inf)


@dataclass(frozen=True, slots=True)
class Linear:
    """``k * loop variable + sum(symbols) + [low, high]``; symbols do not vary in the loop."""

    k: int = 0
    symbols: dict[Any, int] = field(default_factory=dict)
    low: int = 0
    high: int = 0

    def scaled(self, factor: int) -> Linear:
        """This form times a constant."""
        ends = (self.low * factor, self.high * factor)
        if self.is_interval:
            return Linear(low=min(ends), high=max(ends))
        symbols = {key: value * factor for key, value in self.symbols.items() if factor}
        return Linear(self.k * factor, symbols, min(ends), max(ends))

    def plus(self, other: Linear) -> Linear:
        """The sum of two forms."""
        low, high = self.low + other.low, self.high + other.high
        if self.is_interval and other.is_interval:
            return Linear(low=low, high=high)
        symbols = dict(self.symbols)
        for key, value in other.symbols.items():
            symbols[key] = symbols.get(key, 0) + value
        symbols = {key: value for key, value in symbols.items() if value}
        return Linear(self.k + other.k, symbols, low, high)

    @property
    def is_interval(self) -> bool:
        """Whether nothing but constants is left."""
        return not self.k and not self.symbols


def linear(expr: Expr, loop_var: Var, bounds: VariableBounds, closed: bool = True) -> Linear | None:
    """``expr`` as a Linear form, or None.

    ``closed``: every variable that is neither the loop's nor in ``bounds`` has one value for all
    threads and iterations; otherwise such a variable makes the form unknown.
    """
    kind = type(expr)
    if kind is int or kind is tirx.IntImm:
        value = int(expr)
        return Linear(low=value, high=value)
    if kind is Var:
        return _variable(expr, loop_var, bounds, closed)
    if kind in (tirx.Add, tirx.Sub, tirx.Mul):
        return _arithmetic(expr, loop_var, bounds, closed)
    if kind is tirx.Cast:
        return linear(expr.value, loop_var, bounds, closed)
    if kind is tirx.Ramp:
        base = linear(expr.base, loop_var, bounds, closed)
        stride, lanes = literal(expr.stride), literal(expr.lanes)
        if base is None or stride is None or lanes is None:
            return None
        end = stride * (lanes - 1)
        return base.plus(Linear(low=min(0, end), high=max(0, end)))
    return _other(expr, loop_var, bounds, closed)


def overlap(first: Linear, second: Linear) -> Interval:
    """Return the distances ``d`` at which ``second`` of ``k + d`` may equal ``first`` of ``k``."""
    if first.k != second.k or first.symbols != second.symbols:
        return ANY
    low, high = first.low - second.high, first.high - second.low
    if first.k == 0:
        return ANY if low <= 0 <= high else NEVER
    ends = (low / first.k, high / first.k)
    return math.ceil(min(ends)), math.floor(max(ends))


def intersect(a: Interval, b: Interval) -> Interval:
    """Return the distances that are in both intervals."""
    return max(a[0], b[0]), min(a[1], b[1])


def _variable(var: Var, loop_var: Var, bounds: VariableBounds, closed: bool) -> Linear | None:
    if var.same_as(loop_var):
        return Linear(k=1)
    if var in bounds:
        known = bounds[var]
        return None if known is None else Linear(low=known[0], high=known[1])
    return Linear(symbols={var: 1}) if closed else None


def _arithmetic(expr: Any, loop_var: Var, bounds: VariableBounds, closed: bool) -> Linear | None:
    a = linear(expr.a, loop_var, bounds, closed)
    b = None if a is None else linear(expr.b, loop_var, bounds, closed)
    if a is None or b is None:
        return None
    if type(expr) is tirx.Add:
        return a.plus(b)
    if type(expr) is tirx.Sub:
        return a.plus(b.scaled(-1))
    for one, other in ((a, b), (b, a)):
        if one.is_interval and one.low == one.high:
            return other.scaled(one.low)
    return _uniform(expr, loop_var, bounds, closed)


def _other(expr: Any, loop_var: Var, bounds: VariableBounds, closed: bool) -> Linear | None:
    if isinstance(expr, (tirx.FloorMod, tirx.FloorDiv)):
        divisor, inner = literal(expr.b), linear(expr.a, loop_var, bounds, closed)
        if divisor is not None and divisor > 0 and not _is_uniform(inner):
            return _divided(isinstance(expr, tirx.FloorMod), inner, divisor)
    uniform = _uniform(expr, loop_var, bounds, closed)
    if uniform is not None:
        return uniform
    if isinstance(expr, (tirx.Min, tirx.Max)):
        a = linear(expr.a, loop_var, bounds, closed)
        b = linear(expr.b, loop_var, bounds, closed)
        if a is None or b is None or not a.is_interval or not b.is_interval:
            return None
        pick = min if isinstance(expr, tirx.Min) else max
        return Linear(low=pick(a.low, b.low), high=pick(a.high, b.high))
    if isinstance(expr, tirx.BitwiseXor):
        a = linear(expr.a, loop_var, bounds, closed)
        b = linear(expr.b, loop_var, bounds, closed)
        if a is None or b is None or not a.is_interval or not b.is_interval:
            return None
        if min(a.low, b.low) < 0:
            return None
        return Linear(low=0, high=(1 << max(a.high, b.high).bit_length()) - 1)
    return None


def _is_uniform(form: Linear | None) -> bool:
    """Whether the form has one value throughout the loop, though not a constant."""
    return form is not None and bool(form.symbols) and not form.k and form.low == form.high


def _divided(is_modulo: bool, inner: Linear | None, divisor: int) -> Linear | None:
    """Return the remainder or quotient of a form that varies; a remainder is always bounded."""
    if inner is not None and inner.is_interval:
        low, high = inner.low // divisor, inner.high // divisor
        if not is_modulo:
            return Linear(low=low, high=high)
        if low == high:
            return Linear(low=inner.low % divisor, high=inner.high % divisor)
    return Linear(low=0, high=divisor - 1) if is_modulo else None


def _uniform(expr: Any, loop_var: Var, bounds: VariableBounds, closed: bool) -> Linear | None:
    """``expr`` as one symbol when it has the same value in every instance."""
    varying: list[Any] = []

    def note(node: Any) -> None:
        if not isinstance(node, Var) or node.same_as(loop_var) or node in bounds or not closed:
            varying.append(node)

    tvm_ffi.structural_walk(expr, ((Var, Call, TensorLoad), note))
    return None if varying else Linear(symbols={tvm_ffi.structural_hash(expr): 1})
