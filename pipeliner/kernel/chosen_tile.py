"""Choose the tile of a workload: the best predicted one that lowers as it is predicted.

What a tile needs is predicted from its sizes. The passes may find that it needs more, such as
registers of a thread or shared memory; they then make a slower kernel of it than was predicted, and
another tile is better.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Final

from ..diagnostics import Reason, Why, all_of
from ..errors import PipelinerError
from ..machine import machine_for
from ..plan.request import Request
from ..schedules.choice import ranked_tiles
from ..schedules.scheduled import scheduled
from ..schedules.tiles import ChosenTile
from ..schedules.workloads import Spec
from ..space.ranking import refusals
from ..values.failure import refusal
from .building import pipeline_with
from .compiled import plan_of

AS_PREDICTED: Final = 0.02
"""Relative time by which a kernel may be slower than its tile was predicted to be."""

MOST_LOWERED: Final = 12
"""Tiles of a workload that are lowered before the best of them is taken."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A tile, and why better predicted ones are not taken (empty: there are none)."""

    tile: ChosenTile
    why: Why = ""


def chosen_tile(spec: Spec, target: Any, request: Request, splits: int | None = None) -> Chosen:
    """The tile that is taken of ``spec`` where nothing was measured.

    The first of ``ranked_tiles`` that lowers as it is predicted, or of ``MOST_LOWERED`` the one of
    the fastest kernel. Where more is asked for than tiles are predicted with, such as a depth, the
    first: kernels of several depths are then of one tile. ``splits``: as for ``default_tile``.
    Raises what ``default_tile`` raises, and what the best tile raises where none lowers.
    """
    asked = (request.instruction, splits, request.accumulate)
    ranked = ranked_tiles(spec, machine_for(target), *asked)
    if request != Request(instruction=request.instruction, accumulate=request.accumulate):
        return Chosen(next(ranked)[0])
    made: dict[ChosenTile, float] = {}
    passed: dict[ChosenTile, Why] = {}
    failed: PipelinerError | None = None
    for tile, us in itertools.islice(ranked, MOST_LOWERED):
        if us > min(made.values(), default=math.inf):
            break  # what was lowered is faster
        try:
            plan = plan_of(pipeline_with(scheduled(spec, tile), target, request))
        except PipelinerError as err:
            failed = failed or err
            passed[tile] = _passed(tile, us, refusal(err))
            continue
        made[tile] = plan.predicted_us if plan.predicted_us or not us else math.inf
        if not us or made[tile] <= us * (1 + AS_PREDICTED):
            break
        slower = (
            Reason("tile.slower", us=made[tile]) if plan.predicted_us else Reason("tile.untimed")
        )
        why = next(iter(refusals(plan).values()), slower)
        passed[tile] = _passed(tile, us, why)
    if not made and failed is not None:
        raise failed
    best = min(made, key=lambda one: made[one])
    return Chosen(best, all_of(why for tile, why in passed.items() if tile != best))


def _passed(tile: ChosenTile, us: float, why: Why) -> Reason:
    """Why ``tile`` is not taken, of which ``us`` were predicted."""
    sizes = tuple(getattr(tile, name) for name in "mnk" if hasattr(tile, name))
    passed = Reason("tile.passed", tile=sizes, us=us, why=why)
    splits = getattr(tile, "splits", 1)
    return passed if splits == 1 else Reason("tile.passed_split", splits=splits, passed=passed)
