"""The space of a workload: every tile, and around the promising ones every choice of the plan.

What there is to choose is read from the plan space (``space/``) and from that of tiles
(``schedules/tile_space.py``). Each point is a candidate with what the model predicts of it.
Candidates that come to the same kernel (a depth that is asked for and would be chosen anyway) are
one point.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from ..diagnostics import Why
from ..errors import PipelinerError, WorkloadError
from ..instructions.table import multiplied_by
from ..machine import Machine
from ..mechanisms.stores import is_staged
from ..mechanisms.table import have_producer, moved_by
from ..plan import KernelPlan
from ..plan.request import Instruction, Request
from ..records.candidate import Candidate
from ..schedules import (
    AttentionTile,
    Conv,
    ConvInputGrad,
    ConvWeightGrad,
    DepthwiseTile,
    GemmTile,
    GroupTile,
    RowTile,
    default_tile,
)
from ..schedules.channelwise import (
    depthwise_tiles,
    has_weight_regions,
    is_depthwise,
    weights_tiles,
)
from ..schedules.closed_form import kernel_info
from ..schedules.compared import compare_loops, compare_tiles
from ..schedules.grouped import group_tiles, group_us
from ..schedules.tile_space import ordered_us, rasterised, tile_neighbours
from ..schedules.tiles import LoopTile
from ..schedules.workloads import LOOPS, Spec
from ..space.neighbours import crossed, depth_of, instructions, neighbours
from ..space.ranking import Ranking

Features: TypeAlias = "tuple[float, ...]"

HOPELESS: Final = 2.0
"""Predicted time over the best from which a tile is no point: the model is not that far off."""

VARIED: Final = 40
"""Tiles, the best predicted, of which each choice of the plan is varied."""

CROSSED: Final = 6
"""Tiles of which pairs of choices are varied too."""

FAR: Final = 2.0
"""Distance between features of different kinds; of a factor of two it is 1."""


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate, its predicted time (0: nothing is predicted of it) and where it lies.

    Points whose ``features`` are close are expected to be mispredicted alike.
    """

    candidate: Candidate
    predicted_us: float
    features: Features


def space(spec: Spec, machine: Machine) -> list[Point]:
    """The points of a workload, the fastest predicted first; WorkloadError: there are none."""
    if isinstance(spec, (Conv, ConvInputGrad)) and is_depthwise(spec):
        return _depthwise(depthwise_tiles(spec))
    if isinstance(spec, ConvWeightGrad) and has_weight_regions(spec):
        return _depthwise(weights_tiles(spec))
    if isinstance(spec, Conv) and isinstance(default_tile(spec, machine), GroupTile):
        return _groups(spec, machine)
    tiles = _tiles(spec, machine)
    found: dict[Any, Point] = {}
    for candidate in tiles:
        _enter(found, spec, machine, candidate)
    seen = set(tiles)
    for at, varied in enumerate(tiles[:VARIED]):
        for candidate in variants(spec, machine, varied, 2 if at < CROSSED else 1):
            if candidate not in seen:
                seen.add(candidate)
                _enter(found, spec, machine, candidate)
    return sorted(found.values(), key=lambda point: point.predicted_us)


def point_of(spec: Spec, machine: Machine, candidate: Candidate) -> Point:
    """The point of one candidate; raises what choosing its plan raises."""
    if isinstance(candidate.tile, DepthwiseTile):
        return Point(candidate, 0.0, _depthwise_features(candidate.tile))
    if isinstance(candidate.tile, GroupTile):
        assert isinstance(spec, Conv)
        return _group(spec, machine, candidate.tile)
    return point_planned(spec, machine, candidate, _plan(spec, machine, candidate))


def point_planned(spec: Spec, machine: Machine, candidate: Candidate, plan: KernelPlan) -> Point:
    """The point of a candidate with its plan, whose tiles may be computed in a worse order."""
    tile, us = candidate.tile, plan.predicted_us
    if isinstance(tile, GemmTile):
        us = ordered_us(spec, tile, machine, us)
    return Point(candidate, us, _features(tile, plan))


def variants(
    spec: Spec, machine: Machine, candidate: Candidate, at_once: int = 1
) -> Iterator[Candidate]:
    """``candidate`` with up to ``at_once`` choices made otherwise; not all of them are possible."""
    tile = candidate.tile
    assert isinstance(tile, (GemmTile, AttentionTile, RowTile))
    ranking = _ranking(spec, machine, tile, candidate.request)
    best = ranking.best()
    try:
        plan = best.plan
    except PipelinerError:
        return
    choices = list(neighbours(ranking, best))
    if isinstance(tile, GemmTile):
        choices += tile_neighbours(spec, tile, machine, plan)
    for made in crossed(choices, at_once):
        yield _changed(candidate, made)


def _tiles(spec: Spec, machine: Machine) -> list[Candidate]:
    """The tiles that are worth a thought, each by each instruction, the best predicted first."""
    failed: Why = ""
    times: dict[Candidate, float] = {}
    for instruction in instructions(machine, exact=spec.types.dtype == "float32"):
        asked = Request(instruction=instruction)
        try:
            compared = _compared(spec, machine, instruction)
        except PipelinerError as err:
            failed = err.reason
            continue
        for tile, us in compared:
            times.setdefault(Candidate(tile, asked), us)
    if not times:
        raise WorkloadError("tune.no_tile", workload=spec.name, machine=machine.name, why=failed)
    most = HOPELESS * min(times.values())
    return sorted((one for one in times if times[one] <= most), key=lambda one: times[one])


