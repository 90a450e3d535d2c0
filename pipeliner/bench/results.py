"""What was measured, and what follows from it: ratios, their mean, claims."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from dataclasses import dataclass, field
from typing import Any, Final

from ..diagnostics import Why
from ..measuring import WRITTEN, Conditions
from ..records.record import OURS

OURS_PLAIN: Final = "pipeliner, depth 1"
CUBLAS: Final = "cuBLAS"
CUDNN: Final = "cuDNN"
STOCK_PREFIX: Final = "TVM stock"
TRITON: Final = "Triton"
TORCH: Final = "torch.compile"
TORCH_GROUPED: Final = "torch._grouped_mm"
TORCH_PACKED: Final = "torch._weight_int4pack_mm"
SDPA: Final = "SDPA"

LIBRARIES: Final = (CUBLAS, CUDNN)
"""The vendor's own; one of them has any workload."""

EVERY_ALGORITHM: Final = f"{CUBLAS}, every algorithm"
EVERY_ENGINE: Final = f"{CUDNN}, every engine"

SEARCHED: Final = (EVERY_ALGORITHM, EVERY_ENGINE)
"""Libraries of which the fastest of all that they offer is taken."""

BEST: Final = "the vendor's best"
"""Stands for the fastest of ``LIBRARIES``, however it was called."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one contender did on one problem.

    Times are microseconds: the median and the quartiles of ``rounds`` runs. ``worst``: the largest
    error over what rounding allows. ``failure``: why there is no time. ``workload``:
    the problem in words. ``hot_us``: of a call where calls follow each other, where asked for;
    ``not_hot``: why there is none.
    """

    problem: str
    contender: str
    us: float = 0.0
    low_us: float = 0.0
    high_us: float = 0.0
    rounds: int = 0
    tflops: float = 0.0
    worst: float = 0.0
    detail: str = ""
    failure: Why = ""
    workload: str = ""
    hot_us: float = 0.0
    not_hot: Why = ""

    @property
    def noise(self) -> float:
        """Interquartile range of its times over their median."""
        return (self.high_us - self.low_us) / self.us


