"""A process for what may crash or hang, and what becomes of a request to it.

A worker is forked from a process that has loaded what it needs, or nothing (see ``nursery``):
neither a script without a main guard, nor a notebook, nor a GPU's context here is in its way. It
makes one object and calls it once for each request. Whatever happens in it costs that request
alone: the next one starts a fresh process.
"""

from __future__ import annotations

import functools
import os
import pickle
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..errors import ToolError
from .child import LENGTH
from .process import Process

_CHUNK: Final = 1 << 16


class Worker:
    """A process with ``make()`` in it, an object that ``call`` calls. ``environment`` is added to.

    ``make`` and what is sent to and fro must be picklable. ``preloaded``: the module that ``make``
    is of was loaded once for all such workers, without PyTorch: for what uses no GPU.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        environment: Mapping[str, str] | None = None,
        *,
        preloaded: bool = False,
    ) -> None:
        self._module = _module_of(make) if preloaded else ""
        self._make = make
        self._environment = dict(environment or {})
        self._process: Process | None = None
        self._ended = False

    def start(self) -> None:
        """Start the process now rather than at the first call."""
        if self._ended:
            raise ToolError("cannot start a process: no more are to be")
        if self._process is not None and self._process.alive:
            return
        self.close()
        self._process = Process(pickle.dumps(self._make), self._module, self._environment)

    def call(self, *arguments: Any, seconds: float) -> Any:
        """What the object makes of ``arguments``; ToolError: it failed, died or took too long."""
        self.start()
        assert self._process is not None
        try:
            self._process.send(pickle.dumps(arguments))
            failure, result = _receive(self._process.answers, time.monotonic() + seconds)
        except TimeoutError:
            self.close()
            raise ToolError(f"cannot wait any longer: nothing came for {seconds:g} s") from None
        except (EOFError, OSError):
            raise ToolError(f"the process ended: {self._end(self._process)}") from None
        except BaseException:  # an interrupt: the answer would be taken for that of the next call
            self.close()
            raise
        if failure:
            raise ToolError(failure)
        return result

    def end(self) -> None:
        """End the process for good, from any thread: a call that waits for it fails."""
        self._ended = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process and whatever it has started; the next call starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def __del__(self) -> None:
        self.close()

    def _end(self, process: Process) -> str:
        """How a process that is gone ended."""
        code = process.wait()
        self.close()
        if code is None:
            return "no one knows how"
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _module_of(make: Callable[[], Any]) -> str:
    """Where ``make`` is from."""
    while isinstance(make, functools.partial):
        make = make.func
    return make.__module__


def _receive(pipe: int, deadline: float) -> Any:
    """The next answer; TimeoutError, or EOFError where the process ended instead."""
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
    return pickle.loads(data[LENGTH:])


def _is_whole(data: bytes) -> bool:
    return len(data) >= LENGTH and len(data) - LENGTH >= int.from_bytes(data[:LENGTH], "big")
