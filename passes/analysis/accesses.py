"""Find the accesses to shared memory in a statement: the facts that barriers are placed from.

    S[i, j] = A[k]                       =>  Access(S, "write", index=(i, j))
    cp.async [&S[i, j]], [&A[k]], 16     =>  Access(S, "write", index=(i, j), issue=True, width=8)
    barrier()                            =>  event "barrier"

They are the statement's effects (``effects.py``) on shared memory, with what tells threads apart: a
plain load or store is exact, an instruction touches what ``operands.py`` says, and an opaque call
any part of the buffers that it gets a pointer to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tvm import sym, tirx

from ..ir import nodes as ir
from ..ir.calls import (
    ACCESS_PTR,
    ADDRESS_OF,
    BUFFER_DATA,
    CP_ASYNC_WAIT,
    CP_ASYNC_WAIT_ALL,
    WGMMA_COMMIT,
    WGMMA_WAIT,
    called,
    passed_buffer,
)
from ..ir.wide_indices import is_large, widened
from .access_values import Access, Mode, OrderingEvent, Region
from .effect_values import Effect, Use
from .effects import BOTH, READ, WRITE, effects

BARRIERS: Final = (
    "tirx.cuda.cta_sync",
    "tirx.cuda.syncthreads_and",
    "tirx.cuda.syncthreads_or",
    "tirx.cuda.cluster_sync",
    "tirx.cuda.grid_sync",
)
"""Calls that every thread of the CTA passes together."""

_NUMBERED_BARRIERS: Final = ("tirx.ptx.bar_sync", "tirx.ptx.barrier_sync")
_MATRIX_ROW_BYTES: Final = 16
"""What one lane's address of an ldmatrix stands for."""

_MODES: Final[dict[str, Mode]] = {READ: "read", WRITE: "write", BOTH: "update"}


def event(stmt: Any) -> OrderingEvent | None:
    """Return what an Evaluate statement does for ordering, such as a barrier; None for nothing."""
    if not isinstance(stmt, tirx.Evaluate) or not isinstance(stmt.value, ir.Call):
        return None
    call, name = stmt.value, called(stmt.value)
    if name == "tirx.tvm_storage_sync":
        return None if str(call.args[0].value) == "warp" else "barrier"
    if name in BARRIERS or (name in _NUMBERED_BARRIERS and ir.const_int(call.args[0]) == 0):
        return "barrier"
    if name == CP_ASYNC_WAIT_ALL:
        return "wait_all"
    if name == CP_ASYNC_WAIT:
        return "wait_all" if ir.const_int(call.args[0]) == 0 else "wait"
    if name == WGMMA_COMMIT:
        return "group"
    if name == WGMMA_WAIT:
        return "mma_wait"
    return None


def accesses(node: Any, ranges: sym.Analyzer | None = None) -> list[Access]:
    """Return every access to shared memory in a statement or expression, nested ones included.

    ``ranges``: an analyzer that knows the bounds of the variables; with it a flat offset can be
    split into slot and rest.
    """
    if type(node) is tirx.DeclBuffer or not any(map(is_shared, ir.variables(node))):
        return []  # most statements and nearly all indices
    prover = ranges or sym.Analyzer()
    return [
        found
        for effect in effects(node, is_shared).accesses
        if (found := _access(effect, prover)) is not None
    ]


def is_shared(buffer: Any) -> bool:
    """Whether ``buffer`` is a buffer in shared memory."""
    return ir.is_buffer_var(buffer) and ir.is_shared(buffer)


def _access(effect: Effect, prover: sym.Analyzer) -> Access | None:
    """Return an effect on shared memory as an access; None for one that orders itself."""
    mode, buffer, use = _MODES[effect.mode], effect.buffer, effect.use
    if use is None:
        if effect.box is None:
            return whole(buffer, mode)
        return Access(buffer, mode, tuple(index for index, _ in effect.box))
    if use.instruction is not None and use.instruction.orders_itself:
        return None
    name = called(use.pointer)
    if name == ACCESS_PTR:
        return _matrix(use, mode, prover) or _ranged(buffer, mode, use, prover)
    if name == ADDRESS_OF:
        return _addressed(buffer, mode, use)
    if name == BUFFER_DATA:
        return whole(buffer, mode, _is_grouped(use))
    return Access(buffer, "read", tuple(use.pointer.indices[:]))  # passed by value


def _is_grouped(use: Use) -> bool:
    return use.instruction is not None and use.instruction.is_grouped


