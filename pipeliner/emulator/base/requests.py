"""What a running program asks of the scheduler: to wait, to divide, to be preempted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...diagnostics import Reason

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Barrier:
    """Threads arrive at barrier ``number`` of their CTA for ``count`` threads (None: all of it).

    Those that ``wait`` go on when the last has arrived; the others (bar.arrive) at once.
    """

    tids: Array
    at: tuple[int, ...]
    number: int = 0
    count: int | None = None
    aligned: bool = True  # __syncthreads: every thread must arrive at the same statement
    wait: bool = True


@dataclass(frozen=True)
class Wait:
    """Threads wait until ``attempt()`` succeeds; answered True, or False if they gave up.

    ``describe()`` says for what, ``key`` names what asynchronous copies must complete for it.
    ``patient`` ones never give up; the others (try_wait) do when nothing else can move.
    ``outside``: threads of other clusters may end it.
    """

    tids: Array
    event: int
    attempt: Callable[[], bool]
    describe: Callable[[], Reason]
    keys: tuple[Hashable, ...] = ()
    patient: bool = True
    outside: bool = False


@dataclass(frozen=True)
class Spin:
    """A loop that reads memory comes round: it may wait for others to write that.

    It goes on at once unless others can. ``state()``: what else it goes by.
    """

    tids: Array
    event: int
    state: Callable[[], int]


@dataclass(frozen=True)
class AtHead:
    """The head of a loop whose next iteration a proof decides, when nothing else can move."""


@dataclass(frozen=True)
class Fork:
    """Yielded where a branch divides a thread group; resumed when each branch has ended.

    ``ended``: the threads that run no branch, where nothing follows.
    """

    branches: tuple[Generator[Any, Any, None], ...]
    ended: Array | None = None


Program = Generator[Barrier | Wait | Spin | Fork | AtHead | None, Any, None]
"""What the generated code of a thread group is; one that yields None may be preempted there."""

Waiting = Generator[Wait, bool, bool]
"""A wait; its answer is whether it succeeded."""
