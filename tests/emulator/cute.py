"""CuTe's layouts as tables of indices, and operands of wgmma read by its descriptors."""

from __future__ import annotations

import numpy as np

from pipeliner.emulator.units.wgmma import decode_descriptor, operand_offsets


def cute(shape, stride, coordinate: int) -> int:
    """A CuTe layout at a flat coordinate: modes decompose it leftmost fastest (colexicographic)."""
    if isinstance(shape, int):
        return coordinate * stride
    total = 0
    for mode, step in zip(shape, stride, strict=True):
        size = extent(mode)
        total += cute(mode, step, coordinate % size)
        coordinate //= size
    return total


def extent(shape) -> int:
    return shape if isinstance(shape, int) else int(np.prod([extent(mode) for mode in shape]))


def table(shape, stride) -> np.ndarray:
    """A rank-2 CuTe layout as a matrix of indices."""
    rows, cols = map(extent, shape)
    return np.array(
        [
            [cute(shape[0], stride[0], r) + cute(shape[1], stride[1], c) for c in range(cols)]
            for r in range(rows)
        ]
    )


def read_by_wgmma(memory: np.ndarray, value: int, rows: int, dtype: np.dtype, major: str):
    k = 32 // dtype.itemsize
    at = operand_offsets(decode_descriptor(value), rows, k, dtype.itemsize, major)
    return memory[at[..., None] + np.arange(dtype.itemsize)].view(dtype)[..., 0]
