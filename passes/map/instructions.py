"""Map a tile function to threads: matmuls to instructions, everything else spread over threads.

    A_shared[i, j] = A[..]            for tx in 256: vector copies of thread tx
    acc[i, j] += A_shared * B_shared  =>  the ops of the instruction, on the registers of thread tx
    C[i, j] = acc[i, j]               stores of the elements that thread tx has

A tile function binds nothing to threadIdx; here it gets its threads. Every copy nest becomes vector
copies of each thread, every tile matmul the ops of its instruction, and every tile in registers
(scope local) registers of each thread. A nest over such a tile runs on the elements that a thread
has, or (row sums, softmax, a scatter) on a copy of it in shared memory. A statement that is no nest
is run by one thread for all. In a function that binds its threads, only unbound copies to shared
memory are spread over them; the rest is the user's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range
from tvm.script import tirx as T

from ...diagnostics import TEXT, Reason, Why
from ...errors import LoweringError
from ...mechanisms.layouts import swizzle_span
from ...mechanisms.table import moved_by
from ...plan import CopyPlan, KernelPlan
from ...values.op import Op
from ..analysis.accesses import event
from ..analysis.cta_order import leaves, ordered
from ..analysis.effects import effects
from ..analysis.memory import pointed
from ..copy.clusters import Cluster, check_loops, find_cluster, in_clusters
from ..copy.copies import issue
from ..copy.issued import TileFill, not_issued
from ..copy.layouts import ROW_MAJOR, ColumnBlocks, Swizzle
from ..fragments.derived import derive
from ..ir.kernels import inside_grid, map_kernels, map_statement, on_host
from ..ir.named_pass import named_pass
from ..ir.nodes import (
    Buffer,
    ForKind,
    SBlock,
    SBlockRealize,
    Stmt,
    Var,
    block,
    buffer_bytes,
    const_int,
    i32,
    is_shared,
    op_of,
    op_stmt,
    seq,
    statements,
    thread_loop,
    walk,
)
from ..ir.op_form import op_loops
from ..ir.patterns import Copy, Matmul, Nest, as_copy, as_nest
from ..matmul.matmuls import map_matmuls
from ..recognise.facts import Facts
from ..sync.mbarriers import full_barrier
from ..threads.serial import is_serial, why_serial
from ..threads.spread import Threads
from .cluster_sums import ClusterSum
from .mapped_nests import behind, map_nest
from .scope import Scope
from .through_shared import in_shared, operands_in_shared, registers_of
from .viewed_nests import map_viewed
from .workspace import allocating, beyond, in_workspace


@named_pass("MapTiles")
def map_tiles(func: Any, facts: Facts, plan: KernelPlan, notes: list[Why] | None = None) -> Any:
    """Return ``func`` with every unbound tile block mapped to threads as ``plan`` says.

    ``facts`` is what ``recognise`` found in ``func``. ``notes`` receives what could not stay in
    registers, or not be spread entirely. Raises LoweringError for a block that cannot have its
    plan.
    """
    if facts.info.threads:
        return _map_bound(func, facts, plan)
    alone = facts.info.independent > 1 and not plan.pipelined
    if not facts.ops and not alone:
        return func
    _check_mapped(facts, plan)
    count = plan.mapped_threads
    var = Var("threadIdx_x", "int32")
    analyzer = sym.Analyzer()
    analyzer.bind(var, Range(0, count * plan.ping_pong_groups))
    scope = Scope(plan, Threads(var, count, analyzer, plan.ping_pong_groups))
    scope.notes = [] if notes is None else notes
    scope.barriers = {pair.full: full_barrier(pair) for pair in plan.mbarriers}
    bind_ranges(func.body, analyzer)
    func, ops = operands_in_shared(func, facts.ops, plan, scope.notes)
    # They come first: they decide what the tiles around them look like.
    matmuls = map_matmuls(ops, plan, scope.threads, pointed(func.body))
    scope.fragments, scope.layouts = matmuls.fragments, matmuls.layouts
    scope.layouts = _in_boxes(ops, plan) | scope.layouts
    scope.cluster_sum = ClusterSum.of(func, plan)
    scope.matmuls, scope.accumulators = matmuls.ops, matmuls.matmuls
    scope.fragments |= derive(func.body, scope.fragments)
    mapped = map_kernels(
        func, lambda stmt: map_kernel(stmt, scope) if alone or _has_ops(stmt) else stmt
    )
    if scope.cluster_sum is not None:
        mapped = scope.cluster_sum.without_kernel(mapped)
    if not scope.maps and not scope.workspaces:
        return mapped
    host = [stmt for tensor in scope.maps for stmt in tensor.encode]
    body = allocating(on_host(host, mapped.body), scope.workspaces)
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _in_boxes(ops: Mapping[str, Any], plan: KernelPlan) -> dict[Buffer, Swizzle | ColumnBlocks]:
    """Return the layouts of tiles that a producer warp fills."""
    spans = {
        copy.op: swizzle_span(copy.layout) for copy in plan.copies if moved_by(copy).by_producer
    }
    return {
        op.dst: ColumnBlocks.of(op.dst, spans[name])
        for name, op in ops.items()
        if name in spans and isinstance(op, Copy)
    }


def _has_ops(stmt: Stmt) -> bool:
    return next(op_loops(stmt), None) is not None


def map_kernel(kernel: Stmt, scope: Scope) -> Stmt:
    """Return ``kernel`` as ``scope`` maps it, with the thread loop inside its grid."""
    scope.cluster = find_cluster(kernel, scope.plan.cluster)
    kernel = in_shared(*_in_workspace(kernel, scope))
    scope.ordered = ordered(kernel)

    def bind(stmt: Stmt) -> Stmt:
        inner = _map(stmt, scope)
        if scope.cluster_sum is not None:
            inner = seq(inner, scope.cluster_sum.summed(scope.threads))
            scope.stages.append(scope.cluster_sum.own)
        shared = [*scope.barriers.values(), *scope.stages]
        inner = block("", inner, shared) if shared else inner
        return thread_loop(scope.threads.var, scope.plan.threads, "threadIdx.x", inner)

    mapped = inside_grid(kernel, bind)
    if scope.cluster_sum is not None:
        return scope.cluster_sum.in_clusters(mapped)
    return mapped if scope.cluster is None else _clustered(mapped, scope.cluster, scope.shared)


def _in_workspace(kernel: Stmt, scope: Scope) -> tuple[Stmt, list[Buffer]]:
    """Return ``kernel`` without the tiles that exceed shared memory, and the local tiles left.

    Those left have no fragment, so they go to shared memory.
    """
    in_no_fragment = [tile for tile in registers_of(kernel) if tile not in scope.fragments]
    if not scope.plan.pipelined and not scope.fragments:
        large = beyond(kernel, in_no_fragment, scope.plan)
        for tile in large:
            sizes = {"nbytes": buffer_bytes(tile), "budget": scope.plan.smem.budget}
            scope.notes.append(Reason("mapped.workspace", buffer=str(tile.name), **sizes))
        kernel, added = in_workspace(kernel, large)
        scope.workspaces.extend(added)
        in_no_fragment = [tile for tile in in_no_fragment if tile not in large]
    for tile in in_no_fragment:
        scope.notes.append(Reason("mapped.shared", buffer=str(tile.name)))
    return kernel, in_no_fragment


def _check_mapped(facts: Facts, plan: KernelPlan) -> None:
    planned = {matmul.op for matmul in plan.matmuls}
    for name, op in facts.ops.items():
        if isinstance(op, Matmul) and name not in planned:
            said = (reason for reason in plan.reasons if _is_about(reason, name))
            raise LoweringError(
                "block.unmapped", block=name, why=next(said, Reason("block.omitted"))
            )


def _is_about(why: Why, name: str) -> bool:
    """Whether ``why`` has ``name`` among its arguments, or in its text."""
    if isinstance(why, Reason) and why.code != TEXT:
        return any(name in reason.args.values() for reason in why.walk())
    return name in str(why)


def bind_ranges(body: Stmt, analyzer: Any) -> None:
    """Tell ``analyzer`` the range of every loop variable outside the tile nests."""

    def visit(loop: Any) -> None:
        if loop.kind == ForKind.THREAD_BINDING or as_nest(loop) is None:
            analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))

    walk(body, tirx.For, visit)


def _map(stmt: Stmt, scope: Scope) -> Stmt:
    """Return ``stmt`` of the tile function as one thread runs it."""
    op = op_of(stmt)
    if op is not None:
        return _map_op(op, stmt.body, scope)
    if isinstance(stmt, tirx.SeqStmt):
        return seq(*[_map(part, scope) for part in stmt.seq])
    nest = as_nest(stmt)
    if nest is not None:
        issued = _copied_before(nest, scope)
        return map_nest(nest, None, scope) if issued is None else issued
    viewed = map_viewed(stmt, scope)
    if viewed is not None:
        return viewed
    if is_serial(stmt, scope.fragments):
        return _one_runs(stmt, scope)
    if isinstance(stmt, tirx.For):
        return _with_body(stmt, _map(stmt.body, replace(scope, repeats=True)))
    if isinstance(stmt, tirx.IfThenElse):
        other = None if stmt.else_case is None else _map(stmt.else_case, scope)
        made = tirx.IfThenElse(stmt.condition, _map(stmt.then_case, scope), other)
        return behind([stmt.condition], made, scope)
    if isinstance(stmt, tirx.AttrStmt):
        return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, _map(stmt.body, scope))
    if isinstance(stmt, SBlockRealize):
        return _map_block(stmt, scope)
    if isinstance(stmt, tirx.While):
        # All threads ask before any writes what they ask for, and again when all have written.
        around = tirx.Evaluate(T.tvm_storage_sync("shared"))
        body = _map(stmt.body, replace(scope, repeats=True))
        return tirx.While(stmt.condition, seq(around, body, around))
    if isinstance(stmt, tirx.Evaluate) and const_int(stmt.value) is None and event(stmt) is None:
        return _by_one(stmt, scope)
    return stmt  # what every thread does: a barrier, a value that is bound, a claim


def _by_one(stmt: Any, scope: Scope) -> Stmt:
    """Return a call run by one thread: it must not run more often than the function says."""
    scope.notes.append(Reason("mapped.call", call=str(stmt.value)))
    made = tirx.IfThenElse(tirx.EQ(scope.threads.index, i32(0)), stmt, None)
    return behind([stmt], made, scope, always=effects(stmt).is_fence)


def _one_runs(loop: Any, scope: Scope) -> Stmt:
    """Return a loop of statements run by one thread, without barriers between them."""
    inside = list(leaves(loop))
    over = Reason("mapped.a_loop")
    if isinstance(loop, tirx.For):
        over = Reason("mapped.loop_over", var=str(loop.loop_var.name))
    scope.notes.append(Reason("mapped.loop", loop=over, why=why_serial(inside)))
    made = tirx.IfThenElse(tirx.EQ(scope.threads.index, i32(0)), loop, None)
    return behind([leaf.mark for leaf in inside], made, scope)


def _copied_before(nest: Nest, scope: Scope) -> Stmt | None:
    """Return the copy of a tile before the loops, as a producer warp issues it; None: of others."""
    dst = str(nest.store.buffer.name)
    if dst not in scope.plan.pairs_before:
        return None
    plan = next(copy for copy in scope.plan.copies if copy.dst == dst)
    return op_stmt(Op(plan.op), _issued(nest, plan, scope))


def _map_block(stmt: Any, scope: Scope) -> Stmt:
    """Return an opaque block, with register tiles made each thread's and new registers."""
    inner = _map(stmt.block.body, scope)
    allocs: list[Buffer] = []
    for buf in stmt.block.alloc_buffers:
        fragment = scope.fragments.get(buf)
        layout = scope.layouts.get(buf, ROW_MAJOR)
        allocs.append(layout.buffer_for(buf) if fragment is None else fragment.registers)
    for part in statements(stmt.block.body):
        allocs.extend(scope.matmuls.get(op_of(part) or "", ((), ()))[1])
    return _with_block(stmt, inner, allocs)


