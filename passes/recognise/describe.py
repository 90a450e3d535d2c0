"""Describe a statement in plain values for the cost model: what it moves, multiplies or costs.

    A_shared[i, j] = A[m + i, k + j]    =>   CopyInfo(dst="A_shared", shape=(128, 64), ...)
    acc[i, j] += A_shared .. B_shared   =>   MatmulInfo(m=128, n=256, k=64, ...)

Recognition calls it for each op; the cost model sees nothing else of a function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from ...diagnostics import Reason, Why
from ...values.facts import CopyInfo, MatmulInfo, StatementInfo
from ...values.notes import note_in
from ..analysis.effects import READ, effects
from ..analysis.op_kinds import classify
from ..copy.boxes import Boxes
from ..copy.copies import obstacles
from ..copy.tma import source_of
from ..ir.indexing import alignment, offset, row_major, strides
from ..ir.kernels import bodies, thread_tag
from ..ir.linear import affine
from ..ir.nodes import (
    Buffer,
    ForKind,
    SBlock,
    Stmt,
    Var,
    buffer_bytes,
    const_int,
    dtype_bytes,
    is_global,
    is_private,
    is_shared,
    walk,
)
from ..ir.patterns import Copy, Matmul, dimension_of, masked_load
from .costs import cost_of


def copy_info(name: str, copy: Copy, read: frozenset[Buffer], ranges: Any) -> CopyInfo:
    """Return the description of a tile copy.

    ``read``: the buffers that the kernel reads. ``ranges``: knows the ranges of all loops.
    """
    source = source_of(copy, ranges)
    dims, steps = copy.src_dims, strides(copy.src)
    if isinstance(source, Boxes) and source.joined:
        dims = tuple(dimension_of(index, copy.order) for index in source.indices)
        steps = row_major(source.shape)
    return CopyInfo(
        op=name,
        src=str(copy.src.name),
        dst=str(copy.dst.name),
        dst_scope=str(copy.dst.scope()),
        dtype=str(copy.dst.dtype),
        shape=copy.shape,
        src_dims=dims,
        src_strides=tuple(const_int(stride) for stride in steps),
        aligned=copy.aligned(),
        masked=bool(copy.mask),
        bound=False,
        no_tma=source if isinstance(source, Reason) else "",
        view="tensor" if isinstance(source, Reason) else source.kind,
        note=note_in(copy.nest.annotations),
        no_cp_async=_unread(copy.dst, read),
        src_bytes=_seen_bytes(copy, ranges),
    )


def _seen_bytes(copy: Copy, ranges: Any) -> int:
    """Return how many bytes of the source any iteration reads; 0 if that is unknown.

    A dimension read in steps counts every ``step``-th element, except the last dimension, where
    whole sectors are transferred.
    """
    total = dtype_bytes(copy.src.dtype)
    last = len(copy.src.shape) - 1
    for dim, (extent, index) in enumerate(zip(copy.src.shape, copy.src_indices, strict=True)):
        step = 1 if dim == last else max(1, int(ranges.modular_set(index).coeff))
        total *= math.ceil((const_int(extent) or 0) / step)
    return total


def _unread(dst: Buffer, read: frozenset[Buffer]) -> Why:
    """Return why a copy to ``dst`` must not be asynchronous: no consumer would wait for it."""
    return "" if dst in read else Reason("copy.unread", buffer=str(dst.name))


def matmul_info(name: str, matmul: Matmul) -> MatmulInfo:
    """Return the description of a tile matmul, with the hints that its blocks carry."""
    hints = matmul.nest.annotations
    return MatmulInfo(
        op=name,
        acc=str(matmul.acc.name),
        a=str(matmul.a.buffer.name),
        b=str(matmul.b.buffer.name),
        m=matmul.extent(matmul.m),
        n=matmul.extent(matmul.n),
        k=matmul.extent(matmul.k),
        a_dtype=str(matmul.a.buffer.dtype),
        b_dtype=str(matmul.b.buffer.dtype),
        acc_dtype=str(matmul.acc.dtype),
        a_k_major=matmul.a.k_major,
        b_k_major=matmul.b.k_major,
        instruction=str(hints.get("pipeliner.mma", "auto")),
        warps=_pair(hints.get("pipeliner.warps")),
        thread_tile=_pair(hints.get("pipeliner.thread_tile")),
        computed=tuple(
            str(side.buffer.name) for side in (matmul.a, matmul.b) if is_private(side.buffer)
        ),
        stationary=tuple(
            str(side.buffer.name)
            for side, rows in ((matmul.a, matmul.m), (matmul.b, matmul.n))
            if _holds_more(side.buffer, matmul.extent(rows) * matmul.extent(matmul.k))
        ),
    )


def _holds_more(buf: Buffer, elements: int) -> bool:
    size = buffer_bytes(buf)
    return size is None or size > elements * dtype_bytes(buf.dtype)


def statement_info(
    name: str, stmt: Stmt, threads: int, written: frozenset[Buffer], *, bound: bool
) -> StatementInfo:
    """Return the description of any statement, executed by ``threads`` threads.

    ``written``: the buffers that its loop writes.
    """
    cost = cost_of(stmt, threads)
    found = effects(stmt)
    return StatementInfo(
        op=name,
        kind=classify(found),
        global_bytes=cost.global_bytes,
        shared_bytes=cost.shared_bytes,
        flops=cost.flops,
        transcendentals=cost.transcendentals,
        tensor_flops=cost.tensor_flops,
        bound=bound,
        loads=any(is_global(read) and read not in written for read in found.buffers(READ)),
        reads=tuple(sorted(str(read.name) for read in found.buffers(READ) if is_shared(read))),
    )


@dataclass(frozen=True)
class _Move:
    """A store of a loaded element, made ``times`` by each thread, ``lanes`` elements at once."""

    store: Any
    times: int
    lanes: int
    lane: Var | None

    def aligned(self, buf: Buffer, indices: Sequence[Any]) -> int:
        """Return how many elements divide a vector's start in ``buf``; 1 if not contiguous."""
        start = offset(buf, indices)
        declared = int(buf.data_alignment) // dtype_bytes(buf.dtype)
        if self.lane is None:
            return min(alignment(start), declared)
        known = affine(start, [self.lane])
        if known is None or known.coefficients.get(self.lane) != 1:
            return 1
        return min(alignment(known.base), declared)


