"""Arrays of any size of which only what is touched takes memory.

``sparse(shape, dtype)`` is a numpy array of zeros like any other: slice it, fill parts of it, view
it as another type, hand it to ``emulate``. Its pages come into being when they are first touched,
so that an operand of 2^32 elements costs what the emulated CTAs read of it:

    a, c = sparse((65536, 65536), "float16"), sparse((65536, 128), "float32")
    a[65408:] = values                                   # the rows of the last CTA
    result = emulate(lowered, [a, b, c], blocks=[(511, 0, 0)])
    result.outputs["C"][65408:]                          # sparse, too

Reading a page makes it, so do not reduce, compare, print or copy such an array as a whole
(``copy_of`` copies the pages that exist). ``emulate`` and ``sparse`` do not.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import weakref
from math import prod
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

_CHUNK: Final = 1 << 26
"""Bytes copied at once."""


class _Pages(mmap.mmap):
    """The mapping of a file without blocks, which is gone when the mapping is."""

    file: int


def sparse(shape: tuple[int, ...] | int, dtype: Any) -> Array:
    """Return zeros whose pages take memory once they are touched."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    kind = np.dtype(dtype)
    nbytes = max(1, prod(shape) * kind.itemsize)
    # Only a file can be larger than the memory that the system is ready to promise.
    file = os.memfd_create("pipeliner") if hasattr(os, "memfd_create") else _temporary()
    os.ftruncate(file, nbytes)
    pages = _Pages(file, nbytes)
    pages.file = file
    weakref.finalize(pages, os.close, file)
    return np.ndarray(shape, kind, buffer=pages)


def copy_of(source: Array) -> Array:
    """Return a copy in C order; of a sparse contiguous array only the pages that exist."""
    pages = _owner(source)
    if not isinstance(pages, _Pages) or not source.flags.c_contiguous:
        return np.array(source, order="C", copy=True)
    made = sparse(source.shape, source.dtype)
    into, out = _bytes(made), _bytes(source)
    first = address(source) - address(np.ndarray(1, np.uint8, buffer=pages))
    for start, end in _extents(pages.file, first, first + source.nbytes):
        for low in range(start - first, end - first, _CHUNK):
            part = slice(low, min(low + _CHUNK, end - first))
            into[part] = out[part]
    return made


def address(array: Array) -> int:
    """Return the address of the first element of ``array``."""
    return int(array.__array_interface__["data"][0])


def _temporary() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def outermost(array: Array) -> Array:
    """The array that ``array`` was cut out of, over one piece of memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def memory_at(array: Array, low: int, high: int) -> Array:
    """The bytes from one address to another, around an array."""
    pages = _owner(array)
    if isinstance(pages, _Pages):
        start = address(np.ndarray(1, np.uint8, buffer=pages))
        return np.ndarray(high - low, np.uint8, buffer=pages, offset=low - start)
    return np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))


def _owner(array: Array) -> Any:
    """What the memory of ``array`` belongs to: an array, or what arrays are made over."""
    owner = outermost(array)
    return owner if owner.base is None else owner.base


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def _extents(file: int, start: int, end: int) -> list[tuple[int, int]]:
    """The parts of a range of a file that have blocks."""
    found = []
    at = start
    while at < end:
        try:
            at = os.lseek(file, at, os.SEEK_DATA)
        except OSError:  # no data beyond
            break
        hole = os.lseek(file, at, os.SEEK_HOLE)
        if at < end:
            found.append((at, min(hole, end)))
        at = hole
    return found
