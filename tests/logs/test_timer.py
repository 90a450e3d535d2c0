"""The process that times: its answers, and its end when it gives none."""

from __future__ import annotations

import itertools

import pytest

from pipeliner.errors import ToolError
from pipeliner.logs import timer as module
from pipeliner.logs.building import Library
from pipeliner.logs.timer import Open, Rounds, Timer, Try
from pipeliner.schedules import Gemm
from pipeliner.targets import gpu
from tests.refusals import refused

from .. import fake_torch
from .children import Dies, FailsOnceAskedTwice, Hangs

GEMM = Gemm(16, 16, 16)
ASKED = Open(GEMM)


@pytest.mark.parametrize(
    ("child", "code", "args"),
    [
        (Hangs, "worker.timeout", {"seconds": 1.0}),
        (Dies, "worker.died", {"how": "exit code 3"}),
    ],
)
def test_a_child_that_does_not_answer_is_replaced(child, code, args) -> None:
    with Timer(child) as timer:
        for _ in range(2):
            with refused(code, ToolError, **args):
                timer.ask(ASKED, 1.0 if child is Hangs else 30.0)


def test_a_child_that_has_lost_its_gpu_is_replaced() -> None:
    with Timer(FailsOnceAskedTwice) as timer:
        first = timer.ask(ASKED, 30.0)
        with pytest.raises(ToolError, match=r"^the GPU is lost$"):
            timer.ask(ASKED, 30.0)
        assert timer.ask(ASKED, 30.0) != first


@pytest.mark.skipif(gpu() is not None, reason="a GPU is visible")
def test_without_a_gpu_it_says_so() -> None:
    with (
        Timer() as timer,
        refused("gpu.none", ToolError),
    ):
        timer.ask(ASKED, 60.0)


@pytest.fixture
def bench(torch, monkeypatch):
    """The child's side on numpy; a library's name is what its kernel does."""

    def load(library: Library):
        def run(a, b, out) -> None:
            took, wrong = map(float, library.name.split(","))
            fake_torch.Clock.now += took
            out.data[...] = a.data.astype("float64") @ b.data.astype("float64").T + wrong

        if library.name == "lost":
            raise RuntimeError("Traceback\nCUDA error: out of memory")
        return run, ""

    monkeypatch.setattr(Library, "load", load)
    monkeypatch.setattr(module, "require_gpu", lambda: torch)
    return module.Bench()


def test_kernels_are_checked_and_timed_interleaved(bench) -> None:
    bench(Open(GEMM))
    tried = [bench(Try(Library("", name))) for name in ("0.5,0", "0.1,1", "0.25,0", "lost")]
    assert tried[0] == tried[2] == ""
    assert tried[1].startswith("wrong: ")
    assert tried[3] == "CUDA error: out of memory"
    assert bench(Rounds((0, 1))) == [(pytest.approx(500), 0.0), (pytest.approx(250), 0.0)]
    assert bench(Rounds((1,), 3)) == [(pytest.approx(250), 0.0)]


def test_a_workload_begins_anew(bench) -> None:
    bench(Open(GEMM))
    bench(Try(Library("", "0.5,0")))
    bench(Open(Gemm(32, 16, 16)))
    bench(Try(Library("", "0.75,0")))
    assert bench(Rounds((0,)))[0][0] == pytest.approx(750)


def test_long_kernels_take_fewer_rounds(bench, monkeypatch) -> None:
    counted = []
    taken = module.run_round
    monkeypatch.setattr(module, "run_round", lambda *args: counted.append(args[2]) or taken(*args))
    for took in ("0.1", "100", "2000"):
        bench(Open(GEMM))
        bench(Try(Library("", f"{took},0")))
        bench(Rounds((0,)))
    assert counted == [0, *range(48), 0, *range(14), 0, *range(3)]


def test_each_round_has_an_order_of_its_own(bench, monkeypatch) -> None:
    """A long kernel's clock depends on the one before it, which is not to be the same each time."""
    orders = []
    taken = module.run_round

    def spied(torch, entries, number, flush):
        orders.append([id(entry) for entry in entries])
        taken(torch, entries, number, flush)

    monkeypatch.setattr(module, "run_round", spied)
    bench(Open(GEMM))
    for _ in range(6):
        bench(Try(Library("", "0.5,0")))
    bench(Rounds(tuple(range(6)), 8))
    after = [set(itertools.pairwise(order)) for order in orders[1:]]
    assert len(after) == 8
    assert len(set.union(*after)) > 20  # of 30 pairs of neighbours; 6 if only rotated
