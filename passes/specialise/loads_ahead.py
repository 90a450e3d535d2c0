"""Load what consumers compute from global memory one step ahead, into registers.

    for k in range(n):                        even = F[0, row]
        wait full[slot]                       for k in range(0, n, 2):
        part = A * B                              odd = F[k + 1, row]
        acc += part * F[k, row]       =>          wait full[slot];  part = A * B
                                                  acc += part * even
                                                  even = F[min(k + 2, n - 1), row]
                                                  wait full[slot];  part = A * B
                                                  acc += part * odd

The latency of memory then passes under a step, and not inside of one. Arithmetic on what is loaded
stays where it is: it would wait for the loads. So would a copy from register to register, which is
why neighbouring steps have registers of their own.

Does not handle: loads of what the kernel writes, in branches, of vectors, or of more values than
``MOST_AHEAD``; loops that may have no step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

import tvm_ffi
from tvm import tirx

from ..ir.calls import called
from ..ir.kernels import bodies, with_bodies
from ..ir.nodes import (
    Buffer,
    Call,
    Expr,
    ForKind,
    Stmt,
    TensorLoad,
    Var,
    buffer,
    collect,
    const_int,
    i32,
    is_global,
    seq,
    substitute,
    unrolled,
    uses,
    variables,
)
from ..ir.op_form import OpLoop
from .statements import rolled

MOST_AHEAD: Final = 16
"""Values of a thread that a statement loads ahead: each takes two registers."""

_CHOICE: Final = "if_then_else"


@dataclass(frozen=True)
class ValueAhead:
    """A value that ``loops`` (their variables, and extents) tell apart.

    ``registers``: those of even steps and of odd ones.
    """

    value: Expr
    loops: tuple[tuple[Var, int], ...]
    registers: tuple[Buffer, Buffer]

    def at(self, registers: Buffer) -> Expr:
        """Return the value for the loops' variables in ``registers``."""
        place: Expr = i32(0)
        for var, extent in self.loops:
            place = place * extent + var
        return tirx.BufferLoad(registers, [place])

    def each(self, registers: Buffer, value: Expr) -> Stmt:
        """Return the stores of ``value`` into ``registers``, for every step of the loops."""
        stmt: Stmt = tirx.BufferStore(registers, value, list(self.at(registers).indices))
        for var, extent in reversed(self.loops):
            stmt = unrolled(str(var.name), extent, _with(stmt, var))
        return stmt


def _with(stmt: Stmt, var: Var) -> Callable[[Var], Stmt]:
    return lambda made: substitute(stmt, {var: made})


