"""Compute the distance, in iterations of a loop, at which two accesses can meet.

    S[k + 2] in iteration k, S[k] in iteration k + d     =>  d = 2
    S[k % 4] and S[i], i in 0 .. 3                       =>  any d

An index becomes ``c * k + symbols + [low, high]``; symbols do not vary in the loop. Two that
differ in nothing but their bounds give an interval of distances. Anything else leaves its dimension
unconstrained, which can add a dependence but never lose one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

from ..ir.bounds import Bounds, combined
from ..ir.linear import Linear
from ..ir.nodes import Expr, literal

Interval: TypeAlias = "tuple[float, float]"
VariableBounds: TypeAlias = "Mapping[Var, tuple[int, int] | None]"
"""Variables that differ between two instances of a statement, with inclusive bounds if known."""

ANY: Final[Interval] = (-math.inf, math.inf)
NEVER: Final[Interval] = (math.inf, -math.inf)

_ZERO: Final = Bounds.only(0)


Form: TypeAlias = "Linear[Bounds]"
"""An index in the loop variable and in what does not vary in the loop, between bounds."""


def linear(expr: Expr, loop_var: Var, bounds: VariableBounds, closed: bool = True) -> Form | None:
    """``expr`` as a linear form, or None.

    ``closed``: every variable that is neither the loop's nor in ``bounds`` has one value for all
    threads and iterations; otherwise such a variable makes the form unknown.
    """
    return _Forms(loop_var, bounds, closed).of(expr)


def overlap(first: Form, second: Form, loop_var: Var) -> Interval:
    """Return the distances ``d`` at which ``second`` of ``k + d`` may equal ``first`` of ``k``."""
    if first.coefficients != second.coefficients:
        return ANY
    low, high = first.base.low - second.base.high, first.base.high - second.base.low
    step = first.coefficients.get(loop_var, 0)
    if step == 0:
        return ANY if low <= 0 <= high else NEVER
    ends = (low / step, high / step)
    return math.ceil(min(ends)), math.floor(max(ends))


def upto(high: int) -> Form:
    """Return any number in ``0 .. high``."""
    return Linear({}, Bounds.within(0, high))


def intersect(a: Interval, b: Interval) -> Interval:
    """Return the distances that are in both intervals."""
    return max(a[0], b[0]), min(a[1], b[1])


@dataclass(frozen=True, slots=True)
class _Forms:
    """Gives expressions their forms in one loop."""

    loop_var: Var
    bounds: VariableBounds
    closed: bool

    def of(self, expr: Any) -> Form | None:
        kind = type(expr)
        if kind is int or kind is tirx.IntImm:
            return _between(Bounds.only(int(expr)))
        if kind is Var:
            return self._variable(expr)
        if kind is tirx.Cast:
            return self.of(expr.value)
        if kind is tirx.Ramp:
            return self._ramp(expr)
        if kind in (tirx.Add, tirx.Sub, tirx.Mul):
            a = self.of(expr.a)
            b = None if a is None else self.of(expr.b)
            if a is None or b is None:
                return None
            return _arithmetic(kind, a, b) or self._uniform(expr)
        if kind in (tirx.FloorMod, tirx.FloorDiv):
            inner, divisor = self.of(expr.a), literal(expr.b)
            if divisor is not None and divisor > 0 and not self._is_uniform(inner):
                return _between(combined(kind, _bounds(inner), Bounds.only(divisor)))
        uniform = self._uniform(expr)
        if uniform is None and kind in (tirx.Min, tirx.Max, tirx.BitwiseXor):
            return _between(combined(kind, _bounds(self.of(expr.a)), _bounds(self.of(expr.b))))
        return uniform

    def _variable(self, var: Var) -> Form | None:
        if var in self.bounds and not var.same_as(self.loop_var):
            known = self.bounds[var]
            return None if known is None else _between(Bounds.within(*known))
        return Linear({var: 1}, _ZERO) if self.closed or var.same_as(self.loop_var) else None

    def _ramp(self, expr: Any) -> Form | None:
        base = self.of(expr.base)
        stride, lanes = literal(expr.stride), literal(expr.lanes)
        if base is None or stride is None or lanes is None:
            return None
        end = stride * (lanes - 1)
        return Linear(base.coefficients, base.base + Bounds.within(min(0, end), max(0, end)))

    def _is_uniform(self, form: Form | None) -> bool:
        """Whether the form has one value throughout the loop, though not a constant."""
        if form is None or not form.coefficients or self.loop_var in form.coefficients:
            return False
        return form.base.value is not None

    def _uniform(self, expr: Any) -> Form | None:
        """``expr`` as one term when it has the same value in every instance."""
        varying: list[Any] = []

        def note(node: Any) -> None:
            if (
                not isinstance(node, Var)
                or node.same_as(self.loop_var)
                or node in self.bounds
                or not self.closed
            ):
                varying.append(node)

        tvm_ffi.structural_walk(expr, ((Var, Call, TensorLoad), note))
        return None if varying else Linear({tvm_ffi.StructuralKey(expr): 1}, _ZERO)


def _arithmetic(kind: type, a: Form, b: Form) -> Form | None:
    """Return a sum, a difference, or a product with a number; None for another product."""
    if kind is tirx.Add:
        return a.plus(b)
    if kind is tirx.Sub:
        return a.plus(b.scaled(-1))
    for one, other in ((a, b), (b, a)):
        if not one.coefficients and one.base.value is not None:
            return other.scaled(one.base.value)
    return None


def _bounds(form: Form | None) -> Bounds | None:
    """Return the bounds of a form that has no term."""
    return None if form is None or form.coefficients else form.base


def _between(bounds: Bounds | None) -> Form | None:
    return None if bounds is None else Linear({}, bounds)
