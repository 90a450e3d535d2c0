"""The un-pipelined schedule of everything that is a matmul: tiles, a grid, copies. Nothing else.

    for blockIdx.z in batch axes:            # batch, groups
      for blockIdx.x in tiles:               # grouped: neighbours share operands in the L2 cache
        acc: local tile of BM x BN = 0       # in a loop over all tiles in a persistent grid
        for step in steps x (K / BK):        # some channels of one kernel position
          A_shared = A[tile]                 # a plain box copy, zero outside A
          B_shared = B[tile]
          acc += A_shared * B_shared         # a plain matmul over a tile; a stationary B: no copy
          ...                                # where a second B is given: its copy and its matmul
        C[tile] = epilogue(acc)              # guarded at ragged edges

Nothing is bound to threads: who copies and multiplies, with which instruction and how far ahead
belongs to the passes. Sizes that tiles do not divide are padded inside the copies: a padded read is
zero, a padded write does not happen. A gathered operand is read through its pattern of access by
the copy itself. A float32 operand that is contiguous along K is transposed on its way to shared
memory, where a thread of an FMA kernel then finds its operands side by side.
"""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from ..errors import WorkloadError
from ..passes.ir.nodes import block, collect, has, i32, substitute
from ..values.notes import NOTE, note_text
from .reordered import schedule_reordered, written_first
from .tiles import MAX_GRID_Z, GemmTile, divisor, is_ragged, stages_transposed, walks_batches
from .total import schedule_sum
from .workloads import (
    GATED,
    INSTRUCTION,
    WORKSPACES,
    Axis,
    Contraction,
    Coordinates,
    split,
)


def schedule_contraction(what: Contraction, tile: GemmTile, func: Any = None) -> Any:
    """``what`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc.

    ``func``: its function with elementwise blocks added after the ``store`` block; default its own.
    WorkloadError: it cannot be cut as the tile says.
    """
    if func is not None and tile.splits > 1:
        raise WorkloadError("split.given", workload=what.name)
    if func is not None and written_first(what):
        raise WorkloadError("tile.reordered_given", workload=what.name)
    what = split(what, tile.splits, tile.k)
    _check_batch_axes(what)
    sch = s_tir.Schedule(what.function() if func is None else func)
    sch = _padded(sch, what, tile)
    names = [name for name, _ in what.matmuls]
    matmuls = [sch.get_sblock(name) for name in names]
    matmul = matmuls[0]
    copies = _stage_operands(sch, matmuls, what)
    schedule_reordered(sch, what)
    stores = _stores(sch, matmuls, what, tile)

    cuts = [_cut_in_tiles(sch, one, what, tile) for one in matmuls]
    step = cuts[0][0] if len(cuts) == 1 else sch.merge(*[one for one, _ in cuts])
    batch, (i_tile, j_tile), _ = _cut(
        sch.get_loops(matmul), len(what.batch_axes), len(what.batch_axes) + 2
    )
    # Tiles of a persistent grid become blocks before they are numbered, which hides from TVM that
    # they do not overlap.
    wholes = matmuls if tile.persistent is None else [sch.blockize(inner) for _, inner in cuts]
    symbolic = what.m[1] is None
    walked = walks_batches(what, tile)
    if batch and not walked:
        sch.bind(sch.fuse(*batch) if len(batch) > 1 else batch[0], "blockIdx.z")
    group = (
        tile.raster_group
        if tile.persistent is None or not symbolic
        else what.n[1] or tile.raster_group
    )
    each = _rasterise(sch, i_tile, j_tile, group)
    if batch and walked:
        each = sch.fuse(*batch, each)
    if tile.persistent is None:
        sch.bind(each, "blockIdx.x")
    elif symbolic:
        cta, each = _walk_tiles(sch, each, tile.persistent)

    for store in stores:
        sch.reverse_compute_at(store, each)
    for whole in wholes:
        sch.set_scope(whole, 0, "local")
    a, *others = copies
    sch.compute_at(a, step)
    if not tile.stationary:
        for b in others:
            sch.compute_at(b, step)
    if tile.persistent is not None and not symbolic:
        cta, each = _walk_tiles(sch, each, tile.persistent)
    if tile.stationary:
        for b in others:
            sch.compute_at(b, each if tile.persistent is None else cta)
    for whole, (_, inner) in zip(wholes, cuts):
        sch.decompose_reduction(whole, step)
        update = sch.blockize(inner) if tile.persistent is None else whole
        sch.annotate(update, INSTRUCTION, what.types.instruction)
        if tile.warps is not None:
            sch.annotate(update, "pipeliner.warps", list(tile.warps))
        if tile.thread_tile is not None:
            sch.annotate(update, "pipeliner.thread_tile", list(tile.thread_tile))
    return sch if what.length is None else _shortened(sch, what, step)


