"""Instructions on shared memory and registers that need more than a load or a store.

Functions called by the generated code: cp.async, ldmatrix, mma, warp shuffles, atomics, and the
older forms that TVM's own tensor intrinsics lower to.  Shared addresses are byte offsets in the
CTA's window.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...diagnostics import Reason
from ..base.dtypes import poison
from ..memory.spaces import GlobalView, LocalView, SharedView, select
from ..memory.state import GroupState
from .cp_async import Source
from .fragments import (
    MATRIX_ROW,
    MATRIX_ROWS,
    MOST_MATRICES,
    WARP,
    Mma,
    computed_pair,
    ldmatrix_words,
    logic_of_three,
    mma_store_positions,
    multiply,
    narrowed_pair,
    nearest_tf32,
    permuted_bytes,
)
from .issuing import IssuingGroup

__all__ = ["computed_pair", "logic_of_three", "narrowed_pair", "nearest_tf32", "permuted_bytes"]
"""Called by the generated code, as warp.nearest_tf32 and so on."""

Array = np.ndarray[Any, Any]
Mask = Array | None
Place = tuple[LocalView, Any]
"""A register array and a byte (or element) offset in it."""


def rows_of(group: GroupState, value: Any, mask: Mask) -> Array:
    """Return ``value`` for each active thread, as int64."""
    if mask is None and isinstance(value, np.ndarray) and value.ndim:
        return value.astype(np.int64)
    count = group.n if mask is None else int(mask.sum())
    picked = np.asarray(select(value, mask, group.n), np.int64)
    return picked if picked.shape == (count,) else np.broadcast_to(picked, (count,))


def shared_rows(group: GroupState, addr: Any, size: int, mask: Mask, what: str) -> Array:
    """Return byte offsets of the active threads, checked for alignment and bounds."""
    at = rows_of(group, addr, mask)
    if size & (size - 1) or (at.size and int(np.bitwise_or.reduce(at)) & (size - 1)):
        _check_aligned(group, at, size, mask, what)
    # A negative offset is a large one without its sign.
    if at.size and at.view(np.uint64).max() > group.cta.window.nbytes - size:
        outside = (at < 0) | (at > group.cta.window.nbytes - size)
        row = int(np.argmax(outside))
        group.hazard("out-of-bounds", what, int(at[row]), thread=int(group.active(mask)[row]))
        at = np.clip(at, 0, len(group.cta.window.bytes) - size)
    return at


def _check_aligned(group: GroupState, at: Array, size: int, mask: Mask, what: str) -> None:
    misaligned = at % size != 0
    if misaligned.any():
        row = int(np.argmax(misaligned))
        group.hazard(
            "misaligned",
            what,
            int(at[row]),
            thread=int(group.active(mask)[row]),
            detail=Reason("hazard.shared_alignment", multiple=size),
        )


def cp_async(
    group: IssuingGroup,
    name: str,
    dst: Any,
    src: GlobalView,
    src_offset: Any,
    size: int,
    mask: Mask,
    src_size: Any = None,
) -> None:
    """Run cp.async of ``size`` bytes; those from ``src_size`` on are zero, and are not read."""
    tids = group.active(mask)
    at = shared_rows(group, dst, size, mask, name)
    start = rows_of(group, src_offset, mask)
    group.touch_global(src.name, mask)
    group.count("copies", len(tids))
    if src_size is None and _is_plain(src, start, size):
        wanted, data = None, src.array[start[:, None] + np.arange(size)]
    else:
        valid = np.full(len(tids), size) if src_size is None else rows_of(group, src_size, mask)
        wanted, data = _partly(group, src, tids, start, valid, size)
    source = None
    if src.region.memory.shadow is not None:
        if wanted is None:
            wanted = np.ones(data.shape, np.bool_)
        source = Source.begin(group, src, tids, start, wanted)
    group.cta.copies.issue(tids, at, data, group.event, source)


def _is_plain(src: GlobalView, start: Array, size: int) -> bool:
    """Whether all copies of ``size`` bytes are aligned and inside their buffer."""
    if not start.size or start.min() < 0 or start.max() > src.array.size - size:
        return False
    return not (src.base | int(np.bitwise_or.reduce(start))) & (size - 1)


def _partly(
    group: IssuingGroup, src: GlobalView, tids: Array, start: Array, valid: Array, size: int
) -> tuple[Array, Array]:
    """Return which bytes copies read that take ``valid`` each, and the bytes, zeros for others."""
    misaligned = ((start + src.base) % size != 0) & (valid > 0)
    if misaligned.any():
        row = int(np.argmax(misaligned))
        group.hazard(
            "misaligned",
            src.name,
            int(start[row]),
            thread=int(tids[row]),
            detail=Reason("hazard.source_alignment", nbytes=size),
        )
    index = start[:, None] + np.arange(size)
    wanted = np.arange(size) < valid[:, None]
    outside = wanted & ((index < 0) | (index >= src.array.size))
    if outside.any():
        row = int(np.argmax(outside.any(axis=1)))
        group.hazard("out-of-bounds", src.name, int(start[row]), thread=int(tids[row]))
        wanted &= ~outside
    if not wanted.any():  # an array of no elements has no first one
        return wanted, np.zeros(wanted.shape, np.uint8)
    return wanted, np.where(wanted, src.array[np.where(wanted, index, 0)], 0).astype(np.uint8)


def commit_group(group: IssuingGroup, mask: Mask) -> None:
    group.count("commits")
    group.cta.copies.commit(group.active(mask))


def wait_group(group: IssuingGroup, in_flight: int, mask: Mask) -> None:
    group.count("waits")
    group.cta.copies.wait(group.active(mask), in_flight, group.event)


def wait_all(group: IssuingGroup, mask: Mask) -> None:
    group.count("waits")
    group.cta.copies.wait_all(group.active(mask), group.event)


def zero_shared(group: GroupState, name: str, dst: Any, size: int, mask: Mask) -> None:
    """Store ``size`` zero bytes, as TVM's cp.async does where its predicate is false."""
    unit = np.dtype(np.uint32)
    view = SharedView(name, group.cta.window, unit, 0, group.cta.window.nbytes)
    words = size // unit.itemsize
    at = np.asarray(dst) // unit.itemsize
    index = int(at) if at.ndim == 0 else at
    view.store(group, index, np.uint32(0), mask, words)