@dataclass
class LoadsAhead:
    """What the statements of one loop load ahead; ``step``: its variable.

    ``written``: the memory that the kernel writes. ``parity``: whose registers statements are
    rewritten for, even steps' (0) or odd ones' (1).
    """

    step: Var
    written: Collection[Buffer]
    values: list[ValueAhead] = field(default_factory=list)
    parity: int = 0

    def rewritten(self, stmt: Stmt) -> Stmt:
        """Return ``stmt`` with values loaded ahead in place of loads."""
        inside = {loop.loop_var for loop in collect(stmt, tirx.For)}
        inside |= {bind.var for bind in collect(stmt, tirx.Bind)}
        return self._rewritten(stmt, (), inside)

    def loads(self, step: Expr, parity: int) -> list[Stmt]:
        """Return the loads for ``step`` into the registers of even (0) or odd steps (1)."""
        return [
            one.each(one.registers[parity], substitute(one.value, {self.step: step}))
            for one in self.values
        ]

    @property
    def registers(self) -> list[Buffer]:
        """The registers of all values."""
        return [buf for one in self.values for buf in one.registers]

    def _rewritten(
        self, stmt: Stmt, loops: tuple[tuple[Var, int], ...], inside: Collection[Var]
    ) -> Stmt:
        if isinstance(stmt, tirx.IfThenElse):
            return stmt
        if isinstance(stmt, tirx.For):
            extent = const_int(stmt.extent)
            if stmt.kind != ForKind.UNROLLED or extent is None or const_int(stmt.min) != 0:
                return stmt
            loops = (*loops, (stmt.loop_var, extent))
        if isinstance(stmt, tirx.BufferStore):
            value = self._ahead(stmt.value, loops, inside)
            return tirx.BufferStore(stmt.buffer, value, stmt.indices)
        inner = bodies(stmt)
        return with_bodies(stmt, [self._rewritten(part, loops, inside) for part in inner])

    def _ahead(
        self, value: Expr, loops: tuple[tuple[Var, int], ...], inside: Collection[Var]
    ) -> Expr:
        def visit(node: Any) -> Any:
            own = tuple((var, extent) for var, extent in loops if uses(node, [var]))
            defined = set(variables(node)) & set(inside) - {var for var, _ in own}
            if defined or math.prod(extent for _, extent in own) > MOST_AHEAD:
                return node
            return self._known(node, own) if self._is_loaded(node) else node

        kinds = (Call, TensorLoad)  # arithmetic on a value would wait for it
        return tvm_ffi.structural_map(value, [(kind, visit) for kind in kinds], order="pre")

    def _is_loaded(self, node: Expr) -> bool:
        """Whether ``node`` is a load that the step chooses, or one where there is an element."""
        loads = collect(node, TensorLoad)
        kind = str(node.ty)
        return (
            bool(loads)
            and all(is_global(load.source) and load.source not in self.written for load in loads)
            and all(called(call).endswith(_CHOICE) for call in collect(node, Call))
            and any(uses(list(load.indices), [self.step]) for load in loads)
            and kind.startswith("float")
            and "x" not in kind
        )

    def _known(self, node: Expr, loops: tuple[tuple[Var, int], ...]) -> Expr:
        """Return the register of ``node``, a new one where no statement has it yet."""
        extents = [extent for _, extent in loops]
        for one in self.values:
            if [extent for _, extent in one.loops] != extents:
                continue
            theirs = {var: other for (var, _), (other, _) in zip(loops, one.loops)}
            if tvm_ffi.structural_equal(one.value, substitute(node, theirs)):
                found = one.at(one.registers[self.parity])
                return substitute(found, {other: var for var, other in theirs.items()})
        count = math.prod(extent for _, extent in loops)
        number, kind = len(self.values), str(node.ty)
        even, odd = (buffer([count], kind, f"{name}_{number}", "local") for name in ("even", "odd"))
        self.values.append(ValueAhead(node, loops, (even, odd)))
        return self.values[-1].at((even, odd)[self.parity])


def in_pairs(
    form: OpLoop, even: list[Stmt], again: Callable[[], list[Stmt]], ahead: LoadsAhead
) -> list[Stmt]:
    """Return the loop of ``form`` two steps at a time, with what ``ahead`` says loaded before.

    ``even``: the first of two steps, rewritten. ``again``: makes another instance of a step.
    """
    first, trip = form.node.min, form.trip or 0
    last = first + trip - 1

    def step(parity: int) -> list[Stmt]:
        ahead.parity = parity
        return list(map(ahead.rewritten, again()))

    def at(number: Expr, made: list[Stmt]) -> list[Stmt]:
        return [substitute(stmt, {form.var: number}) for stmt in made]

    pair = Var(form.var.name, form.var.ty)
    here = first + (pair - first) * 2
    body = [
        *ahead.loads(here + 1, 1),
        *at(here, even),
        *ahead.loads(tirx.Min(here + 2, last), 0),
        *at(here + 1, step(1)),
    ]
    paired = rolled(form.node, pair, seq(*body), i32(trip // 2))
    return [*ahead.loads(first, 0), paired, *(at(last, step(0)) if trip % 2 else [])]
