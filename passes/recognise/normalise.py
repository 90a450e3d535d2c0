"""Normalise what schedules produce to the forms that recognition knows.

    for k in T.serial(n):                          acc = 0
      with T.sblock("mma"):                  =>    for k in T.serial(n):
        if k == 0: acc = 0                           acc += ..
        acc += ..

An accumulator that its reduction block zeroes in the first iteration is zeroed before the loop. A
value bound between two statements is inlined into its users, or becomes a register if it is loaded:
statements may depend on each other only through memory.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call, Range

from ..analysis.effects import WRITE, effects
from ..ir.indexing import conjunction, conjuncts
from ..ir.kernels import bodies, thread_extents, with_block, with_bodies
from ..ir.nodes import (
    Buffer,
    Expr,
    ForKind,
    SBlockRealize,
    Stmt,
    TensorLoad,
    buffer,
    collect,
    const_int,
    has,
    i32,
    seq,
    statements,
    substitute,
    uses,
    walk,
)
from ..ir.patterns import as_nest


def hoist_initialisation(body: Stmt) -> Stmt:
    """Return ``body`` with a tile function's accumulators zeroed before their loops."""
    if thread_extents(body):
        return body

    def visit(loop: Any) -> Any:
        if loop.kind != ForKind.SERIAL or as_nest(loop) is not None:
            return loop
        cleared: list[Stmt] = []
        inner = _without_zeroing(loop.body, loop, cleared)
        return seq(*cleared, with_bodies(loop, [inner])) if cleared else loop

    return tvm_ffi.structural_map(body, [(tirx.For, visit)], order="post")


def _without_zeroing(stmt: Stmt, loop: Any, cleared: list[Stmt]) -> Stmt:
    """Return ``stmt``, in ``loop``, without what only the first iteration does; collect that."""
    if isinstance(stmt, tirx.SeqStmt) and _is_first_iteration(stmt.seq[0], loop):
        cleared.append(_zeroing(stmt.seq[0], loop))
        return seq(*stmt.seq[1:])
    if isinstance(stmt, (tirx.SeqStmt, tirx.For, SBlockRealize)):
        before = len(cleared)
        inner = [_without_zeroing(part, loop, cleared) for part in bodies(stmt)]
        if isinstance(stmt, tirx.For) and len(cleared) > before:
            cleared[before:] = [_under(stmt, part) for part in cleared[before:]]
        return with_bodies(stmt, inner)
    return stmt


def _is_first_iteration(stmt: Stmt, loop: Any) -> bool:
    """Whether ``stmt`` is ``if loop variable (and inner ones) == first: store of a constant``."""
    if not isinstance(stmt, tirx.IfThenElse) or stmt.else_case is not None:
        return False
    nest = as_nest(stmt.then_case)
    if nest is None or nest.loads() or not uses(stmt.condition, [loop.loop_var]):
        return False
    later = sym.Analyzer()
    later.bind(loop.loop_var, Range.from_min_extent(loop.min + 1, loop.extent))
    for var in collect(stmt.condition, tirx.Var):
        if not var.same_as(loop.loop_var):
            later.bind(var, Range(0, 1 << 20))
    return any(later.can_prove(tirx.Not(part)) for part in conjuncts(stmt.condition))


def _zeroing(stmt: Any, loop: Any) -> Stmt:
    """Return what ``stmt`` does in the first iteration; conditions on inner variables stay."""
    first = substitute(stmt, {loop.loop_var: loop.min})
    rest = conjunction(conjuncts(sym.Analyzer().simplify(first.condition)))
    return first.then_case if rest is None else tirx.IfThenElse(rest, first.then_case, None)


def _under(loop: Any, stmt: Stmt) -> Stmt:
    """Return ``stmt`` in ``loop``; in the first iteration if only its condition uses the loop."""
    if isinstance(stmt, tirx.IfThenElse) and not uses(stmt.then_case, [loop.loop_var]):
        return _zeroing(stmt, loop)
    if not uses(stmt, [loop.loop_var]):
        return stmt
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, stmt)


def distribute_condition(body: Stmt) -> Stmt:
    """Return ``body`` with a condition around several statements moved around each of them.

    It stays where it is if it reads what they write.
    """
    if isinstance(body, SBlockRealize) and const_int(body.predicate) == 1:
        inside = distribute_condition(body.block.body)
        if isinstance(inside, SBlockRealize):  # both allocate: one block does for both
            allocs = [*body.block.alloc_buffers, *inside.block.alloc_buffers]
            return with_block(body, body=inside.block.body, allocs=allocs)
        return with_bodies(body, [inside])
    if not isinstance(body, tirx.IfThenElse) or body.else_case is not None:
        return body
    inner = body.then_case
    realize = inner if isinstance(inner, SBlockRealize) else None
    if realize is not None:
        if realize.block.iter_vars or const_int(realize.predicate) != 1:
            return body
        inner = realize.block.body
    parts = statements(inner)
    read: list[Buffer] = []
    walk(body.condition, TensorLoad, lambda load: read.append(load.source))
    if any(isinstance(part, tirx.Bind) for part in parts):
        return body
    if len(parts) < 2 or effects(inner).buffers(WRITE) & set(read):
        return body
    guarded = seq(*[tirx.IfThenElse(body.condition, part, None) for part in parts])
    return guarded if realize is None else with_block(realize, body=guarded)


def inline_bindings(body: Stmt) -> tuple[Stmt, list[Buffer]]:
    """Return ``body`` without values bound between statements, and registers that replace some."""
    if not isinstance(body, tirx.SeqStmt):
        return body, []
    rest = list(body.seq)
    done: list[Stmt] = []
    registers: list[Buffer] = []
    while rest:
        stmt, *rest = rest
        if not isinstance(stmt, tirx.Bind):
            done.append(stmt)
            continue
        value: Expr = stmt.value
        if _touches_memory(value):
            register = buffer([1], str(stmt.var.ty), str(stmt.var.name), "local")
            registers.append(register)
            done.append(tirx.BufferStore(register, value, [i32(0)]))
            value = tirx.BufferLoad(register, [i32(0)])
        rest = [substitute(later, {stmt.var: value}) for later in rest]
    return (
        (seq(*done), registers) if len(done) != len(statements(body)) or registers else (body, [])
    )


def _touches_memory(value: Expr) -> bool:
    return has(value, (TensorLoad, Call))
