"""Move tiles that exceed a CTA's shared memory to a workspace in global memory.

    for bx in 784:                                W = alloc_buffer((784, 512, 512), "float32")
      acc = alloc_buffer((512, 512), "float32")   for bx in 784:
      acc[i, j] = ..                        =>      W[bx, i, j] = ..

Each CTA has its own piece of the workspace. The function allocates it at each call, as TVM
allocates any buffer between two kernels. The largest tiles go first, and only as many as it takes
for the others to fit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import tvm_ffi
from tvm import tirx

from ...plan import KernelPlan
from ..analysis.memory import pointed
from ..ir.kernels import thread_tag, with_block
from ..ir.moved import Moved, MovedTo, Mover
from ..ir.nodes import (
    Buffer,
    Expr,
    SBlockRealize,
    Stmt,
    block,
    buffer,
    buffer_bytes,
    const_int,
    is_shared,
    walk,
)
from ..ir.wide_indices import widened
from ..smem.place import least_bytes
from .through_shared import in_shared

SPARE: Final = 8 * 1024
"""Bytes of shared memory left for what mapping adds: partial sums, a few for each thread."""

NATIVE_BF16: Final = 80
"""Least compute capability for which TVM leaves bfloat16 as it is."""


def beyond(kernel: Stmt, private: Collection[Buffer], plan: KernelPlan) -> list[Buffer]:
    """Return the tiles of ``kernel`` that the shared memory of ``plan`` has no room for.

    ``private``: those that would be in registers, but are in shared memory here.
    """
    budget = plan.smem.budget - SPARE
    native_bf16 = int(plan.target.removeprefix("sm_").rstrip("af")) >= NATIVE_BF16
    known = [buf for buf in _tiles(kernel) if buffer_bytes(buf) is not None]
    first = [buf for buf in known if buf in private]
    ranked = sorted(known, key=lambda buf: (buf not in first, -(buffer_bytes(buf) or 0)))
    taken: list[Buffer] = []
    reached = pointed(kernel)
    movable = [buf for buf in ranked if buf not in reached]
    left = in_shared(kernel, private)
    while movable and least_bytes(left, native_bf16=native_bf16) > budget:
        taken.append(movable.pop(0))
        left = in_shared(_without(kernel, taken), [buf for buf in private if buf not in taken])
    return taken


def in_workspace(kernel: Stmt, tiles: Sequence[Buffer]) -> tuple[Stmt, list[Buffer]]:
    """Return ``kernel`` with ``tiles`` in global memory, and the buffers to allocate there."""
    grid = _grid(kernel)
    wide = any(const_int(loop.extent) is None for loop in grid)  # as TVM counts unknown extents
    ctas = [widened(loop.extent) if wide else loop.extent for loop in grid]
    first = [widened(loop.loop_var) if wide else loop.loop_var for loop in grid]

    def at(indices: Sequence[Expr]) -> list[Expr]:
        return [*first, *(widened(index) if wide else index for index in indices)]

    moved: dict[Buffer, Moved] = {}
    for tile in tiles:
        shape = [*ctas, *(widened(size) if wide else size for size in tile.shape)]
        home = buffer(shape, str(tile.dtype), f"{tile.name}_workspace", "global")
        moved[tile] = MovedTo(home, at)
    body = Mover(moved).moved(_without(kernel, tiles))
    return body, [move.buffer for move in moved.values()]


def allocating(body: Stmt, buffers: Sequence[Buffer]) -> Stmt:
    """Return ``body`` of a function with ``buffers`` allocated around it."""
    if isinstance(body, SBlockRealize):
        return with_block(body, allocs=[*body.block.alloc_buffers, *buffers])
    return block("workspace", body, buffers)


def _tiles(kernel: Stmt) -> list[Buffer]:
    """Return the buffers that ``kernel`` allocates for each CTA."""
    found: list[Buffer] = []

    def visit(node: Any) -> None:
        allocated = node.block.alloc_buffers if isinstance(node, SBlockRealize) else [node.buffer]
        found.extend(buf for buf in allocated if is_shared(buf) or _is_local(buf))

    walk(kernel, (SBlockRealize, tirx.AllocBuffer), visit)
    return found


def _is_local(buf: Buffer) -> bool:
    return str(buf.scope()).startswith("local")


def _grid(kernel: Stmt) -> list[Any]:
    """Return the loops of ``kernel`` that are bound to blockIdx, outer first."""
    found: list[Any] = []

    def visit(loop: Any) -> None:
        if (thread_tag(loop) or "").startswith("blockIdx"):
            found.append(loop)

    walk(kernel, tirx.For, visit)
    return found


def _without(kernel: Stmt, tiles: Sequence[Buffer]) -> Stmt:
    """Return ``kernel`` without the allocations of ``tiles``, and without regions of them."""

    def visit(realize: Any) -> Any:
        inner = realize.block
        allocs = [buf for buf in inner.alloc_buffers if buf not in tiles]
        reads, writes = (
            [region for region in regions if region.source not in tiles]
            for regions in (inner.reads, inner.writes)
        )
        same = len(allocs) == len(inner.alloc_buffers)
        if same and len(reads) == len(inner.reads) and len(writes) == len(inner.writes):
            return realize
        return with_block(realize, allocs=allocs, regions=(reads, writes))

    def dropped(stmt: Any) -> Any:
        return tirx.Evaluate(0) if stmt.buffer in tiles else stmt

    return tvm_ffi.structural_map(
        kernel, [(SBlockRealize, visit), (tirx.AllocBuffer, dropped)], order="post"
    )
