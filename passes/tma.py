"""Tile copies by the tensor memory accelerator: a tensor map on the host, boxes in the kernel.

    for i, j in T.grid(128, 64): A_shared[i, j] = A[m * 128 + i, k * 64 + j]
    =>
    host:   cuTensorMapEncodeTiled(A_map, A, shape, strides, box 128 x 64, swizzle 128B)
    kernel: cp.async.bulk.tensor.2d [A_shared], [A_map, (k * 64, m * 128)], [full]

A swizzled box is at most 128 bytes wide: wider tiles are panels side by side, a box each. What lies
outside the tensor arrives as zero, so a copy's mask must say just that.

Sources: CUDA driver API, cuTensorMapEncodeTiled; PTX ISA, cp.async.bulk.tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import sym, tirx
from tvm.ir import Range
from tvm.script import tirx as T

from ..cost.tma import panel_bytes
from ..plan import Eviction
from .caching import cache_hint
from .clusters import Cluster
from .indexing import affine
from .ir import Buffer, Expr, Stmt, Var, const_int, dtype_bytes, i32, seq, substitute
from .layouts import Panels
from .patterns import Copy

LOAD: Final = "cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
MULTICAST: Final = ".multicast::cluster"
ENCODE: Final = "runtime.cuTensorMapEncodeTiled"

_SWIZZLES: Final = {32: 1, 64: 2, 128: 3}
_NOT_INTERLEAVED: Final = 0
_L2_PROMOTION: Final = 2
"""CU_TENSOR_MAP_L2_PROMOTION_L2_128B: a miss fetches the whole line that a box's row lies in."""

_FILL_ZERO: Final = 0
_INT32_LIMIT: Final = 1 << 31


def box_obstacle(copy: Copy) -> str:
    """Why ``copy`` is no box of its source, or empty."""
    for dimension, (index, walker) in enumerate(zip(copy.src_indices, copy.src_dims)):
        known = affine(index, copy.order)
        if walker is None and (known is None or known.coefficients):
            return f"it walks dimension {dimension} of '{copy.src.name}' one by one, not by {index}"
    if copy.nest.predicate:
        return f"it copies whole boxes, '{copy.dst.name}' only where {copy.nest.predicate[0]}"
    if len(copy.src.strides):
        return f"it takes a tensor without gaps, '{copy.src.name}' has strides of its own"
    outside = _beyond_bounds(copy)
    return "" if outside is None else f"it fills with zero outside '{copy.src.name}', not {outside}"


def _beyond_bounds(copy: Copy) -> Expr | None:
    """A conjunct of the mask that is more than the source's bounds, if there is one."""
    if not copy.mask:
        return None
    analyzer = sym.Analyzer()
    for var in copy.order:
        analyzer.bind(var, Range(0, copy.nest.extent_of[var]))
    inside: Expr = tirx.const(True, "bool")
    for index, extent in zip(copy.src_indices, copy.src.shape):
        inside = tirx.And(inside, tirx.And(i32(0) <= index, index < extent))
    with analyzer.constraint_scope(inside):
        return next((part for part in copy.mask if not analyzer.can_prove(part)), None)


def panels_of(tile: Buffer) -> Panels:
    """How a tile filled by boxes lies in shared memory."""
    row = (const_int(tile.shape[-1]) or 0) * dtype_bytes(tile.dtype)
    return Panels.of(tile, panel_bytes(row))


@dataclass(frozen=True)
class TensorMap:
    """A tensor map: the kernel parameter, and the host statements that fill it.

    They fill it on each call. What outlives a call in TVM 0.27's host code is ``tvm_static_handle``
    alone, one pointer of the process: TIR has no atomic access to it and no storage of a thread, so
    that a map kept there could be read by one thread while another replaces it. Little is to be
    saved: on an H100's host the driver encodes one in 0.06 to 0.08 us, and a call with two maps
    takes 5.9 us where one without takes 4.8 (torch.matmul: 12). A CUDA graph replays a launch with
    the maps of its capture.
    """

    var: Var
    encode: tuple[Stmt, ...]


def copy_map(copy: Copy, panels: Panels, parts: int = 1) -> TensorMap:
    """The map of the boxes that ``copy`` moves into ``panels``, cut into ``parts`` along rows."""
    box = [1 if dim is None else copy.shape[dim] for dim in copy.src_dims]
    box[-1] = panels.columns
    box[copy.src_dims.index(0)] //= parts
    return tensor_map(copy.src, box, panels.span)


def tensor_map(tensor: Buffer, box: Sequence[int], span: int) -> TensorMap:
    """The map of boxes of ``tensor``, zero outside; ``span``: bytes that their swizzle covers."""
    size = dtype_bytes(tensor.dtype)
    shape = list(tensor.shape)
    rank = len(shape)
    strides: list[Expr] = []
    pitch: Expr = size
    for extent in reversed(shape[1:]):
        pitch = pitch * (const_int(extent) or extent)
        strides.append(_number(pitch))
    storage = T.tvm_stack_alloca("tensormap", 1)
    var = Var(f"{tensor.name}_map", storage.ty)
    call = T.call_packed(
        ENCODE,
        var,
        str(tensor.dtype),
        rank,
        tensor.data,
        *[_number(const_int(extent) or extent) for extent in reversed(shape)],
        *strides,
        *reversed(box),
        *[1] * rank,
        _NOT_INTERLEAVED,
        _SWIZZLES[span],
        _L2_PROMOTION,
        _FILL_ZERO,
    )
    return TensorMap(var, (tirx.Bind(var, storage), tirx.Evaluate(call)))


def _number(value: Any) -> Any:
    """A size for the host: 64 bits where 32 may not hold it."""
    if isinstance(value, int):
        return value if value < _INT32_LIMIT else tirx.const(value, "int64")
    return tirx.Cast("int64", value)


def load_boxes(
    copy: Copy,
    panels: Panels,
    tensor: TensorMap,
    barrier: Buffer,
    analyzer: Any,
    cluster: Cluster | None = None,
    eviction: Eviction = "normal",
) -> Stmt:
    """What one thread does to fill the tile; ``barrier`` counts the bytes.

    ``cluster``: CTAs of which each copies its part of the rows, for all. ``eviction``: when L2 lets
    go of what it reads.
    """
    start = {var: i32(0) for var in copy.nest.vars}
    corner = [analyzer.simplify(substitute(index, start)) for index in copy.src_indices]
    name = LOAD.format(rank=len(corner))
    row: Expr = i32(0)
    masks: list[Any] = []
    if cluster is not None:
        part = copy.shape[0] // cluster.size
        walked = copy.src_dims.index(0)
        corner[walked] = corner[walked] + cluster.rank * part
        row = cluster.rank * (panels.rows // cluster.size)
        name += MULTICAST
        masks = [T.uint16(cluster.mask)]
    hint, policy = cache_hint(eviction)

    def box(panel: int) -> Stmt:
        *outer, inner = corner
        coordinates = [*outer, inner + panel * panels.columns if panel else inner]
        target = T.address_of(tirx.BufferLoad(panels.held, [panel, row, 0]))
        full = T.address_of(tirx.BufferLoad(barrier, [0]))
        where = T.address_of(tensor.var), *reversed(coordinates)
        return tirx.Evaluate(T.ptx[name + hint](target, *where, full, *masks, *policy))

    return seq(*[box(panel) for panel in range(panels.count)])
