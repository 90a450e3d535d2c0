"""Find the accesses to shared memory in a statement: the facts that barriers are placed from.

    S[i, j] = A[k]                       =>  Access(S, "write", index=(i, j))
    cp.async [&S[i, j]], [&A[k]], 16     =>  Access(S, "write", index=(i, j), issue=True, width=8)
    barrier()                            =>  event "barrier"

A plain load or store is exact. A PTX instruction touches what its definition says. An opaque call
may read and write anything in the buffers that it gets a pointer to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import tvm_ffi
from tvm import sym, tirx
from tvm_ffi.structural import WalkResult

from ..ir import nodes as ir
from ..ir.calls import (
    ACCESS_PTR,
    ADDRESS_OF,
    BUFFER_DATA,
    CP_ASYNC_COPY,
    CP_ASYNC_WAIT,
    CP_ASYNC_WAIT_ALL,
    MBARRIERS,
    POINTERS,
    WGMMA_CALL,
    WGMMA_COMMIT,
    WGMMA_WAIT,
    called,
    passed_buffer,
    uncast,
)
from ..ir.wide_indices import is_large, widened
from .access_values import Access, Mode, OrderingEvent, Region

BARRIERS: Final = (
    "tirx.cuda.cta_sync",
    "tirx.cuda.syncthreads_and",
    "tirx.cuda.syncthreads_or",
    "tirx.cuda.cluster_sync",
    "tirx.cuda.grid_sync",
)
"""Calls that every thread of the CTA passes together."""

_NUMBERED_BARRIERS: Final = ("tirx.ptx.bar_sync", "tirx.ptx.barrier_sync")
_CP_ASYNC_LEGACY: Final = "tirx.s_tir.cp_async_raw"
_MATRIX_LOADS: Final = (
    "tirx.ptx.ldmatrix",
    "tirx.ptx_legacy.ldmatrix",
    "tirx.tvm_load_matrix_sync",
)
_MATRIX_STORES: Final = (
    "tirx.ptx.stmatrix",
    "tirx.tvm_store_matrix_sync",
    "tirx.mma_store_legacy",
    "tirx.mma_store",
)
_MATRIX_ROW_BYTES: Final = 16
"""What one lane's address of an ldmatrix stands for."""

_WITHOUT_ACCESS: Final = ir.CONSTANTS | {ir.Var}
_ATOMICS: Final = ("tirx.atomic_add", "tirx.cuda.atomic_add", "tirx.cuda.atomic_cas")


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
    found: list[Access] = []
    prover = ranges or sym.Analyzer()

    def load(value: Any) -> WalkResult | None:
        if is_shared(value.source):
            found.append(Access(value.source, "read", tuple(value.indices[:])))
        return None

    def store(stmt: Any) -> None:
        if is_shared(stmt.buffer):
            found.append(Access(stmt.buffer, "write", tuple(stmt.indices[:])))

    def call(value: Any) -> WalkResult | None:
        return _call(value, found, visit, prover)

    def skip(_: Any) -> WalkResult:
        return WalkResult.SKIP

    def visit(inner: Any) -> None:
        if type(inner) is tirx.Evaluate:
            inner = inner.value
        if type(inner) in _WITHOUT_ACCESS or not any(map(is_shared, ir.variables(inner))):
            return  # most statements and nearly all indices
        if type(inner) is ir.Call and call(inner) is WalkResult.SKIP:
            return
        callbacks = [
            (tirx.DeclBuffer, skip),  # what is done through the view is
            (tirx.BufferStore, store),
            (ir.TensorLoad, load),
            (ir.TensorRegion, skip),
            (ir.Call, call),
        ]
        tvm_ffi.structural_walk(inner, callbacks, order="pre")

    visit(node)
    return found


def is_shared(buffer: Any) -> bool:
    """Whether ``buffer`` is a buffer in shared memory."""
    return ir.is_buffer_var(buffer) and ir.is_shared(buffer)


def _call(
    call: Any, found: list[Access], visit: Callable[[Any], None], prover: sym.Analyzer
) -> WalkResult | None:
    name = called(call)
    if name.startswith(MBARRIERS):
        return WalkResult.SKIP
    if name == ADDRESS_OF and _pointer(call) is None:
        return None  # of no element, as of a tensor map
    if name.startswith(WGMMA_CALL):
        found.extend(_described(call))
        return WalkResult.SKIP
    if name in POINTERS:
        _pointers([call], _OPAQUE, found, visit, prover)
        return WalkResult.SKIP
    matrix = _matrix(call, name, prover)
    if matrix is not None:
        found.append(matrix)
        return WalkResult.SKIP
    use = _use(call, name)
    if use is None:
        return None
    _pointers(call.args, use, found, visit, prover)
    return WalkResult.SKIP


def _described(call: Any) -> list[Access]:
    """Return the reads of a wgmma through the descriptors that are encoded in its operands."""
    loads = ir.collect(call, ir.TensorLoad)
    return [
        Access(
            load.source,
            "read",
            (load.indices[0], *[None] * (len(load.indices) - 1)),
            own=False,
            issue=True,
        )
        for load in loads
        if is_shared(load.source)
    ]


_FRAGMENT_SHAPES: Final = {
    "wmma.matrix_a": (1, 3),
    "wmma.matrix_b": (3, 2),
    "wmma.accumulator": (1, 2),
}
"""Arguments of a wmma load or store that hold the rows and the columns of its fragment."""