def _map_op(op: Op, stmt: Stmt, scope: Scope) -> Stmt:
    """Return one op of a pipelined loop; a matmul becomes the ops of its fragment steps."""
    if op in scope.matmuls:
        return _guarded(stmt, scope.matmuls[op][0])
    nest = as_nest(stmt)
    if nest is None:
        return op_stmt(op, _map(stmt, scope))
    copy_plan = next((copy for copy in scope.plan.copies if copy.op == op.statement), None)
    if copy_plan is not None and moved_by(copy_plan).by_producer:
        return op_stmt(op, _issued(nest, copy_plan, scope))
    return op_stmt(op, map_nest(nest, copy_plan, replace(scope, in_step=True)))


def _issued(nest: Nest, plan: CopyPlan, scope: Scope) -> Stmt:
    """Return a copy as the one thread of a producer warp issues it."""
    copy = as_copy(nest)
    stored = scope.layouts.get(nest.store.buffer)
    pair = next((c for c in scope.plan.mbarriers if plan.dst in c.rings), None)
    if not isinstance(stored, ColumnBlocks):
        raise not_issued(plan, Reason("mechanism.no_reader"))
    if copy is None:
        raise not_issued(plan, Reason("producer.no_copy"))
    if pair is None:
        raise not_issued(plan, Reason("producer.no_mbarriers"))
    full, ranges = scope.barriers[pair.full], scope.threads.analyzer
    fill = TileFill(copy, plan, stored, full, ranges, scope.plan.target, scope.cluster)
    issued = issue(fill)
    if issued.multicast:
        scope.shared.append(plan.op)
    scope.maps.extend(issued.maps)
    return issued.stmt


