"""Warpgroup matrix multiplies: descriptors, operands in shared memory, fragments, arithmetic.

``wgmma.mma_async`` multiplies a 64 x k operand A (shared memory or registers) by a k x n operand B
(shared memory) into fragments over the 128 threads of a warpgroup; k is always 32 bytes.  Sources:
PTX ISA, asynchronous warpgroup level matrix instructions (register fragments, shared memory layout,
matrix descriptor), and the canonical layouts written out in CUTLASS's make_gmma_desc.

Does not handle: sparse A, single-bit operands, descriptors with a base offset (TVM encodes none).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final, Literal

import numpy as np

from ...errors import EmulatorError
from ..base.dtypes import PTX_TYPES, numpy_dtype
from ..memory.tensor_map import SWIZZLE_SPANS, swizzled
from . import fragments
from .fragments import WARP

Array = np.ndarray[Any, Any]
Major = Literal["k", "mn"]
"""Which dimension of an operand is contiguous."""

M: Final = 64
"""Rows of A and D."""

WARPGROUP: Final = 128
"""Threads of a warpgroup."""

K_BYTES: Final = 32
"""Bytes along k of every instruction."""

_CHUNK: Final = 16
"""Bytes of a row of a core matrix, and the unit of a descriptor's fields."""

_ROWS: Final = 8
"""Rows of a core matrix."""

_FIELD: Final = 0x3FFF
"""The 14 bits of a start address or offset, in chunks."""

_LAYOUT_SPANS: Final = (0, 128, 64, 32)
"""Swizzle span in bytes of each layout type, bits 62-63 of a descriptor."""

_FP8: Final = ("e4m3", "e5m2")
_INT8: Final = ("s8", "u8")
LEGAL_TYPES: Final = {
    ("f16", "f16"): ("f16", "f32"),
    ("bf16", "bf16"): ("f32",),
    ("tf32", "tf32"): ("f32",),
    **{(a, b): ("f16", "f32") for a in _FP8 for b in _FP8},
    **{(a, b): ("s32",) for a in _INT8 for b in _INT8},
}
"""Types of accumulators by those of A and B."""

_FLOAT_N: Final = tuple(range(8, 257, 8))
_INTEGER_N: Final = (8, 16, 24, *range(32, 257, 16))
"""Values of n of floating-point and of integer instructions."""

_SHAPE: Final = re.compile(r"m64n(?P<n>\d+)k(?P<k>\d+)")


@dataclass(frozen=True)
class Descriptor:
    """A matrix descriptor, in bytes; ``swizzle`` is a span (0, 32, 64 or 128)."""

    start: int
    leading: int
    stride: int
    base_offset: int
    swizzle: int


def decode_descriptor(value: int) -> Descriptor:
    """The fields of the 64-bit matrix descriptor of wgmma."""
    value = int(value)
    return Descriptor(
        start=(value & _FIELD) * _CHUNK,
        leading=(value >> 16 & _FIELD) * _CHUNK,
        stride=(value >> 32 & _FIELD) * _CHUNK,
        base_offset=value >> 49 & 7,
        swizzle=_LAYOUT_SPANS[value >> 62 & 3],
    )


def encode_descriptor(address: int, leading: int, stride: int, swizzle: int) -> int:
    """The descriptor that ``T.cuda.wgmma.encode_matrix_descriptor`` makes.

    ``address`` is a shared address in bytes, ``leading`` and ``stride`` are in units of 16 bytes,
    ``swizzle`` is 0 to 3 for none, 32, 64 and 128 bytes.  Raises EmulatorError for a value that
    the bit fields would cut.
    """
    if not 0 <= swizzle < len(SWIZZLE_SPANS):
        raise EmulatorError(
            "ptx.descriptor_field", field="swizzle", high=len(SWIZZLE_SPANS) - 1, value=swizzle
        )
    if address % _CHUNK or not 0 <= address // _CHUNK <= _FIELD:
        raise EmulatorError(
            "ptx.descriptor_address", address=address, multiple=_CHUNK, most=_FIELD * _CHUNK
        )
    for name, value in (("leading", leading), ("stride", stride)):
        if not 0 <= value <= _FIELD:
            raise EmulatorError(
                "ptx.descriptor_field", field=f"{name} offset", high=_FIELD, value=value
            )
    layout = _LAYOUT_SPANS.index(SWIZZLE_SPANS[swizzle])
    return address // _CHUNK | leading << 16 | stride << 32 | layout << 62


@lru_cache(maxsize=1024)
def operand_offsets(
    desc: Descriptor, rows: int, k: int, itemsize: int, major: Major = "k"
) -> Array:
    """Return the shared byte address of each element of A or B: (rows, k), rows = m or n.

    The canonical layouts, with ``pitch`` the swizzle span (16 bytes without a swizzle):

    - K-major: rows ``pitch`` apart in groups of 8, groups ``stride`` apart; the two chunks of 16
      bytes along k are neighbours, or ``leading`` apart without a swizzle.
    - MN-major: ``pitch`` bytes along the rows are neighbours, steps of k ``pitch`` apart in groups
      of 8; the next bytes along the rows are ``leading`` and the next group ``stride`` away,
      exchanged without a swizzle.

    The sum is swizzled as an absolute address.

    Raises EmulatorError for a descriptor with a base offset, for k other than 32 bytes, and for
    MN-major elements of other than 2 bytes.
    """
    if desc.base_offset:
        raise EmulatorError("ptx.descriptor_base", offset=desc.base_offset)
    if k * itemsize != K_BYTES:
        raise EmulatorError("ptx.wgmma_k", k=k, itemsize=itemsize, expected=K_BYTES)
    if major == "mn" and itemsize != 2:
        raise EmulatorError("ptx.wgmma_major", itemsize=itemsize)
    row, col = np.arange(rows, dtype=np.int64)[:, None], np.arange(k, dtype=np.int64)[None, :]
    if major == "k":
        dense = _k_major(desc, row, col * itemsize)
    else:
        dense = _mn_major(desc, row * itemsize, col)
    offsets = swizzled(desc.start + dense, desc.swizzle)
    offsets.flags.writeable = False  # shared by every caller
    return offsets