def _matrix(call: Any, name: str, prover: sym.Analyzer) -> Access | None:
    """Return the access of a warp-wide load or store, if its tile in shared memory is known."""
    args = call.args
    if name in ("tirx.tvm_load_matrix_sync", "tirx.tvm_store_matrix_sync"):
        shape = _FRAGMENT_SHAPES.get(str(args[0].args[0].scope()))
        sizes = [ir.const_int(args[i]) for i in shape or ()] + [ir.const_int(args[6])]
        if shape is not None and str(args[7].value) == "col_major":
            sizes = [sizes[1], sizes[0], sizes[2]]
        mode: Mode = "read" if name == "tirx.tvm_load_matrix_sync" else "write"
        return _tiled(args[5], ir.i32(0), sizes, mode, prover)
    if name == "tirx.ptx_legacy.ldmatrix":
        row = [1, _MATRIX_ROW_BYTES, _MATRIX_ROW_BYTES]
        return _tiled(args[5], args[6], row, "read", prover, in_bytes=True)
    if name == "tirx.mma_store_legacy":
        sizes = [ir.const_int(args[i]) for i in (0, 1, 5)]
        return _tiled(args[2], ir.i32(0), sizes, "write", prover)
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
    if called(pointer) != ACCESS_PTR:
        return None
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


@dataclass(frozen=True)
class _Use:
    """What a call does through its pointers: mode of the first and of the others.

    ``bytes``: that each thread touches at its address; 0 where a warp shares what it loads.
    """

    first: Mode
    rest: Mode
    bytes: int = 0
    issue: bool = False


_OPAQUE: Final = _Use("update", "update")


def _use(call: Any, name: str) -> _Use | None:
    """Return what is known of the call ``name``; None if its arguments are ordinary expressions."""
    if name.startswith(CP_ASYNC_COPY):
        return _Use("write", "read", ir.const_int(call.args[2]) or 0, issue=True)
    if name == _CP_ASYNC_LEGACY:
        return _Use("write", "read", issue=True)
    if name in _MATRIX_LOADS or name.startswith("tirx.ptx.ldmatrix"):
        return _Use("read", "read")
    if name in _MATRIX_STORES or name.startswith("tirx.ptx.stmatrix"):
        return _Use("write", "write")
    if name in _ATOMICS or name.startswith(("tirx.ptx.atom", "tirx.ptx.red")):
        return _Use("atomic", "atomic")
    return None


def _pointers(
    args: Sequence[Any],
    use: _Use,
    found: list[Access],
    visit: Callable[[Any], None],
    prover: sym.Analyzer,
) -> None:
    """Record what each pointer among ``args`` points to; visit everything else."""
    for position, arg in enumerate(args[:]):
        pointer = _pointer(arg) if type(arg) is ir.Call else None
        if pointer is None:
            visit(arg)
            continue
        for index in _offsets(pointer):
            visit(index)
        access = _pointed(pointer, use.rest if position else use.first, use, prover)
        if access is not None:
            found.append(access)


def _pointer(arg: Any) -> Any | None:
    """Return the call in ``arg`` that makes a pointer into a buffer, if there is one."""
    arg = uncast(arg)
    name = called(arg)
    if name == ADDRESS_OF:
        return arg if isinstance(arg.args[0], ir.TensorLoad) else None
    if name == ACCESS_PTR:
        return arg if passed_buffer(arg.args[1]) is not None else None
    return arg if name == BUFFER_DATA else None


def _offsets(pointer: Any) -> Sequence[Any]:
    """Return the expressions that say where in its buffer a pointer points."""
    name = called(pointer)
    if name == ADDRESS_OF:
        return cast("list[Any]", pointer.args[0].indices[:])
    return cast("list[Any]", pointer.args[2:4]) if name == ACCESS_PTR else []


def _pointed(pointer: Any, mode: Mode, use: _Use, prover: sym.Analyzer) -> Access | None:
    name = called(pointer)
    if name == ADDRESS_OF:
        load = pointer.args[0]
        return _addressed(load, mode, use) if is_shared(load.source) else None
    if name == BUFFER_DATA:
        buffer = pointer.args[0]
        return whole(buffer, mode, use.issue) if is_shared(buffer) else None
    target: Any = passed_buffer(pointer.args[1])
    if not is_shared(target):
        return None
    mask = ir.const_int(pointer.args[4])
    if mode == "update" and mask in (1, 2):
        mode = "read" if mask == 1 else "write"
    slot = _slot_of(target, pointer.args[2], pointer.args[3], prover)
    index = (slot, *(None for _ in list(target.shape)[1:]))
    return Access(target, mode, index, own=False, issue=use.issue)


def _addressed(load: Any, mode: Mode, use: _Use) -> Access:
    """Return the access at ``address_of(load)``.

    A known call touches neighbours along the last dimension; an unknown one may touch anything.
    """
    buffer, index = load.source, tuple(load.indices[:])
    width = use.bytes // ir.dtype_bytes(buffer.dtype)
    if width:
        return Access(buffer, mode, index, own=True, issue=use.issue, width=width)
    if mode == "atomic":
        return Access(buffer, mode, index, own=False)
    if use is _OPAQUE:
        return whole(buffer, mode, issue=False)
    return Access(buffer, mode, (*index[:-1], None), own=False, issue=use.issue)


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
