"""Barriers that a kernel does not need and the pipeliner cannot leave out.

Happens-before does not depend on the order that ran. Where no loaded value decides an address, a
condition or an extent, what one run without a barrier shows holds for every run at those extents:
if no two accesses are unordered, nothing needs the barrier. That is no excuse for a barrier that
the pipeliner placed where it stands. But it leaves alone those that the function has itself, and
behind it TVM adds its own, around reductions over threads, and unrolls loops, where the barrier of
the first iteration may have nothing to order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tvm import ir, tirx
from tvm.ir import TensorLoad

from ..diagnostics import Reason, Why
from ..emulator.translate.operation import op_name
from ..passes.ir.calls import ACCESS_PTR
from ..passes.ir.nodes import has, walk
from .mutants import Mutant, device_functions
from .operations import numbered, operations

_IF: Final = "tirx.if_then_else"


def needless(mod: Any, survivor: Mutant) -> Why:
    """Why a barrier that no run without it missed is not the pipeliner's; '' where it may be.

    ``mod``: with a plan, so that what has no origin is not of the pipeliner.
    """
    if survivor.kind != "barrier":
        return ""
    func = device_functions(mod)[0][survivor.kernel]
    alike = [op for op in operations(func) if op.origin == survivor.origin and op.kind == "barrier"]
    if survivor.origin is not None and len(alike) == 1:
        return ""
    if _data_decides(func.body):
        return ""
    ours = survivor.origin is not None
    why = Reason("mutation.unrolled") if ours else Reason("mutation.not_ours")
    return Reason("mutation.unneeded", why=why)


def _data_decides(body: Any) -> bool:
    """Whether a loaded value may be in an address, a condition or an extent."""
    loaded: set[Any] = set()
    for stmt, _, _ in numbered(body):
        if isinstance(stmt, tirx.Bind) and _is_data([stmt.value], loaded):
            loaded.add(stmt.var)
        if any(_is_data(exprs, loaded) for exprs in _decisive(stmt)):
            return True
    return False


def _decisive(stmt: Any) -> list[Sequence[Any]]:
    """The expressions in ``stmt`` itself that say what is accessed."""
    if isinstance(stmt, tirx.For):
        return [[stmt.min, stmt.extent]]
    if isinstance(stmt, tirx.IfThenElse | tirx.While):
        return [[stmt.condition]]
    if not isinstance(stmt, tirx.Bind | tirx.BufferStore | tirx.Evaluate):
        return []
    found: list[Sequence[Any]] = []

    def call(node: Any) -> None:
        if op_name(node) == _IF:
            found.append(node.args[:1])
        elif op_name(node) == ACCESS_PTR:
            found.append(node.args[2:])

    walk(stmt, TensorLoad, lambda load: found.append(load.indices))
    walk(stmt, tirx.BufferStore, lambda store: found.append(store.indices))
    walk(stmt, ir.Call, call)
    return found


def _is_data(exprs: Sequence[Any], loaded: set[Any]) -> bool:
    return any(
        has(expr, TensorLoad) or has(expr, ir.Var, lambda var: var in loaded) for expr in exprs
    )
