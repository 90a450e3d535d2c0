"""Tensor maps in im2col mode: which pixels of an image tensor a TMA load gathers.

A map is what ``cuTensorMapEncodeIm2col`` packs into its 128 opaque bytes.  Dimensions go innermost
first: channels, width, height, depth, images.  A load starts at a pixel of an image's bounding box
and goes on from pixel to pixel: along the width by its step, at the end of a row of the box to the
start of the next one, at the end of the last row to the next image.  What it reads of each pixel is
moved by the instruction's offsets, and is zero outside of the tensor.  Sources: PTX ISA (tensor
im2col mode) and the requirements listed with cuTensorMapEncodeIm2col in the CUDA driver API.

Does not handle: interleaved layouts, fills with NaN, the modes im2col::w and im2col::w::128.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ...errors import EmulatorError
from .global_memory import Region
from .tensor_map import ALIGNMENT, SWIZZLE_SPANS, MappedTensor, TensorMap, check_modes, check_stride

Array = np.ndarray[Any, Any]

ARRAYS: Final = (5, 4, 3, 3, 5)
"""Lengths of the host helper's arrays: shape, strides, lower and upper corners, element strides."""

_DTYPES: Final = {0: "uint8", 6: "float16", 7: "float32", 9: "bfloat16"}
"""What the driver's data types are to us; one-byte types are bytes to it."""

_CORNERS: Final = {3: 32768, 4: 128, 5: 16}
_OFFSETS: Final = {3: 65536, 4: 256, 5: 32}
"""Exclusive limits of corners and of the instruction's offsets, by rank."""

_MAX_CHANNELS: Final = 256
_MAX_PIXELS: Final = 1024
_MAX_STEP: Final = 8
"""The driver's limits."""


@dataclass(frozen=True)
class Im2colMap(MappedTensor):
    """An im2col tensor map; everything innermost first.

    ``lower`` and ``upper``: corners of the bounding box in the spatial dimensions, from the first
    and from the last pixel of an image. ``steps``: through each dimension. ``swizzle``: a span in
    bytes. Raises EmulatorError for what the driver refuses and for what is not modelled.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]
    channels: int
    pixels: int
    swizzle: int = 0

    def __post_init__(self) -> None:
        _check(self)

    @property
    def extent(self) -> tuple[int, ...]:
        """Elements copied along the dimensions of shared memory."""
        return (self.channels, self.pixels)


@dataclass(frozen=True)
class GlobalMap:
    """A tensor map over a region of global memory."""

    map: TensorMap | Im2colMap
    region: Region
    elements: Array  # of the region, in the type of the map


def from_driver(
    kind: int, rank: int, arrays: Sequence[Sequence[int]], scalars: Sequence[int]
) -> Im2colMap:
    """The map that cuTensorMapEncodeIm2col makes of data type ``kind``.

    ``arrays``: as ``ARRAYS`` has them. ``scalars``: channels, pixels, swizzle and L2 promotion.
    EmulatorError: what the driver refuses, or what is not modelled.
    """
    if rank not in _CORNERS:
        raise EmulatorError("tensor_map.rank", low=min(_CORNERS), high=max(_CORNERS), rank=rank)
    if kind not in _DTYPES:
        raise EmulatorError("tensor_map.driver_dtype", dtype=kind)
    shape, strides, lower, upper, steps = arrays
    channels, pixels, swizzle, promotion = scalars
    check_modes(swizzle, promotion)
    return Im2colMap(
        _DTYPES[kind],
        tuple(shape[:rank]),
        tuple(strides[: rank - 1]),
        tuple(lower[: rank - 2]),
        tuple(upper[: rank - 2]),
        tuple(steps[:rank]),
        channels,
        pixels,
        SWIZZLE_SPANS[swizzle],
    )


def _check(tmap: Im2colMap) -> None:
    """Raise EmulatorError at the first broken requirement of the driver."""
    limit = _CORNERS[tmap.rank]
    for name, values, low, high in (
        ("dimension", tmap.shape, 1, 2**32),
        ("lower corner", tmap.lower, -limit, limit - 1),
        ("upper corner", tmap.upper, -limit, limit - 1),
        ("element stride", tmap.steps, 1, _MAX_STEP),
        ("channels per pixel", (tmap.channels,), 1, _MAX_CHANNELS),
        ("pixels per column", (tmap.pixels,), 1, _MAX_PIXELS),
    ):
        for value in values:
            if not low <= value <= high:
                raise EmulatorError("tensor_map.range", field=name, low=low, high=high, value=value)
    for dim, stride in enumerate(tmap.strides, start=1):
        check_stride(dim, stride)
    for size, low, high in zip(tmap.shape[1:-1], tmap.lower, tmap.upper, strict=True):
        if low > size - 1 + high:
            raise EmulatorError("tensor_map.empty_box", low=low, high=size - 1 + high)
    inner = tmap.channels * tmap.itemsize
    if inner % ALIGNMENT or (tmap.swizzle and inner > tmap.swizzle):
        raise EmulatorError("tensor_map.pixel", nbytes=inner, swizzle=tmap.swizzle)


@lru_cache(maxsize=4096)
def pixel_index(
    tmap: Im2colMap, coords: tuple[int, ...], offsets: tuple[int, ...]
) -> tuple[Array, Array]:
    """Elements of the pixels from ``coords`` on, each moved by ``offsets``.

    Returns, in shared-memory order, the index of each element from the map's base, 0 where it lies
    outside of the tensor, and whether it lies inside. EmulatorError: coordinates or offsets that
    the map cannot take, or that are no pixel of its bounding box.
    """
    if len(coords) != tmap.rank or len(offsets) != tmap.rank - 2:
        raise EmulatorError(
            "tensor_map.pixel_coordinates",
            rank=tmap.rank,
            coordinates=len(coords),
            offsets=len(offsets),
        )
    if not all(0 <= offset < _OFFSETS[tmap.rank] for offset in offsets):
        raise EmulatorError("tensor_map.offsets", offsets=offsets, most=_OFFSETS[tmap.rank] - 1)
    visited = np.array(list(_walk(tmap, coords)), np.int64)
    visited[:, :-1] += offsets
    strides = np.array(tmap.strides, np.int64) // tmap.itemsize
    pixels = visited @ strides
    valid = np.all((visited >= 0) & (visited < tmap.shape[1:]), axis=1)
    channels = coords[0] + np.arange(tmap.channels)
    index = pixels[:, None] + channels
    inside = valid[:, None] & (channels >= 0) & (channels < tmap.shape[0])
    return np.where(inside, index, 0).reshape(-1), inside.reshape(-1)


def _walk(tmap: Im2colMap, coords: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The pixels of a load in turn, as coordinates of all dimensions but the channels."""
    at = list(coords[1:])
    last = [size - 1 + high for size, high in zip(tmap.shape[1:-1], tmap.upper, strict=True)]
    for place, low, high in zip(at, tmap.lower, last):
        if not low <= place <= high:
            raise EmulatorError(
                "tensor_map.pixel_outside", pixel=tuple(at), lower=tmap.lower, upper=tuple(last)
            )
    for _ in range(tmap.pixels):
        yield tuple(at)
        for dim, step in enumerate(tmap.steps[1:]):
            at[dim] += step
            if dim == len(last) or at[dim] <= last[dim]:
                break
            at[dim] = tmap.lower[dim]
