"""A process for what may crash or hang, and what becomes of a request to it.

A worker is a program of its own, so that neither a script without a main guard nor a notebook is in
its way. It makes one object and calls it once for each request. Whatever happens in it costs that
request alone: the next one starts a fresh process.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..errors import ToolError

CHILD: Final = "pipeliner.workers.child"

_CHUNK: Final = 1 << 16

_LENGTH: Final = 8
"""Bytes before an answer that say how long it is."""


class Worker:
    """A process with ``make()`` in it, an object that ``call`` calls. ``environment`` is added to.

    ``make`` and what is sent to and fro must be picklable.
    """

    def __init__(
        self, make: Callable[[], Any], environment: Mapping[str, str] | None = None
    ) -> None:
        self._make = make
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def start(self) -> None:
        """Start the process now rather than at the first call."""
        if self._ended:
            raise ToolError("cannot start a process: no more are to be")
        if self._process is not None and self._process.poll() is None:
            return
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {CHILD} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            | self._environment,
            start_new_session=True,  # ^C is for the parent alone; what it started dies with it
        )
        self._send(self._make)

    def call(self, *arguments: Any, seconds: float) -> Any:
        """What the object makes of ``arguments``; ToolError: it failed, died or took too long."""
        self.start()
        try:
            self._send(arguments)
            failure, result = self._receive(time.monotonic() + seconds)
        except TimeoutError:
            self.close()
            raise ToolError(f"cannot wait any longer: nothing came for {seconds:g} s") from None
        except (EOFError, OSError):
            raise ToolError(f"the process ended: {self._end()}") from None
        except BaseException:  # an interrupt: the answer would be taken for that of the next call
            self.close()
            raise
        if failure:
            raise ToolError(failure)
        return result

    def end(self) -> None:
        """End the process for good, from any thread: a call that waits for it fails."""
        self._ended = True
        self._kill()

    def close(self) -> None:
        """End the process and whatever it has started; the next call starts another."""
        self._kill()
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()

    def __del__(self) -> None:
        self.close()

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _end(self) -> str:
        """How a process that is gone ended."""
        assert self._process is not None
        code = self._process.wait()
        self.close()
        if code >= 0:
            return f"exit code {code}"
        return signal.Signals(-code).name

    def _send(self, value: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(pickle.dumps(value))
        self._process.stdin.flush()

    def _receive(self, deadline: float) -> Any:
        """The next answer; TimeoutError, or EOFError where the process ended instead."""
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        data = b""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while not _is_whole(data):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                part = os.read(pipe, _CHUNK)
                if not part:
                    raise EOFError
                data += part
        return pickle.loads(data[_LENGTH:])


def framed(value: Any) -> bytes:
    """``value`` as a child answers it."""
    data = pickle.dumps(value)
    return len(data).to_bytes(_LENGTH, "big") + data


def _is_whole(data: bytes) -> bool:
    return len(data) >= _LENGTH and len(data) - _LENGTH >= int.from_bytes(data[:_LENGTH], "big")
