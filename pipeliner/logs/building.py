"""Compile candidates in line, side by side, each to a shared library with what ptxas said."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ..bench import compiling
from ..bench.libraries import Runner
from ..diagnostics import Why
from ..machine import machine_for
from ..schedules.workloads import Spec
from ..toolchain.machine_code import LoopCode
from ..tuning.compiling import Compiler
from .candidates import LogCandidate


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library with the kernel ``name``, or in one line why there is none (``failure``).

    ``registers`` of a thread and bytes of its ``spills``: of the device function that takes most.
    ``loop``: the longest in machine code, where it is known.
    """

    path: str
    name: str = ""
    registers: int = 0
    spills: int = 0
    loop: LoopCode | None = None
    failure: Why = ""

    def load(self) -> tuple[Runner, str]:
        """As a contender's ``make``."""
        return compiling.BuiltLibrary(self.path, self.name).load()


class Builders:
    """A compiler that is given candidates beforehand, and hands them out as they are done.

    As a context, what is not done is left when it ends, and the libraries go with it. A process
    that dies takes the candidate with it that it was at, and nothing else.
    """

    def __init__(self, target: Any, count: int) -> None:
        self._machine = machine_for(target)
        self._compiler = Compiler(target, count, disassemble=True)
        self._threads = ThreadPoolExecutor(count)
        self._done: queue.Queue[tuple[int, Library]] = queue.Queue()
        self._submitted = 0
        self._compiler.start()

    def submit(self, spec: Spec, candidates: Sequence[LogCandidate]) -> range:
        """Put ``candidates`` in line; the numbers that their libraries will come under."""
        first = self._submitted
        self._submitted += len(candidates)
        for number, one in enumerate(candidates, first):
            self._threads.submit(self._build, number, spec, one)
        return range(first, self._submitted)

    def next(self, seconds: float) -> tuple[int, Library] | None:
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

    def _build(self, number: int, spec: Spec, one: LogCandidate) -> None:
        made = self._compiler.compile(spec, one.whole(spec, self._machine))
        used = made.resources
        spills = used.get("spill_stores", 0) + used.get("spill_loads", 0)
        registers = used.get("registers", 0)
        library = Library(made.path, made.name, registers, spills, made.loop, made.failure)
        self._done.put((number, library))
