"""Make tensor maps: the host's description of a tensor for TMA, passed to each kernel launch.

    tiled     boxes of neighbours                        runtime.cuTensorMapEncodeTiled, TVM's
    im2col    pixels that a convolution's outputs see    cuTensorMapEncodeIm2col, ``driver_call``

A map is a parameter of the kernel. The host fills it for each call, from the tensor's address.

Sources: CUDA driver API, cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.script import tirx as T

from ...diagnostics import Reason
from ...mechanisms.tma import MAX_EXTENT
from ..ir.nodes import Buffer, Expr, Stmt, StringImm, Var, const_int, dtype_bytes
from ..ir.wide_indices import WIDE, widened
from .driver_call import encode_im2col
from .im2col import Im2col

ENCODE: Final = "runtime.cuTensorMapEncodeTiled"

_SWIZZLES: Final = {32: 1, 64: 2, 128: 3}
_NOT_INTERLEAVED: Final = 0
_L2_PROMOTION: Final = 2
"""CU_TENSOR_MAP_L2_PROMOTION_L2_128B: a miss fetches the whole line that a box's row is in."""

_FILL_ZERO: Final = 0
_INT32_LIMIT: Final = 1 << 31


@dataclass(frozen=True)
class TensorMap:
    """A tensor map: the kernel parameter, and the host statements that fill it on each call.

    The only thing that outlives a call in TVM 0.27's host code is ``tvm_static_handle``, one
    pointer of the process. TIR has no atomic access to it and no thread-local storage, so one
    thread could read a map kept there while another replaces it. Little is to be saved: on an
    H100's host the driver encodes one in 0.06 to 0.08 us, and a call with two maps takes 5.9 us
    where one without takes 4.8 (torch.matmul: 12). A CUDA graph replays a launch with the maps of
    its capture.
    """

    var: Var
    encode: tuple[Stmt, ...]


def tiled_map(tensor: Buffer, shape: Sequence[Expr], box: Sequence[int], span: int) -> TensorMap:
    """Return the map of boxes of ``tensor``, seen as ``shape``, zero outside.

    ``span``: bytes that their swizzle covers.
    """
    size = dtype_bytes(tensor.dtype)
    rank = len(shape)
    var, storage = _storage(tensor)
    call = T.call_packed(
        ENCODE,
        var,
        str(tensor.dtype),
        rank,
        tensor.data,
        *[_number(const_int(extent) or extent) for extent in reversed(shape)],
        *[_number(pitch) for pitch in pitches(shape, size)],
        *reversed(box),
        *[1] * rank,
        _NOT_INTERLEAVED,
        _SWIZZLES[span],
        _L2_PROMOTION,
        _FILL_ZERO,
    )
    reached = _reached(tensor, shape)
    return TensorMap(var, (*reached, tirx.Bind(var, storage), tirx.Evaluate(call)))


def im2col_map(tensor: Buffer, found: Im2col, pixels: int, channels: int, span: int) -> TensorMap:
    """Return the map of ``pixels`` times ``channels`` of ``tensor``; ``span`` as above.

    What is outside the tensor is zero.
    """
    shape = [const_int(extent) or 0 for extent in tensor.shape]
    axes = found.axes[::-1]
    var, storage = _storage(tensor)
    encode = encode_im2col(
        var,
        str(tensor.dtype),
        tensor.data,
        shape[::-1],
        [int(pitch) for pitch in pitches(shape, dtype_bytes(tensor.dtype))],
        [axis.lower for axis in axes],
        [axis.upper for axis in axes],
        [1, *[axis.step for axis in axes], 1],
        channels,
        pixels,
        _SWIZZLES[span],
        _L2_PROMOTION,
    )
    return TensorMap(var, (tirx.Bind(var, storage), encode))


def _storage(tensor: Buffer) -> tuple[Var, Expr]:
    """Return the map's variable, and the host's memory for it."""
    storage = T.tvm_stack_alloca("tensormap", 1)
    return Var(f"{tensor.name}_map", storage.ty), storage


def _reached(tensor: Buffer, shape: Sequence[Expr]) -> list[Stmt]:
    """Return checks that coordinates reach the dimensions with extents in 64-bit variables."""
    checks: list[Stmt] = []
    for extent in shape:
        if const_int(extent) is not None or str(extent.ty.dtype) != WIDE:
            continue
        name = str(tensor.name)
        said = Reason("tma.coordinates", buffer=name, most=MAX_EXTENT, extent=str(extent))
        fits = extent <= tirx.const(MAX_EXTENT, WIDE)
        checks.append(tirx.AssertStmt(fits, StringImm("ValueError"), [StringImm(str(said))]))
    return checks


def pitches(shape: Sequence[Expr], size: int) -> list[Expr]:
    """Return the bytes between neighbours of every dimension but the last, inner first."""
    found: list[Expr] = []
    pitch: Expr = size
    for extent in reversed(shape[1:]):
        pitch = pitch * (const_int(extent) or extent)
        found.append(pitch)
    return found


def _number(value: Any) -> Any:
    """Return a size for the host, in 64 bits if 32 may not hold it."""
    if isinstance(value, int):
        return value if value < _INT32_LIMIT else tirx.const(value, "int64")
    return widened(value)
