"""Registers whose values are never negative, as nothing that is stored in them is.

    slot = 0;  slot = slot + 1;  slot = (slot + n) % 4        =>        slot >= 0, if n is

A quotient or remainder that rounds towards zero repeats where the sign of its operand is known, and
a register may be a part of that. Sums are those of integers: that they leave 32 bits is not
considered, as elsewhere.

Does not handle: registers of several elements, under several names, that instructions write, or
that may be read before they are written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from tvm import ir, tirx
from tvm.ir import TensorLoad, prim

from ...emulator.translate.operation import op_name
from ...passes.ir.kernels import bodies
from ...passes.ir.nodes import collect, const_int
from .deciding import Deciding, is_common, own_expressions, registers_written
from .eventually import COMPARISONS

_OF_BOTH: Final = (
    *(prim.Add, prim.Mul, prim.Min, prim.BitwiseOr, prim.BitwiseXor, prim.RShift),
    *(prim.Div, prim.FloorDiv, prim.Mod, prim.FloorMod),
)
"""Operations whose result is not negative if no operand is."""

_OF_EITHER: Final = (prim.Max, prim.BitwiseAnd)
"""Those whose result is not negative if one operand is not."""

_TRUTH: Final = (*COMPARISONS, prim.And, prim.Or, prim.Not)


def naturals(func: Any, deciding: Deciding, given: Iterable[Any] = ()) -> frozenset[str]:
    """Return the names of registers that are never negative, if the variables ``given`` are not."""
    found = _Registers(given)
    found.visit(func.body, frozenset())
    known = (found.single & found.stores.keys() & deciding.buffers) - found.unknown
    while True:
        left = {
            name
            for name in known
            if all(
                _is_natural(value, known, found.counters, deciding.values)
                for value in found.stores[name]
            )
        }
        if left == known:
            return frozenset(known)
        known = left


class _Registers:
    """What is stored in registers, and which are read before that or written in other ways.

    ``single``: those of one element. ``counters``: variables that are not negative.
    """

    def __init__(self, given: Iterable[Any]) -> None:
        self.stores: dict[str, list[Any]] = {}
        self.single: set[str] = set()
        self.unknown: set[str] = set()
        self.counters: set[Any] = set(given)
        self._allocated: dict[str, Any] = {}  # by name, the variable of the data

    def visit(self, stmt: Any, stored: frozenset[str]) -> frozenset[str]:
        """Take in a statement; return which registers are stored behind it, if some are before."""
        self._read(stmt, stored)
        if isinstance(stmt, tirx.IfThenElse):
            behind = self.visit(stmt.then_case, stored)
            other = stmt.else_case
            return behind & (stored if other is None else self.visit(other, stored))
        if isinstance(stmt, tirx.For | tirx.While):
            if isinstance(stmt, tirx.For) and const_int(stmt.min) == 0:
                self.counters.add(stmt.loop_var)
            return stored & self.visit(stmt.body, stored)
        for part in bodies(stmt):
            stored = self.visit(part, stored)
        if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == "thread_extent":
            self.counters.add(stmt.node.var)
        if isinstance(stmt, tirx.AllocBuffer):
            return stored - {self._allocate(stmt.buffer)}
        if isinstance(stmt, tirx.DeclBuffer):
            self.unknown |= {
                name for name, data in self._allocated.items() if stmt.data.same_as(data)
            }
        if isinstance(stmt, tirx.BufferStore) and not is_common(stmt.buffer):
            name = str(stmt.buffer.name)
            self.stores.setdefault(name, []).append(stmt.value)
            return stored | {name}
        return stored

    def _allocate(self, buffer: Any) -> str:
        """Note an allocation, which holds nothing yet; the name of it."""
        name = str(buffer.name)
        self.unknown |= {name} & self._allocated.keys()
        self._allocated[name] = buffer.data
        if [const_int(extent) for extent in buffer.shape] == [1]:
            self.single.add(name)
        return name

    def _read(self, stmt: Any, stored: frozenset[str]) -> None:
        """Note what a statement reads that may not be stored, and what instructions write."""
        exprs = [*own_expressions(stmt), *([stmt.value] if isinstance(stmt, tirx.AttrStmt) else ())]
        for expr in exprs:
            loads = collect(expr, TensorLoad)
            self.unknown |= {str(load.source.name) for load in loads} - stored
        self.unknown |= {buffer for _, buffer in registers_written(stmt)}


def _is_natural(
    expr: Any, known: Collection[str], counters: Collection[Any], values: Mapping[Any, Any]
) -> bool:
    """Whether a value is not negative, if registers that are ``known`` and ``counters`` are not."""

    def holds(inner: Any) -> bool:
        return _is_natural(inner, known, counters, values)

    if isinstance(expr, prim.IntImm):
        return int(expr.value) >= 0
    if isinstance(expr, ir.Var):
        return expr in counters or (expr in values and holds(values[expr]))
    if isinstance(expr, TensorLoad):
        return not is_common(expr.source) and str(expr.source.name) in known
    if isinstance(expr, prim.Cast):
        return str(expr.value.ty) == "bool"
    if isinstance(expr, _TRUTH):
        return True
    if isinstance(expr, prim.Select):
        return holds(expr.true_value) and holds(expr.false_value)
    if isinstance(expr, ir.Call) and op_name(expr) == "prim.if_then_else":
        return holds(expr.args[1]) and holds(expr.args[2])
    if isinstance(expr, _OF_EITHER):
        return holds(expr.a) or holds(expr.b)
    return isinstance(expr, _OF_BOTH) and holds(expr.a) and holds(expr.b)
