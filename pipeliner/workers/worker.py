"""A process for what may crash or hang, and what becomes of a request to it.

A worker is a program of its own: neither a script without a main guard, nor a notebook, nor a GPU's
context here is in its way. It makes one object and calls it once for each request. Whatever happens
in it costs that request alone: the next one starts a fresh process.

Processes of ``multiprocessing`` import the main script again, or are forks of one that may hold a
GPU; TVM's ``PopenWorker`` is ended by ^C, names no signal, and outlives its parent while it hangs.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any, Final

from ..errors import ToolError

CHILD: Final = "pipeliner.workers.child"

_PROGRAM: Final = """import sys
sys.path[:] = {path!r}
sys.modules.update(dict.fromkeys({without!r}))
from {child} import main
main({descriptor})"""

_ERRORS: Final = 2
"""The descriptor of this process's error output, whatever Python writes to."""


class Worker:
    """A process with ``make()`` in it, an object that ``call`` calls. ``environment`` is added to.

    ``make`` and what is sent to and fro must be picklable. ``without``: modules that are not to be
    found there, as where they are not installed.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        environment: Mapping[str, str] | None = None,
        *,
        without: Sequence[str] = (),
    ) -> None:
        self._environment = dict(environment or {})
        self._without = tuple(without)
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection[bytes, bytes] | None = None
        self._starting = threading.Lock()
        self._ended = False
        self._make = pickle.dumps(make)

    def start(self) -> None:
        """Start the process now rather than at the first call, without waiting for it."""
        with self._starting:
            if self._ended:
                raise ToolError("worker.ended")
            if self._process is not None and self._process.poll() is None:
                return
            self.close()
            self._pipe, theirs = Pipe()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", self._program(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=_ERRORS,  # what is printed is no answer
                    env={**os.environ, **self._environment},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # ^C is the parent's; what it started dies with it
                )
        with contextlib.suppress(OSError):  # it is gone already: the next request is told how
            self._pipe.send_bytes(self._make)

    def call(self, *arguments: Any, seconds: float) -> Any:
        """What the object makes of ``arguments``; ToolError: it failed, died or took too long."""
        self.start()
        assert self._pipe is not None
        try:
            self._pipe.send_bytes(pickle.dumps(arguments))
            if not self._pipe.poll(seconds):
                raise TimeoutError
            failure, result = pickle.loads(self._pipe.recv_bytes())
        except TimeoutError:
            self.close()
            raise ToolError("worker.timeout", seconds=seconds) from None
        except (EOFError, OSError):
            raise ToolError("worker.died", how=self._end()) from None
        except BaseException:  # an interrupt: the answer would be taken for that of the next call
            self.close()
            raise
        if failure:
            raise ToolError(failure)
        return result

    def end(self) -> None:
        """End the process for good, from any thread: a call that waits for it fails."""
        with self._starting:
            self._ended = True
            self._kill()

    def close(self) -> None:
        """End the process and whatever it has started; the next call starts another."""
        self._kill()
        process, self._process = self._process, None
        if process is not None and self._pipe is not None:
            self._pipe.close()
            process.wait()

    def __del__(self) -> None:
        self.close()

    def _program(self, descriptor: int) -> str:
        path = [os.path.abspath(one) for one in sys.path]  # whatever folder it goes to
        return _PROGRAM.format(path=path, without=self._without, child=CHILD, descriptor=descriptor)

    def _kill(self) -> None:
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _end(self) -> str:
        """How a process that is gone ended."""
        assert self._process is not None
        code = self._process.wait()
        self.close()
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
