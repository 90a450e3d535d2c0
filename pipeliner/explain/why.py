"""Why a plan is as it is: the alternatives that were considered, each with its predicted time."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..diagnostics import Why
from ..errors import PipelinerError, PlanError
from ..kernel.building import pipeline_with, target_for
from ..kernel.compiled import plan_of
from ..kernel.refined import ranked
from ..machine import Machine, machine_for
from ..plan import KernelPlan
from ..plan.request import INSTRUCTIONS, Request
from ..records.measured import Measured, measured
from ..schedules.compared import ComparedTile, ComparedTiles, compare_tiles
from ..schedules.tiles import ConvTile, GemmTile
from ..schedules.workloads import LOOPS, Convolution, Gemm, Spec
from ..space.alternatives import (
    CandidateOption,
    DepthOption,
    LoopDepths,
    candidate_options,
    depth_options,
)

SHOWN_TILES: Final = 8


@dataclass(frozen=True, slots=True)
class TileOption:
    """A tile with the time of its kernel; ``form``: folded, by image or reordered, or empty.

    ``measured_us``: of the fastest kernel of that tile, where records have one.
    """

    m: int
    n: int
    k: int
    ctas: int | None
    splits: int
    form: str
    us: float
    chosen: bool = False
    measured_us: float | None = None
    why: Why = ""
    """The tie-break by which it is chosen, where another one is predicted to be faster."""

    @property
    def text(self) -> str:
        """The tile in short."""
        grid = f", {self.ctas} persistent CTAs" if self.ctas else ""
        splits = f", {self.splits} splits" if self.splits > 1 else ""
        return f"{self.m}x{self.n}x{self.k}{splits}{grid}{', ' * bool(self.form)}{self.form}"


@dataclass(frozen=True, slots=True)
class Alternatives:
    """What was considered for one kernel, each with its predicted time in microseconds.

    ``depths`` and ``candidates``, the ranked list that the plan was taken from, are of the kernel's
    own tile. ``declined``: the loops that are left alone, with their reasons. ``best_tiles``: for
    each instruction that is possible, the best of its own tiles. ``tiles``: the best ones, the
    fastest first, and the chosen one. ``splits``: the best tile of each number of parts. The last
    three are empty for a function of the user's own. ``measured``: of what records the measured
    times are, or empty. ``reasons``:
    what the plan says of itself, with what was passed over.
    """

    kernel: str
    machine: str
    predicted_us: float
    depths: tuple[LoopDepths, ...]
    candidates: tuple[CandidateOption, ...]
    declined: tuple[tuple[str, tuple[Why, ...]], ...] = ()
    best_tiles: tuple[tuple[str, TileOption], ...] = ()
    tiles: tuple[TileOption, ...] = ()
    splits: tuple[TileOption, ...] = ()
    measured: str = ""
    reasons: tuple[Why, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def alternatives(
    func: Any,
    target: Any,
    request: Request,
    spec: Spec | None = None,
    tile: GemmTile | None = None,
    splits: int | None = None,
    db: str | Path | None = None,
) -> Alternatives:
    """The alternatives to the plan of ``func``.

    ``spec``: the workload where it is one of ours, and ``tile`` that of a matmul, as scheduled in
    ``func``; ``splits``: of the reduction, as asked for. ``db``: records whose times
    stand beside the predicted ones, as for ``pipeliner.build``. PlanError where a plan is given: it
    was chosen elsewhere.
    """
    if request.plan is not None:
        raise PlanError("plan.why_given")
    plan = plan_of(pipeline_with(func, target, request))
    machine = machine_for(target)
    ranking = ranked(func, target, machine, request)
    found = Alternatives(
        kernel=plan.kernel,
        machine=plan.machine,
        predicted_us=plan.predicted_us,
        depths=depth_options(plan, ranking),
        candidates=candidate_options(plan, ranking),
        declined=tuple((loop.name, loop.reasons) for loop in plan.loops if not loop.pipelined),
        reasons=plan.reasons,
    )
    if spec is None or tile is None or isinstance(spec, LOOPS):
        return found
    options = _with_tiles(found, plan, spec, tile, machine, request, splits)
    return _with_times(options, measured(spec, target_for(target, request), plan, tile, db))


def _with_times(found: Alternatives, times: Measured) -> Alternatives:
    """``found`` with what was measured of it."""
    depths = tuple(
        replace(loop, depths=tuple(_timed(loop.loop, one, times) for one in loop.depths))
        for loop in found.depths
    )
    fastest: dict[TileOption, float] = {}
    for tile, us in times.tiles.items():
        same = _tile_option(tile, 0.0)
        fastest[same] = min(us, fastest.get(same, us))
    return replace(
        found,
        depths=depths,
        tiles=tuple(
            replace(one, measured_us=fastest.get(replace(one, us=0.0, chosen=False)))
            for one in found.tiles
        ),
        measured=times.source,
    )


def _timed(loop: str, option: DepthOption, times: Measured) -> DepthOption:
    return replace(option, measured_us=times.depths.get((loop, option.slots)))


def _with_tiles(
    found: Alternatives,
    plan: KernelPlan,
    spec: Gemm | Convolution,
    tile: GemmTile,
    machine: Machine,
    request: Request,
    splits: int | None,
) -> Alternatives:
    best: list[tuple[str, TileOption]] = []
    for name in INSTRUCTIONS:
        if name == "auto" or request.instruction not in ("auto", name):
            continue
        try:
            compared = compare_tiles(spec, machine, name, splits)
        except PipelinerError:  # the table of instructions has the reason
            continue
        best.append((name, _option(compared.fastest, tile)))
    compared = compare_tiles(spec, machine, request.instruction, splits)
    tie = compared.tie_break(tile)
    options = [
        replace(option, why=tie or "") if option.chosen else option
        for option in _ranked(compared, tile)
    ]
    if not any(option.chosen for option in options):
        options = [*options, replace(_tile_option(tile, plan.predicted_us), chosen=True)]
    shown = [option for at, option in enumerate(options) if at < SHOWN_TILES or option.chosen]
    counts = sorted({option.splits for option in options})
    fastest = [min((o for o in options if o.splits == n), key=lambda o: o.us) for n in counts]
    return replace(found, best_tiles=tuple(best), tiles=tuple(shown), splits=tuple(fastest))


def _ranked(compared: ComparedTiles, tile: GemmTile) -> list[TileOption]:
    """Tiles by time, each once: how they are grouped is no part of it."""
    fastest: dict[TileOption, TileOption] = {}
    for one in sorted((*compared.whole, *compared.parts), key=lambda one: one.us):
        option = _option(one, tile)
        fastest.setdefault(replace(option, us=0.0), option)
    return list(fastest.values())


def _option(one: ComparedTile, tile: GemmTile) -> TileOption:
    same = replace(one.tile, raster_group=tile.raster_group) == tile
    return replace(_tile_option(one.tile, one.us), chosen=same)


def _tile_option(tile: GemmTile, us: float) -> TileOption:
    said = [("reordered", tile.reordered)]
    if isinstance(tile, ConvTile):
        folded = f"runs folded, {tile.phases} phases" if tile.phases > 1 else "runs folded"
        said = [(folded, tile.fold), ("by image", tile.by_image), *said]
    form = ", ".join(word for word, holds in said if holds)
    return TileOption(tile.m, tile.n, tile.k, tile.persistent, tile.splits, form, us)
