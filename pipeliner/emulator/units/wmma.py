"""The wmma API: opaque fragments, kept as whole tiles for each warp."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...errors import EmulatorError
from ..base.dtypes import poison
from ..memory.state import GroupState
from .fragments import WARP
from .warp import active_warps

Array = np.ndarray[Any, Any]
Mask = Array | None


_FIRST_LANE: Final = 13
_ROTATION: Final = 7
"""Which lane takes the first element, and how far that moves in each step of the warp."""


class Wmma:
    """Opaque fragments of the wmma API: ``data[warp, fragment]`` is a whole (rows, cols) tile."""

    def __init__(self, group: GroupState, name: str, elements: int, dtype: np.dtype[Any]) -> None:
        if group.n % WARP:
            raise EmulatorError("emulator.wmma_threads", threads=group.n)
        self.name = name
        self.dtype = dtype
        self.elements = elements
        self.tiles: dict[int, Array] = {}

    def tile(self, group: GroupState, index: int, shape: tuple[int, int]) -> Array:
        """The fragments of all warps at ``index``, poisoned at first use."""
        if index not in self.tiles:
            self.tiles[index] = poison(self.dtype, (group.n // WARP, *shape))
        return self.tiles[index]


def fill(
    group: GroupState, frag: Wmma, index: Any, shape: tuple[int, int], value: Any, mask: Mask
) -> None:
    """Run fill_fragment."""
    put(group, frag, index, np.asarray(value).astype(frag.dtype), shape, mask)


def _uniform(index: Any) -> int:
    """Return a fragment index, which must be the same in every thread."""
    values = np.unique(np.asarray(index))
    if len(values) != 1:
        raise EmulatorError("emulator.wmma_index", indices=tuple(map(int, values)))
    return int(values[0])


def put(
    group: GroupState, frag: Wmma, index: Any, value: Array, shape: tuple[int, int], mask: Mask
) -> None:
    """Write the tile of every active warp."""
    mask = group.warps(mask, "wmma")
    tile = frag.tile(group, _uniform(index), shape)
    warps = slice(None) if mask is None else mask.reshape(-1, WARP).any(axis=1)
    tile[warps] = value[warps] if value.ndim == 3 else value


def _accesses(
    group: GroupState, base: Any, stride: Any, shape: tuple[int, int], row_major: bool
) -> tuple[Array, list[Array]]:
    """Return flattened tile positions (k, 32) and, for each k, an element index per thread."""
    rows, cols = shape
    per = rows * cols // WARP
    # Neighbouring lanes take neighbouring elements along the contiguous dimension of memory, but
    # not lane i element i, as threads that read the tile would: no kernel may rely on that.
    step, lanes = np.ogrid[:per, :WARP]
    position = step * WARP + (_FIRST_LANE - lanes - step * _ROTATION) % WARP
    r, c = position // cols, position % cols
    if not row_major:
        r, c = position % rows, position // rows
    lane = group.tids % WARP
    stride = np.asarray(stride)
    out = []
    for k in range(per):
        outer, inner = (r[k, lane], c[k, lane]) if row_major else (c[k, lane], r[k, lane])
        out.append((base + outer * stride + inner).astype(np.int64))
    return r * cols + c, out


def load(
    group: GroupState,
    frag: Wmma,
    index: Any,
    shape: tuple[int, int],
    view: Any,
    base: Any,
    stride: Any,
    row_major: bool,
    mask: Mask,
) -> None:
    """Run load_matrix_sync; which lane reads what is unspecified: an even split here."""
    positions, accesses = _accesses(group, base, stride, shape, row_major)
    warps = group.n // WARP
    tile = np.zeros((warps, shape[0] * shape[1]), frag.dtype)
    for position, at in zip(positions, accesses, strict=True):
        tile[:, position] = view.load(group, at, mask).reshape(warps, WARP)
    put(group, frag, index, tile.reshape(warps, *shape), shape, mask)


def store(
    group: GroupState,
    frag: Wmma,
    index: Any,
    shape: tuple[int, int],
    view: Any,
    base: Any,
    stride: Any,
    row_major: bool,
    mask: Mask,
) -> None:
    """Run store_matrix_sync."""
    mask = group.warps(mask, "wmma")
    positions, accesses = _accesses(group, base, stride, shape, row_major)
    tile = frag.tile(group, _uniform(index), shape).reshape(group.n // WARP, -1)
    for position, at in zip(positions, accesses, strict=True):
        view.store(group, at, tile[:, position].reshape(-1), mask)


def mma(
    group: GroupState,
    d: tuple[Wmma, Any],
    a: tuple[Wmma, Any],
    b: tuple[Wmma, Any],
    c: tuple[Wmma, Any],
    shape: tuple[int, int, int],
    mask: Mask,
) -> None:
    """Run mma_sync: exact products and sums, rounded once."""
    m, n, k = shape
    ta = a[0].tile(group, _uniform(a[1]), (m, k))
    tb = b[0].tile(group, _uniform(b[1]), (k, n))
    tc = c[0].tile(group, _uniform(c[1]), (m, n))
    wide = np.int64 if d[0].dtype.kind == "i" else np.float64
    out = np.matmul(ta.astype(wide), tb.astype(wide)) + tc.astype(wide)
    group.count("mmas", active_warps(group, mask))
    put(group, d[0], d[1], out.astype(d[0].dtype), (m, n), mask)
