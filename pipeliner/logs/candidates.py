"""What is measured of a workload: a declared grid of tiles, ways and depths.

The grid does not ask the model what is worth measuring, so that the model can be judged by it. A
tile is cut to the workload's extents; what the library refuses is left out. A *way* is an
instruction and a mechanism; a *family* is everything but the depth.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from ..errors import PipelinerError, WorkloadError
from ..instructions.table import MATMUL_INSTRUCTIONS
from ..machine import Machine
from ..mechanisms.table import COPY_MECHANISMS
from ..plan import KernelPlan
from ..plan.request import Instruction, Request
from ..records import candidate as tried
from ..schedules import ConvTile, Gemm, GemmTile
from ..schedules.choice import forms, raster_group, tiles_of, worthwhile_splits
from ..schedules.closed_form import kernel_info, typical
from ..schedules.workloads import Contraction, Conv, Spec
from ..space.ranking import choose

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

_KEY: Final = re.compile(
    r"(?P<instruction>\w+)/(?P<mechanism>\w+) (?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+) d(?P<depth>\d+)"
    r"(?: s(?P<splits>\d+))?(?: c(?P<persistent>\d+))?(?: x(?P<cluster>\d+))?(?: f(?P<phases>\d+))?"
)


@dataclass(frozen=True, slots=True)
class LogCandidate:
    """One way to compute a workload.

    ``mechanism``: ``auto`` where operands need different ones. ``persistent``: its CTAs; 0: one for
    each tile. ``cluster``: CTAs that copy for each other. ``phases``: of a convolution
    folded into runs; 0: not folded.
    """

    instruction: str
    mechanism: str
    m: int
    n: int
    k: int
    depth: int
    splits: int = 1
    persistent: int = 0
    cluster: int = 1
    phases: int = 0

    @property
    def key(self) -> str:
        """As a log names it: ``wgmma/tma 128x256x64 d4 c132``; what is usual is left out."""
        text = f"{self.instruction}/{self.mechanism} {self.m}x{self.n}x{self.k} d{self.depth}"
        text += f" s{self.splits}" * (self.splits > 1) + f" c{self.persistent}" * (
            self.persistent > 0
        )
        return (
            text + f" x{self.cluster}" * (self.cluster > 1) + f" f{self.phases}" * bool(self.phases)
        )

    @property
    def family(self) -> LogCandidate:
        """The same with one slot: what candidates that differ in depth alone have in common."""
        return replace(self, depth=1)

    @property
    def request(self) -> Request:
        """What is asked of the pipeliner: nothing of what the candidate says is left to it."""
        return Request(
            depth=self.depth,
            mechanism=cast(Any, self.mechanism),
            instruction=cast(Instruction, self.instruction),
            cluster=self.cluster,
            consumers="cooperative",
        )

    def tile(self, spec: Spec, machine: Machine) -> GemmTile:
        """Its tile of ``spec``, with the rasterisation of ``default_tile``."""
        tile: GemmTile = GemmTile(self.m, self.n, self.k)
        if not isinstance(spec, Gemm):
            folded = self.phases > 0
            tile = ConvTile(self.m, self.n, self.k, fold=folded, phases=max(1, self.phases))
        tile = replace(tile, splits=self.splits, persistent=self.persistent or None)
        return replace(tile, raster_group=raster_group(tile, machine))

    def contraction(self, spec: Spec, machine: Machine) -> Contraction:
        """``spec`` as the matmul that its tile cuts."""
        tile = self.tile(spec, machine)
        if isinstance(spec, Gemm):
            return spec.contraction()
        assert isinstance(tile, ConvTile)
        return tile.contraction(spec)

    def plan(self, spec: Spec, machine: Machine) -> KernelPlan:
        """What the model makes of it; PipelinerError where it is refused."""
        return choose(kernel_info(spec, self.tile(spec, machine)), machine, self.request)

    def whole(self, spec: Spec, machine: Machine) -> tried.Candidate:
        """It as a tuner knows it: with every field of the tile."""
        return tried.Candidate(self.tile(spec, machine), self.request)


def candidate(key: str) -> LogCandidate:
    """The candidate that ``key`` names; WorkloadError: it names none."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise WorkloadError("log.candidate", value=key)
    m, n, k, depth = (int(found[name]) for name in ("m", "n", "k", "depth"))
    return LogCandidate(
        found["instruction"],
        found["mechanism"],
        m,
        n,
        k,
        depth,
        splits=int(found["splits"] or 1),
        persistent=int(found["persistent"] or 0),
        cluster=int(found["cluster"] or 1),
        phases=int(found["phases"] or 0),
    )