def _stores(sch: Any, matmuls: list[Any], what: Contraction, tile: GemmTile) -> list[Any]:
    """The blocks that store what tiles sum, with every block in between inlined.

    Of parts, one of each matmul, whose sums a kernel behind them adds.
    """
    if what.whole is None:
        for second in matmuls[1:]:
            inline_before(sch, second, GATED)
        return [inline_epilogue(sch, matmuls[0])]
    stores = [sch.get_sblock(name) for _, (name, _) in zip(matmuls, WORKSPACES)]
    for second in stores[1:]:
        inline_before(sch, second, GATED)
    schedule_sum(sch, inline_epilogue(sch, stores[0]), what, tile.why)
    for matmul, store in zip(matmuls, stores):
        inline_between(sch, matmul, store)
    return stores


def _shortened(sch: Any, what: Contraction, step: Any) -> Any:
    """``sch`` with a loop over the steps that add anything, as many as blockIdx.z says."""
    (func,) = sch.mod.functions.values()
    old = sch.get(step)
    (cta,) = collect(func.body, tirx.For, _is_batch)
    assert what.length is not None
    every = math.prod(extent or 1 for _, extent in what.reduction_axes)
    length = what.length(_coordinates(cta.loop_var, what.batch_axes))
    extent = length * (int(old.extent) // every)
    made = tirx.For(old.loop_var, old.min, extent, old.kind, old.body, None, old.annotations)
    body = tvm_ffi.structural_map(
        func.body,
        [(tirx.For, lambda loop: made if loop.loop_var.same_as(old.loop_var) else loop)],
        order="post",
    )
    return s_tir.Schedule(func.with_body(body))


def _is_batch(loop: Any) -> bool:
    bound = loop.thread_binding
    return bound is not None and str(bound.thread_tag) == "blockIdx.z"


def _coordinates(number: Any, axes: tuple[Axis, ...]) -> Coordinates:
    """The value of each axis at a ``number`` that counts them all."""
    found: Coordinates = {}
    for at, (name, extent) in reversed(list(enumerate(axes))):
        found[name] = tirx.floormod(number, i32(extent or 1)) if at else number
        number = tirx.floordiv(number, i32(extent or 1))
    return found


def _check_batch_axes(what: Contraction) -> None:
    count = math.prod(extent or 1 for _, extent in what.batch_axes)
    if count > MAX_GRID_Z:
        raise WorkloadError("tile.batch_axes", count=count, most=MAX_GRID_Z)


def _cut(items: list[Any], *places: int) -> list[list[Any]]:
    """``items`` in pieces that begin at ``places``."""
    starts = (0, *places)
    return [items[start:end] for start, end in zip(starts, (*places, len(items)))]


def _cut_in_tiles(sch: Any, matmul: Any, what: Contraction, tile: GemmTile) -> tuple[Any, Any]:
    """The loop over the steps of one tile, and the outermost loop inside a step."""
    loops = sch.get_loops(matmul)
    batch, (i, j), (*outer, k) = _cut(loops, len(what.batch_axes), len(what.batch_axes) + 2)
    i_tile, i_in = sch.split(i, [None, tile.m])
    j_tile, j_in = sch.split(j, [None, tile.n])
    k_tile, k_in = sch.split(k, [None, tile.k])
    sch.reorder(*batch, i_tile, j_tile, *outer, k_tile, i_in, j_in, k_in)
    return sch.fuse(*outer, k_tile) if outer else k_tile, i_in


def _padded(sch: Any, what: Contraction, tile: GemmTile) -> Any:
    """``sch`` with every matmul padded to whole tiles; what several read is padded once."""
    if not any(is_ragged(what, tile)):
        return sch
    ones = [1] * len(what.batch_axes), [1] * len(what.reduction_axes)
    for name, _ in what.matmuls:
        matmul = sch.get_sblock(name)
        rows, columns = tile.grid_multiple
        whole = [tile.m * rows, tile.n * columns]
        sch.pad_einsum(matmul, [*ones[0], *whole, *ones[1], tile.k])
    first, *others = (sch.get(sch.get_sblock(name)).reads[0].source for name, _ in what.matmuls)
    return s_tir.Schedule(_padded_once(sch.mod["main"], first, others)) if others else sch


def _padded_once(func: Any, first: Any, others: list[Any]) -> Any:
    """``func`` with what pads ``first`` alone, which is read in place of equal ``others``."""
    root = func.body.block
    again = [buf for buf in others if not buf.same_as(first)]
    stmts = [stmt for stmt in root.body.seq if not _writes(stmt, again)]
    allocated = [buf for buf in root.alloc_buffers if not any(buf.same_as(one) for one in again)]
    body = substitute(tirx.SeqStmt(stmts), dict.fromkeys(again, first))
    return func.with_body(block("root", body, allocated))


def _writes(stmt: Any, buffers: list[Any]) -> bool:
    """Whether ``stmt`` stores into one of ``buffers``."""
    return has(
        stmt,
        tirx.BufferStore,
        lambda store: any(store.buffer.same_as(one) for one in buffers),
    )


def _stage_operands(sch: Any, matmuls: list[Any], what: Contraction) -> list[Any]:
    """The copies of all operands to shared memory: what they gather and pad is part of them."""
    copies = []
    first = [operand.source for operand in written_first(what)]
    for operand in range(len(what.operands)):
        readers = matmuls if operand == 0 else [matmuls[operand - 1]]
        all_of_them = readers if len(readers) > 1 else None
        copy = sch.cache_read(readers[0], min(operand, 1), "shared", consumer_blocks=all_of_them)
        while (sources := sch.get_producers(copy)) and sch.get(sources[0]).name_hint not in first:
            sch.compute_inline(sources[0])
        note = what.operands[operand].note
        if note:
            sch.annotate(copy, NOTE, note_text(note))
        if stages_transposed(what, operand):
            sch.transform_layout(copy, ("write", 0), _transpose_matrix)
        copies.append(copy)
    return copies


def _transpose_matrix(*indices: Any) -> list[Any]:
    *batch, row, column = indices
    return [*batch, column, row]


def inline_before(sch: Any, first: Any, last: str) -> None:
    """Inline every block between ``first`` and the block called ``last``."""
    while sch.get(block := sch.get_consumers(first)[0]).name_hint != last:
        sch.compute_inline(block)


def inline_between(sch: Any, first: Any, last: Any) -> None:
    """Inline every block between the two into the last."""
    while not sch.get(block := sch.get_consumers(first)[0]).same_as(sch.get(last)):
        sch.compute_inline(block)


def inline_epilogue(sch: Any, first: Any) -> Any:
    """The last block after ``first``, with every block between the two inlined into it."""
    (block,) = sch.get_consumers(first)
    while following := sch.get_consumers(block):
        sch.compute_inline(block)
        (block,) = following
    return block


def _rasterise(sch: Any, i_tile: Any, j_tile: Any, group: int) -> Any:
    """One loop over tiles in which ``group`` rows of tiles are computed column by column.

    CTAs that run at the same time then read about as many rows of A as columns of B, which halves
    and more what L2 must deliver of each. Groups are of equal size, so nothing needs a guard; a
    symbolic number of rows is computed in groups of columns instead.
    """
    rows, columns = sch.get(i_tile).extent, sch.get(j_tile).extent
    if hasattr(rows, "value"):
        outer, inner = sch.split(i_tile, [None, divisor(int(rows.value), group)])
        sch.reorder(outer, j_tile, inner)
        return sch.fuse(outer, j_tile, inner)
    outer, inner = sch.split(j_tile, [None, divisor(int(columns.value), group)])
    sch.reorder(outer, i_tile, inner)
    return sch.fuse(outer, i_tile, inner)


def _walk_tiles(sch: Any, each: Any, ctas: int) -> tuple[Any, Any]:
    """Bind a grid of ``ctas``, each of which computes every ``ctas``-th tile; both loops.

    Called when every block is in its place, for the guard of what lies beyond the last tile to
    reach them all: a block that is moved later gets none. TVM cannot do that to a symbolic number
    of tiles; there whole rows of tiles are computed, and the guard of the rows is enough.
    """
    tiles = getattr(sch.get(each).extent, "value", None)
    if tiles is not None and tiles <= ctas:
        sch.bind(each, "blockIdx.x")
        return each, each
    if ctas == 1:
        cta, tile = sch.add_unit_loop(each), each
    else:
        tile, cta = sch.split(each, [None, ctas])
        sch.reorder(cta, tile)
    sch.bind(cta, "blockIdx.x")
    return cta, tile
