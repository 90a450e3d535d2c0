"""Statements in which nothing is judged: whoever comes to them, and how often, decides nothing.

Such are those that touch global memory and registers alone, no registers that decide. What decides
about them is a condition or an extent as elsewhere, but a proof need not know it: nothing follows.
Where tensor cores work on registers asynchronously, whoever reads registers is judged, too. More
reads meet all that is wrong with fewer, so for a proof a condition on these may hold always:

    if row < m: C[row] = acc[0]        =>        if True: C[row] = acc[0]
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import TensorLoad

from ...emulator.translate.operation import is_pure
from ...emulator.translate.ptx import matrix_registers
from ...passes.ir.kernels import bodies
from ...passes.ir.nodes import has, is_global, is_shared
from .deciding import Deciding, numbered_statements, reaches
from .overtaking import may_overtake

_PLAIN: Final = (
    tirx.SeqStmt,
    tirx.AttrStmt,
    tirx.Bind,
    tirx.IfThenElse,
    tirx.For,
    tirx.BufferStore,
    tirx.DeclBuffer,
    tirx.Evaluate,
)


def idle(func: Any, deciding: Deciding) -> frozenset[int]:
    """Return the numbers of the statements of a device function in which nothing is judged.

    Of one that may overtake the kernel before it, accesses of global memory are.
    """
    if may_overtake(func):
        return frozenset()
    statements = _Idle(func, deciding, reads_registers=not _has_matrix_registers(func))
    return frozenset(n for stmt, n in numbered_statements(func.body) if statements.has(stmt))


def with_all_reads(func: Any, deciding: Deciding, parameters: Collection[Any]) -> Any:
    """Return a device function in which conditions hold on reads of registers, if on nothing else.

    Those that depend on ``parameters`` do. Its tensor cores have the same registers in flight.
    """
    if may_overtake(func) or not _has_matrix_registers(func):
        return func
    statements = _Idle(func, deciding, reads_registers=True)

    def kept(stmt: Any) -> Any:
        if stmt.else_case is not None or not statements.has(stmt):
            return stmt
        if not reaches(stmt.condition, parameters, deciding.values):
            return stmt
        return tirx.IfThenElse(tirx.const(1, "bool"), stmt.then_case, None)

    return func.with_body(tvm_ffi.structural_map(func.body, [(tirx.IfThenElse, kept)], order="pre"))


class _Idle:
    """Which statements of a device function are idle, those that read registers or not."""

    def __init__(self, func: Any, deciding: Deciding, *, reads_registers: bool) -> None:
        self._deciding = deciding
        self._reads_registers = reads_registers
        self._known: dict[Any, bool] = {}

    def has(self, stmt: Any) -> bool:
        """Whether a statement is idle, with those inside."""
        if stmt not in self._known:
            self._known[stmt] = self._is_plain(stmt) and all(map(self.has, bodies(stmt)))
        return self._known[stmt]

    def _is_plain(self, stmt: Any) -> bool:
        """Whether a statement itself, without those inside, does nothing that is judged."""
        if not isinstance(stmt, _PLAIN):
            return False
        if isinstance(stmt, tirx.BufferStore):
            if is_shared(stmt.buffer) or str(stmt.buffer.name) in self._deciding.buffers:
                return False
            if not is_global(stmt.buffer) and not self._reads_registers:
                return False
            return not any(map(self._is_judged, (stmt.value, *stmt.indices)))
        if isinstance(stmt, tirx.Bind | tirx.Evaluate):
            return not self._is_judged(stmt.value)
        if isinstance(stmt, tirx.IfThenElse):
            return not self._is_judged(stmt.condition)
        bounds = (stmt.min, stmt.extent) if isinstance(stmt, tirx.For) else ()
        return not any(map(self._is_judged, bounds))

    def _is_judged(self, expr: Any) -> bool:
        """Whether evaluating an expression touches memory that is judged, or may do more."""

        def counts(load: Any) -> bool:
            return not is_global(load.source) and (
                is_shared(load.source) or not self._reads_registers
            )

        return has(expr, TensorLoad, counts) or has(expr, ir.Call, lambda call: not is_pure(call))


def _has_matrix_registers(func: Any) -> bool:
    return has(func.body, ir.Call, lambda call: bool(matrix_registers(call)))