def _compared(
    spec: Spec, machine: Machine, instruction: Instruction
) -> list[tuple[GemmTile | LoopTile, float]]:
    """The tiles that the model compares, with their times."""
    if isinstance(spec, LOOPS):
        return list(compare_loops(spec, machine, instruction).items())
    compared = compare_tiles(spec, machine, instruction)
    return [(replace(one.tile, why=""), one.us) for one in (*compared.whole, *compared.parts)]


def _enter(found: dict[Any, Point], spec: Spec, machine: Machine, candidate: Candidate) -> None:
    """Add a candidate's point, where it is possible, predicted and not there yet."""
    try:
        plan = _plan(spec, machine, candidate)
    except PipelinerError:
        return
    if plan.predicted_us <= 0.0 or not plan.matmuls:
        return
    tile = candidate.tile
    point = point_planned(spec, machine, candidate, plan)
    same = rasterised(spec, tile) if isinstance(tile, GemmTile) else tile
    found.setdefault((same, outcome_of(plan)), point)


def _plan(spec: Spec, machine: Machine, candidate: Candidate) -> KernelPlan:
    assert isinstance(candidate.tile, (GemmTile, AttentionTile, RowTile))
    return _ranking(spec, machine, candidate.tile, candidate.request).best().plan


def _ranking(spec: Spec, machine: Machine, tile: GemmTile | LoopTile, request: Request) -> Ranking:
    return Ranking(kernel_info(spec, tile), machine, request)


def outcome_of(plan: KernelPlan) -> Any:
    """What two requests that come to the same kernel have in common."""
    return (
        tuple((one.instruction, one.warps, one.swap_ab) for one in plan.matmuls),
        tuple((one.mechanism, one.multicast) for one in plan.copies),
        tuple(ring.depth for loop in plan.loops for ring in loop.rings),
        tuple(one.mechanism for one in plan.stores),
        tuple((one.threads, one.ping_pong_groups) for one in plan.roles),
        plan.cluster,
    )


def _changed(candidate: Candidate, made: dict[str, Any]) -> Candidate:
    ours = {name: value for name, value in made.items() if hasattr(candidate.tile, name)}
    # Warps are a hint of the tile and an option of the request alike: one place is enough.
    asked = {name: made[name] for name in made if name not in ours or name == "warps"}
    ours.pop("warps", None)
    return Candidate(replace(candidate.tile, **ours), replace(candidate.request, **asked))


def _features(tile: Any, plan: KernelPlan) -> Features:
    warps = plan.matmuls[0].warps if plan.matmuls else (1, 1)
    if isinstance(tile, AttentionTile):
        extents = (tile.m, tile.n, tile.splits)
        walks = FAR * (tile.persistent is not None)
        return (*map(math.log2, extents), FAR * tile.grouped, walks, *features_of(plan))
    if isinstance(tile, RowTile):
        return (math.log2(tile.m), math.log2(tile.n), *features_of(plan))
    return (
        *(math.log2(extent) for extent in (tile.m, tile.n, tile.k)),
        math.log2(tile.splits),
        math.log2(tile.raster_group) / 2,
        FAR * (tile.persistent is not None),
        FAR * getattr(tile, "fold", False),
        *features_of(plan),
        math.log2(warps[0] / warps[1]) / 2,
    )


def features_of(plan: KernelPlan) -> Features:
    """Where the choices of a plan lie, whatever its tile."""
    kinds = [multiplied_by(one) for one in plan.matmuls]
    return (
        FAR * any(kind.warpgroup_wide for kind in kinds),
        FAR * any(kind.thread_tile for kind in kinds),
        FAR * have_producer(plan.copies),
        FAR * any(moved_by(copy).through_registers for copy in plan.copies),
        FAR * (plan.ping_pong_groups if plan.roles else 0),
        0.5 * any(is_staged(store) for store in plan.stores),
        math.log2(plan.cluster),
        math.log2(depth_of(plan)),
    )


def _depthwise(tiles: Iterable[DepthwiseTile]) -> list[Point]:
    """Tiles of a depthwise convolution, or a gradient, of which the model predicts nothing."""
    return [Point(Candidate(tile), 0.0, _depthwise_features(tile)) for tile in tiles]


def _groups(spec: Conv, machine: Machine) -> list[Point]:
    """Tiles of a convolution of small groups, where they are faster than those of a matmul."""
    points = [_group(spec, machine, tile) for tile in group_tiles(spec)]
    return sorted(points, key=lambda point: point.predicted_us)


def _group(spec: Conv, machine: Machine, tile: GroupTile) -> Point:
    features = (math.log2(tile.rows), math.log2(tile.pixels), math.log2(tile.channels))
    return Point(Candidate(tile), group_us(spec, tile, machine), features)


def _depthwise_features(tile: DepthwiseTile) -> Features:
    extents = (tile.pixels, tile.vector, tile.threads, max(1, tile.rows))
    return tuple(math.log2(extent) for extent in extents)
