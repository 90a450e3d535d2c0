"""Compare tiles by their predicted times: whole ones, those with split-K, those of loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

from ..choice.bound import least_us
from ..diagnostics import Reason, Why, is_code
from ..errors import PipelinerError, WorkloadError
from ..machine import Machine
from ..plan.request import AccumulateAsked, Instruction, Request
from ..space.ranking import Ranking
from ..values.facts import KernelInfo
from .closed_form import contraction_info
from .loops.attention_best import best_attention
from .loops.attention_walk import walked_tiles
from .loops.forms import loop_info
from .loops.space import FEW_QUERIES, loop_tiles
from .tile_space import (
    tiles_of,
    tiles_tried,
    worthwhile_splits,
)
from .tiles import (
    GemmTile,
    LoopTile,
)
from .workloads import (
    Attention,
    Contraction,
    Convolution,
    Gemm,
    LoopWorkload,
)

SAME_TIME: Final = 0.005
"""Relative difference in time below which two tiles count as equally fast."""

SAME_WAVE: Final = 0.025
"""The same for tiles whose CTAs are one wave, for attention, and for outputs computed in vain."""

WORTH_A_PLAN: Final = (1 + SAME_WAVE) * (1 + SAME_TIME) + 0.01
"""Times of the fastest tile within which ``_best`` looks for another, with a hundredth to spare."""


@dataclass(frozen=True, slots=True)
class ComparedTile:
    """A tile with its predicted time, and the depth of its rings with mbarriers (0: none).

    ``tiles``: of all outputs. ``box``: columns of the TMA box that is stored at once.
    """

    tile: GemmTile
    us: float
    depth: int
    tiles: int
    box: int

    @property
    def computed(self) -> int:
        """Outputs of all tiles, with those that lie beyond the ends."""
        return self.tiles * self.tile.m * self.tile.n

    @property
    def ctas(self) -> int:
        """CTAs, where each has one tile or a part of one."""
        return self.tiles * self.tile.splits

    def is_one_wave(self, machine: Machine) -> bool:
        """Whether all its CTAs run at once."""
        return self.ctas <= machine.sms and self.tile.persistent is None


@dataclass(frozen=True)
class ComparedTiles:
    """The tiles of one workload with their times: whole ones, and those with split-K."""

    machine: Machine
    whole: tuple[ComparedTile, ...]
    parts: tuple[ComparedTile, ...]

    @property
    def fastest(self) -> ComparedTile:
        """The one of least predicted time, ties or not."""
        return min((*self.whole, *self.parts), key=lambda one: one.us)

    @cached_property
    def best(self) -> ComparedTile:
        """The one to take: the best whole one, or the best of split-K where that is faster."""
        whole = _best(self.whole, self.machine)
        if not self.parts:
            return whole
        split = _best(self.parts, self.machine)
        if split.us >= whole.us:
            return whole
        return replace(split, tile=replace(split.tile, why=_why_split(split, whole, self.machine)))

    def without(self, tiles: Sequence[GemmTile]) -> ComparedTiles | None:
        """What is left but for ``tiles``; None: no whole ones, or nothing at all."""
        whole = tuple(one for one in self.whole if one.tile not in tiles)
        parts = tuple(one for one in self.parts if one.tile not in tiles)
        return replace(self, whole=whole, parts=parts) if whole else None

    def tie_break(self, chosen: GemmTile) -> Reason | None:
        """Why ``chosen`` is taken though another is faster; None: it is fastest, or not taken."""
        if replace(self.best.tile, raster_group=chosen.raster_group) != chosen:
            return None
        alike = self.parts if chosen.splits > 1 and self.parts else self.whole
        fastest = min(alike, key=lambda one: one.us)
        if self.best.us <= fastest.us:
            return None
        same_outputs = (fastest.tile.m, fastest.tile.n) == (chosen.m, chosen.n)
        one_wave = fastest.is_one_wave(self.machine) and not same_outputs
        other = (fastest.tile.m, fastest.tile.n, fastest.tile.k)
        if one_wave:
            return Reason("tile.same_wave", other=other, us=fastest.us, percent=SAME_WAVE)
        return Reason("tile.same_time", other=other, us=fastest.us, percent=SAME_TIME)


def compare_loops(
    workload: LoopWorkload,
    machine: Machine,
    instruction: Instruction = "auto",
    accumulate: AccumulateAsked = "auto",
    splits: int | None = None,
) -> dict[LoopTile, float]:
    """The predicted time of each tile of a loop that ``default_tile`` chooses from.

    A tile of a warp or two only where its loop is pipelined, or where there is no other: what fills
    one slot is more than so few threads have registers for. Where no tile fits the GPU by an
    instruction, the smallest, of which no time is predicted: threads share its nests out. Raises
    what ``default_tile`` raises.
    """
    request = Request(instruction=instruction, accumulate=accumulate)
    found: dict[LoopTile, float] = {}
    unpipelined: dict[LoopTile, float] = {}
    untimed: dict[LoopTile, float] = {}
    failed: PipelinerError | None = None
    unmapped: list[Why] = []

    def compare(tile: LoopTile) -> None:
        plan = Ranking(loop_info(workload, tile), machine, request).best().plan
        if not plan.matmuls:
            unmapped.extend(why for why in plan.reasons if is_code(why, "mapping.left_out"))
        elif plan.predicted_us > 0.0:
            pipelined = any(loop.pipelined for loop in plan.loops)
            few = tile.m in FEW_QUERIES and not pipelined
            (unpipelined if few else found)[tile] = plan.predicted_us
        elif not untimed and instruction == "auto":
            untimed[tile] = 0.0

    for tile in loop_tiles(workload, machine, splits):
        try:
            compare(tile)
        except PipelinerError as err:  # what is demanded does not fit this tile
            failed = err
    found = found or unpipelined or untimed
    if found and isinstance(workload, Attention):
        best = best_attention(workload, machine, found, (SAME_WAVE, SAME_TIME))
        for walked in walked_tiles(workload, best, machine):
            with suppress(PipelinerError):  # such as copies by the threads that multiply
                compare(walked)
    if found:
        return found
    if failed is not None and instruction != "auto":
        raise failed
    reason = next(iter(unmapped), Reason("tile.no_plan")) if failed is None else failed.reason
    raise WorkloadError("tile.none", workload=workload.name, machine=machine.name, why=reason)


def compare_tiles(
    workload: Gemm | Convolution,
    machine: Machine,
    instruction: Instruction = "auto",
    splits: int | None = None,
    accumulate: AccumulateAsked = "auto",
    within: float = math.inf,
) -> ComparedTiles:
    """The tiles that ``default_tile`` chooses from: whole ones, and those with split-K.

    A tile that provably takes more than ``within`` times as long as the fastest may be left out:
    those come first whose bounds are least. Raises what ``default_tile`` raises.
    """
    asked = 1 if splits is None else splits
    found: dict[int, list[ComparedTile]] = {}
    parts: dict[int, list[ComparedTile]] = {}
    failed: dict[int, PipelinerError] = {}
    tries: list[tuple[float, int, Request, list[_Tile]]] = []
    every = tiles_tried(workload, machine, instruction, accumulate)
    for at, (what, tile, request) in enumerate(every):
        counts = worthwhile_splits(what, tile, machine) if splits is None else ()
        try:
            tiles = [_tile(what, replace(tile, splits=count)) for count in (asked, *counts)]
        except PipelinerError as err:  # it has not that many parts
            failed[at] = err
        else:
            least = min(least_us(info, machine, request) for _, _, info in tiles)
            tries.append((least, at, request, tiles))
    fastest = math.inf
    for least, at, request, (whole, *split) in sorted(tries, key=lambda one: one[:2]):
        if least > fastest * within:
            break
        try:
            found[at] = _planned(whole, machine, request)
            fastest = min([fastest, *(one.us for one in found[at])])
            for part in split:
                parts.setdefault(at, []).extend(_planned(part, machine, request))
        except PipelinerError as err:  # what is demanded does not fit this tile, or these parts
            failed[at] = err
    compared = tuple(one for at in sorted(found) for one in found[at])
    if not compared:
        why = failed[max(failed)] if failed else None
        if why is not None and instruction != "auto":
            raise why
        reason = Reason("tile.no_plan") if why is None else why.reason
        name, where = workload.name, machine.name
        if asked > 1:
            raise WorkloadError(
                "tile.none_split", workload=name, splits=asked, machine=where, why=reason
            )
        raise WorkloadError("tile.none", workload=name, machine=where, why=reason)
    split_k = tuple(one for at in sorted(parts) for one in parts[at])
    return ComparedTiles(machine, compared, split_k)


_Tile: TypeAlias = tuple[GemmTile, int, KernelInfo]
"""A tile to compare, how many there are of it, and what recognition will find."""


def _tile(what: Contraction, tile: GemmTile) -> _Tile:
    return tile, tiles_of(what, tile), contraction_info(what, tile)


def _planned(compared: _Tile, machine: Machine, request: Request) -> list[ComparedTile]:
    """A tile with the time of what it makes; nothing where it makes nothing.

    Nor where its grid is one of whole clusters, and there are none: empty tiles then serve nobody.
    """
    tile, tiles, info = compared
    plan = Ranking(info, machine, request, accelerated=False).best().plan
    if not plan.matmuls or plan.predicted_us <= 0.0:
        return []
    if tile.grid_multiple != (1, 1) and plan.cluster == 1:
        return []
    depth = min((channel.depth for channel in plan.mbarriers), default=0)
    box = max((store.box[1] for store in plan.stores), default=0)
    return [ComparedTile(tile, plan.predicted_us, depth, tiles, box)]


def _best(found: Sequence[ComparedTile], machine: Machine) -> ComparedTile:
    """The fastest tile; among about equally fast ones with mbarriers, the deepest, the widest box.

    Among tiles whose CTAs are one wave, those that waste least, keep most SMs busy and copy least
    come first: memory bounds them all, and their predictions differ by less than 2 %. On an H100
    16 x 4096 x 4096 took 18.5 us in tiles of 16 x 64 and 20.2 us in 64 x 32; 256 x 256 x 65536 took
    35.1 us in 16 splits of 64 x 128 and 47.7 us in 8 splits of 64 x 64.
    """
    best = min(found, key=lambda one: (one.us, -one.tile.m * one.tile.n * one.tile.k))
    if best.depth == 0:
        return best
    if best.is_one_wave(machine):
        wave = [one for one in found if one.depth and one.ctas <= machine.sms]
        alike = [one for one in wave if one.us <= best.us * (1 + SAME_WAVE)]
        least = min(one.computed for one in alike) * (1 + SAME_WAVE)
        thrifty = max(_thrift(one) for one in alike if one.computed <= least)
        found = [one for one in alike if one.computed <= least and _thrift(one) == thrifty]
        best = min(found, key=lambda one: one.us)
    equal = [one for one in found if one.depth and one.us <= best.us * (1 + SAME_TIME)]
    return max(equal, key=lambda one: (one.depth, one.box, -one.us))


def _thrift(one: ComparedTile) -> tuple[int, float]:
    """CTAs, and multiply-adds for each element that they copy."""
    return one.ctas, one.tile.m * one.tile.n / (one.tile.m + one.tile.n)


def _why_split(best: ComparedTile, whole: ComparedTile, machine: Machine) -> Reason:
    """Why a reduction is split, in numbers."""
    return Reason(
        "split.faster",
        tiles=best.tiles,
        busy=best.tiles / (math.ceil(best.tiles / machine.sms) * machine.sms),
        sms=machine.sms,
        us=best.us,
        whole_us=whole.us,
        whole=f"{whole.tile.m}x{whole.tile.n}x{whole.tile.k}",
    )
