"""Compile candidates in processes side by side, each to a shared library with what ptxas said."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, TypeAlias

import tvm
import tvm_ffi

from .. import nvcc
from ..api import build, pipeline_with
from ..bench.results import reason
from ..compiled import Kernel
from ..machine import machine_for
from ..schedules.workloads import Spec
from .candidates import Candidate

NICENESS: Final = 10
"""Of processes that compile, so that the one that times is never kept waiting."""

PREFETCHED: Final = 8
"""Tasks that a process is given beforehand: the parent times kernels for seconds at a stretch."""

_COMPILE: Final = "tvm_callback_cuda_compile"


_Task: TypeAlias = "tuple[int, Spec, Candidate, Any, str]"


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library with the kernel ``name``, or in one line why there is none (``failure``).

    ``registers`` of a thread and bytes of its ``spills``: of the device function that takes most.
    """

    path: str
    name: str = ""
    registers: int = 0
    spills: int = 0
    failure: str = ""


class Builders:
    """Processes that compile what is put in line, in that order; as a context, they end with it.

    Libraries lie in a folder that goes with them. A process that dies takes the candidate with it
    that it was at, and nothing else.
    """

    def __init__(self, target: Any, count: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pipeliner-", ignore_cleanup_errors=True)
        self._target = target
        self._submitted = 0
        self._waiting: deque[_Task] = deque()
        self._workers = [_Worker() for _ in range(count)]

    def submit(self, spec: Spec, candidates: Sequence[Candidate]) -> range:
        """Put ``candidates`` in line; the numbers that their libraries will come under."""
        first = self._submitted
        self._submitted += len(candidates)
        for number, one in enumerate(candidates, first):
            path = str(Path(self._folder.name) / f"{number}.so")
            self._waiting.append((number, spec, one, self._target, path))
        self._feed()
        return range(first, self._submitted)

    def next(self, seconds: float) -> tuple[int, Library] | None:
        """A number and its library, waited for at most so long; None: none was ready by then."""
        self._feed()
        busy = {worker.line: worker for worker in self._workers if worker.tasks}
        for line in multiprocessing.connection.wait(list(busy), seconds):
            assert isinstance(line, Connection)
            worker = busy[line]
            number = worker.tasks[0][0]
            try:
                library: Library = line.recv()
            except (EOFError, OSError):
                self._replace(worker)
                return number, Library("", failure="cannot compile it: the compiler's process died")
            worker.tasks.popleft()
            return number, library
        return None

    def __enter__(self) -> Builders:
        return self

    def __exit__(self, *unused: object) -> None:
        for worker in self._workers:
            worker.end()
        self._folder.cleanup()

    def _feed(self) -> None:
        """Give each process what it can do while nobody asks, in turns."""
        for _ in range(PREFETCHED):
            for worker in self._workers:
                if self._waiting and len(worker.tasks) < PREFETCHED:
                    worker.give(self._waiting.popleft())

    def _replace(self, worker: _Worker) -> None:
        """Another process for one that died at the first of its tasks; the rest is done first."""
        worker.end()
        worker.tasks.popleft()
        self._waiting.extendleft(reversed(worker.tasks))
        self._workers[self._workers.index(worker)] = _Worker()


class _Worker:
    """A process that compiles, and what it was given and has not done."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # no GPU context survives a fork
        self.tasks: deque[_Task] = deque()
        self.line, theirs = context.Pipe()
        self._process = context.Process(target=_build_all, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def give(self, task: _Task) -> None:
        """Put a task in its line. One that has died is found out where its answer is missed."""
        self.tasks.append(task)
        with contextlib.suppress(OSError):
            self.line.send(task)

    def end(self) -> None:
        """End the process, whatever it does."""
        self.line.close()
        self._process.kill()
        self._process.join()


def _build_all(line: Connection) -> None:
    """In a process of its own: compile what comes until nothing can come any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is the parent's to handle
    os.nice(NICENESS)
    with contextlib.suppress(EOFError, OSError):
        while True:
            _, *task = line.recv()
            line.send(build_library(*task))


def build_library(spec: Spec, one: Candidate, target: Any, path: str) -> Library:
    """Compile ``one`` to a library at ``path``. Errors become text: TVM's cannot be sent."""
    try:
        scheduled = one.schedule(spec, machine_for(target))
        kernel = build(pipeline_with(scheduled, target, one.request), target)
        used = _resources(kernel, path)
    except Exception as err:  # every error: one that cannot be sent would end all workers
        return Library(path, failure=reason(err))
    most = max(used, key=lambda found: (found.registers, found.spills))
    return Library(path, kernel.name, most.registers, most.spills)


def _resources(kernel: Kernel, path: str) -> Sequence[nvcc.Resources]:
    """Export the kernel; what ptxas said, which it is run for once."""
    with _reports(kernel.arch) as logs:
        kernel.export(path)
    return [found for log in logs for found in nvcc.resources(log)] or kernel.all_resources


@contextlib.contextmanager
def _reports(arch: str) -> Iterator[list[str]]:
    """What ptxas says of what TVM compiles meanwhile; nothing where TVM finds no driver.

    TVM's own callback drops them. It is back when the context ends.
    """
    logs: list[str] = []
    usual = tvm_ffi.get_global_func(_COMPILE)

    def compiled(code: str) -> bytes:
        made = nvcc.compile_cuda(code, arch, "fatbin")
        logs.append(made.log)
        return made.data

    tvm_ffi.register_global_func(_COMPILE, compiled, override=True)
    try:
        yield logs
    finally:
        tvm_ffi.register_global_func(_COMPILE, usual, override=True)


def load(library: Library) -> Any:
    """The kernel of a library, to be called with tensors of the GPU on torch's stream."""
    with nvcc.for_tvm():
        function = tvm.runtime.load_module(library.path).get_function(library.name, True)

    def run(*tensors: object) -> None:
        with tvm_ffi.use_torch_stream():
            function(*tensors)

    return run
