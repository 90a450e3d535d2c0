"""What notes that a copy engine reads or writes global memory, once an engine is known to do it.

A bulk copy of one thread is carried out by an engine for each CTA that it goes to, later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .agents import WIDE, GlobalAccess
from .global_memory import Region
from .global_shadow import GlobalShadow
from .state import GroupState

Array = np.ndarray[Any, Any]


def reading(
    group: GroupState, tid: int, region: Region, first: Array, size: int
) -> Callable[[int], None] | None:
    """Return what notes an engine's read of global memory; None where nothing is judged."""
    judged = _access(group, tid, region, first, size)
    if judged is None:
        return None
    shadow, access = judged
    return lambda engine: shadow.read(replace(access, agent=engine))


def writing(
    group: GroupState, tid: int, region: Region, first: Array, size: int, *, add: bool
) -> Callable[[int], None] | None:
    """Return what notes that an engine writes global memory, or adds to it."""
    judged = _access(group, tid, region, first, size)
    if judged is None:
        return None
    shadow, access = judged
    return lambda engine: shadow.write(replace(access, agent=engine, reach=WIDE if add else -1))


def _access(
    group: GroupState, tid: int, region: Region, first: Array, size: int
) -> tuple[GlobalShadow, GlobalAccess] | None:
    """Return an access of ``tid`` to ``size`` bytes from each byte ``first``, where judged."""
    shadow = region.memory.shadow
    if shadow is None or not len(first):
        return None
    granules = shadow.granules(region.start + first, size).reshape(-1)
    # Neighbours share a granule: once is enough.
    granules = granules[np.flatnonzero(np.diff(granules, prepend=-1))]
    return shadow, GlobalAccess(
        group, region.name, region.start, np.array([tid]), granules, agent=0
    )
