"""The space of a workload: every tile, and around the promising ones every choice of the plan.

Each point is a candidate with what the model predicts of it. Candidates that come to the same
kernel (a depth that is asked for and would be chosen anyway) are one point.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from ..diagnostics import Why
from ..errors import PipelinerError, WorkloadError
from ..instructions.table import multiplied_by
from ..instructions.wgmma import CONSUMERS, ROWS
from ..machine import Machine
from ..mechanisms.stores import is_staged
from ..mechanisms.table import have_producer, moved_by
from ..plan import KernelPlan, MatmulPlan
from ..plan.request import Request
from ..records.candidate import Candidate
from ..schedules import Conv, ConvTile, DepthwiseTile, Gemm, GemmTile
from ..schedules.choice import compare_tiles, tiles_of
from ..schedules.closed_form import kernel_info, typical
from ..schedules.tiles import divisor
from ..schedules.workloads import Spec
from ..space import axes
from ..space.ranking import choose

Features: TypeAlias = "tuple[float, ...]"

HOPELESS: Final = 2.0
"""Predicted time over the best from which a tile is no point: the model is not that far off."""

VARIED: Final = 40
"""Tiles, the best predicted, of which each choice of the plan is varied."""

CROSSED: Final = 6
"""Tiles of which pairs of choices are varied too."""

USUAL_DEPTH: Final = 6
"""Up to this all are tried: of a convolution with few channels, 1 was fastest on an H100, not 4."""

GROUPS: Final = (1, 4, 8, 16, 32)
SPLITS: Final = (1, 2, 3, 4, 6, 8)

DEPTHWISE: Final = ((1, 2, 4, 8), (1, 2, 4, 8), (64, 128, 256))
"""Pixels and channels of a thread, threads of a CTA."""

_WARPS: Final = 4
"""Of a warpgroup."""

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
    if isinstance(spec, Conv) and spec.depthwise and spec.channels_last:
        return _depthwise(spec)
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
    plan = _plan(spec, machine, candidate)
    return Point(candidate, plan.predicted_us, _features(candidate.tile, plan))


def variants(
    spec: Spec, machine: Machine, candidate: Candidate, at_once: int = 1
) -> Iterator[Candidate]:
    """``candidate`` with up to ``at_once`` choices made otherwise; not all of them are possible."""
    tile = candidate.tile
    assert isinstance(tile, GemmTile)
    try:
        plan = _plan(spec, machine, candidate)
    except PipelinerError:
        return
    info = kernel_info(spec, tile)
    choices: list[list[tuple[str, Any]]] = [
        [("depth", depth) for depth in _depths(plan)],
        [("k", k) for k in _longer(tile, plan)],
        [("mechanism", name) for name in axes.mechanisms(plan, machine)],
        [("store", name) for name in axes.stores(plan)],
        [("cluster", size) for size in (axes.clusters(info) if plan.roles else ())],
        [("roles", 0)] if plan.roles else [],
        [("consumers", name) for name in (_consumers(plan) if tile.persistent is not None else ())],
        [("warps", warps) for warps in _warps(spec, plan)],
        [("raster_group", group) for group in GROUPS],
        [("splits", parts) for parts in (SPLITS if tile.persistent is None else ())],
        [("persistent", ctas) for ctas in ((None, machine.sms) if tile.splits == 1 else ())],
    ]
    for count in range(1, at_once + 1):
        for some in itertools.combinations(choices, count):
            for made in itertools.product(*some):
                yield _changed(candidate, dict(made))


def _tiles(spec: Spec, machine: Machine) -> list[Candidate]:
    """The tiles that are worth a thought, each by each instruction, the best predicted first."""
    failed: Why = ""
    times: dict[Candidate, float] = {}
    for instruction in axes.instructions(machine, exact=spec.types.dtype == "float32"):
        asked = Request(instruction=instruction)
        try:
            whole, parts = compare_tiles(spec, machine, instruction)
        except PipelinerError as err:
            failed = err.reason
            continue
        for one in (*whole, *parts):
            times.setdefault(Candidate(replace(one.tile, why=""), asked), one.us)
    if not times:
        raise WorkloadError("tune.no_tile", workload=spec.name, machine=machine.name, why=failed)
    most = HOPELESS * min(times.values())
    return sorted((one for one in times if times[one] <= most), key=lambda one: times[one])


def _enter(found: dict[Any, Point], spec: Spec, machine: Machine, candidate: Candidate) -> None:
    """Add a candidate's point, where it is possible, predicted and not there yet."""
    try:
        plan = _plan(spec, machine, candidate)
    except PipelinerError:
        return
    if plan.predicted_us <= 0.0 or not plan.matmuls:
        return
    tile = candidate.tile
    assert isinstance(tile, GemmTile)
    point = Point(candidate, plan.predicted_us, _features(tile, plan))
    found.setdefault(_outcome(_rasterised(spec, tile), plan), point)


def _plan(spec: Spec, machine: Machine, candidate: Candidate) -> KernelPlan:
    assert isinstance(candidate.tile, GemmTile)
    return choose(kernel_info(spec, candidate.tile), machine, candidate.request)


