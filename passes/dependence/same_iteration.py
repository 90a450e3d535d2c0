"""Prove that two accesses to one element belong to one iteration of the loops around both.

    A[t * 64 + tx]   and   C[t * 64 + tx']      64 > tx - tx', so t is t', and so tx is tx'

Indices are numbers written in digits: a loop variable, or a quotient or modulo of one, times its
coefficient. From the largest coefficient down, a digit is equal on both sides if all finer digits
together cannot make up for a difference of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tvm import sym, tirx
from tvm.ir import Range, Var

from ..ir.linear import terms_of
from ..ir.nodes import const_int, is_among, variables

_UNBOUNDED: Final = 1 << 40


@dataclass(frozen=True)
class Side:
    """The indices of an access, one for each dimension, and the loops around it."""

    indices: Sequence[Any]
    loops: Sequence[Any]


def same_instance(one: Side, other: Side, shared: Sequence[Any]) -> bool:
    """Whether both name one element only in the same iteration of all the ``shared`` loops."""
    found = _Equal({loop.loop_var for loop in shared}, _ranges([*one.loops, *other.loops]))
    before = -1
    while before != len(found.known):
        before = len(found.known)
        for a, b in zip(one.indices, other.indices, strict=True):
            found.compare(a, b)
    return all(found.holds(loop.loop_var) or const_int(loop.extent) == 1 for loop in shared)


def _ranges(loops: Sequence[Any]) -> sym.Analyzer:
    analyzer = sym.Analyzer()
    seen: set[Any] = set()
    for loop in loops:
        if loop.loop_var not in seen:
            seen.add(loop.loop_var)
            analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
    return analyzer


@dataclass
class _Equal:
    """Collects what is equal on both sides: expressions of the ``shared`` variables."""

    shared: set[Var]
    ranges: sym.Analyzer
    known: list[Any] = field(default_factory=list)

    def holds(self, expr: Any) -> bool:
        """Whether ``expr`` is known to be equal."""
        inside = variables(expr)
        if is_among(expr, self.known):
            return True
        if isinstance(expr, Var):
            return self._is_put_together(expr)
        return inside <= self.shared and all(self.holds(var) for var in inside)

    def _is_put_together(self, var: Var) -> bool:
        """Whether a quotient of ``var`` and its modulo by the same divisor are known."""
        by: dict[type, set[int]] = {tirx.FloorDiv: set(), tirx.FloorMod: set()}
        for known in self.known:
            if type(known) in by and var.same_as(known.a):
                by[type(known)].add(const_int(known.b) or 0)
        return not by[tirx.FloorDiv].isdisjoint(by[tirx.FloorMod])

    def compare(self, a: Any, b: Any) -> None:
        """Learn from ``a`` of one side being equal to ``b`` of the other."""
        mine, theirs = (terms_of(self.ranges.simplify(index)) for index in (a, b))
        gap = abs(mine.base - theirs.base)
        digits: dict[int, tuple[list[Any], list[Any]]] = {}
        for side, form in enumerate((mine, theirs)):
            for coefficient, expr in form.terms:
                digits.setdefault(coefficient, ([], []))[side].append(expr)
        left: list[tuple[int, list[Any], list[Any]]] = []
        for coefficient, (here, there) in digits.items():
            same = [expr for expr in here if is_among(expr, there) and self.holds(expr)]
            ours = [expr for expr in here if not is_among(expr, same)]
            others = [expr for expr in there if not is_among(expr, same)]
            if ours or others:
                left.append((coefficient, ours, others))
        left.sort(key=lambda digit: -abs(digit[0]))
        for at, (coefficient, ours, others) in enumerate(left):
            finer = sum(abs(c) * self._reach(x, y) for c, x, y in left[at + 1 :])
            if finer + gap >= abs(coefficient) or len(ours) > 1 or len(others) > 1:
                return
            if ours and is_among(ours[0], others) and variables(ours[0]) <= self.shared:
                self.known.append(ours[0])

    def _reach(self, ours: Sequence[Any], others: Sequence[Any]) -> float:
        """Return the largest difference between the sums of two lists of digits."""
        low = high = 0.0
        for sign, exprs in ((1, ours), (-1, others)):
            for expr in exprs:
                bound = self.ranges.const_int_bound(expr)
                if bound.max_value > _UNBOUNDED or bound.min_value < -_UNBOUNDED:
                    return math.inf
                ends = sign * bound.min_value, sign * bound.max_value
                low, high = low + min(ends), high + max(ends)
        return max(abs(low), abs(high))
