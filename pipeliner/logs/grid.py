"""What is measured of a workload: a declared grid of tiles, ways and depths.

The grid does not ask the model what is worth measuring, so that the model can be judged by it. A
tile is cut to the workload's extents; what the library refuses is left out. A *way* is an
instruction and a mechanism; a *family* is everything but the depth.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ..errors import PipelinerError
from ..instructions.table import MATMUL_INSTRUCTIONS
from ..machine import Machine
from ..mechanisms.table import COPY_MECHANISMS
from ..records.candidate import Candidate
from ..records.names import candidate
from ..schedules import GemmTile
from ..schedules.closed_form import typical
from ..schedules.tile_space import contraction_of, forms, tiles_of, worthwhile_splits
from ..schedules.workloads import Conv, Spec

LIMIT: Final = 200
"""Candidates of a workload at most."""

DEPTHS: Final = (1, 2, 3, 4, 5, 6)
"""Of the first family of a way."""

USUAL_DEPTHS: Final = (2, 3, 4)

SIMT_DEPTHS: Final = (2, 3, 4, 5)
"""Where threads multiply: slots are small, and what ptxas makes of 3 and 4 differs by a tenth."""

FORM_DEPTHS: Final = (4,)
"""Depths tried of persistent kernels and of split-K."""

Extents = tuple[int, int, int]
Way = tuple[str, str]

_HALF: Final[dict[Way, tuple[Extents, ...]]] = {
    ("wgmma", "tma"): (
        (128, 256, 64),
        (128, 128, 64),
        (256, 128, 64),
        (64, 128, 64),
        (192, 128, 64),
        (128, 192, 64),
        (64, 256, 64),
        (128, 128, 128),
        (128, 64, 64),
        (64, 64, 128),
        (128, 160, 64),
        (192, 192, 64),
    ),
    ("wgmma", "cp_async"): (
        (128, 128, 64),
        (128, 256, 64),
        (192, 128, 64),
        (256, 128, 64),
        (64, 128, 64),
        (128, 64, 64),
        (256, 64, 64),
        (128, 128, 32),
        (192, 64, 64),
        (64, 64, 64),
    ),
    ("mma", "cp_async"): (
        (128, 128, 64),
        (128, 256, 32),
        (64, 128, 64),
        (128, 128, 32),
        (256, 128, 32),
        (128, 64, 64),
        (64, 64, 64),
        (96, 128, 64),
        (128, 256, 64),
        (256, 64, 32),
        (64, 128, 32),
    ),
    ("mma", "register"): ((128, 128, 32), (64, 64, 64), (128, 64, 32)),
    ("simt", "cp_async"): ((128, 128, 16),),
}
"""Tiles of 16-bit operands, the first of a way with every depth."""

_SINGLE: Final[dict[Way, tuple[Extents, ...]]] = {
    ("simt", "cp_async"): (
        (128, 128, 8),
        (64, 64, 8),
        (128, 64, 8),
        (256, 128, 8),
        (64, 128, 8),
        (128, 256, 8),
        (128, 128, 16),
        (32, 64, 8),
        (64, 256, 8),
    ),
    ("simt", "register"): ((128, 128, 8), (64, 64, 8), (128, 64, 8)),
}
"""Tiles of float32, which multiplies exactly."""

_TILES: Final = {"float16": _HALF, "bfloat16": _HALF, "float32": _SINGLE}

_DEEP: Final = 1
"""Families of a way that are measured at every depth."""

_REGISTER_DEPTHS: Final = (1, 2)
"""Of a shared ring that is filled through registers: what is in flight is there."""

_UNIT: Final = 16
"""What a tile that is cut to few rows or columns is a multiple of."""


def grid(spec: Spec, machine: Machine, limit: int = LIMIT) -> list[Candidate]:
    """The first ``limit`` candidates of ``spec``: families of all ways interleaved, each whole."""
    found: list[Candidate] = []
    for family, depths in _families(spec, machine):
        for depth in depths:
            one = replace(family, request=replace(family.request, depth=depth))
            if len(found) < limit and _is_possible(one, spec, machine):
                found.append(one)
    return found


def _families(spec: Spec, machine: Machine) -> Iterator[tuple[Candidate, tuple[int, ...]]]:
    """Families and the depths at which each is measured, ways interleaved."""
    ways = [list(_of_way(way, tiles, spec, machine)) for way, tiles in _TILES[spec.dtype].items()]
    for each in itertools.zip_longest(*ways):
        yield from (family for family in each if family is not None)


def _of_way(
    way: Way, tiles: Iterable[Extents], spec: Spec, machine: Machine
) -> Iterator[tuple[Candidate, tuple[int, ...]]]:
    phases = _phases(spec)
    multiplied, moved = MATMUL_INSTRUCTIONS[way[0]], COPY_MECHANISMS[way[1]]
    if phases and moved.in_groups:  # rows of few channels: filters are too narrow for it
        way = (way[0], "auto")
    make = functools.partial(candidate, spec, machine, way, depth=1, phases=phases)
    for at, extents in enumerate(dict.fromkeys(_cut(tile, make(tile), spec) for tile in tiles)):
        usual = SIMT_DEPTHS if multiplied.thread_tile else USUAL_DEPTHS
        deep = DEPTHS if at < _DEEP else usual
        one = make(extents)
        yield one, _REGISTER_DEPTHS if moved.through_registers else deep
        assert isinstance(one.tile, GemmTile)
        what = contraction_of(spec, one.tile)
        if moved.by_producer and tiles_of(what, one.tile) > machine.sms:
            yield make(extents, persistent=machine.sms), FORM_DEPTHS
        for splits in worthwhile_splits(what, one.tile, machine):
            yield make(extents, splits=splits), FORM_DEPTHS


def _phases(spec: Spec) -> int:
    """Of a convolution of so few channels that it is better folded into runs; 0: it is not."""
    folded = [form for form in forms(spec) if form.fold] if isinstance(spec, Conv) else []
    few = isinstance(spec, Conv) and spec.c < _UNIT
    return folded[0].phases if folded and few else 0


def _cut(tile: Extents, whole: Candidate, spec: Spec) -> Extents:
    """``tile``, which is that of ``whole``, no larger than what covers the workload."""
    assert isinstance(whole.tile, GemmTile)
    extents = typical(contraction_of(spec, whole.tile))
    m, n, k = (min(size, math.ceil(extent / _UNIT) * _UNIT) for size, extent in zip(tile, extents))
    return m, n, k


def _is_possible(one: Candidate, spec: Spec, machine: Machine) -> bool:
    """Whether the library does exactly that: a deeper ring than the loop is long is cut, say."""
    try:
        plan = one.plan(spec, machine)
    except PipelinerError:
        return False
    assert isinstance(one.request.depth, int)
    trips = [int(loop.trip) for loop in plan.loops if loop.trip.isdigit()]
    return bool(plan.matmuls) and one.request.depth <= max(trips, default=one.request.depth)
