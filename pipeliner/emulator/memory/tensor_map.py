"""Tensor maps: which elements of a global tensor a TMA copy moves, and where in shared memory.

A map is what ``cuTensorMapEncodeTiled`` packs into its 128 opaque bytes.  Dimensions go innermost
first, as in the driver and in the coordinates of ``cp.async.bulk.tensor``.  Sources: PTX ISA 5.5
(tensors: tiled mode, swizzling modes) and the requirements listed with cuTensorMapEncodeTiled in
the CUDA driver API.

Maps in im2col mode are in ``im2col_map``.  Does not handle: interleaved layouts, packed types below
one byte, maps that convert to TF32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Final, Protocol

import numpy as np

from ...errors import EmulatorError
from ..base.dtypes import numpy_dtype

Array = np.ndarray[Any, Any]

SWIZZLE_SPANS: Final = (0, 32, 64, 128)
"""Swizzle span in bytes of each CUtensorMapSwizzle value; TVM's descriptor encoder counts alike."""

SHARED_ALIGNMENT: Final = 128
"""Bytes to which the shared side of a bulk tensor copy is aligned (PTX, cp.async.bulk.tensor)."""

ALIGNMENT: Final = 16
"""Bytes that the base, every stride and the inner box are multiples of."""

_CHUNK: Final = 16
"""Bytes that a swizzle moves as one."""

_MAX_RANK: Final = 5
_MAX_BOX: Final = 256
_MAX_ELEMENT_STRIDE: Final = 8
_MAX_SHAPE: Final = 2**32
_MAX_STRIDE: Final = 2**40
_MAX_PROMOTION: Final = 3
"""The driver's limits; that of strides is in bytes, and exclusive."""