@dataclass(frozen=True, slots=True)
class Claim:
    """A ratio worth stating, with the least that is acceptable and what is aimed at.

    ``at_most``: the value is a bound from above (a time), not from below.
    """

    name: str
    value: float
    floor: float
    goal: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether the floor is reached."""
        return self.value <= self.floor if self.at_most else self.value >= self.floor


def faster(
    name: str, ours: Result | None, theirs: Result | None, floor: float, goal: float
) -> list[Claim]:
    """The claim that one rate is so many times another; none where one of them has no time."""
    if ours is None or theirs is None:
        return []
    return [Claim(name, ours.tflops / theirs.tflops, floor, goal)]


@dataclass(frozen=True, slots=True)
class SpeedSummary:
    """Our speed over a peer's, over all problems that both ran: above 1 is faster.

    ``worst``: the problem with the smallest ratio. ``missing``: problems without a ratio. ``hot``:
    of calls back to back.
    """

    peer: str
    geometric_mean: float
    minimum: float
    worst: str
    problems: int
    missing: tuple[str, ...]
    hot: bool = False


@dataclass
class Report:
    """What has been measured so far; complete unless ``interrupted``.

    ``suite``: the name of the problems as a whole. ``sm_clocks``: MHz right after the rounds of a
    problem, where they could be read. ``roofs``: microseconds that no kernel beats, by problem.
    ``flush``: what the L2 cache held before each run, of ``FLUSHES``.
    """

    device: str
    results: list[Result] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    interrupted: bool = False
    suite: str = ""
    rounds: int = 0
    conditions: Conditions | None = None
    sm_clocks: dict[str, int] = field(default_factory=dict)
    roofs: dict[str, float] = field(default_factory=dict)
    flush: str = WRITTEN

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems in the order in which they were measured."""
        return tuple(dict.fromkeys(result.problem for result in self.results))

    @property
    def measured(self) -> list[Result]:
        """The results that are a time."""
        return [result for result in self.results if not result.failure]

    @property
    def noise(self) -> float:
        """The median, over all results, of the interquartile range over the median time."""
        return statistics.median([result.noise for result in self.measured] or [0.0])

    def find(self, problem: str, contender: str) -> Result | None:
        """The result of a contender that ran and was right."""
        for result in self.measured:
            if (result.problem, result.contender) == (problem, contender):
                return result
        return None

    def best(self, problem: str, prefix: str, *, hot: bool = False) -> Result | None:
        """The fastest contender whose name starts with ``prefix``; ``hot``: back to back."""
        found = [
            result
            for result in self.measured
            if result.problem == problem and _is_of(result, prefix) and (result.hot_us or not hot)
        ]
        return min(found, key=lambda result: result.hot_us if hot else result.us, default=None)

    def library(self, problem: str) -> Result | None:
        """The fastest of the vendor's libraries; of attention PyTorch's fastest backend."""
        return self.best(problem, BEST) or self.best(problem, SDPA)

    @property
    def is_hot(self) -> bool:
        """Whether calls back to back were asked for."""
        return any(result.hot_us or result.not_hot for result in self.results)

    def peers(self) -> tuple[str, ...]:
        """The peers that ours is compared with, of those asked for: libraries first, depth 1 last.

        TVM's stock pipeline is one peer, at whichever depth is fastest; so is PyTorch's attention,
        by whichever backend, beside each of them.
        """
        names = {result.contender for result in self.results}
        backends = sorted(name for name in names if name.startswith(f"{SDPA},"))
        searched = any(name in SEARCHED for name in names)
        vendors = (BEST,) if searched else LIBRARIES
        of_torch = (TORCH, TORCH_GROUPED, TORCH_PACKED)
        order = (*vendors, SDPA, *backends, *of_torch, STOCK_PREFIX, TRITON, OURS_PLAIN)
        return tuple(peer for peer in order if any(_is_of(one, peer) for one in self.results))

    def ratio(
        self, problem: str, peer: str, contender: str = OURS, *, hot: bool = False
    ) -> float | None:
        """How many times as fast as ``peer`` a contender is; None where one of them has no time."""
        ours, theirs = self.find(problem, contender), self.best(problem, peer, hot=hot)
        if ours is None or theirs is None:
            return None
        if not hot:
            return theirs.us / ours.us
        return theirs.hot_us / ours.hot_us if ours.hot_us else None

    def summaries(self) -> list[SpeedSummary]:
        """Our ratios to each peer over all problems, where there is one at all."""
        made = []
        ways = (False, True) if self.is_hot else (False,)
        for peer, hot in itertools.product(self.peers(), ways):
            asked = [name for name in self.problems if self._asked(name, peer)]
            ratios = {name: self.ratio(name, peer, hot=hot) for name in asked}
            known = {name: value for name, value in ratios.items() if value is not None}
            if not known:
                continue
            worst = min(known, key=lambda name: known[name])
            missing = tuple(name for name in asked if name not in known)
            mean = statistics.geometric_mean(known.values())
            made.append(SpeedSummary(peer, mean, known[worst], worst, len(known), missing, hot))
        return made

    def as_dict(self) -> dict[str, Any]:
        """Everything, with the ratios and what they come to, of types that JSON has."""
        ratios = [
            {
                "problem": problem,
                "peer": peer,
                "ratio": self.ratio(problem, peer),
                "hot": self.ratio(problem, peer, hot=True),
            }
            for problem in self.problems
            for peer in self.peers()
            if self._asked(problem, peer)
        ]
        summaries = [dataclasses.asdict(summary) for summary in self.summaries()]
        rest = {"ratios": ratios, "summaries": summaries, "noise": self.noise}
        return {**dataclasses.asdict(self), **rest}

    def _asked(self, problem: str, peer: str) -> bool:
        return any(result.problem == problem and _is_of(result, peer) for result in self.results)


def _is_of(result: Result, peer: str) -> bool:
    """Whether a contender is ``peer`` or one of its ways: an algorithm, a backend, a depth."""
    return result.contender.startswith(LIBRARIES if peer == BEST else peer)
