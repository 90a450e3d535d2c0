"""Run nests that cannot read register tiles on copies of the tiles in shared memory.

    for i, j in T.grid(64, 64): m[i] = T.max(m[i], acc[i, j])
 => S[row(..), column(..)] = acc_frag[..]                      each thread its elements
    if tx < 64: for j in range(64): m[tx] = T.max(m[tx], S[tx, j])

If the nest stores into such a tile, the tile is copied back to registers after it. A local tile
that no matmul distributes over threads is in shared memory entirely: there is one for each CTA.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tvm import tirx

from ...diagnostics import Reason, Why
from ...plan import KernelPlan
from ..fragments.columns import left_to_one, put_together, stage_of
from ..fragments.fragment import Fragment
from ..fragments.lane_sums import alone
from ..fragments.nests import rewrite
from ..ir.moved import MovedTo, Mover
from ..ir.nodes import (
    Buffer,
    SBlockRealize,
    Stmt,
    Var,
    block,
    buffer,
    const_int,
    dtype_bytes,
    is_private,
    seq,
    substitute,
    walk,
)
from ..ir.patterns import Copy, Matmul, MatmulOperand, Nest
from ..threads.spread import Threads, spread

WORD_BYTES: Final = 4
"""Bytes of one bank of shared memory: rows offset by one use other banks."""


def registers_of(stmt: Stmt) -> list[Buffer]:
    """Return the buffers in registers that ``stmt`` allocates."""
    found: list[Buffer] = []

    def visit(node: Any) -> None:
        allocated = node.block.alloc_buffers if isinstance(node, SBlockRealize) else [node.buffer]
        found.extend(buf for buf in allocated if str(buf.scope()).startswith("local"))

    walk(stmt, (SBlockRealize, tirx.AllocBuffer), visit)
    return found


def operands_in_shared(
    func: Any, ops: Mapping[str, Copy | Matmul], plan: KernelPlan, notes: list[Why]
) -> tuple[Any, dict[str, Copy | Matmul]]:
    """Return ``func`` and its ops with operands in shared memory that matmuls read from there.

    Those are tiles in registers, unless the instruction reads them where they are computed.
    """
    operand = {matmul.op: matmul.operand for matmul in plan.matmuls}
    tiles: dict[Buffer, Buffer] = {}
    for name, op in ops.items():
        if isinstance(op, Matmul) and operand.get(name) != "computed":
            sides = [side.buffer for side in (op.a, op.b) if is_private(side.buffer)]
            tiles |= {tile: _like(tile, list(tile.shape), str(tile.name)) for tile in sides}
    if not tiles:
        return func, dict(ops)
    notes += [Reason("mapped.shared", buffer=str(tile.name)) for tile in tiles]

    def moved(side: MatmulOperand) -> MatmulOperand:
        return replace(side, buffer=tiles.get(side.buffer, side.buffer))

    found = {
        name: replace(op, a=moved(op.a), b=moved(op.b)) if isinstance(op, Matmul) else op
        for name, op in ops.items()
    }
    return func.with_body(substitute(func.body, tiles)), found


def in_shared(stmt: Stmt, tiles: Collection[Buffer]) -> Stmt:
    """Return ``stmt`` with ``tiles``, which it allocates, in shared memory."""
    return substitute(stmt, {tile: _like(tile, list(tile.shape), str(tile.name)) for tile in tiles})


def through_shared(
    nest: Nest, fragments: Sequence[Fragment], threads: Threads
) -> tuple[Stmt, list[Buffer]]:
    """Return ``nest``, which touches ``fragments``, spread over ``threads``; and its copies.

    Each tile is copied to shared memory first; one that ``nest`` stores into is copied back.
    """
    copies = {part.tile: _padded(part.tile) for part in fragments}
    stages = list(copies.values())
    made: list[Stmt] = []
    for part in fragments:
        copied = _moved(nest, copies[part.tile], part.tile)
        if part.part is None:
            made.append(rewrite(copied, [part], threads.analyzer))
            continue
        stage = stage_of(part, threads)
        columns, whole = put_together(part, stage, threads)
        moves = rewrite(copied, [whole], threads.analyzer)
        made.append(block("columns", seq(columns, moves), [whole.registers]))
        stages += [] if stage is None else [stage]
    made.append(spread(_on(nest, copies), threads, in_register=True))
    for part in fragments:
        if nest.store.buffer.same_as(part.tile):
            back = _moved(nest, part.tile, copies[part.tile])
            made.append(rewrite(back, [part], threads.analyzer))
            made += [*alone(part), *left_to_one(part)]
    return seq(*made), stages


def _padded(tile: Buffer) -> Buffer:
    """Return a copy of ``tile`` in shared memory, padded to read columns without bank conflicts."""
    *outer, last = (const_int(extent) or 1 for extent in tile.shape)
    beyond = max(1, WORD_BYTES // dtype_bytes(tile.dtype)) if outer else 0
    return _like(tile, [*outer, last + beyond], f"{tile.name}_copy")


def _like(tile: Buffer, shape: Sequence[Any], name: str) -> Buffer:
    return buffer(list(shape), str(tile.dtype), name, "shared")


def _moved(nest: Nest, dst: Buffer, src: Buffer) -> Nest:
    """Return the copy of all of tile ``src`` to ``dst``."""
    tile = src if is_private(src) else dst  # not the copy, which has more columns
    extents = tuple(const_int(extent) or 1 for extent in tile.shape)
    at = tuple(Var(f"i{n}", "int32") for n in range(len(extents)))
    store = tirx.BufferStore(dst, tirx.BufferLoad(src, list(at)), list(at))
    return Nest(f"{nest.name}.{dst.name}", at, extents, (), store)


def _on(nest: Nest, copies: Mapping[Buffer, Buffer]) -> Nest:
    """Return ``nest`` on ``copies`` instead of their tiles."""
    on = Mover({tile: MovedTo(copy) for tile, copy in copies.items()}).moved
    return replace(nest, store=on(nest.store), predicate=tuple(map(on, nest.predicate)))
