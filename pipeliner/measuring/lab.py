"""The one loop of all that measures: compile ahead, measure what is ready, keep it at once.

What there is to measure, and where it goes, is a ``Study``: a search, an experiment, a log, a
benchmark, probes. While one batch is measured others are compiled, in processes side by side. An
interrupt ends what is under way; what was kept before it stays kept.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from .compiling import BuiltCandidate
from .contenders import Say

Make: TypeAlias = "Callable[[], BuiltCandidate] | BuiltCandidate"


@dataclass(slots=True, eq=False, kw_only=True)
class Batch:
    """Kernels that are measured together.

    ``makes``: what compiles each, or a kernel that is there already. ``built``: what came of it, a
    kernel or why there is none, in order; None: nothing yet. ``reference``: others are measured
    beside it, and wait for it.
    """

    makes: Sequence[Make]
    reference: bool = False
    built: list[BuiltCandidate | None] = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is compiled yet."""
        self.built = [one if isinstance(one, BuiltCandidate) else None for one in self.makes]

    @property
    def is_built(self) -> bool:
        """Whether all its kernels came, or why there is none."""
        return None not in self.built


class Ends(Protocol):
    """What may be under way, and can be ended."""

    def end(self) -> None:
        """End what is under way, from any thread."""


class CompilesSome(Ends, Protocol):
    """Who compiles ``jobs`` kernels at a time."""

    jobs: int


B = TypeVar("B", bound=Batch)
M = TypeVar("M", bound=Ends)


class Study(ABC, Generic[B, M]):
    """What there is to measure, how, and what becomes of it."""

    batches: Iterator[B] = iter(())
    """All there is, in order, where that is known beforehand."""

    def next(self, under_way: Sequence[B]) -> B | None:
        """The next batch; None: there is no more, or not before one of ``under_way`` is done."""
        return next(self.batches, None)

    @abstractmethod
    def measure(self, batch: B, measurer: M) -> Any:
        """Measure a batch that is built, in a thread of its own."""

    @abstractmethod
    def keep(self, batch: B, found: Any) -> None:
        """Keep what ``measure`` returned: on the disk, when this returns, where there is a file."""

    def beside(self, batch: B) -> None:
        """Take a reference that is built."""
        return


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast things go: ``done`` of ``of`` in ``elapsed`` seconds."""

    elapsed: float
    done: int
    of: int

    @property
    def rate(self) -> float:
        """So many a second; 0 at the start."""
        return self.done / self.elapsed if self.done else 0.0

    @property
    def left(self) -> float | None:
        """Seconds until all are done; None at the start."""
        return (self.of - self.done) / self.rate if self.done else None


class Lab(Generic[B, M]):
    """Runs a study with ``measurers``, each of which measures one batch at a time.

    ``most``: batches under way at once. ``ordered``: they are measured as they come from the study,
    rather than as they are built. ``deadline``: when it ends, by the monotonic clock; ``closing``:
    not without measuring what is built of the first batch. ``here``: measured in order, in this
    thread, which may be interrupted, and once all are compiled; it is told how far that is.
    """

    def __init__(
        self,
        study: Study[B, M],
        compiler: CompilesSome,
        measurers: Sequence[M],
        *,
        most: int | None = None,
        ordered: bool = False,
        deadline: float | None = None,
        closing: bool = False,
        here: Say | None = None,
    ) -> None:
        self._study, self._compiler, self._idle = study, compiler, list(measurers)
        self._most, self._ordered, self._here = most, ordered or here is not None, here
        self._deadline, self._closing = deadline, closing
        self._parts: tuple[Ends, ...] = (compiler, *measurers)
        self._compiles = ThreadPoolExecutor(compiler.jobs)
        self._measures: Executor = ThreadPoolExecutor(len(self._idle)) if here is None else _Here()
        self._batches: list[B] = []
        self._compiling: dict[Future[BuiltCandidate], tuple[B, int]] = {}
        self._measuring: dict[Future[Any], tuple[B, M]] = {}
        self._compiled = self._asked = 0

    def run(self) -> bool:
        """Go on until there is no more or time is up; whether it was interrupted."""
        try:
            while True:
                self._begin()
                self._measure_ready()
                running = {**self._compiling, **self._measuring}
                if not running:
                    return False
                finished, _ = wait(running, self.seconds_left, FIRST_COMPLETED)
                if not finished:
                    if self._closing:
                        self._close()
                    return False
                for future in finished:
                    self._finish(future)
        except KeyboardInterrupt:
            return True
        finally:
            pools = (self._compiles, self._measures)
            for pool in pools:
                pool.shutdown(wait=False, cancel_futures=True)
            for part in self._parts:
                part.end()
            for pool in pools:
                pool.shutdown()

    @property
    def seconds_left(self) -> float | None:
        """Until the deadline; None: there is none."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _begin(self) -> None:
        """Have the next jobs compiled, as many as may be under way."""
        while self._most is None or len(self._batches) < self._most:
            batch = None if self.seconds_left == 0 else self._study.next(self._batches)
            if batch is None:
                return
            self._batches.append(batch)
            for at, make in enumerate(batch.makes):
                if not isinstance(make, BuiltCandidate):
                    self._asked += 1
                    self._compiling[self._compiles.submit(make)] = (batch, at)

    def _measure_ready(self) -> None:
        """Have measured what is built, as many as there are idle measurers."""
        if self._here and self._compiling:
            return
        if any(batch.reference for batch in self._batches):
            return
        under_way = [batch for batch, _ in self._measuring.values()]
        for batch in [batch for batch in self._batches if batch not in under_way]:
            if not self._idle or (self._ordered and not batch.is_built):
                return
            if batch.is_built:
                self._start(batch)

    def _start(self, batch: B) -> None:
        measurer = self._idle.pop()
        future = self._measures.submit(self._study.measure, batch, measurer)
        self._measuring[future] = (batch, measurer)

    def _finish(self, future: Future[Any]) -> None:
        if future in self._measuring:
            batch, measurer = self._measuring.pop(future)
            self._idle.append(measurer)
            self._batches.remove(batch)
            self._study.keep(batch, future.result())
            return
        batch, at = self._compiling.pop(future)
        batch.built[at] = future.result()
        self._compiled += 1
        if self._here:
            self._here(f"compiled {self._compiled} of {self._asked} kernels")
        if batch.reference and batch.is_built:
            self._batches.remove(batch)
            self._study.beside(batch)

    def _close(self) -> None:
        """Come to the end of what is measured, or else measure what is built of the first batch."""
        if not self._measuring and self._batches and any(self._batches[0].built):
            self._start(self._batches[0])
        for future in list(self._measuring):
            self._finish(future)


class _Here(Executor):
    """Does in this thread what it is given, at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future