def _k_major(desc: Descriptor, row: Array, byte: Array) -> Array:
    """Byte offset of byte ``byte`` along k of a row of m or n."""
    pitch = desc.swizzle or _CHUNK
    across = _CHUNK if desc.swizzle else desc.leading
    offset: Array = (
        row // _ROWS * desc.stride + row % _ROWS * pitch + byte // _CHUNK * across + byte % _CHUNK
    )
    return offset


def _mn_major(desc: Descriptor, byte: Array, step: Array) -> Array:
    """Byte offset of byte ``byte`` along m or n at ``step`` along k."""
    pitch = desc.swizzle or _CHUNK
    along, across = (desc.leading, desc.stride) if desc.swizzle else (desc.stride, desc.leading)
    offset: Array = (
        step // _ROWS * across + step % _ROWS * pitch + byte // pitch * along + byte % pitch
    )
    return offset


@dataclass(frozen=True)
class Wgmma:
    """One wgmma.mma_async instruction, by its types and shape m64 x n x k."""

    n: int
    k: int
    a_type: np.dtype[Any]
    b_type: np.dtype[Any]
    d_type: np.dtype[Any]
    tf32: bool

    @property
    def integer(self) -> bool:
        return self.d_type.kind == "i"


@cache
def wgmma_spec(shape: str, d_type: str, a_type: str, b_type: str) -> Wgmma:
    """The instruction ``wgmma.mma_async.sync.aligned.<shape>.<d>.<a>.<b>``, types as PTX names.

    Raises EmulatorError for one that the ISA does not have.
    """
    if d_type not in LEGAL_TYPES.get((a_type, b_type), ()):
        raise EmulatorError("ptx.wgmma_types", d_type=d_type, a_type=a_type, b_type=b_type)
    a, b, d = (numpy_dtype(PTX_TYPES[ty]) for ty in (a_type, b_type, d_type))
    match = _SHAPE.fullmatch(shape)
    legal_n = _INTEGER_N if d_type == "s32" else _FLOAT_N
    if match is None or int(match["n"]) not in legal_n or int(match["k"]) * a.itemsize != K_BYTES:
        raise EmulatorError("ptx.wgmma_shape", shape=shape, d_type=d_type, a_type=a_type)
    return Wgmma(int(match["n"]), int(match["k"]), a, b, d, a_type == "tf32")


@cache
def accumulator_positions(n: int) -> Array:
    """Return (128, n / 2): flattened (row, col) in 64 x n of each thread's accumulators.

    Each warp holds 16 rows, each four values the fragment of m16n8; two f16 accumulators share a
    register, in the same order (PTX ISA, figure of the wgmma D fragment).
    """
    row, col = np.divmod(fragments.accumulator_positions(), 8)  # (32, 4) each
    warp, tile = np.arange(WARPGROUP // WARP), np.arange(n // 8)
    rows = row[None, :, None, :] + 16 * warp[:, None, None, None]
    cols = col[None, :, None, :] + 8 * tile[None, None, :, None]
    positions: Array = (rows * n + cols).reshape(WARPGROUP, n // 2)
    positions.flags.writeable = False  # shared by every caller
    return positions


@cache
def a_register_positions(a_type: str) -> Array:
    """Return (64, k): flattened (thread, register, element) of an operand A in registers.

    Four registers a thread; warp w holds rows 16 w .. 16 w + 15 as the A fragment of mma.m16n8.
    """
    k = K_BYTES // numpy_dtype(PTX_TYPES[a_type]).itemsize
    d_type = LEGAL_TYPES[a_type, a_type][0]
    warp = fragments.mma_spec(f"m16n8k{k}", a_type, a_type, d_type).a  # (16, k)
    positions = np.concatenate([warp + i * warp.size for i in range(WARPGROUP // WARP)])
    positions.flags.writeable = False  # shared by every caller
    return positions


def multiply(
    spec: Wgmma,
    a: Array,
    b: Array,
    d: Array,
    *,
    scale_d: bool,
    scale_a: int = 1,
    scale_b: int = 1,
    saturate: bool = False,
) -> Array:
    """Return D = scale_a A * scale_b B + D, or without D where ``scale_d`` is false.

    ``a``: (..., 64, k), ``b``: (..., n, k), of the operand types; ``d``: (..., 128, n / 2) of the
    accumulator type.  Products and the sum are exact to float64 (or int64) and rounded once.
    """
    for name, scale in (("a", scale_a), ("b", scale_b)):
        if scale not in (-1, 1):
            raise EmulatorError("ptx.wgmma_scale", operand=name, scale=scale)
    wide = np.int64 if spec.integer else np.float64
    if spec.tf32:
        a, b = fragments.round_to_tf32(a), fragments.round_to_tf32(b)
    product = np.matmul(a.astype(wide), np.swapaxes(b, -1, -2).astype(wide)) * (scale_a * scale_b)
    total = product.reshape(*product.shape[:-2], -1)[..., accumulator_positions(spec.n)]
    if scale_d:
        total = total + d.astype(wide)
    return fragments.round_once(total, spec.d_type, saturate=saturate)
