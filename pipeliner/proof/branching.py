"""Take another way of a run in a process that is a copy of this one: a run itself cannot be copied.

Where processes cannot be copied (no ``os.fork``), the way is walked later by a run of its own: what
is found is the same.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import time
import warnings
from dataclasses import dataclass
from typing import Any, Final, NoReturn

_GRACE: Final = 5.0
"""Seconds beyond its end after which a copy, which should have answered, is stopped."""

_BLOCK: Final = 1 << 16
"""Bytes that are read at once."""


@dataclass(frozen=True)
class Branch:
    """A way that a copy of this process takes, by its ``pid``; 0 in that process itself.

    ``pipe``: to read the answer from, or to write it to. ``end``: until when there is time.
    """

    pid: int
    pipe: int
    end: float

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

    def result(self) -> Any:
        """Wait for the answer of the copy; None: it has none, or there is no time."""
        parts: list[bytes] = []
        while True:
            left = self.end + _GRACE - time.perf_counter()
            if not select.select([self.pipe], [], [], max(0.0, left))[0]:
                os.kill(self.pid, signal.SIGKILL)
                parts.clear()
                break
            part = os.read(self.pipe, _BLOCK)
            if not part:
                break
            parts.append(part)
        os.close(self.pipe)
        os.waitpid(self.pid, 0)
        return pickle.loads(b"".join(parts)) if parts else None


def begin(end: float) -> Branch | None:
    """Return from here twice, in this process and in a copy of it; None: there are no copies.

    The copy runs Python and numpy alone, and no other threads, whose locks it may lack.
    """
    if not hasattr(os, "fork"):
        return None
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of copies where threads run
        pid = os.fork()
    if pid:
        os.close(writing)
        return Branch(pid, reading, end)
    gc.disable()
    os.close(reading)
    return Branch(0, writing, end)