def _clustered(body: Stmt, cluster: Cluster, shared: list[str]) -> Stmt:
    """Return ``body`` launched in clusters, whose CTAs share some copy and make the same steps."""
    if not shared:
        why = Reason("cluster.nothing_shared")
        raise LoweringError("cluster.refused", ctas=cluster.size, why=why)
    check_loops(body, cluster)
    return map_statement(body, "blockIdx.x", lambda loop: in_clusters(loop, cluster))


def _guarded(stmt: Stmt, ops: Sequence[Stmt]) -> Stmt:
    """Return the ops of a matmul, each under the guard that the matmul's own blocks had."""
    nest = as_nest(stmt)
    assert nest is not None
    if not nest.predicate:
        return seq(*ops)
    guard = nest.predicate[0]
    for part in nest.predicate[1:]:
        guard = tirx.And(guard, part)
    return seq(
        *[
            op_stmt(op, tirx.IfThenElse(guard, stmt.body, None))
            for stmt in ops
            for op in [op_of(stmt)]
            if op is not None
        ]
    )


def _map_bound(func: Any, facts: Facts, plan: KernelPlan) -> Any:
    """Return a function that binds its threads, with unbound copies to shared memory spread.

    With more than one thread axis they stay as they are: the same copy, made by every thread.
    """
    wanted = {name for name, op in facts.ops.items() if isinstance(op, Copy)}
    var = facts.thread_var
    if not wanted or var is None:
        return func
    analyzer = sym.Analyzer()
    analyzer.bind(var, Range(0, facts.info.threads))
    bind_ranges(func.body, analyzer)
    scope = Scope(plan, Threads(var, facts.info.threads, analyzer))

    def visit(stmt: Any) -> Any:
        op = op_of(stmt)
        return _map_op(op, stmt.body, scope) if op is not None and op in wanted else stmt

    body = tvm_ffi.structural_map(func.body, [(tirx.AttrStmt, visit)], order="pre")
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _with_body(loop: Any, body: Stmt) -> Stmt:
    return tirx.For(
        loop.loop_var,
        loop.min,
        loop.extent,
        loop.kind,
        body,
        loop.thread_binding,
        loop.annotations,
        loop.step,
    )


def _with_block(realize: Any, body: Stmt, allocs: Sequence[Buffer]) -> Stmt:
    """Return ``realize`` with another body and allocations, and without regions of tiles."""
    old = realize.block
    new = SBlock(
        old.iter_vars,
        [r for r in old.reads if not _is_tile(r.source)],
        [w for w in old.writes if not _is_tile(w.source)],
        old.name_hint,
        body,
        old.init,
        list(allocs),
        old.match_buffers,
        old.annotations,
    )
    return SBlockRealize(realize.iter_values, realize.predicate, new)


def _is_private(buf: Buffer) -> bool:
    return str(buf.scope()).startswith("local")


def _is_tile(buf: Buffer) -> bool:
    """Whether a region of ``buf`` may no longer be what the mapped statement touches."""
    return is_shared(buf) or _is_private(buf)
