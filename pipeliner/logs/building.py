"""Compile candidates in line, side by side, each to a shared library."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..measuring import BuiltCandidate, Compiler
from ..records.candidate import Candidate
from ..schedules.workloads import Spec


class Builders:
    """A compiler that is given candidates beforehand, and hands them out as they are done.

    As a context, what is not done is left when it ends, and the libraries go with it. A process
    that dies takes the candidate with it that it was at, and nothing else.
    """

    def __init__(self, target: Any, count: int) -> None:
        self._compiler = Compiler(target, count, disassemble=True)
        self._threads = ThreadPoolExecutor(count)
        self._done: queue.Queue[tuple[int, BuiltCandidate]] = queue.Queue()
        self._submitted = 0
        self._compiler.start()

    def submit(self, spec: Spec, candidates: Sequence[Candidate]) -> range:
        """Put ``candidates`` in line; the numbers that their libraries will come under."""
        first = self._submitted
        self._submitted += len(candidates)
        for number, one in enumerate(candidates, first):
            self._threads.submit(self._build, number, spec, one)
        return range(first, self._submitted)

    def next(self, seconds: float) -> tuple[int, BuiltCandidate] | None:
        """A number and its library, waited for at most so long; None: none was ready by then."""
        try:
            return self._done.get(timeout=min(seconds, threading.TIMEOUT_MAX))
        except queue.Empty:
            return None

    def __enter__(self) -> Builders:
        return self

    def __exit__(self, *unused: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._compiler.end()
        self._threads.shutdown()
        self._compiler.close()

    def _build(self, number: int, spec: Spec, one: Candidate) -> None:
        made = self._compiler.compile(spec, one)
        self._done.put((number, made))
