"""Take another way of a run in a process that is a copy of this one: a run itself cannot be copied.

Where processes cannot be copied (no ``os.fork``), the way is walked later by a run of its own: what
is found is the same. Walks that know nothing of each other are made side by side in such copies.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn, TypeVar

from ...processors import processors

_T = TypeVar("_T")

_GRACE: Final = 5.0
"""Seconds beyond its end after which a copy, which should have answered, is stopped."""

_BLOCK: Final = 1 << 16
"""Bytes that are read at once."""


@dataclass(frozen=True)
class Branch:
    """A way that a copy of this process takes, by its ``pid``; 0 in that process itself.

    ``pipe``: to read the answer from, or to write it to. ``end``: until when there is time.
    ``own_group``: it leads a group of processes, all of its copies, which gets no signals of ours.
    """

    pid: int
    pipe: int
    end: float
    own_group: bool = False

    @property
    def is_own(self) -> bool:
        """Whether this is the process that takes the way."""
        return self.pid == 0

    def answer(self, found: Any) -> NoReturn:
        """Say what came of it, None for nothing, and end this process."""
        try:
            if found is not None:
                with os.fdopen(self.pipe, "wb") as pipe:
                    pickle.dump(found, pipe)
        finally:
            os._exit(0)

    def answer_with(self, make: Callable[[], Any]) -> NoReturn:
        """Say what ``make`` returns, nothing where it raises, and end this process."""
        found = None
        try:
            found = make()
        finally:
            self.answer(found)

    def result(self) -> Any:
        """Wait for the answer of the copy; None: it has none, or there is no time."""
        parts: list[bytes] = []
        while True:
            left = self.end + _GRACE - time.perf_counter()
            if not select.select([self.pipe], [], [], max(0.0, left))[0]:
                (os.killpg if self.own_group else os.kill)(self.pid, signal.SIGKILL)
                parts.clear()
                break
            part = os.read(self.pipe, _BLOCK)
            if not part:
                break
            parts.append(part)
        os.close(self.pipe)
        os.waitpid(self.pid, 0)
        return pickle.loads(b"".join(parts)) if parts else None

    def stopped(self) -> Any:
        """Stop the copy unless it has answered; the answer, or None."""
        return replace(self, end=time.perf_counter() - _GRACE).result()


def begin(end: float, *, own_group: bool = False) -> Branch | None:
    """Return from here twice, in this process and in a copy of it; None: there are no copies.

    ``own_group``: all that the copy starts can be ended with it, and nothing else ends it. The copy
    runs Python and numpy alone, and no other threads, whose locks it may lack.
    """
    if not hasattr(os, "fork"):
        return None
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of copies where threads run
        pid = os.fork()
    if own_group:
        with suppress(OSError):
            os.setpgid(pid, pid)  # both do, whoever comes first
    if pid:
        os.close(writing)
        return Branch(pid, reading, end, own_group)
    gc.disable()
    os.close(reading)
    return Branch(0, writing, end, own_group)


def side_by_side(works: Sequence[Callable[[], _T]], end: float) -> Generator[_T, None, None]:
    """What each of some works comes to, in order: as many at once as there are processors.

    Each is done by a copy of this process; by this one if that has no answer. Who asks for no more
    stops those that are under way.
    """
    left, under_way = deque(works), deque[tuple[Callable[[], _T], Branch | None]]()
    many = min(processors(), len(works))
    try:
        while left or under_way:
            while left and len(under_way) < many:
                work = left.popleft()
                branch = begin(end) if many > 1 else None
                if branch is not None and branch.is_own:
                    branch.answer_with(work)
                under_way.append((work, branch))
            work, branch = under_way.popleft()
            found = None if branch is None else branch.result()
            yield work() if found is None else found
    finally:
        for _, branch in under_way:
            if branch is not None:
                branch.stopped()
