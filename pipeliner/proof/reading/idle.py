"""Statements in which nothing is judged: whoever comes to them, and how often, decides nothing.

Such are those that touch global memory and registers alone, no registers that decide. What decides
about them is a condition or an extent as elsewhere, but a proof need not know it: nothing follows.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import ir, tirx
from tvm.ir import TensorLoad

from ...emulator.translate.operation import is_pure
from ...passes.ir.kernels import bodies
from ...passes.ir.nodes import has, is_shared
from .deciding import Deciding, numbered_statements

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


_DEPENDENT: Final = "tirx.use_programtic_dependent_launch"


def idle(func: Any, deciding: Deciding) -> frozenset[int]:
    """Return the numbers of the statements of a device function in which nothing is judged.

    None, if it may be launched before the kernel before has ended: accesses of global memory are
    judged there.
    """
    if _DEPENDENT in map(str, func.attrs["tirx.kernel_launch_params"]):
        return frozenset()
    known: dict[Any, bool] = {}

    def is_idle(stmt: Any) -> bool:
        if stmt not in known:
            known[stmt] = _is_plain(stmt, deciding) and all(map(is_idle, bodies(stmt)))
        return known[stmt]

    return frozenset(number for stmt, number in numbered_statements(func.body) if is_idle(stmt))


def _is_plain(stmt: Any, deciding: Deciding) -> bool:
    """Whether a statement itself, without those inside, does nothing that is judged."""
    if not isinstance(stmt, _PLAIN):
        return False
    if isinstance(stmt, tirx.BufferStore):
        if is_shared(stmt.buffer) or str(stmt.buffer.name) in deciding.buffers:
            return False
        return not any(map(_is_judged, (stmt.value, *stmt.indices)))
    if isinstance(stmt, tirx.Bind | tirx.Evaluate):
        return not _is_judged(stmt.value)
    if isinstance(stmt, tirx.IfThenElse):
        return not _is_judged(stmt.condition)
    return not isinstance(stmt, tirx.For) or not any(map(_is_judged, (stmt.min, stmt.extent)))


def _is_judged(expr: Any) -> bool:
    """Whether evaluating an expression touches shared memory or may do more than compute."""
    loads = has(expr, TensorLoad, lambda load: is_shared(load.source))
    return loads or has(expr, ir.Call, lambda call: not is_pure(call))