_FRAGMENT_SHAPES: Final = {
    "wmma.matrix_a": (1, 3),
    "wmma.matrix_b": (3, 2),
    "wmma.accumulator": (1, 2),
}
"""Arguments of a wmma load or store that hold the rows and the columns of its fragment."""


def _matrix(use: Use, mode: Mode, prover: sym.Analyzer) -> Access | None:
    """Return the access of a warp-wide load or store, if its tile in shared memory is known."""
    name, args, first = called(use.call), list(use.call.args), ir.i32(0)
    if name in ("tirx.tvm_load_matrix_sync", "tirx.tvm_store_matrix_sync"):
        shape = _FRAGMENT_SHAPES.get(str(args[0].args[0].scope()))
        sizes = [ir.const_int(args[i]) for i in shape or ()] + [ir.const_int(args[6])]
        if shape is not None and str(args[7].value) == "col_major":
            sizes = [sizes[1], sizes[0], sizes[2]]
        return _tiled(use.pointer, first, sizes, mode, prover)
    if name == "tirx.ptx_legacy.ldmatrix":
        row = [1, _MATRIX_ROW_BYTES, _MATRIX_ROW_BYTES]
        return _tiled(use.pointer, args[6], row, mode, prover, in_bytes=True)
    if name == "tirx.mma_store_legacy":
        sizes = [ir.const_int(args[i]) for i in (0, 1, 5)]
        return _tiled(use.pointer, first, sizes, mode, prover)
    return None


def _tiled(
    pointer: Any,
    further: Any,
    sizes: Sequence[int | None],
    mode: Mode,
    prover: sym.Analyzer,
    *,
    in_bytes: bool = False,
) -> Access | None:
    """Return the access to the region that starts ``further`` elements behind ``pointer``.

    ``sizes``: its rows, columns and stride.
    """
    buffer: Any = passed_buffer(pointer.args[1])
    known = [size for size in sizes if size is not None]
    if len(known) != 3 or not is_shared(buffer):
        return None
    per = ir.dtype_bytes(buffer.dtype) if in_bytes else 1
    rows, columns, stride = known[0], known[1] // per, known[2] // per
    region = Region(pointer.args[2] + further, rows, columns, stride)
    slot = _slot_of(buffer, region.offset, ir.i32(region.extent), prover)
    index = (slot, *(None for _ in list(buffer.shape)[1:]))
    return Access(buffer, mode, index, own=False, region=region)


def _ranged(buffer: Any, mode: Mode, use: Use, prover: sym.Analyzer) -> Access:
    """Return the access through a pointer to a flat range of elements."""
    slot = _slot_of(buffer, use.pointer.args[2], use.pointer.args[3], prover)
    index = (slot, *(None for _ in list(buffer.shape)[1:]))
    return Access(buffer, mode, index, own=False, issue=_is_grouped(use))


def _addressed(buffer: Any, mode: Mode, use: Use) -> Access:
    """Return the access at ``address_of`` an element; an unknown call may touch any other."""
    index, known = tuple(use.pointer.args[0].indices[:]), use.instruction
    if known is None:
        return whole(buffer, mode)
    if known.is_atomic:
        return Access(buffer, "atomic", index, own=False)
    if known.by_descriptor:
        return Access(buffer, mode, (index[0], *[None] * (len(index) - 1)), own=False, issue=True)
    width = known.width // ir.dtype_bytes(buffer.dtype)
    if width:
        return Access(buffer, mode, index, issue=known.is_grouped, width=width)
    if known.in_rows:
        return Access(buffer, mode, (*index[:-1], None), own=False, issue=known.is_grouped)
    return whole(buffer, mode)


def whole(buffer: Any, mode: Mode, issue: bool = False) -> Access:
    """Return an access to any part of ``buffer`` by any thread."""
    return Access(buffer, mode, (None,) * len(buffer.shape), own=False, issue=issue)


def _slot_of(buffer: Any, offset: Any, extent: Any, prover: sym.Analyzer) -> Any | None:
    """Return the first index of ``buffer`` that a flat range stays in; None if it may leave one."""
    if len(buffer.shape) < 2:
        return None
    slot: Any = ir.i32(1)
    for size in list(buffer.shape)[1:]:
        slot = slot * (widened(size) if is_large(buffer) else size)
    slot = prover.simplify(buffer.strides[0] if buffer.strides else slot)
    rest = prover.simplify(tirx.floormod(offset, slot))
    if not prover.can_prove(rest + extent <= slot):
        return None
    return prover.simplify(tirx.floordiv(offset, slot))