def ldmatrix(group: GroupState, addr: Any, count: int, transposed: bool, mask: Mask) -> list[Array]:
    """Run ldmatrix .m8n8 .b16: ``count`` registers (n,) uint32."""
    mask = group.warps(mask, "ldmatrix")
    readers = mask
    if count < MOST_MATRICES:
        readers = np.arange(group.n) % WARP < MATRIX_ROWS * count
        readers = readers if mask is None else readers & mask
    at = shared_rows(group, addr, MATRIX_ROW, readers, "ldmatrix")
    cta = group.cta
    step = cta.granule
    grains = (at // step)[:, None]
    if step < MATRIX_ROW:
        grains = grains + np.arange(MATRIX_ROW // step)
    cta.shadow.read(group.active(readers), grains, group.event)
    read = cta.window.rows(MATRIX_ROW)[at // MATRIX_ROW]
    rows = read
    if readers is not None:
        rows = np.zeros((group.n, MATRIX_ROW), np.uint8)
        rows[readers] = read
    group.count("ldmatrix", active_warps(group, mask))
    words = ldmatrix_words(rows.reshape(-1, WARP, MATRIX_ROW), count, transposed=transposed)
    return [word.reshape(-1) for word in words]


def active_warps(group: GroupState, mask: Mask) -> int:
    """Number of warps with an active thread."""
    return group.n // WARP if mask is None else int(mask.reshape(-1, WARP).any(axis=1).sum())


def mma(
    group: GroupState,
    spec: Mma,
    a: list[Any],
    b: list[Any],
    c: list[Any],
    saturate: bool,
    mask: Mask,
) -> list[Array]:
    """Run mma.sync: registers of A and B as uint32, of C as its type (halves as uint32)."""
    mask = group.warps(mask, "mma")
    warps = group.n // WARP

    def stack(registers: list[Any], dtype: Any) -> Array:
        bits = np.empty((group.n, len(registers)), dtype)
        for i, register in enumerate(map(np.asarray, registers)):
            bits[:, i] = register if register.dtype == dtype else register.view(dtype)
        return bits.reshape(warps, WARP, len(registers))

    packed = spec.d_type.itemsize == 2
    carrier = np.dtype(np.uint32) if packed else spec.d_type
    addend = stack(c, carrier)
    if packed:
        addend = np.ascontiguousarray(addend).view(spec.d_type)
    out = multiply(spec, stack(a, np.uint32), stack(b, np.uint32), addend, saturate=saturate)
    if packed:
        out = np.ascontiguousarray(out).view(np.uint32)
    group.count("mmas", active_warps(group, mask))
    flat = out.reshape(group.n, -1)
    return [flat[:, i] for i in range(flat.shape[1])]


def local_registers(group: GroupState, place: Place, count: int) -> list[Array]:
    """Return ``count`` 32-bit registers at a place in a local buffer."""
    view, offset = place
    words = view.view(np.dtype(np.uint32))
    at = offset // 4
    return [words.load(group, at + i, None) for i in range(count)]


def store_registers(group: GroupState, place: Place, values: list[Array], mask: Mask) -> None:
    """Write 32-bit registers at a place in a local buffer."""
    view, offset = place
    words = view.view(np.dtype(np.uint32))
    at = offset // 4
    for i, value in enumerate(values):
        words.store(group, at + i, value.view(np.uint32), mask)


def mma_legacy(
    group: GroupState, spec: Mma, a: Place, b: Place, c: Place, saturate: bool, mask: Mask
) -> None:
    """Run TVM's pointer form of mma; ``a``, ``b``, ``c`` are (local view, byte offset)."""
    a_regs = spec.a.size * spec.a_type.itemsize // (WARP * 4)
    b_regs = spec.b.size * spec.b_type.itemsize // (WARP * 4)
    c_regs = 128 * spec.d_type.itemsize // (WARP * 4)
    out = mma(
        group,
        spec,
        local_registers(group, a, a_regs),
        local_registers(group, b, b_regs),
        [r.copy() for r in local_registers(group, c, c_regs)],
        saturate,
        mask,
    )
    store_registers(group, c, out, mask)


def ldmatrix_legacy_int8_trans(
    group: GroupState, dst: Place, src: Any, stride: Any, dtype: Any, mask: Mask
) -> None:
    """Run the loop that TVM prints for a transposed 8-bit ldmatrix .x4, which no GPU has."""
    view, offset = dst
    window = group.cta.window
    shared = SharedView("ldmatrix", window, dtype, 0, window.nbytes)
    local = view.view(dtype)
    tx = group.tx
    for i in range(16):
        at = src + (i % 8) // 4 * stride * 16 + tx % 4 * 4 * stride + i % 4 * stride
        at = at + tx // 4 + i // 8 * 8
        local.store(group, offset + i, shared.load(group, at, mask), mask)


def mma_store_legacy(
    group: GroupState, dst: Any, index: Any, stride: Any, src: Place, dtype: Any, mask: Mask
) -> None:
    """Store a 16x16 accumulator in TVM's ldmatrix_32x8 layout, by rows of ``stride``."""
    rows, cols = mma_store_positions()
    view, offset = src
    values = view.view(dtype)
    lane = group.tx
    for i in range(8):
        at = index + rows[lane, i].astype(np.int32) * stride + cols[lane, i].astype(np.int32)
        dst.store(group, at, values.load(group, offset + i, mask), mask)


def shuffle(
    group: GroupState, kind: str, value: Any, operand: Any, width: int, mask: Mask
) -> Array:
    """Run __shfl_sync and kin; an inactive lane that is read is reported."""
    rows = np.broadcast_to(np.asarray(value), (group.n,))
    lane = group.tids % WARP
    segment = lane // width * width
    operand = np.broadcast_to(np.asarray(operand), (group.n,)).astype(np.int64)
    if kind == "idx":
        source = segment + operand % width
    elif kind == "up":
        source = np.where(lane - operand < segment, lane, lane - operand)
    elif kind == "down":
        source = np.where(lane + operand >= segment + width, lane, lane + operand)
    else:
        flipped = lane ^ operand
        source = np.where(flipped >= segment + width, lane, flipped)
    own = np.arange(group.n)
    index = own - lane + source
    absent = index >= group.n
    index = np.where(absent, own, index)
    silent = absent if mask is None else (absent | ~mask[index])
    relevant = silent if mask is None else silent & mask
    out = rows[index]
    if relevant.any():
        out = out.copy()
        out[relevant] = poison(out.dtype, (1,))[0]
        thread = int(group.tids[int(np.argmax(relevant))])
        group.hazard("divergent-warp", thread=thread, detail=Reason("hazard.inactive_lane"))
    return out


def active_mask(group: GroupState, mask: Mask) -> Array:
    """Return the lanes of each thread's warp that are active (__activemask)."""
    on = np.ones(group.n, np.bool_) if mask is None else mask
    padded = np.zeros(-(-group.n // WARP) * WARP, np.bool_)
    padded[: group.n] = on
    bits = (padded.reshape(-1, WARP) << np.arange(WARP, dtype=np.uint64)).sum(axis=1)
    return np.repeat(bits.astype(np.uint32), WARP)[: group.n]