def _rasterised(spec: Spec, tile: GemmTile) -> GemmTile:
    """``tile`` without what makes no difference to the order in which tiles are computed.

    A group of rows is cut to a divisor of all rows, a column of tiles is one group however it is
    cut, and CTAs for more than all tiles have one each.
    """
    if isinstance(spec, Gemm):
        what = spec.contraction()
    else:
        assert isinstance(tile, ConvTile)
        what = tile.contraction(spec)
    m, n, _ = typical(what)
    down, across = math.ceil(m / tile.m), math.ceil(n / tile.n)
    group = divisor(down, tile.raster_group) if across > 1 else 1
    ctas = (
        tile.persistent
        if tile.persistent is not None and tile.persistent < tiles_of(what, tile)
        else None
    )
    return replace(tile, raster_group=group, persistent=ctas, why="")


def _outcome(tile: Any, plan: KernelPlan) -> Any:
    """What two candidates that come to the same kernel have in common."""
    return (
        tile,
        tuple((one.instruction, one.warps, one.swap_ab) for one in plan.matmuls),
        tuple((one.mechanism, one.multicast) for one in plan.copies),
        tuple(ring.depth for loop in plan.loops for ring in loop.rings),
        tuple(one.mechanism for one in plan.stores),
        tuple((one.threads, one.ping_pong_groups) for one in plan.roles),
        plan.cluster,
    )


def _depth(plan: KernelPlan) -> int:
    return max((ring.depth for loop in plan.loops for ring in loop.rings), default=1)


def _depths(plan: KernelPlan) -> Iterable[int]:
    depth = _depth(plan)
    return [other for other in range(1, max(USUAL_DEPTH, depth + 2) + 1) if other != depth]


def _longer(tile: GemmTile, plan: KernelPlan) -> Iterable[int]:
    """Twice the step of FMA tiles: 128x128x16 was 6 % faster than the 128x128x8 that is chosen."""
    return [2 * tile.k] if any(multiplied_by(one).thread_tile for one in plan.matmuls) else []


def _consumers(plan: KernelPlan) -> Iterable[str]:
    """The other way to share tiles, in a warp-specialised kernel."""
    own = "ping-pong" if plan.ping_pong_groups > 1 else "cooperative"
    return [other for other in axes.consumers(plan) if other != own]


def _warps(spec: Spec, plan: KernelPlan) -> Iterable[tuple[int, int]]:
    """Other ways to share a tile out among warps; pixels among warpgroups, the other way round.

    On an H100 the filters of 192 pixels by 128 channels as rows of the instruction took 3 % less
    than as its columns with 3 x 3 filters and steps of two, 2 % less with 28 x 28 pixels.
    """
    if len(plan.matmuls) != 1:
        return ()
    if multiplied_by(plan.matmuls[0]).warpgroup_wide:
        other = None if isinstance(spec, Gemm) else _transposed(plan.matmuls[0])
        return [] if other is None else [other]
    shapes = [(2**m, 2**n) for m in range(4) for n in range(4) if 2 <= m + n <= 3]
    return [shape for shape in shapes if shape != plan.matmuls[0].warps]


def _transposed(plan: MatmulPlan) -> tuple[int, int] | None:
    """Warps of a wgmma tile whose rows run along its other dimension; None: it is no multiple."""
    extent = plan.m if plan.swap_ab else plan.n
    groups, rest = divmod(extent, ROWS)
    if rest or groups > max(CONSUMERS):
        return None
    return (groups * _WARPS, 1) if plan.swap_ab else (1, groups * _WARPS)


def _changed(candidate: Candidate, made: dict[str, Any]) -> Candidate:
    ours = {name: value for name, value in made.items() if hasattr(candidate.tile, name)}
    # Warps are a hint of the tile and an option of the request alike: one place is enough.
    asked = {name: made[name] for name in made if name not in ours or name == "warps"}
    ours.pop("warps", None)
    return Candidate(replace(candidate.tile, **ours), replace(candidate.request, **asked))


def _features(tile: Any, plan: KernelPlan) -> Features:
    kinds = [multiplied_by(one) for one in plan.matmuls]
    warps = plan.matmuls[0].warps if plan.matmuls else (1, 1)
    return (
        *(math.log2(extent) for extent in (tile.m, tile.n, tile.k)),
        math.log2(tile.splits),
        math.log2(tile.raster_group) / 2,
        FAR * (tile.persistent is not None),
        FAR * getattr(tile, "fold", False),
        FAR * any(kind.warpgroup_wide for kind in kinds),
        FAR * any(kind.thread_tile for kind in kinds),
        FAR * have_producer(plan.copies),
        FAR * any(moved_by(copy).through_registers for copy in plan.copies),
        FAR * (plan.ping_pong_groups if plan.roles else 0),
        0.5 * any(is_staged(store) for store in plan.stores),
        math.log2(plan.cluster),
        math.log2(_depth(plan)),
        math.log2(warps[0] / warps[1]) / 2,
    )


def _depthwise(spec: Conv) -> list[Point]:
    """Tiles of a depthwise convolution, of which the model predicts nothing."""
    points = []
    for pixels, vector, threads in itertools.product(*DEPTHWISE):
        if spec.k % vector == 0 and spec.pixels % pixels == 0:
            tile = DepthwiseTile(pixels, vector, threads)
            points.append(Point(Candidate(tile), 0.0, _depthwise_features(tile)))
    return points


def _depthwise_features(tile: DepthwiseTile) -> Features:
    return tuple(math.log2(extent) for extent in (tile.pixels, tile.vector, tile.threads))