def swizzled(address: Array, span: int) -> Array:
    """Shared byte addresses after the swizzle of ``span`` bytes (0: none).

    A swizzle permutes 16-byte chunks inside each span by the number of the 128-byte line, on bits
    of the absolute shared address: bits 4-6 are xored with bits 7-9 for 128 bytes, 4-5 with 7-8
    for 64, 4 with 7 for 32 (PTX ISA 5.5, swizzling modes).  It is its own inverse.
    """
    chunks = max(span // _CHUNK - 1, 0) * _CHUNK
    moved: Array = address ^ (address >> 3 & chunks)
    return moved


@dataclass(frozen=True)
class MappedTensor:
    """The tensor in global memory that a map of either mode is of; innermost first.

    ``shape`` counts elements, ``strides`` are the bytes of dimensions 1 and up.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return numpy_dtype(self.dtype).itemsize


@dataclass(frozen=True)
class TensorMap(MappedTensor):
    """A tiled tensor map; everything innermost first.

    ``box`` and ``element_strides`` count elements, ``swizzle`` is a span in bytes (0, 32, 64 or
    128).  The box covers ``box[i]`` elements of dimension i, of which every
    ``element_strides[i]``-th is copied (the driver ignores ``element_strides[0]``).  ``oob_fill``
    is CUtensorMapFloatOOBfill: 0 fills what lies outside of the tensor with zeros, 1 with NaN.

    Raises EmulatorError for what the driver refuses and for what is not modelled.
    """

    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    oob_fill: int = 0

    def __post_init__(self) -> None:
        _check(self)

    @property
    def extent(self) -> tuple[int, ...]:
        """Elements copied along each dimension."""
        steps = (1, *self.element_strides[1:])
        return tuple(-(-size // step) for size, step in zip(self.box, steps, strict=True))


def from_encode_args(dtype: str, rank: int, args: Sequence[int], base: int = 0) -> TensorMap:
    """The map that ``runtime.cuTensorMapEncodeTiled`` makes.

    ``args`` are those after the data pointer: shape, strides in bytes (``rank - 1``), box, element
    strides, then interleave, swizzle, L2 promotion and out-of-bounds fill as the driver's enums,
    and optionally the driver's data type.  ``base`` is the address of the data in bytes.

    EmulatorError: what the driver refuses, or what is not modelled.
    """
    if not 1 <= rank <= _MAX_RANK:
        raise EmulatorError("tensor_map.rank", low=1, high=_MAX_RANK, rank=rank)
    expected = 4 * rank + 3
    if len(args) not in (expected, expected + 1):
        raise EmulatorError(
            "tensor_map.arguments", rank=rank, fewest=expected, most=expected + 1, count=len(args)
        )
    if base % ALIGNMENT:
        raise EmulatorError("tensor_map.address", multiple=ALIGNMENT, offset=base % ALIGNMENT)
    values = [int(arg) for arg in args]
    shape, strides, box, steps, (interleave, swizzle, promotion, fill, *forced) = _split(
        values, (rank, rank - 1, rank, rank)
    )
    if forced not in ([], [-1]):
        raise EmulatorError("tensor_map.driver_dtype", dtype=forced[0])
    check_modes(swizzle, promotion)
    return TensorMap(
        dtype,
        tuple(shape),
        tuple(strides),
        tuple(box),
        tuple(steps),
        interleave,
        SWIZZLE_SPANS[swizzle],
        fill,
    )


def _split(values: list[int], sizes: tuple[int, ...]) -> list[list[int]]:
    """Consecutive runs of ``values`` of these sizes, and the rest."""
    runs, at = [], 0
    for size in sizes:
        runs.append(values[at : at + size])
        at += size
    return [*runs, values[at:]]


def _check(tmap: TensorMap) -> None:
    """Raise EmulatorError at the first broken requirement of the driver."""
    rank, dtype = tmap.rank, numpy_dtype(tmap.dtype)
    if not 1 <= rank <= _MAX_RANK:
        raise EmulatorError("tensor_map.rank", low=1, high=_MAX_RANK, rank=rank)
    lengths = (len(tmap.strides) + 1, len(tmap.box), len(tmap.element_strides))
    if lengths != (rank, rank, rank):
        raise EmulatorError(
            "tensor_map.lengths",
            rank=rank,
            strides=len(tmap.strides),
            box=len(tmap.box),
            element_strides=len(tmap.element_strides),
        )
    for name, values, most in (
        ("dimension", tmap.shape, _MAX_SHAPE),
        ("box size", tmap.box, _MAX_BOX),
        ("element stride", tmap.element_strides, _MAX_ELEMENT_STRIDE),
    ):
        for i, value in enumerate(values):
            if not 1 <= value <= most:
                raise EmulatorError(
                    "tensor_map.range", field=f"{name} {i}", low=1, high=most, value=value
                )
    for i, stride in enumerate(tmap.strides, start=1):
        check_stride(i, stride)
    if tmap.interleave:
        raise EmulatorError("tensor_map.interleave", mode=tmap.interleave)
    inner = tmap.box[0] * dtype.itemsize
    if inner % ALIGNMENT:
        raise EmulatorError(
            "tensor_map.inner_box",
            multiple=ALIGNMENT,
            elements=tmap.box[0],
            dtype=tmap.dtype,
            nbytes=inner,
        )
    if tmap.swizzle not in SWIZZLE_SPANS:
        raise EmulatorError("tensor_map.swizzle", known=SWIZZLE_SPANS, swizzle=tmap.swizzle)
    if tmap.swizzle and inner > tmap.swizzle:
        raise EmulatorError("tensor_map.wide", nbytes=inner, swizzle=tmap.swizzle)
    if tmap.oob_fill not in (0, 1):
        raise EmulatorError("tensor_map.fill", value=tmap.oob_fill)
    # The driver knows the 8-bit floats as bytes.
    if tmap.oob_fill and (dtype.itemsize == 1 or dtype.kind in "iub"):
        raise EmulatorError("tensor_map.fill_dtype", dtype=tmap.dtype)


def check_modes(swizzle: int, promotion: int) -> None:
    """Check swizzle and L2 promotion; EmulatorError: the driver knows no such."""
    if not 0 <= swizzle < len(SWIZZLE_SPANS):
        raise EmulatorError("tensor_map.range", field="swizzle", low=0, high=3, value=swizzle)
    if not 0 <= promotion <= _MAX_PROMOTION:
        raise EmulatorError(
            "tensor_map.range", field="L2 promotion", low=0, high=_MAX_PROMOTION, value=promotion
        )


def check_stride(dimension: int, stride: int) -> None:
    """Check a stride in bytes; EmulatorError: the driver takes no such."""
    if not 0 <= stride < _MAX_STRIDE or stride % ALIGNMENT:
        raise EmulatorError(
            "tensor_map.stride", dimension=dimension, multiple=ALIGNMENT, stride=stride
        )


def fill_value(tmap: TensorMap) -> Any:
    """The scalar of the map's dtype that a load writes for elements outside of the tensor."""
    return numpy_dtype(tmap.dtype).type(np.nan if tmap.oob_fill else 0)


def box_index(tmap: TensorMap, coords: Sequence[int]) -> tuple[Array, Array]:
    """Elements of the box at ``coords`` (innermost first, may be negative).

    Returns, in shared-memory order (innermost dimension fastest), the index of each element from
    the map's base, and whether it lies inside of the tensor; the index is 0 where it does not.
    EmulatorError: coordinates of another rank.
    """
    if len(coords) != tmap.rank:
        raise EmulatorError("tensor_map.coordinates", rank=tmap.rank, coordinates=len(coords))
    strides = (1, *(stride // tmap.itemsize for stride in tmap.strides))
    steps = (1, *tmap.element_strides[1:])
    index = np.zeros((), np.int64)
    inside = np.ones((), bool)
    for i in range(tmap.rank):
        at = (int(coords[i]) + np.arange(tmap.extent[i]) * steps[i]).reshape(-1, *(1,) * i)
        index = index + at * strides[i]
        inside = inside & (at >= 0) & (at < tmap.shape[i])
    return np.where(inside, index, 0).reshape(-1), inside.reshape(-1)


class Packed(Protocol):
    """The part of a tensor map that says how elements lie in shared memory; hashable."""

    @property
    def itemsize(self) -> int: ...
    @property
    def extent(self) -> tuple[int, ...]: ...
    @property
    def swizzle(self) -> int: ...


@lru_cache(maxsize=1024)
def shared_offsets(tmap: Packed, base: int) -> Array:
    """Shared byte address of each element of the box copied to ``base``, in the order of box_index.

    Rows of the innermost dimension follow each other, and each takes the whole span of a swizzle
    even if it is shorter. What lies so is swizzled by absolute address, so that a base inside of a
    swizzle pattern starts in its middle. Seen on an H200 with a swizzle of 128 bytes: boxes and
    pixels of 16 to 112 bytes, bases in rows 4, 12, 26, 44 and 52 (2026-11-30).
    """
    inner, *outer = tmap.extent
    pitch = max(inner * tmap.itemsize, tmap.swizzle)
    rows = np.arange(prod(outer), dtype=np.int64) * pitch
    dense = base + rows[:, None] + np.arange(inner, dtype=np.int64) * tmap.itemsize
    offsets = swizzled(dense.reshape(-1), tmap.swizzle)
    offsets.flags.writeable = False  # shared by every caller
    return offsets
