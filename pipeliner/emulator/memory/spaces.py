"""Global, shared and local memory as the generated code sees it.

Every view answers ``load``/``store`` for the threads of a thread group.  Indices are a Python int
(uniform), an array (n,) or, for a gather by lane, (n, lanes).  ``mask`` is None when all threads of
the group are active, else a boolean array (n,).  ``width`` is the number of contiguous elements of
one vector access: their address must be aligned to their size (16 bytes at most).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...diagnostics import Reason
from ..base.dtypes import POISON_BYTE, poison
from .agents import GlobalAccess
from .global_memory import Region
from .shared_window import SharedWindow
from .state import GroupState

Array = np.ndarray[Any, Any]
Mask = Array | None
_MAX_VECTOR_BYTES: Final = 16
"""Bytes of the widest access of one thread."""

REGISTER_BYTES: Final = 4
"""Bytes of a register."""

_LOCAL_SCOPES: Final = ("local", "warp", "local_scalar")
"""Scopes of which each thread has its own copy."""


def is_local_scope(scope: str) -> bool:
    """Whether each thread has a buffer of this scope of its own (CUDA prints warp so, too)."""
    return scope in _LOCAL_SCOPES


def select(value: Any, mask: Mask, n: int) -> Any:
    """Rows of ``value`` under ``mask``; what has no row per thread is returned as it is."""
    if mask is None or not isinstance(value, np.ndarray) or value.ndim == 0:
        return value
    return value[mask] if value.shape[0] == n else value


def expand(index: Array | int, width: int) -> Array:
    """Element indices (rows, width) of a vector access."""
    return np.asarray(index)[..., None] + np.arange(width)


def spread(value: Array, mask: Mask, n: int) -> Array:
    """Values of the active threads as rows for all n threads; the others get zeros."""
    if mask is None:
        return value
    out = np.zeros((n, *value.shape[1:]), value.dtype)
    out[mask] = value
    return out


class _View:
    """What global and shared views share: bounds, alignment, scattering of masks."""

    name: str
    array: Array
    base: int  # address of `array`, as far as alignment goes
    low: int  # first element of the buffer in `array`, and one past its last
    high: int

    def _place(self, group: GroupState, index: Any, mask: Mask, width: int) -> tuple[Any, Any]:
        """Return the element index of each active row, and which rows are inside (None: all)."""
        at = select(index, mask, group.n)
        at = at + self.low
        size = self.array.itemsize * width
        if width > 1 and size & (size - 1) == 0:
            self._check_aligned(group, at, mask, size)
        end = self.high - width
        if isinstance(at, int):
            if self.low <= at <= end:
                return at, None
            group.hazard("out-of-bounds", self.name, at * self.array.itemsize, mask=mask)
            return self.low, False
        if at.size == 0 or (at.min() >= self.low and at.max() <= end):
            return at, None
        inside = (at >= self.low) & (at <= end)
        worst = np.argwhere(~inside)[0]
        thread = group.active(mask)[worst[0] % len(group.active(mask))]
        offset = int(at[tuple(worst)]) * self.array.itemsize
        group.hazard("out-of-bounds", self.name, offset, thread=int(thread))
        return np.where(inside, at, self.low), inside

    def _check_aligned(self, group: GroupState, at: Any, mask: Mask, size: int) -> None:
        size = min(size, _MAX_VECTOR_BYTES)
        misaligned = np.asarray((at * self.array.itemsize + self.base) % size != 0)
        if not misaligned.any():
            return
        row = int(np.argmax(misaligned.reshape(-1)))
        tids = group.active(mask)
        offset = int(np.asarray(at).reshape(-1)[row]) * self.array.itemsize
        detail = Reason("hazard.alignment", nbytes=size)
        group.hazard(
            "misaligned", self.name, offset, thread=int(tids[row % len(tids)]), detail=detail
        )

    def _note_read(self, group: GroupState, at: Any, mask: Mask, width: int) -> None:
        """Judge a read."""

    def _note_write(self, group: GroupState, at: Any, mask: Mask, width: int, value: Any) -> None:
        """Judge a write, before it is made."""

    def _changes(self, group: GroupState) -> None:
        """Note a write of memory that threads of other clusters may poll."""

    def _equal(self, at: Any, value: Any, width: int) -> Any:
        """Return which rows hold what is to be stored, or has been, to the bit."""
        stored = self.array[expand(at, width) if width > 1 else np.asarray(at)]
        wanted = np.asarray(value, self.array.dtype)
        if wanted.ndim == 1 and stored.ndim == 2:
            wanted = wanted[:, None]
        pair = [np.ascontiguousarray(x) for x in np.broadcast_arrays(stored, wanted)]
        bits = [x.view(f"u{x.itemsize}") for x in pair]  # a NaN equals itself
        same = bits[0] == bits[1]
        return same.all(axis=-1) if width > 1 or same.ndim == 2 else same

    def _check_clash(self, group: GroupState, at: Any, mask: Mask, width: int, value: Any) -> None:
        """Report two threads that have written different values to one place."""

    def load(self, group: GroupState, index: Any, mask: Mask, width: int = 1) -> Any:
        at, inside = self._place(group, index, mask, width)
        if inside is False:
            fill = poison(self.array.dtype, (width,))
            return fill if width > 1 else fill[0]
        self._note_read(group, at, mask, width)
        if isinstance(at, int):
            return self.array[at : at + width] if width > 1 else self.array[at]
        value = self.array[expand(at, width) if width > 1 else at]
        if inside is not None:
            value[~inside] = poison(self.array.dtype, (1,))[0]
        return spread(value, mask, group.n)

    def store(self, group: GroupState, index: Any, value: Any, mask: Mask, width: int = 1) -> None:
        at, inside = self._place(group, index, mask, width)
        if inside is False:
            return
        value = select(value, mask, group.n)
        self._changes(group)
        if inside is not None:
            self._store_inside(group, at, value, mask, width, inside)
            return
        self._note_write(group, at, mask, width, value)
        if isinstance(at, int):
            # One place, every thread: the last thread's store stays, as good as any.
            last = value[-1] if isinstance(value, np.ndarray) and value.ndim else value
            self.array[at : at + width] = last
        else:
            self.array[expand(at, width) if width > 1 else at] = value
        self._check_clash(group, at, mask, width, value)

    def _store_inside(
        self, group: GroupState, at: Array, value: Any, mask: Mask, width: int, inside: Array
    ) -> None:
        """Store the rows that are inside, where some are out of bounds."""
        rows: Array = inside if inside.ndim == 1 else np.asarray(inside.all(axis=1))
        active = np.zeros(group.n, np.bool_)
        active[np.flatnonzero(rows) if mask is None else np.flatnonzero(mask)[rows]] = True
        if isinstance(value, np.ndarray) and value.ndim and value.shape[0] == len(rows):
            value = value[rows]
        self._note_write(group, at[rows], active, width, value)
        self.array[expand(at[rows], width) if width > 1 else at[rows]] = value


class GlobalView(_View):
    """What a pointer parameter is given for, as elements of one type."""

    def __init__(self, name: str, region: Region, dtype: Any = np.uint8) -> None:
        self.name = name
        self.region = region
        self.base = region.shift
        size = np.dtype(dtype).itemsize
        self.array = region.bytes[: (region.end - region.start) // size * size].view(dtype)
        self.low, self.high = 0, self.array.size

    def view(self, dtype: np.dtype[Any]) -> GlobalView:
        """Return the same memory as elements of another type."""
        return GlobalView(self.name, self.region, dtype)

    def access(
        self,
        group: GroupState,
        tids: Array,
        at: Any,
        width: int = 1,
        *,
        reach: int = -1,
    ) -> GlobalAccess | None:
        """Return an access to ``width`` elements from each of ``at`` on; None: none is judged."""
        shadow = self.region.memory.shadow
        if shadow is None:
            return None
        size = self.array.itemsize
        first = self.region.start + np.asarray(at, np.int64) * size
        granules = shadow.granules(first, size * width)
        return GlobalAccess(group, self.name, self.region.start, tids, granules, reach=reach)

    def _changes(self, group: GroupState) -> None:
        group.cta.cluster.grid.changes += 1

    def _note_read(self, group: GroupState, at: Any, mask: Mask, width: int) -> None:
        group.touch_global(self.name, mask)
        shadow = self.region.memory.shadow
        access = self.access(group, group.active(mask), at, width)
        if shadow is not None and access is not None:
            shadow.read(access)

    def _note_write(self, group: GroupState, at: Any, mask: Mask, width: int, value: Any) -> None:
        group.touch_global(self.name, mask)
        shadow = self.region.memory.shadow
        access = self.access(group, group.active(mask), at, width)
        if shadow is not None and access is not None:
            shadow.write(access, lambda: self._equal(at, value, width))

    def _check_clash(self, group: GroupState, at: Any, mask: Mask, width: int, value: Any) -> None:
        shadow = self.region.memory.shadow
        access = self.access(group, group.active(mask), at, width)
        if shadow is not None and access is not None:
            shadow.check_equal(access, lambda: self._equal(at, value, width))


class SharedView(_View):
    """One shared buffer: elements [base, base + nbytes) of the window, with shadow state."""

    def __init__(
        self, name: str, window: SharedWindow, dtype: np.dtype[Any], base: int, nbytes: int
    ) -> None:
        self.name = name
        self.base = 0
        self.window = window
        self.array = window.bytes.view(dtype)
        self.low = base // dtype.itemsize
        self.high = (base + nbytes) // dtype.itemsize

    def _granules(self, group: GroupState, at: Any, width: int) -> Array:
        size = self.array.itemsize
        step = group.cta.granule
        if size >= step:
            first = np.asarray(at) * (size // step)
        else:
            first = np.asarray(at) // (step // size)
        count = max(1, size * width // step)
        if count == 1:
            return first
        grains = first[..., None] + np.arange(count)
        return grains.reshape(grains.shape[0] if grains.ndim > 1 else 1, -1)

    def note(self, group: GroupState, index: Any, mask: Mask, width: int, *, writes: bool) -> None:
        """Judge a load or a store without moving data."""
        at, inside = self._place(group, index, mask, width)
        if inside is not None:
            return  # out of bounds, which has been reported
        if writes:
            self._note_write(group, at, mask, width, None)
        else:
            self._note_read(group, at, mask, width)

    def _note_read(self, group: GroupState, at: Any, mask: Mask, width: int) -> None:
        grains = self._granules(group, at, width)
        group.cta.shadow.read(group.active(mask), grains, group.event)

    def _note_write(self, group: GroupState, at: Any, mask: Mask, width: int, value: Any) -> None:
        grains = self._granules(group, at, width)
        group.cta.shadow.write(group.active(mask), grains, group.event)

    def _check_clash(self, group: GroupState, at: Any, mask: Mask, width: int, value: Any) -> None:
        """Report several threads on one granule, unless each has stored the same value."""
        tids, shadow = group.active(mask), group.cta.shadow
        grains = self._granules(group, at, width)
        who, grains = np.broadcast_arrays(tids if grains.ndim < 2 else tids[:, None], grains)
        stale = shadow.writer[grains] != who
        if not stale.any():
            return
        if not np.all(self._equal(at, value, width)):
            shadow.clash(who[stale], grains[stale], group.event)


class LocalView:
    """Registers: one row of elements for each thread of the group."""

    def __init__(self, name: str, data: Array, nbytes: int, dtype: np.dtype[Any]) -> None:
        self.name = name
        self.data = data  # (n, bytes) uint8, rows padded
        self.nbytes = nbytes
        self.array = data.view(dtype)
        self.size = nbytes // dtype.itemsize
        self._marks: dict[str, Array] = {}

    @classmethod
    def allocate(cls, name: str, group: GroupState, nbytes: int, dtype: np.dtype[Any]) -> LocalView:
        data = poison(np.dtype(np.uint8), (group.n, cls.padded(nbytes)))
        view = cls(name, data, nbytes, dtype)
        group.registers.append(data)
        group.views.append(view)
        return view

    @staticmethod
    def padded(nbytes: int) -> int:
        """Bytes of a row, so that every view is whole."""
        return -(-nbytes // 16) * 16

    def view(self, dtype: np.dtype[Any]) -> LocalView:
        other = LocalView(self.name, self.data, self.nbytes, dtype)
        other._marks = self._marks
        return other

    @property
    def is_marked(self) -> bool:
        """Whether a wgmma has used its registers, or may."""
        return bool(self._marks)

    def marks(self, name: str) -> Array:
        """Events by (row, register), zero at first, which all views of the memory share."""
        if name not in self._marks:
            registers = -(-self.nbytes // REGISTER_BYTES)
            self._marks[name] = np.zeros((len(self.data), registers), np.int32)
        return self._marks[name]

    def reset(self) -> None:
        """Begin a new lifetime: contents are undefined again."""
        self.data[:] = POISON_BYTE

    def load(self, group: GroupState, index: Any, mask: Mask, width: int = 1) -> Any:
        if isinstance(index, int):
            if not 0 <= index <= self.size - width:
                group.hazard("out-of-bounds", self.name, index * self.array.itemsize, mask=mask)
                index = 0
            return self.array[:, index] if width == 1 else self.array[:, index : index + width]
        at = self._inside(group, index, mask, width)
        rows = np.arange(group.n)
        if width > 1:
            at = expand(at, width)
        return self.array[rows if at.ndim == 1 else rows[:, None], at]

    def store(self, group: GroupState, index: Any, value: Any, mask: Mask, width: int = 1) -> None:
        value = select(value, mask, group.n)
        if isinstance(index, int):
            if not 0 <= index <= self.size - width:
                group.hazard("out-of-bounds", self.name, index * self.array.itemsize, mask=mask)
                return
            where = slice(None) if mask is None else mask
            columns: Any = index if width == 1 else slice(index, index + width)
            self.array[where, columns] = value
            return
        at = self._inside(group, index, mask, width)
        rows = np.arange(group.n)
        if mask is not None:
            at, rows = at[mask], rows[mask]
        if width > 1:
            at = expand(at, width)
        self.array[rows if at.ndim == 1 else rows[:, None], at] = value

    def _inside(self, group: GroupState, index: Array, mask: Mask, width: int) -> Array:
        outside = (index < 0) | (index > self.size - width)
        if mask is not None:
            outside &= mask if index.ndim == 1 else mask[:, None]
        if outside.any():
            offset = int(index[outside].flat[0]) * self.array.itemsize
            group.hazard("out-of-bounds", self.name, offset, mask=mask)
        return np.clip(index, 0, self.size - width)
