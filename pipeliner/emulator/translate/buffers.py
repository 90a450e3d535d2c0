"""Buffers of a device function at compile time: where each lives and the view that reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import tvm_ffi
from tvm import tirx

from ...errors import EmulatorError
from ..base.dtypes import numpy_dtype, split_lanes
from .source import Val

_STATIC_ALIGN: Final = 128
"""Bytes to which static shared allocations are aligned: no vector access straddles two."""

_DYNAMIC_ALIGN: Final = 1024
"""Bytes to which the dynamic arena is aligned: a pattern of the widest swizzle."""


@dataclass(frozen=True, eq=False)
class Memory:
    """One allocation; two of one name and size are two.

    ``space`` is global, shared, local or wmma; ``base`` its byte offset in the shared window;
    ``nbytes`` is None for the dynamic arena, whose size the launch gives, and for globals.
    """

    space: str
    name: str
    base: int = 0
    nbytes: int | None = None
    param: str = ""  # generated-code name of the array argument of a global


@dataclass(frozen=True)
class BufferRef:
    """A buffer variable: memory, element type and offset of its first element."""

    memory: Memory
    name: str
    dtype: str
    lanes: int
    offset: Val  # elements of `dtype`


@dataclass(frozen=True)
class Pointer:
    """An address inside a memory: ``index`` counts units of ``unit`` bytes."""

    memory: Memory
    index: Val
    unit: int
    dtype: str


def element_count(buffer: Any, scale: Callable[[Any], int]) -> int:
    """Elements of an allocation, with constant extents."""
    total = 1
    for extent in buffer.shape:
        total *= scale(extent)
    return total


def constant_extent(extent: Any) -> int:
    """Value of an extent that must be a constant; EmulatorError: it is none."""
    value = getattr(extent, "value", None)
    if value is None:
        raise EmulatorError("emulator.extent", extent=str(extent))
    return int(value)


def place_shared(body: Any) -> tuple[Mapping[Any, Memory], int]:
    """Window offsets of every shared allocation, and of the dynamic arena.

    All dynamic allocations of a kernel share one base address, as `extern __shared__` arrays do.
    """
    static: list[Any] = []
    dynamic: list[Any] = []

    def visit(stmt: Any) -> None:
        scope = stmt.buffer.scope()
        if scope == "shared.dyn":
            dynamic.append(stmt.buffer)
        elif scope == "shared":
            static.append(stmt.buffer)

    tvm_ffi.structural_walk(body, [(tirx.AllocBuffer, visit)])
    places: dict[Any, Memory] = {}
    top = 0
    for buffer in static:
        base, lanes = split_lanes(buffer.dtype)
        count = element_count(buffer, constant_extent)
        nbytes = numpy_dtype(base).itemsize * lanes * count
        places[buffer] = Memory("shared", buffer.name, top, nbytes)
        top += -(-nbytes // _STATIC_ALIGN) * _STATIC_ALIGN
    arena = -(-top // _DYNAMIC_ALIGN) * _DYNAMIC_ALIGN if dynamic else top
    for buffer in dynamic:
        places[buffer] = Memory("shared", buffer.name, arena, None)
    return places, arena
