"""Comparisons of a loop's variable with the loop's own trip count, as questions to a walk.

    for i in range(n):                     for i in range(n):
        if i + 2 < n:              =>          if i + 2 < trip_count(loop, n):
            copy(i + 2)                            copy(i + 2)

A walk that leaves the trip count open answers with one that is known to be near, or with any that
is far enough to decide alike. Elsewhere the answer is the extent, as before: the code is the same.

What is compared may also be a multiple of the trip count and more, which repeats with n:

    for t in range((n + 511) // 512):      (n + 63) // 64  =>  8 * trip_count(t, ...) + rest(n)
        if t * 8 + x < (n + 63) // 64:     rest(n) = (n + 63) // 64 - 8 * ((n + 511) // 512)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import TensorLoad, prim
from tvm_ffi.structural import WalkResult

from ...emulator.translate.operation import TRIP_COUNT, is_pure, is_trip_count
from ...passes.ir.nodes import collect, const_int, has, simplify, substitute, variables
from .deciding import Deciding, numbered_statements
from .eventually import COMPARISONS, Repeats, Unbounded

_MOST_TO_GO: Final = 16
"""Iterations before the end of a loop up to which a constant is read as so many before it."""


def with_trip_counts(func: Any, parameters: Collection[Any]) -> Any:
    """Return a device function that asks for trip counts that depend on ``parameters`` alone."""
    ends = _Ends(func, frozenset(parameters))
    if not ends.loops:
        return func
    changes = [(kind, ends.asked) for kind in COMPARISONS]
    return func.with_body(tvm_ffi.structural_map(func.body, changes, order="post"))


def as_written(expr: Any) -> str:
    """An expression as it was before it asked for trip counts."""

    def extent(call: Any) -> Any:
        return call.args[2] if is_trip_count(call) else call

    return str(simplify(tvm_ffi.structural_map(expr, [(ir.Call, extent)], order="post")))


def with_ends(func: Any, deciding: Deciding) -> Any:
    """Return a device function that asks for trip counts that are constants, near their ends.

        for k in range(64):                    for k in range(64):
            if k < 61: copy(k + 3)     =>          if k + (64 - trip_count(k, 64)) < 61: copy(k + 3)

    Its text, made for one trip count, is read as one for any. With its own one it does the same.
    A loop is left as it is if something that decides is compared near its end, but cannot be read:
    it grows by fractions, or is the lesser of two.
    """
    loops: dict[Any, tuple[int, int]] = {}
    values = {}
    for stmt, number in numbered_statements(func.body):
        if isinstance(stmt, tirx.Bind) and not _reads(stmt.value):
            values[stmt.var] = stmt.value
        if isinstance(stmt, tirx.For):
            extent = const_int(stmt.extent) if _is_plain(stmt) else None
            if stmt.loop_var in loops or extent is None:
                extent = 0  # of none that is meant
            loops[stmt.loop_var] = number, extent
    unread = set()
    for expr, _ in deciding.exprs:  # with the named values in them
        for one in collect(expr, (*COMPARISONS, prim.Min, prim.Max)):
            near = near_end(one, loops, values)
            if near and (isinstance(one, prim.Min | prim.Max) or near[1].denominator != 1):
                unread.add(near[0])

    def asked(comparison: Any) -> Any:
        near = near_end(comparison, loops, values)
        if near is None or near[0] in unread or comparison.a.ty != near[0].ty:
            return comparison
        var, slope = near
        number, extent = loops[var]
        dtype = str(var.ty)
        own, place = tirx.const(extent, dtype), tirx.IntImm("int32", number)
        asking = tirx.call_pure_extern(dtype, TRIP_COUNT, place, own)
        more = (own - asking) * tirx.const(int(slope), dtype)
        return type(comparison)(comparison.a + more, comparison.b)

    changes = [(kind, asked) for kind in COMPARISONS]
    return func.with_body(tvm_ffi.structural_map(func.body, changes, order="post"))


def near_end(
    comparison: Any, loops: Mapping[Any, tuple[int, int]], values: Mapping[Any, Any]
) -> tuple[Any, Fraction] | None:
    """The variable that is compared with what is near the end of its loop, and its slope.

    None: there is none. ``loops``: by their variables, the number and the trip count of each, 0
    where that is no constant.
    """
    forms = Repeats(set(loops), {}, values)
    try:
        form = forms.form(comparison.a).plus(forms.form(comparison.b), -1)
    except Unbounded:
        return None
    if len(form.slopes) != 1 or form.low is None or form.high is None:
        return None
    ((var, slope),) = form.slopes.items()
    extent = loops[var][1]
    to_go = extent + (form.low + form.high) / 2 / slope
    is_near = extent > 0 and -1 <= to_go <= min(_MOST_TO_GO, extent / 2)
    return (var, slope) if is_near else None


class _Ends:
    """The loops of a function with such a trip count, by their variable: number and extent."""

    def __init__(self, func: Any, parameters: frozenset[Any]) -> None:
        self._parameters = parameters
        self._values: dict[Any, Any] = {}
        self.loops: dict[Any, tuple[int, Any]] = {}
        seen = set()
        for stmt, number in numbered_statements(func.body):
            if isinstance(stmt, tirx.Bind) and not _reads(stmt.value):
                self._values[stmt.var] = stmt.value
            if isinstance(stmt, tirx.For):
                extent = self._whole(stmt.extent)
                if _is_plain(stmt) and stmt.loop_var not in seen and self._is_given(extent):
                    self.loops[stmt.loop_var] = number, extent
                else:
                    self.loops.pop(stmt.loop_var, None)
                seen.add(stmt.loop_var)

    def asked(self, comparison: Any) -> Any:
        """A comparison that asks for the trip count of the loop whose variable it has, if any."""
        whole = self._whole(comparison)
        loops = [self.loops[var] for var in variables(whole) if var in self.loops]
        if not loops:
            return comparison
        values: list[tuple[Any, Any]] = []

        def visit(node: Any) -> Any:
            if not self._is_given(node):
                return None
            for number, extent in loops:
                factor = self._factor(node, extent)
                if factor:
                    dtype = str(extent.ty)
                    place, times = tirx.IntImm("int32", number), tirx.const(factor, dtype)
                    asking = tirx.call_pure_extern(dtype, TRIP_COUNT, place, extent)
                    values.append((node, asking * times + simplify(node - extent * times)))
                    break
            return WalkResult.SKIP

        tvm_ffi.structural_walk(whole, [(ir.Expr, visit)], order="pre")
        return _replaced(whole, values) if values else comparison

    def _factor(self, expr: Any, extent: Any) -> int:
        """How many times as fast as an extent an expression grows; 0: that is no whole number."""
        if str(expr.ty) != str(extent.ty):
            return 0
        forms = Repeats(set(self._parameters), {}, {})
        try:
            fast, slow = forms.form(expr).slopes, forms.form(extent).slopes
        except Unbounded:
            return 0
        ratios = {slope / slow[var] for var, slope in fast.items() if var in slow}
        (ratio,) = ratios if len(ratios) == 1 else (Fraction(0),)
        whole = fast.keys() == slow.keys() and ratio > 0 and ratio.denominator == 1
        return int(ratio) if whole else 0

    def _whole(self, expr: Any) -> Any:
        """An expression with named values put in that no memory is read for."""
        while named := {v: self._values[v] for v in variables(expr) if v in self._values}:
            expr = substitute(expr, named)
        return expr

    def _is_given(self, expr: Any) -> bool:
        """Whether the arguments of a launch decide the value of an expression, and do."""
        inside = variables(expr)
        return bool(inside) and inside <= self._parameters and not _reads(expr)


def _is_plain(loop: Any) -> bool:
    """Whether a loop counts from 0 on, one by one."""
    stride = getattr(loop, "step", None)
    return const_int(loop.min) == 0 and (stride is None or const_int(stride) == 1)


def _reads(expr: Any) -> bool:
    """Whether an expression reads memory, or depends on who computes it."""
    return has(expr, TensorLoad) or has(expr, ir.Call, lambda call: not is_pure(call))


def _replaced(expr: Any, values: Sequence[tuple[Any, Any]]) -> Any:
    """An expression with some of its parts replaced, by what they are as nodes."""

    def visit(node: Any) -> Any:
        return next((new for old, new in values if node.same_as(old)), node)

    kinds = {type(old) for old, _ in values}
    return tvm_ffi.structural_map(expr, [(kind, visit) for kind in kinds], order="post")
