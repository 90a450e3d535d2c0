"""Split a statement into the global loads that feed it and the rest, with registers between.

``pipeliner/mechanisms/register.py`` says when a copy goes through registers.

    C[i, tx] = A[i, tx] + B[i, tx]
 => C.load    R[0] = A[i, tx]; R_1[0] = B[i, tx]
    C         C[i, tx] = R[0] + R_1[0]

Both halves have the same unrolled loops, so each register has a constant index. A load under a
condition, with zero else, is one unit and stays under it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

from ...diagnostics import Reason
from ...errors import LoweringError
from ...values.op import Op
from ..ir.indexing import conjunction, is_uniform
from ..ir.nodes import (
    Buffer,
    Expr,
    ForKind,
    SBlockRealize,
    Stmt,
    TensorLoad,
    Var,
    buffer,
    collect,
    const_int,
    i32,
    is_among,
    is_global,
    seq,
    substitute,
)
from ..ir.patterns import is_call, masked_load

REGISTER_LIMIT: Final = 128
"""Most elements of one thread that a split may keep between its halves."""


@dataclass
class _Stage:
    """The register buffers made for one statement, and where the next element of each load goes."""

    load: Op
    may_load: Callable[[Any], bool]
    buffers: list[Buffer] = field(default_factory=list)

    def refused(self, code: str, **args: Any) -> LoweringError:
        """What is raised where the statement cannot be split."""
        return LoweringError(
            "copy.by_registers", copy=self.load.statement, why=Reason(code, **args)
        )


def split_loads(op: Op, stmt: Stmt, written: Collection[Buffer]) -> tuple[Stmt, Stmt, list[Buffer]]:
    """Return the global loads of ``stmt``, the rest, and the registers between them.

    ``op``: the loads, which the registers are named after. ``written``: buffers that the loop
    writes; loads from them stay where they are. Raises LoweringError where loads and rest cannot
    be told apart, or there are none, or too many.
    """

    def may_load(load: Any) -> bool:
        return is_global(load.source) and load.source not in written

    stage = _Stage(op, may_load)
    load, use = _split(stmt, [], stage)
    if not stage.buffers:
        raise stage.refused("copy.loads_nothing")
    return load, use, stage.buffers


def _split(stmt: Stmt, loops: list[tuple[Var, int]], stage: _Stage) -> tuple[Stmt, Stmt]:
    if isinstance(stmt, tirx.BufferStore):
        return _split_store(stmt, loops, stage)
    if isinstance(stmt, tirx.SeqStmt):
        halves = [_split(part, loops, stage) for part in stmt.seq]
        return seq(*[half[0] for half in halves]), seq(*[half[1] for half in halves])
    if isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
        inner = _split(stmt.then_case, loops, stage)
        if not all(map(stage.may_load, collect(stmt.condition, TensorLoad))):
            raise stage.refused("copy.asks_itself")  # both halves ask for it
        return (
            tirx.IfThenElse(stmt.condition, inner[0], None),
            tirx.IfThenElse(stmt.condition, inner[1], None),
        )
    if isinstance(stmt, SBlockRealize):
        block = stmt.block
        if block.alloc_buffers or block.match_buffers or block.init is not None:
            raise stage.refused("copy.has_buffers")
        if const_int(stmt.predicate) == 1:
            return _split(block.body, loops, stage)
        return _split(tirx.IfThenElse(stmt.predicate, block.body, None), loops, stage)
    if isinstance(stmt, tirx.For) and stmt.thread_binding is None:
        return _split_loop(stmt, loops, stage)
    raise stage.refused("copy.inseparable", statement=type(stmt).__name__)


def _split_loop(loop: Any, loops: list[tuple[Var, int]], stage: _Stage) -> tuple[Stmt, Stmt]:
    extent = const_int(loop.extent)
    if extent is None or const_int(loop.min) != 0:
        raise stage.refused("copy.no_share", loop=str(loop.loop_var.name))
    inner = _split(loop.body, [*loops, (loop.loop_var, extent)], stage)
    kind = ForKind.VECTORIZED if loop.kind == ForKind.VECTORIZED else ForKind.UNROLLED
    halves = []
    for half in inner:
        var = Var(str(loop.loop_var.name), str(loop.loop_var.ty))
        body = substitute(half, {loop.loop_var: var})
        halves.append(_loop(var, loop.extent, kind, body))
    return halves[0], halves[1]


def _loop(var: Var, extent: Expr, kind: Any, body: Stmt) -> Stmt:
    """Return a loop around ``body``, inside any branch that all lanes take together.

    A vector of a masked load is a vector load or zeros. In this form each side is one instruction,
    and no vector of 8-bit zeros is made (which TVM's CUDA printer gets wrong).
    """
    lanes = const_int(extent) or 1
    if kind != ForKind.VECTORIZED or not isinstance(body, tirx.BufferStore):
        if isinstance(body, tirx.SeqStmt):
            return seq(*[_loop(var, extent, kind, part) for part in body.seq])
        return tirx.For(var, i32(0), extent, kind, body)
    loaded = masked_load(body.value)
    if loaded is None or not loaded[1] or not all(is_uniform(p, var, lanes) for p in loaded[1]):
        return tirx.For(var, i32(0), extent, kind, body)
    load, mask = loaded
    condition = substitute(conjunction(mask), {var: i32(0)})
    zero = tirx.BufferStore(body.buffer, tirx.const(0, str(body.buffer.dtype)), body.indices)
    other = Var(str(var.name), "int32")
    return tirx.IfThenElse(
        condition,
        tirx.For(var, i32(0), extent, kind, tirx.BufferStore(body.buffer, load, body.indices)),
        tirx.For(other, i32(0), extent, ForKind.UNROLLED, substitute(zero, {var: other})),
    )


def _split_store(store: Any, loops: list[tuple[Var, int]], stage: _Stage) -> tuple[Stmt, Stmt]:
    units = _units(store.value, stage.may_load)
    if not units:
        return tirx.Evaluate(i32(0)), store
    count = 1
    index: Expr = i32(0)
    for var, extent in loops:
        index = index * extent + var
        count *= extent
    elements = count * len(units) + sum(int(b.shape[0]) for b in stage.buffers)
    if elements > REGISTER_LIMIT:
        raise stage.refused("copy.share", elements=elements, most=REGISTER_LIMIT)
    loads, value = [], store.value
    for unit in units:
        suffix = f"_{len(stage.buffers)}" if stage.buffers else ""
        register = buffer([count], str(unit.ty), f"{stage.load}{suffix}", "local")
        stage.buffers.append(register)
        loads.append(tirx.BufferStore(register, unit, [index]))
        value = _replace(value, unit, tirx.BufferLoad(register, [index]))
    return seq(*loads), tirx.BufferStore(store.buffer, value, store.indices)


def _units(value: Expr, may_load: Callable[[Any], bool]) -> list[Expr]:
    """Return the loads in ``value`` that can be made ahead, with their conditions, each once."""
    found: list[Expr] = []

    def add(unit: Expr) -> None:
        if not is_among(unit, found):
            found.append(unit)

    def visit(expr: Expr) -> None:
        masked = masked_load(expr)
        if masked is not None:
            load, mask = masked
            loads = [one for part in (load, *mask) for one in collect(part, TensorLoad)]
            if all(map(may_load, loads)):
                add(expr)
            return
        if is_call(expr, "if_then_else"):
            return  # what its branches load, they load under the condition only
        for child in _children(expr):
            visit(child)

    visit(value)
    return found


def _children(expr: Expr) -> list[Expr]:
    if isinstance(expr, Call):
        return [arg for arg in expr.args if not isinstance(arg, str)]
    if isinstance(expr, tirx.Cast):
        return [expr.value]
    if isinstance(expr, tirx.Select):
        return [expr.condition, expr.true_value, expr.false_value]
    if hasattr(expr, "a") and hasattr(expr, "b"):
        return [expr.a, expr.b]
    return []


def _replace(value: Expr, unit: Expr, by: Expr) -> Expr:
    kind = type(unit)

    def swap(node: Any) -> Any:
        return by if tvm_ffi.structural_equal(node, unit) else node

    return tvm_ffi.structural_map(value, [(kind, swap)], order="pre")
