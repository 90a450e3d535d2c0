"""Statements of loops of roles: with another body or variable, and the shared memory they use."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tvm_ffi
from tvm import tirx

from ...diagnostics import Reason
from ...errors import LoweringError
from ...values.op import Op
from ..analysis.effects import WRITE, effects
from ..ir.kernels import bodies
from ..ir.nodes import (
    Call,
    Expr,
    ForKind,
    Stmt,
    TensorLoad,
    Var,
    collect,
    has,
    is_buffer_var,
    is_global,
    is_shared,
    op_of,
    uses,
)


def rolled(loop: Any, var: Var, body: Stmt, extent: Expr | None = None) -> Stmt:
    """Return ``loop`` with another body (and ``extent``), which nvcc does not unroll."""
    annotations = {"disable_unroll": True}
    times = loop.extent if extent is None else extent
    return tirx.For(var, loop.min, times, ForKind.SERIAL, body, None, annotations)


def with_var(stmt: Stmt, old: Var, new: Var) -> Stmt:
    """Return ``stmt`` with another loop variable."""
    return tvm_ffi.structural_map(
        stmt, [(Var, lambda v: new if v.same_as(old) else v)], order="post"
    )


def holds(stmt: Stmt, loop: Any) -> bool:
    """Whether ``loop`` is inside ``stmt``."""
    return has(stmt, tirx.For, lambda node: bool(node.same_as(loop)))


def shared_outside(body: Stmt, loops: set[Any], ops: Collection[Op]) -> list[str]:
    """Return the names of the shared buffers that are used outside ``loops`` and ``ops``."""
    if (isinstance(body, tirx.For) and body in loops) or op_of(body) in ops:
        return []
    inner = bodies(body)
    if inner:
        return [name for part in inner for name in shared_outside(part, loops, ops)]
    return [str(var.name) for var in collect(body, Var, _is_shared_buffer)]


def check_condition(condition: Expr, thread: Any, body: Stmt) -> None:
    """Check that every thread agrees on a condition around a loop with mbarrier pairs.

    They agree on what they load from global memory that ``body``, all that they run, never writes.
    """
    loaded = {load.source for load in collect(condition, TensorLoad)}
    agreed = all(map(is_global, loaded))
    if agreed and loaded:
        agreed = loaded.isdisjoint(effects(body).buffers(WRITE))
    if not agreed or has(condition, Call) or uses(condition, [thread]):
        why = Reason("role.condition", condition=str(condition))
        raise LoweringError("role.kernel", why=why)


def _is_shared_buffer(var: Any) -> bool:
    return is_buffer_var(var) and is_shared(var)
