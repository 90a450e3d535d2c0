"""Map the nests of a tile function to threads: vector copies, register tiles, staged stores.

    for i, j in T.grid(128, 32): S[i, j] = A[i, j]        =>  vectors of each thread (spread)
    for i, j in T.grid(128, 128): C[i, j] = acc[i, j]     =>  the elements that a thread has
    for j in range(4096): t[0] = t[0] + f(j)              =>  partial sums and a tree (reductions)

A nest over a register tile runs on the elements that a thread has, or (row sums, softmax, a
scatter) on a copy of the tile in shared memory. A statement that follows another one on global
memory gets a barrier before it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Range
from tvm.script import tirx as T

from ...diagnostics import Reason
from ...errors import LoweringError
from ...instructions.table import multiplied_by
from ...machine import VECTOR_BYTES
from ...machine.values import capability_of
from ...mechanisms.stores import is_staged
from ...mechanisms.vectors import BF16_CAPABILITY
from ...plan import CopyPlan, StorePlan
from ..copy.copies import copy_width
from ..copy.layouts import ColumnBlocks
from ..dependence.independence import shareable
from ..fragments.columns import put_together, stage_of
from ..fragments.combined import Combined
from ..fragments.fragment import Fragment
from ..fragments.lane_sums import added_up
from ..fragments.masks import changes_something
from ..fragments.nests import rewrite
from ..ir.moved import MovedTo, Mover
from ..ir.nodes import Buffer, Stmt, block, dtype_bytes, seq, walk
from ..ir.patterns import Nest, as_copy
from ..recognise.tile_stores import added, adds, box_of
from ..threads.lanes import store_lane, widest
from ..threads.reductions import split_reduction, why_alone
from ..threads.spread import spread
from .scope import Scope
from .staged_stores import Staged, shared_tile_barrier
from .through_shared import through_shared


def map_nest(nest: Nest, plan: CopyPlan | None, scope: Scope) -> Stmt:
    """Return ``nest`` mapped to threads: on fragments if it touches any, else spread over them."""
    loads = [*nest.loads(), *nest.deciding_loads()]
    touched = dict.fromkeys([*(load.source for load in loads), nest.store.buffer])
    return behind([nest.store], _shared_out(nest, touched, plan, scope), scope)


def behind(marks: Sequence[Any], stmt: Stmt, scope: Scope, *, always: bool = False) -> Stmt:
    """Return ``stmt``, behind a barrier if others of the CTA have written what ``marks`` touch."""
    names = sorted(
        str(buf.name)
        for buf, known in scope.ordered.items()
        if always or any(mark.same_as(other) for mark in marks for other in known)
    )
    if not names:
        return stmt
    if scope.plan.roles:  # which no barrier of the CTA may stand in
        raise LoweringError("sync.inside_role", buffer=names[0])
    return seq(tirx.Evaluate(T.tvm_storage_sync("shared")), stmt)


def _shared_out(
    nest: Nest, touched: Collection[Buffer], plan: CopyPlan | None, scope: Scope
) -> Stmt:
    fragments = [scope.fragments[buf] for buf in touched if buf in scope.fragments]
    stores = [store for store in scope.plan.stores if store.op == nest.name and is_staged(store)]
    if adds(nest) and not (fragments and stores and stores[0].partial_sums):
        name = str(nest.store.buffer.name)
        raise LoweringError("store.adds_alone", buffer=name, block=nest.name)
    if fragments:
        sums, fragments, registers = _with_columns(nest, fragments, scope)
        if scope.cluster_sum is not None and nest.name == scope.cluster_sum.plan.op:
            made = scope.cluster_sum.pushed(fragments, scope.threads.analyzer)
        elif stores:
            made = _staged(nest, stores[0], fragments, scope)
        else:
            made = place(_on_fragments(nest, fragments, scope), scope)
            cut = changes_something(nest)
            made = made if cut is None else tirx.IfThenElse(cut, made, None)
        return block("columns", seq(*sums, made), registers) if sums else made
    copy = as_copy(nest)
    width = _at_once(nest, scope) if copy is None else copy_width(copy, plan)
    made = _split_over_threads(nest, scope)
    if made is None:
        _note_alone(nest, scope)
        scalar = not all(multiplied_by(matmul).mapped for matmul in scope.plan.matmuls)
        made = spread(nest, scope.threads, width, in_register=scalar)
    return _shown(nest, place(made, scope), scope)


def _with_columns(
    nest: Nest, fragments: Sequence[Fragment], scope: Scope
) -> tuple[list[Stmt], list[Fragment], list[Buffer]]:
    """Return what makes whole columns of the parts that ``nest`` reads, and where all tiles are.

    The buffers are the registers of whole columns. A nest that stores parts needs no whole ones.
    """
    stmts: list[Stmt] = []
    parts: list[Fragment] = []
    registers: list[Buffer] = []
    barrier = shared_tile_barrier(scope.threads) if scope.plan.roles else None
    for part in fragments:
        if part.part is None or part.tile.same_as(nest.store.buffer):
            parts.append(part)
            continue
        if scope.plan.roles and scope.in_step:
            why = Reason("registers.columns_in_step", buffer=str(part.tile.name))
            raise LoweringError("block.to_role", block=nest.name, why=why)
        again = part.tile in scope.parts
        if not again:
            scope.parts[part.tile] = stage_of(part, scope.threads)
        stage = scope.parts[part.tile]
        scope.stages.extend([] if again or stage is None else [stage])
        again = again or scope.repeats
        made, whole = put_together(part, stage, scope.threads, barrier, again=again)
        stmts.append(made)
        parts.append(whole)
        registers.append(whole.registers)
    return stmts, parts, registers


def _at_once(nest: Nest, scope: Scope) -> int | None:
    """Return how many elements a thread may take at once, None if that is for ``spread`` to say.

    TVM computes bfloat16 in float32 for GPUs that have none of it, and does not print constants of
    vectors that exceed the widest access.
    """
    kinds = {str(nest.store.buffer.dtype), *(str(load.source.dtype) for load in nest.loads())}
    if "bfloat16" not in kinds or capability_of(scope.plan.target) >= BF16_CAPABILITY:
        return None
    lane = store_lane(nest)
    return min(widest(nest, lane), VECTOR_BYTES // dtype_bytes("float32"))


def _split_over_threads(nest: Nest, scope: Scope) -> Stmt | None:
    """Return ``nest`` as partial results of several threads for each element, or None."""
    if scope.plan.roles:  # which no barrier of the CTA may stand in
        return None
    found = split_reduction(nest, scope.threads.count, scope.threads.analyzer)
    if found is None:
        return None
    scope.notes.append(
        Reason(
            "mapped.in_parts",
            threads=found.parts,
            buffer=str(nest.store.buffer.name),
            block=nest.name,
            elements=found.elements,
        )
    )
    scope.stages.extend(found.buffers)
    return seq(*[spread(part, scope.threads, 1, in_register=True) for part in found.nests])


def _on_fragments(nest: Nest, fragments: Sequence[Fragment], scope: Scope) -> Stmt:
    """Return ``nest``, which touches ``fragments``, in registers or on copies in shared memory."""
    try:
        return rewrite(nest, fragments, scope.threads.analyzer)
    except LoweringError as err:
        why = err.reason.why
    if scope.plan.roles:  # which no barrier of the CTA may stand in
        raise LoweringError("block.to_role", block=nest.name, why=why)
    scope.notes.append(Reason("mapped.through_shared", block=nest.name, why=why))
    _note_alone(nest, scope)
    made, copies = through_shared(nest, fragments, scope.threads)
    scope.stages.extend(copies)
    return made


def _note_alone(nest: Nest, scope: Scope) -> None:
    """Add a note if a nest is not spread entirely over the threads."""
    shared, why = shareable(nest)
    along = tuple(str(var.name) for var in shared)
    if why is not None and along:
        scope.notes.append(Reason("mapped.along", block=nest.name, axes=along, why=why))
    elif why is not None or (not along and math.prod(nest.extents) > 1):
        scope.notes.append(Reason("mapped.by_one", block=nest.name, why=why or why_alone(nest)))


def _shown(nest: Nest, stmt: Stmt, scope: Scope) -> Stmt:
    """Return ``stmt``, with a fence if it computes what wgmma reads (PTX ISA, async proxy)."""
    column_blocks = isinstance(scope.layouts.get(nest.store.buffer), ColumnBlocks)
    if not column_blocks or as_copy(nest) is not None:
        return stmt
    return seq(stmt, tirx.Evaluate(T.ptx["fence.proxy.async.shared::cta"]()))


def _staged(nest: Nest, plan: StorePlan, fragments: Sequence[Fragment], scope: Scope) -> Stmt:
    """Return a nest that stores accumulators, or what it computes of them, staged."""
    if plan.partial_sums and not adds(nest):
        raise LoweringError("store.adds_nothing", store=plan.op, buffer=plan.dst)
    sums, fragments, buffers = added_up(nest, fragments)
    tiles = Combined.of(added(nest), fragments, scope.threads.analyzer)
    box = box_of(nest, scope.accumulators[tiles.fragment.tile], scope.threads.analyzer)
    if isinstance(box, Reason):
        raise LoweringError("store.tma", store=plan.op, why=box)
    staged = Staged.of(tiles, box, plan, scope.threads)
    scope.stages.append(staged.stage)
    scope.maps.extend(staged.maps)
    made = staged.stmt(repeats=scope.repeats)
    return block("sums", seq(*sums, made), buffers) if sums else made


def place(stmt: Stmt, scope: Scope) -> Stmt:
    """Return ``stmt`` with every access to a shared tile where the tile's layout puts it."""
    if not any(layout.moves for layout in scope.layouts.values()):
        return stmt
    analyzer = scope.threads.analyzer

    def bind(loop: Any) -> None:
        analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))

    walk(stmt, tirx.For, bind)

    def moved(tile: Buffer) -> MovedTo:
        layout = scope.layouts[tile]
        return MovedTo(layout.buffer_for(tile), lambda at: layout.place(tile, at, analyzer))

    return Mover({tile: moved(tile) for tile in scope.layouts}).moved(stmt)
