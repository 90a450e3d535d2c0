"""Carry out each copy of a loop by its mechanism.

``pipeliner/mechanisms/copies.py`` chooses the mechanism.

``cp_async``: every vector store from global to shared memory becomes a cp.async of 16, 8 or 4
bytes. A mask becomes the source size; the hardware fills the bytes past it with zero. A copy of
many narrow cp.asyncs may be split into several ops, ``A_shared.0``, ``A_shared.1``, ...

    for v in T.vectorized(8): S[r, c * 8 + v] = T.if_then_else(m < M, A[m, c * 8 + v], 0)
 => cp.async.cg [S[r, c * 8]], [A[min(m, M - 1), c * 8]], 16, T.Select(m < M, 16, 0)

``register``: the op becomes two, with the thread's share staged in a local buffer:

    A_shared.load     R[it * 8 + v] = A[..]
    A_shared.store    S[..] = R[it * 8 + v]

A statement that computes straight from global memory is split in the same way (``C.load``, ``C``),
so that its loads can be issued iterations ahead. ``direct``: the op stays as it is.

What a producer warp issues was emitted where tiles were mapped (``issue``), as it says how they lie
in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range

from ...diagnostics import Why
from ...errors import LoweringError
from ...mechanisms.copies import copy_ops, streamed_ops
from ...mechanisms.table import moved_by
from ...plan import CopyPlan, KernelPlan
from ...values.op import Op
from ..analysis.effects import WRITE, effects
from ..ir.indexing import is_uniform
from ..ir.kernels import with_block, with_bodies
from ..ir.named_pass import named_pass
from ..ir.nodes import (
    Buffer,
    SBlockRealize,
    Stmt,
    Var,
    block,
    const_int,
    dtype_bytes,
    i32,
    op_of,
    op_stmt,
    seq,
    statements,
    substitute,
    walk,
)
from ..ir.patterns import Copy
from .cp_async import as_cp_async
from .issued import Issued, TileFill
from .register import split_loads
from .tma import issue_boxes

ISSUED_BY: Final[Mapping[str, Callable[[TileFill], Issued]]] = {"tma": issue_boxes}
"""What emits the copies of a producer warp, by their mechanism."""


@named_pass("LowerCopies")
def lower_copies(func: Any, plan: KernelPlan) -> Any:
    """Return ``func`` with each copy op carried out by the mechanism that ``plan`` gives it.

    Raises LoweringError for a copy that its mechanism cannot make.
    """
    copies = {
        copy.op: copy
        for copy in plan.copies
        if copy.mechanism != "direct" and not moved_by(copy).by_producer
    }
    streamed = _streamed(plan) - set(copies)
    staged = {name for name, copy in copies.items() if copy.mechanism == "register"}
    if not copies and not streamed:
        return func
    analyzer = loop_ranges(func.body)

    def loop(node: Any) -> Any:
        body = node.body
        realize = body if isinstance(body, SBlockRealize) else None
        ops = statements(body if realize is None else realize.block.body)
        names = {str(op_of(stmt) or "") for stmt in ops}
        if not names & (copies.keys() | streamed):
            return node
        written = frozenset(effects(body).buffers(WRITE) if names & (streamed | staged) else ())
        made: list[Stmt] = []
        buffers: list[Buffer] = []
        for stmt in ops:
            name = str(op_of(stmt) or "")
            if name in copies:
                new, added = _lower(copies[name], stmt.body, written, analyzer, node.loop_var)
            elif name in streamed:
                new, added = _stream(name, stmt.body, written)
            else:
                new, added = [stmt], []
            made += new
            buffers += added
        return _with_ops(node, realize, made, buffers)

    body = tvm_ffi.structural_map(func.body, [(tirx.For, loop)], order="post")
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def issue(fill: TileFill) -> Issued:
    """Return what one thread of a producer warp issues to fill a tile.

    Raises LoweringError for a copy that its mechanism cannot make.
    """
    return ISSUED_BY[fill.plan.mechanism](fill)


def _streamed(plan: KernelPlan) -> set[str]:
    """Return the statements whose own loads have a register ring in the plan."""
    return {
        ring.load.statement
        for loop in plan.loops
        if loop.pipelined
        for ring in loop.rings
        if ring.load is not None
    }


def loop_ranges(body: Stmt) -> Any:
    """Return an analyzer that knows the range of every loop."""
    analyzer = sym.Analyzer()

    def bind(loop: Any) -> None:
        analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))

    walk(body, tirx.For, bind)
    return analyzer


def obstacles(name: str, stmt: Stmt, written: frozenset[Buffer], analyzer: Any) -> tuple[Why, Why]:
    """Return why cp.async and why registers cannot make the bound copy ``stmt``; empty if they can.

    ``written``: the buffers that its loop writes. ``analyzer``: from ``loop_ranges``.
    """
    load, _ = streamed_ops(name)
    return (
        _why_not(lambda: as_cp_async(name, stmt, analyzer)),
        _why_not(lambda: split_loads(load, stmt, written)),
    )


def _why_not(lower: Callable[[], object]) -> Why:
    """Return why ``lower`` raises; empty if it does not."""
    try:
        lower()
    except LoweringError as err:
        return err.reason.why
    return ""


def _lower(
    plan: CopyPlan,
    stmt: Stmt,
    written: frozenset[Buffer],
    analyzer: Any,
    step: Var,
) -> tuple[list[Stmt], list[Buffer]]:
    ops = copy_ops(plan)
    if plan.mechanism == "cp_async":
        return _in_chunks(ops, as_cp_async(plan.op, stmt, analyzer, [step], plan.cache)), []
    load, store = ops
    loads, stores, buffers = split_loads(load, stmt, written)
    return [op_stmt(load, loads), op_stmt(store, stores)], buffers


def _in_chunks(ops: Sequence[Op], stmt: Stmt) -> list[Stmt]:
    """Return ``stmt`` split into ``ops`` of equal rounds."""
    if len(ops) == 1:
        return [op_stmt(ops[0], stmt)]
    rounds = const_int(stmt.extent) if isinstance(stmt, tirx.For) else None
    if rounds is None or rounds % len(ops) or const_int(stmt.min) != 0:
        copy = ops[0].statement
        raise LoweringError("copy.chunks", copy=copy, chunks=len(ops), rounds=rounds or 1)
    each = rounds // len(ops)
    made: list[Stmt] = []
    for chunk, op in enumerate(ops):
        var = Var(str(stmt.loop_var.name), str(stmt.loop_var.ty))
        body = substitute(stmt.body, {stmt.loop_var: var + chunk * each})
        loop = tirx.For(var, i32(0), i32(each), stmt.kind, body)
        made.append(op_stmt(op, loop))
    return made


def _stream(name: str, stmt: Stmt, written: frozenset[Buffer]) -> tuple[list[Stmt], list[Buffer]]:
    """Return a statement split into its loads and the rest; unsplit if that is impossible."""
    load, use = streamed_ops(name)
    try:
        loads, rest, buffers = split_loads(load, stmt, written)
    except LoweringError:
        return [op_stmt(use, stmt)], []
    return [op_stmt(load, loads), op_stmt(use, rest)], buffers


def _with_ops(node: Any, realize: Any, ops: list[Stmt], buffers: list[Buffer]) -> Any:
    """Return the loop with another body; new registers need a block to be allocated in."""
    body = seq(*ops)
    if realize is not None:
        allocs = [*realize.block.alloc_buffers, *buffers]
        return with_bodies(node, [with_block(realize, body=body, allocs=allocs)])
    return with_bodies(node, [block("", body, buffers) if buffers else body])


def copy_width(copy: Copy, plan: CopyPlan | None) -> int | None:
    """Return how many elements a thread moves at once in a tile copy; None for whatever is legal.

    cp.async ends a vector at a mask's bound by itself; a vector that is staged in registers must
    lie on one side of it.
    """
    if plan is None:
        return None
    width = max(1, plan.vector_bytes // dtype_bytes(copy.dst.dtype))
    if not copy.order:
        return 1
    lane = copy.order[-1]
    while width > 1 and (
        copy.aligned() % width
        or copy.nest.extent_of[lane] % width
        or (
            plan.mechanism != "cp_async"
            and not all(is_uniform(part, lane, width) for part in copy.mask)
        )
    ):
        width //= 2
    return width
