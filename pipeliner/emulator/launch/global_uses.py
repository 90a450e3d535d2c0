"""What a kernel does to the memory behind each of its parameters, and which of it is judged.

Memory that a kernel only reads needs no judgement: that is most of it. The others get a shadow for
the launch, as fine as the smallest access.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..memory.global_memory import GlobalMemory, Region
from ..memory.global_shadow import GlobalShadow
from ..memory.grid import Grid
from ..memory.im2col_map import GlobalMap
from ..memory.spaces import GlobalView

_COARSEST: Final = 16
"""Bytes that one record of shadow state covers at most."""


@dataclass
class GlobalUse:
    """Accesses by way of one parameter; ``engine``: some through the async proxy.

    ``generic``: writes that are not. ``size``: of the smallest in bytes; 0 for a tensor map, whose
    elements the call decides.
    """

    reads: bool = False
    writes: bool = False
    atomic: bool = False
    engine: bool = False
    generic: bool = False
    size: int = _COARSEST

    def add(self, other: GlobalUse) -> None:
        """Note another use of the same parameter."""
        self.reads |= other.reads
        self.writes |= other.writes
        self.atomic |= other.atomic
        self.engine |= other.engine
        self.generic |= other.writes and not other.engine
        self.size = min(self.size, other.size)


def watch(args: Iterable[Any], uses: Mapping[int, GlobalUse], grid: Grid) -> bool:
    """Give the memory that a launch writes its shadow state, other memory none.

    Whether some of it is written by the generic proxy and touched by the async one.
    """
    found: dict[int, tuple[GlobalMemory, list[tuple[GlobalUse, int]]]] = {}
    for position, arg in enumerate(args):
        if isinstance(arg, GlobalView | GlobalMap):
            memory, use = arg.region.memory, uses.get(position, GlobalUse())
            found.setdefault(id(memory), (memory, []))[1].append((use, _granule(arg, use)))
    mixed = False
    for memory, known in found.values():
        memory.shadow = None
        if not any(use.writes for use, _ in known):
            continue
        whole = any(use.reads or use.atomic for use, _ in known)
        size = min(granule for _, granule in known)
        memory.shadow = GlobalShadow(len(memory.bytes), size, grid, whole=whole)
        mixed |= any(use.engine for use, _ in known) and any(use.generic for use, _ in known)
    return mixed


def _granule(arg: GlobalView | GlobalMap, use: GlobalUse) -> int:
    """The largest power of two that all accesses by a parameter are multiples of."""
    size = use.size
    if isinstance(arg, GlobalMap):
        row = arg.map.shape[0] * arg.map.itemsize
        size = _COARSEST if row % _COARSEST == 0 else arg.map.itemsize
    return min(size, _aligned(arg.region))


def _aligned(region: Region) -> int:
    return region.start & -region.start or _COARSEST
