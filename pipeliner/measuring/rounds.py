"""Time contenders in rounds, interleaved: the one loop in which everything is timed."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

ROUNDS: Final = 30
WARM_UP: Final = 3
FEWEST: Final = 5
"""Rounds before anything ends early."""

FLUSH_BYTES: Final = 512 * 1024 * 1024
"""Written before each timed run: more than the L2 cache of any GPU that is planned for, and long
enough (about 0.2 ms on an H100) that the launch is prepared before the GPU is done with it."""

WRITTEN: Final = "written"
READ: Final = "read"
FLUSHES: Final = (WRITTEN, READ)
"""What the L2 cache holds before a timed run: bytes that were just written, or read.

What was written goes to memory while the kernel that is timed runs, whose bytes take its place. One
that reads 34 MB and writes little, attention of one query, takes 17.9 us so and 15.1 us behind
reads (H200, 2026-11-23); a copy of a GiB is as fast either way.
"""

LAUNCH_PHASES: Final = 4
"""Of launches in a row, of any kernels, one takes 0.7 to 1 us longer (H200, 2026-11-30).

So a kernel of 5 us that is always as many launches behind the one before may always be the slow
one, or never. Fewer launches than these, as many as are drawn, go before each timed run: it is so
for all alike.
"""


@dataclass(frozen=True, slots=True)
class Rounds:
    """How many rounds are run, and when they end early, but for the ``fewest``.

    ``warm_up``: rounds before, untimed. ``seconds``: after so long. ``hopeless``: once the first
    contender takes so many times as long as another, by their medians. ``shuffled``: each round has
    an order of its own, where otherwise the order moves on by one: a long kernel's clock depends on
    the one before it. ``hot``: so many more rounds, behind the others, of calls back to back.
    ``primed``: each runs once more, untimed, before the L2 cache is overwritten, so that it finds
    the SMs as where few kernels alternate. 11 workloads of about 50 kernels took 0 to 9 % less so
    on an H200.
    """

    most: int = ROUNDS
    fewest: int = FEWEST
    warm_up: int = WARM_UP
    seconds: float = math.inf
    hopeless: float = math.inf
    shuffled: bool = False
    hot: int = 0
    primed: bool = False

    def order(self, number: int, count: int) -> list[int]:
        """In which round ``number`` runs so many contenders."""
        if self.shuffled:
            return random.Random(number).sample(range(count), count)
        return [(number + at) % count for at in range(count)]

    def is_over(self, times: Sequence[Sequence[float]], seconds: float) -> bool:
        """Whether no more is to be learnt after so long."""
        if min(map(len, times)) < self.fewest:
            return False
        ours, *others = map(statistics.median, times)
        return seconds > self.seconds or any(ours > self.hopeless * other for other in others)


def race(
    run_round: Callable[[Sequence[int]], Sequence[float]],
    times: Sequence[list[float]],
    rounds: Rounds,
) -> None:
    """Append each contender's microseconds to its list of ``times``, round by round.

    ``run_round``: runs the contenders of these numbers in order and returns what each took. An
    interrupt leaves what was measured.
    """
    started = time.monotonic()
    for number in range(-rounds.warm_up, rounds.most if times else -rounds.warm_up):
        order = rounds.order(number, len(times))
        took = run_round(order)
        if number < 0:
            continue
        for at, us in zip(order, took):
            times[at].append(us)
        if rounds.is_over(times, time.monotonic() - started):
            return


def flushing(torch: Any, kind: str) -> Callable[[], object]:
    """What takes the place of all that the L2 cache holds; ``kind``: of ``FLUSHES``.

    A few small launches go first, as many as are drawn: why, says ``LAUNCH_PHASES``.
    """
    memory = torch.empty(FLUSH_BYTES // 4, dtype=torch.float32, device="cuda")
    small = torch.empty(1, dtype=torch.float32, device="cuda")
    drawn = random.Random(0)

    def flush() -> None:
        for _ in range(drawn.randrange(LAUNCH_PHASES)):
            small.zero_()
        memory.zero_()
        if kind == READ:
            memory.sum(dim=0, keepdim=True)

    return flush


def timed(
    torch: Any,
    calls: Sequence[Callable[[], object]],
    before: Callable[[], object] | None = None,
    *,
    primed: bool = False,
) -> list[float]:
    """Microseconds of each call on the GPU, by events around it; ``before`` runs before each.

    Meanwhile the call is launched, so that one whose host takes longer than it is timed with its
    host. Each is waited for: work that is queued behind a kernel makes it 0.5 to 0.8 us longer, and
    noisier (H200, 2026-11-30).
    ``primed``: before that runs the call itself, untimed. 126 kernels of 5 to 20 us, each twice in
    two races of 20 rounds, have the same medians within 2.0 % (at most 14 %) where nothing is
    waited for and no launches are drawn, 1.2 % (10 %) with both, 0.9 % (8 %) primed as well.
    """
    events = []
    for call in calls:
        if primed:
            call()
        if before is not None:
            before()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        events.append((start, stop))
        if before is not None:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return [start.elapsed_time(stop) * 1e3 for start, stop in events]
