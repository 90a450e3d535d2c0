"""The one loop: what is compiled ahead, in which order things are measured, how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from pipeliner.measuring import BuiltCandidate
from pipeliner.measuring.lab import Batch, Lab, Study


class Compiler:
    """Compiles two at a time; ``ended``: how often it was told to end."""

    jobs = 2
    ended = 0

    def end(self) -> None:
        self.ended += 1


def compiled(name: str, seconds: float = 0.0, waits: threading.Event | None = None) -> Any:
    def make() -> BuiltCandidate:
        time.sleep(seconds)
        if waits is not None:
            waits.wait(10)
        return BuiltCandidate(name=name)

    return make


class List(Study[Batch, Compiler]):
    """Jobs one after the other; ``measured``: the names of their kernels."""

    def __init__(self, *batches: Batch, stops_at: int = 1000) -> None:
        self.batches = iter(batches)
        self.measured: list[str] = []
        self.told: list[str] = []
        self.references: list[str] = []
        self.stops_at = stops_at

    def measure(self, batch: Batch, measurer: Compiler) -> str:
        if len(self.measured) == self.stops_at:
            raise KeyboardInterrupt
        return " ".join(built.name if built else "-" for built in batch.built)

    def keep(self, batch: Batch, found: str) -> None:
        self.measured.append(found)

    def beside(self, batch: Batch) -> None:
        self.references += [built.name for built in batch.built if built]


def test_in_order_what_is_slow_to_compile_is_waited_for() -> None:
    batches = [Batch(makes=[compiled("slow", 0.2)]), Batch(makes=[compiled("fast")])]
    study = List(*batches)
    assert not Lab(study, Compiler(), [Compiler()], ordered=True).run()
    assert study.measured == ["slow", "fast"]


def test_else_what_is_built_is_measured() -> None:
    last = threading.Event()

    class Two(List):
        def keep(self, batch: Batch, found: str) -> None:
            super().keep(batch, found)
            last.set()

    study = Two(Batch(makes=[compiled("slow", waits=last)]), Batch(makes=[compiled("fast")]))
    assert not Lab(study, Compiler(), [Compiler()]).run()
    assert study.measured == ["fast", "slow"]


def test_no_more_than_so_many_are_under_way() -> None:
    class Counts(List):
        most = 0

        def next(self, under_way: Sequence[Batch]) -> Batch | None:
            batch = super().next(under_way)
            self.most = max(self.most, len(under_way) + (batch is not None))
            return batch

    study = Counts(*(Batch(makes=[compiled(str(at))]) for at in range(8)))
    Lab(study, Compiler(), [Compiler()], most=3).run()
    assert (study.most, len(study.measured)) == (3, 8)


def test_a_reference_comes_first_and_is_not_measured() -> None:
    reference = Batch(makes=[compiled("old", 0.1)], reference=True)
    study = List(Batch(makes=[compiled("new")]), reference)
    Lab(study, Compiler(), [Compiler()]).run()
    assert (study.references, study.measured) == (["old"], ["new"])


def test_nothing_compiles_beside_what_is_timed_where_that_is_asked() -> None:
    compiling = []

    class Watches(List):
        def measure(self, batch: Batch, measurer: Compiler) -> str:
            compiling.append(self.told[-1])
            return super().measure(batch, measurer)

    study = Watches(*(Batch(makes=[compiled(str(at), 0.05)]) for at in range(4)))
    Lab(study, Compiler(), [Compiler()], here=study.told.append).run()
    assert compiling == ["compiled 4 of 4 kernels"] * 4


@pytest.mark.parametrize("here", [None, len], ids=["apart", "here"])
def test_an_interrupt_keeps_what_was_kept(here: Any) -> None:
    study = List(*(Batch(makes=[compiled(str(at))]) for at in range(4)), stops_at=2)
    compiler, measurer = Compiler(), Compiler()
    assert Lab(study, compiler, [measurer], ordered=True, here=here).run()
    assert study.measured == ["0", "1"]
    assert (compiler.ended, measurer.ended) == (1, 1)


@pytest.mark.parametrize("closing", [False, True])
def test_time_ends_it_and_closing_measures_what_is_built(closing: bool) -> None:
    never = threading.Event()
    study = List(Batch(makes=[compiled("here"), compiled("late", waits=never)]))
    threading.Timer(0.5, never.set).start()
    loop = Lab(study, Compiler(), [Compiler()], deadline=time.monotonic() + 0.2, closing=closing)
    assert not loop.run()
    assert study.measured == (["here -"] if closing else [])


def test_what_is_there_already_is_not_compiled() -> None:
    study = List(Batch(makes=[BuiltCandidate(name="library"), compiled("ours")]))
    Lab(study, Compiler(), [Compiler()], here=study.told.append).run()
    assert (study.measured, study.told) == (["library ours"], ["compiled 1 of 1 kernels"])
