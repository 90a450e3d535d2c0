"""Workers of a kind, of which whoever calls takes one that is idle."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any, Final

from .worker import Worker

UNUSED: Final = ("torch",)
"""tvm-ffi imports PyTorch where there is one: seconds of each core, and nothing here needs it."""


class Pool:
    """``count`` workers that compile, with ``make()`` in each; as many threads may call at once."""

    def __init__(self, make: Callable[[], Any], count: int) -> None:
        self.count = count
        self._workers = [Worker(make, without=UNUSED) for _ in range(count)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def start(self) -> None:
        """Start the processes, without waiting for them."""
        for worker in self._workers:
            worker.start()

    def call(self, *arguments: Any, seconds: float) -> Any:
        """What an idle worker makes of ``arguments``; ToolError: it failed, died or took too long.

        ``seconds``: from when there is an idle one.
        """
        worker = self._idle.get()
        try:
            return worker.call(*arguments, seconds=seconds)
        finally:
            self._idle.put(worker)

    def end(self) -> None:
        """End the processes for good, from any thread: calls fail, those to come too."""
        for worker in self._workers:
            worker.end()

    def close(self) -> None:
        """End the processes; a call starts another."""
        for worker in self._workers:
            worker.close()
