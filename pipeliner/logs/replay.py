"""What a search finds in so many trials, by a log: the tuner's own order, replayed on its times.

The space is what the log has of a workload. As many trials are under way at once as when it is
tuned on a machine with many cores: a trial is chosen before those just before it are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..tuning.search import ENOUGH, Search
from ..tuning.session import at_once
from ..tuning.space import Point, point_planned
from .cases import Case
from .regret import regret

JOBS: Final = 15
"""Processes that compile: all cores of a machine of 16 but one."""

TRIALS: Final = (4, 8, 16, 32, 64)


def shares(found: Sequence[Case], trials: Sequence[int] = TRIALS) -> tuple[float, ...]:
    """Speed of the best of so many trials beside the best measured, for each of ``trials``."""
    points = [_point(case) for case in found]
    return tuple(_share(found, replay(points, _times(found), count)) for count in trials)


def stopped(found: Sequence[Case]) -> tuple[int, float]:
    """After how many trials ``tune`` stops by itself, and the share of the best that it has."""
    tried = replay([_point(case) for case in found], _times(found), len(found), stops=True)
    return len(tried), _share(found, tried)


def replay(
    points: Sequence[Point], times: Sequence[float], trials: int, *, stops: bool = False
) -> list[int]:
    """The points that a search of ``trials`` tries, by number, in the order they are measured.

    ``stops``: it ends once nothing better is likely to be left.
    """
    search = Search(points)
    number = {point.candidate: at for at, point in enumerate(points)}
    limit = at_once(trials, JOBS, 1)
    under_way: list[int] = []
    tried: list[int] = []
    enough = False
    while True:
        free = min(limit - len(under_way), trials - len(tried) - len(under_way))
        waiting = [points[at].candidate for at in under_way]
        if not enough and free > 0 and (chosen := search.next(1, waiting)):
            under_way.append(number[chosen[0].candidate])
        elif under_way:
            tried.append(under_way.pop(0))
            search.tell(points[tried[-1]].candidate, times[tried[-1]])
            enough = enough or (stops and search.chance() < ENOUGH)
        else:
            return tried


def _point(case: Case) -> Point:
    return point_planned(case.spec, case.machine, case.candidate, case.plan)


def _times(found: Sequence[Case]) -> list[float]:
    """In the rounds that all candidates of the workload took."""
    return [case.us for case in found]


def _share(found: Sequence[Case], tried: Sequence[int]) -> float:
    """Of the fastest of those tried; the fresh rounds decide among candidates that had them."""
    fresh = [at for at in tried if found[at].again]
    best = min(fresh or tried, key=lambda at: found[at].best_us)
    return 1 / regret(found[best], found)
