"""From which iteration on what decides repeats, and how often: derived from its expressions.

Each expression over the variables of *free* loops, whose trip counts are left open, is brought into
the form

    a * i + b * j + ... + r          r within bounds, and periodic in i and in j from some iteration

with rational slopes. A remainder or quotient by a constant c makes a slope periodic: (a * i + r)
mod c repeats as soon as a * i has gone through a multiple of c. A comparison of a form that grows
in one variable has one outcome from -min r / a on, and from max r / |a| on if it falls. What
decides has to have no slope in the end. Then from ``after`` on it repeats every ``every``
iterations, as long as the registers that it reads do, which the state of the machine has in it.

The trip count n of a free loop of the variable i (``ends.py``) is a variable too, one that only
comparisons may have. With d = n - i iterations to go they are of a form in i and d, as n - i + 3 or
2 * n - i: its sign is the same wherever there are ``horizon`` or more to go, i included. Parameters
of a launch are free variables like those of loops.

Does not handle: other comparisons that grow in two free variables, products of two variables, bits
of a form that grows other than its lowest ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from tvm import ir
from tvm.ir import TensorLoad, prim

from ...emulator.translate.operation import ADDRESSES, is_trip_count, op_name
from ...passes.ir.nodes import variables

COMPARISONS: Final = (prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE)
_SHOWS_ARGUMENT: Final = ("tirx.reinterpret", "prim.likely", "tirx.tvm_thread_invariant")
"""Calls that have the value of their operand."""


class Unbounded(Exception):
    """An expression does not repeat, or is not seen to."""


@dataclass(frozen=True)
class Slopes:
    """A value as slopes of free variables and the bounds of the rest; None: not known."""

    slopes: Mapping[Any, Fraction] = field(default_factory=dict)
    low: Fraction | None = None
    high: Fraction | None = None

    @property
    def constant(self) -> int | None:
        """The value where it is the same everywhere."""
        same = not self.slopes and self.low is not None and self.low == self.high
        return int(self.low) if same and self.low is not None else None

    def plus(self, other: Slopes, sign: int = 1) -> Slopes:
        """Return a sum or a difference."""
        slopes = dict(self.slopes)
        for var, slope in other.slopes.items():
            slopes[var] = slopes.get(var, Fraction(0)) + sign * slope
        low, high = (other.low, other.high) if sign > 0 else (other.high, other.low)
        return Slopes(
            {var: slope for var, slope in slopes.items() if slope},
            None if self.low is None or low is None else self.low + sign * low,
            None if self.high is None or high is None else self.high + sign * high,
        )

    def times(self, factor: Fraction) -> Slopes:
        """Return a multiple."""
        low, high = (self.low, self.high) if factor >= 0 else (self.high, self.low)
        return Slopes(
            {var: slope * factor for var, slope in self.slopes.items() if factor},
            None if low is None else low * factor,
            None if high is None else high * factor,
        )

    @property
    def reach(self) -> Fraction:
        """The largest magnitude of the rest."""
        if self.low is None or self.high is None:
            raise Unbounded
        return max(abs(self.low), abs(self.high))


def _of(low: int, high: int) -> Slopes:
    return Slopes({}, Fraction(low), Fraction(high))


def _slope(of: Any) -> Slopes:
    return Slopes({of: Fraction(1)}, Fraction(0), Fraction(0))


_BOOL: Final = _of(0, 1)
_ANY: Final = Slopes()
_NATURAL: Final = Slopes({}, Fraction(0))


@dataclass(frozen=True)
class TripCount:
    """The trip count of a free loop, by its variable."""

    var: Any


class Repeats:
    """Finds, for each free variable, ``after`` how many iterations what decides repeats.

    ``every``: how often. ``horizon``: from how many iterations to go on their number decides
    nothing. ``free``: the variables. ``ranges``: of other variables, the least and the largest
    value. ``values``: what named values are. ``loops``: the variables of free loops, by the number
    of their statement. ``naturals``: names of registers that are never negative.
    """

    def __init__(
        self,
        free: set[Any],
        ranges: Mapping[Any, tuple[int, int]],
        values: Mapping[Any, Any],
        loops: Mapping[int, Any] | None = None,
        naturals: Collection[str] = (),
    ) -> None:
        self.after = dict.fromkeys(free, 0)
        self.every = dict.fromkeys(free, 1)
        self.horizon = dict.fromkeys(free, 1)
        self._loops = loops or {}
        self._ranges = ranges
        self._values = values
        self._naturals = naturals
        self._known: dict[Any, Slopes] = {}

    def decide(self, expr: Any) -> None:
        """Take in an expression that decides; Unbounded: it never repeats, as far as is seen."""
        if self.form(expr).slopes:
            raise Unbounded

    def form(self, expr: Any) -> Slopes:
        """Return the form of an expression."""
        if isinstance(expr, ir.Var):
            return self._variable(expr)
        if isinstance(expr, prim.IntImm):
            return _of(int(expr.value), int(expr.value))
        if isinstance(expr, TensorLoad):
            for index in expr.indices:
                self.decide(index)
            return _NATURAL if str(expr.source.name) in self._naturals else _ANY
        if isinstance(expr, prim.Cast):
            return self.form(expr.value)
        if isinstance(expr, prim.Ramp):
            return self.form(expr.base)
        if isinstance(expr, prim.Broadcast):
            return self.form(expr.value)
        if isinstance(expr, ir.Call):
            return self._call(expr)
        if isinstance(expr, prim.Select):
            return self._choice(expr.condition, expr.true_value, expr.false_value)
        if isinstance(expr, prim.Not):
            self.decide(expr.a)
            return _BOOL
        if isinstance(expr, COMPARISONS):
            self._settle(self.form(expr.a).plus(self.form(expr.b), -1))
            return _BOOL
        if hasattr(expr, "a") and hasattr(expr, "b"):
            return self._binary(expr, self.form(expr.a), self.form(expr.b))
        if any(self._variable(var).slopes for var in variables(expr)):
            raise Unbounded
        return _ANY

    def _variable(self, var: Any) -> Slopes:
        if var in self.after:
            return _slope(var)
        if var in self._ranges:
            return _of(*self._ranges[var])
        if var in self._values:
            if var not in self._known:
                self._known[var] = self.form(self._values[var])
            return self._known[var]
        return _ANY

    def _binary(self, expr: Any, a: Slopes, b: Slopes) -> Slopes:
        kind = type(expr)
        if kind is prim.Add:
            return a.plus(b)
        if kind is prim.Sub:
            return a.plus(b, -1)
        if kind in (prim.And, prim.Or):
            return self._flat(a, b, _BOOL)
        if kind in (prim.Min, prim.Max):
            return self._extremum(a, b, least=kind is prim.Min)
        if not a.slopes and not b.slopes:
            return self._bounded(kind, a, b)
        number = b.constant
        if kind is prim.Mul and (number is not None or a.constant is not None):
            known = number if number is not None else a.constant
            assert known is not None
            return (a if number is not None else b).times(Fraction(known))
        if number is None or number < 0:
            raise Unbounded
        if kind is prim.LShift:
            return a.times(Fraction(1 << number))
        if kind is prim.RShift:
            return self._quotient(a, 1 << number)
        if kind is prim.BitwiseAnd:
            return self._remainder(a, 1 << number.bit_length())
        if number and kind in (prim.FloorDiv, prim.Div):
            if kind is prim.Div:
                self._settle(a)
            return self._quotient(a, number)
        if number and kind in (prim.FloorMod, prim.Mod):
            if kind is prim.Mod:
                self._settle(a)
            return self._remainder(a, number)
        raise Unbounded

    def _bounded(self, kind: Any, a: Slopes, b: Slopes) -> Slopes:
        """The form of an operation on values that repeat."""
        number = b.constant
        if kind is prim.Mul and number is not None:
            return a.times(Fraction(number))
        if kind in (prim.FloorMod, prim.Mod) and number:
            return _of(-abs(number) if kind is prim.Mod else 0, abs(number))
        if kind in (prim.FloorDiv, prim.Div) and number and a.low is not None:
            shrunk = a.times(Fraction(1, number))
            return shrunk.plus(_of(-1, 1))
        if kind is prim.RShift and number is not None and a.low is not None:
            return a.times(Fraction(1, 1 << number)).plus(_of(-1, 1))
        if kind is prim.BitwiseAnd and number is not None and number >= 0:
            return _of(0, number)
        return _ANY

    def _remainder(self, form: Slopes, modulus: int) -> Slopes:
        self._turn(form, modulus)
        return _of(-modulus, modulus)

    def _quotient(self, form: Slopes, divisor: int) -> Slopes:
        self._turn(form, divisor)
        return form.times(Fraction(1, divisor)).plus(_of(-1, 1))

    def _turn(self, form: Slopes, modulus: int) -> None:
        """Note after how many iterations a form has gone through a multiple of ``modulus``."""
        for var, slope in form.slopes.items():
            if isinstance(var, TripCount):
                raise Unbounded
            turns = Fraction(modulus) / abs(slope)
            self.every[var] = math.lcm(self.every[var], turns.numerator)

    def _settle(self, form: Slopes) -> None:
        """Note from when on a form keeps its sign."""
        if not form.slopes:
            return
        for var in form.slopes:
            if len(form.slopes) == 2 and TripCount(var) in form.slopes:
                self._settle_to_go(form, var)
                return
        if len(form.slopes) > 1 or any(isinstance(var, TripCount) for var in form.slopes):
            raise Unbounded
        ((var, slope),) = form.slopes.items()
        against = form.low if slope > 0 else form.high
        if against is None:
            raise Unbounded
        self.after[var] = max(self.after[var], math.floor(-against / slope) + 1)

    def _settle_to_go(self, form: Slopes, var: Any) -> None:
        """Note where a form a * i + b * n + r keeps its sign, n the trip count.

        With d = n - i to go that is (a + b) * i + b * d + r, and neither i nor d is less than 0.
        """
        to_go = form.slopes[TripCount(var)]
        both = form.slopes[var] + to_go
        if both * to_go < 0:
            raise Unbounded
        self.horizon[var] = max(self.horizon[var], int(form.reach / abs(to_go)) + 1)
        if both:
            self.after[var] = max(self.after[var], int(form.reach / abs(both)) + 1)

    def _extremum(self, a: Slopes, b: Slopes, *, least: bool) -> Slopes:
        difference = a.plus(b, -1)
        if len(difference.slopes) > 1:
            raise Unbounded
        self._settle(difference)
        if difference.slopes:
            ((_, slope),) = difference.slopes.items()
            return b if (slope > 0) == least else a
        return self._either(a, b)

    def _choice(self, condition: Any, yes: Any, no: Any) -> Slopes:
        self.decide(condition)
        return self._either(self.form(yes), self.form(no))

    def _either(self, a: Slopes, b: Slopes) -> Slopes:
        if dict(a.slopes) != dict(b.slopes):
            raise Unbounded
        low = None if a.low is None or b.low is None else min(a.low, b.low)
        high = None if a.high is None or b.high is None else max(a.high, b.high)
        return Slopes(a.slopes, low, high)

    def _flat(self, a: Slopes, b: Slopes, result: Slopes) -> Slopes:
        if a.slopes or b.slopes:
            raise Unbounded
        return result

    def _call(self, call: Any) -> Slopes:
        name = op_name(call)
        if is_trip_count(call):
            var = self._loops.get(int(call.args[1].value))
            return self.form(call.args[2]) if var is None else _slope(TripCount(var))
        if name == "prim.if_then_else":
            return self._choice(*call.args)
        if name in _SHOWS_ARGUMENT:
            return self.form(call.args[-1])
        if name in ADDRESSES and isinstance(call.args[0], TensorLoad):
            self.form(call.args[0])
            return _ANY
        for arg in call.args:
            self.decide(arg)
        return _ANY
