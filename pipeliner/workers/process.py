"""A process forked from the nursery, as its parent sees it."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

from .child import Birth

NURSERY: Final = "pipeliner.workers.nursery"

_PROGRAM: Final = "import sys; sys.path[:] = {!r}; from {} import main; main({})"
_ERRORS: Final = 2
"""The descriptor of this process's error output, whatever Python writes to."""

_STATUS: Final = 16
"""Bytes that are enough for an exit status."""

_GRACE: Final = 1.0
"""Seconds for the nursery to end by itself: it may be importing."""


def preload(module: str) -> None:
    """Have ``module`` imported where preloaded workers come from, without waiting for it."""
    _loaded.send(module, ())


class Process:
    """A process that makes what the pickle ``make`` does and calls it with each request.

    ``module``: of this package, to be loaded once for all that name it, without PyTorch; or empty.
    """

    def __init__(self, make: bytes, module: str, environment: dict[str, str]) -> None:
        theirs, requests = os.pipe()
        self.answers, answers = os.pipe()
        self._life, life = socket.socketpair()
        self._requests = os.fdopen(requests, "wb")
        try:
            given = (theirs, answers, life.fileno(), _ERRORS)
            (_loaded if module else _bare).send(module, given)
        finally:
            os.close(theirs)
            os.close(answers)
            life.close()
        self.send(Birth({**os.environ, **environment}, _path(), os.getcwd(), make))

    def send(self, value: Any) -> None:
        """A request; OSError where the process is gone."""
        self._requests.write(pickle.dumps(value))
        self._requests.flush()

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return not select.select([self._life], [], [], 0)[0]

    def kill(self) -> None:
        """Kill it and whatever it has started, from any thread."""
        with contextlib.suppress(OSError):
            self._life.shutdown(socket.SHUT_WR)

    def wait(self) -> int | None:
        """Its exit code, or less than 0 a signal's; None: the nursery itself was killed."""
        with contextlib.suppress(OSError):
            found = self._life.recv(_STATUS)
            return int(found) if found else None
        return None

    def close(self) -> None:
        """Kill it, and return when it is gone."""
        self.kill()
        while self.wait() is not None:
            pass
        self._life.close()
        os.close(self.answers)
        with contextlib.suppress(OSError):
            self._requests.close()


def _path() -> list[str]:
    """Where modules are found, whatever folder a process is in."""
    return [os.path.abspath(one) for one in sys.path]


class _Nursery:
    """A nursery of this process: started when it is first needed, and again if it was killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._forked = False

    def send(self, module: str, descriptors: Sequence[int]) -> None:
        """Have ``module`` imported, and with ``descriptors`` a child forked."""
        with self._lock:
            try:
                self._tell(module, descriptors)
            except OSError:  # there is none, or no more
                self.stop()
                self._start()
                self._tell(module, descriptors)

    def stop(self) -> None:
        """End it, and all that it has forked."""
        if self._control is None or self._owner != os.getpid():
            return  # of a parent that this process was forked from
        self._control.close()
        self._control = None
        assert self._process is not None
        try:
            self._process.wait(_GRACE if self._forked else 0.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tell(self, module: str, descriptors: Sequence[int]) -> None:
        if self._control is None or self._owner != os.getpid():
            raise ProcessLookupError
        socket.send_fds(self._control, [f":{module}".encode()], descriptors)
        self._forked |= bool(descriptors)

    def _start(self) -> None:
        self._forked = False
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._owner = os.getpid()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM.format(_path(), NURSERY, theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )


_loaded = _Nursery()
_bare = _Nursery()
atexit.register(_loaded.stop)
atexit.register(_bare.stop)