def grid(spec: Spec, machine: Machine, limit: int = LIMIT) -> list[LogCandidate]:
    """The first ``limit`` candidates of ``spec``: families of all ways interleaved, each whole."""
    found: list[LogCandidate] = []
    for family, depths in _families(spec, machine):
        for depth in depths:
            one = replace(family, depth=depth)
            if len(found) < limit and _is_possible(one, spec, machine):
                found.append(one)
    return found


def _families(spec: Spec, machine: Machine) -> Iterator[tuple[LogCandidate, tuple[int, ...]]]:
    """Families and the depths at which each is measured, ways interleaved."""
    ways = [list(_of_way(way, tiles, spec, machine)) for way, tiles in _TILES[spec.dtype].items()]
    for each in itertools.zip_longest(*ways):
        yield from (family for family in each if family is not None)


def _of_way(
    way: Way, tiles: Iterable[Extents], spec: Spec, machine: Machine
) -> Iterator[tuple[LogCandidate, tuple[int, ...]]]:
    phases = _phases(spec)
    multiplied, moved = MATMUL_INSTRUCTIONS[way[0]], COPY_MECHANISMS[way[1]]
    if phases and moved.in_groups:  # rows of few channels: filters are too narrow for it
        way = (way[0], "auto")
    whole = (LogCandidate(*way, *tile, depth=1, phases=phases) for tile in tiles)
    for at, one in enumerate(dict.fromkeys(_cut(each, spec, machine) for each in whole)):
        usual = SIMT_DEPTHS if multiplied.thread_tile else USUAL_DEPTHS
        deep = DEPTHS if at < _DEEP else usual
        yield one, _REGISTER_DEPTHS if moved.through_registers else deep
        what, tile = one.contraction(spec, machine), one.tile(spec, machine)
        if moved.by_producer and tiles_of(what, tile) > machine.sms:
            yield replace(one, persistent=machine.sms), FORM_DEPTHS
        for splits in worthwhile_splits(what, tile, machine):
            yield replace(one, splits=splits), FORM_DEPTHS


def _phases(spec: Spec) -> int:
    """Of a convolution of so few channels that it is better folded into runs; 0: it is not."""
    folded = [form for form in forms(spec) if form.fold] if isinstance(spec, Conv) else []
    few = isinstance(spec, Conv) and spec.c < _UNIT
    return folded[0].phases if folded and few else 0


def _cut(whole: LogCandidate, spec: Spec, machine: Machine) -> LogCandidate:
    """``whole`` with a tile no larger than what covers the workload."""
    extents = typical(whole.contraction(spec, machine))
    m, n, k = (
        min(size, math.ceil(extent / _UNIT) * _UNIT)
        for size, extent in zip((whole.m, whole.n, whole.k), extents)
    )
    return replace(whole, m=m, n=n, k=k)


def _is_possible(one: LogCandidate, spec: Spec, machine: Machine) -> bool:
    """Whether the library does exactly that: a deeper ring than the loop is long is cut, say."""
    try:
        plan = one.plan(spec, machine)
    except PipelinerError:
        return False
    trips = [int(loop.trip) for loop in plan.loops if loop.trip.isdigit()]
    return bool(plan.matmuls) and one.depth <= max(trips, default=one.depth)