def bound_copy(
    name: str,
    stmt: Stmt,
    threads: int,
    written: frozenset[Buffer],
    read: frozenset[Buffer],
    analyzer: Any,
) -> CopyInfo | None:
    """Return the description of a statement in which the user's threads copy to shared memory.

    None if it does anything else. The tile is what it moves, as rows of one vector each.
    ``written``: the buffers that its loop writes. ``read``: those that the kernel reads.
    ``analyzer``: knows the ranges of all loops.
    """
    moves: list[_Move] = []
    if not _collect_moves(stmt, 1, 1, None, moves) or not moves:
        return None
    first = moves[0]
    loaded = masked_load(first.store.value)
    if loaded is None or any(m.store.buffer != first.store.buffer for m in moves):
        return None
    load, mask = loaded
    total = sum(move.times * move.lanes for move in moves)
    no_cp_async, no_register = obstacles(name, stmt, written, analyzer)
    return CopyInfo(
        op=name,
        src=str(load.source.name),
        dst=str(first.store.buffer.name),
        dst_scope=str(first.store.buffer.scope()),
        dtype=str(first.store.buffer.dtype),
        shape=(threads * total // first.lanes, first.lanes),
        src_dims=(*[None] * (len(load.indices) - 1), 1),
        src_strides=tuple(const_int(stride) for stride in strides(load.source)),
        aligned=min(
            first.aligned(load.source, load.indices),
            first.aligned(first.store.buffer, first.store.indices),
        ),
        masked=bool(mask),
        bound=True,
        no_cp_async=no_cp_async or _unread(first.store.buffer, read),
        no_register=no_register,
    )


def _collect_moves(
    stmt: Stmt, times: int, lanes: int, lane: Var | None, moves: list[_Move]
) -> bool:
    """Collect the stores of ``stmt``; return whether it only moves elements to shared memory."""
    if isinstance(stmt, tirx.BufferStore):
        moved = masked_load(stmt.value)
        if moved is None or not is_global(moved[0].source) or not is_shared(stmt.buffer):
            return False
        moves.append(_Move(stmt, times, lanes, lane))
        return str(moved[0].source.dtype) == str(stmt.buffer.dtype)
    if isinstance(stmt, tirx.For):
        extent = const_int(stmt.extent)
        if extent is None:
            return False
        if stmt.kind == ForKind.VECTORIZED:
            return _collect_moves(stmt.body, times, extent, stmt.loop_var, moves)
        shared_out = (thread_tag(stmt) or "").startswith("threadIdx")
        return _collect_moves(stmt.body, times * (1 if shared_out else extent), lanes, lane, moves)
    inner = bodies(stmt)
    return bool(inner) and all(_collect_moves(part, times, lanes, lane, moves) for part in inner)


def hint(stmt: Stmt) -> str:
    """Return a name for a statement: that of its outermost named block, or of what it stores."""
    names: list[str] = []
    walk(stmt, SBlock, lambda found: names.append(str(found.name_hint)))
    walk(stmt, tirx.BufferStore, lambda found: names.append(str(found.buffer.name)))
    first = next((name for name in names if name), "stmt")
    return first.replace(".", "_")


def _pair(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    first, second = (int(item) for item in value)
    return first, second
