"""Try one way of a run in a process that is a copy of this one: a run itself cannot be copied.

Where processes cannot be copied (no ``os.fork``), nothing is tried, and the way is walked by a run
of its own: what is found is the same.
"""

from __future__ import annotations

import gc
import os
import signal
import time
import warnings
from dataclasses import dataclass
from typing import Final, NoReturn

_PAUSE: Final = 0.0005
"""Seconds between two looks at whether the other process has ended."""

_ENDS_WELL: Final = 0
_OTHERWISE: Final = 1


@dataclass(frozen=True)
class Attempt:
    """A way that a copy of this process takes, by its ``pid``; 0 in that process itself."""

    pid: int
    end: float

    @property
    def is_own(self) -> bool:
        """Whether this is the process that takes the way."""
        return self.pid == 0

    def answer(self, ends_well: bool) -> NoReturn:
        """Say what came of it, and end this process, as nothing else of it is wanted."""
        os._exit(_ENDS_WELL if ends_well else _OTHERWISE)

    def succeeded(self) -> bool:
        """Whether the kernel ended well, as far as there is time."""
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status) == _ENDS_WELL
            if time.perf_counter() > self.end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return False
            time.sleep(_PAUSE)


def begin(end: float) -> Attempt | None:
    """Return from here twice, in this process and in a copy of it; None: there are no copies.

    The copy runs Python and numpy alone, and no other threads, whose locks it may lack.
    """
    if not hasattr(os, "fork"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of copies where threads run
        pid = os.fork()
    if not pid:
        gc.disable()
    return Attempt(pid, end)
