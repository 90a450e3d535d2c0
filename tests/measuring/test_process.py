"""The process on the GPU: its answers, on a stand-in, and its end when it gives none."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import pytest

from pipeliner.errors import ToolError
from pipeliner.measuring import (
    GpuMeasurer,
    Open,
    Rounds,
    Survey,
    Trial,
    Try,
    gpu_bench,
    process,
)
from pipeliner.schedules import Gemm
from pipeliner.targets import gpu
from tests.refusals import refused, says, the

from .. import fake_torch
from .children import Dies, FailsOnceAskedTwice, Hangs
from .planted import SPEC, Chooses, Crashes, Lost, Takes

ASKED = Open(SPEC)
ANYTHING: Any = "a question that is read without TVM"
FIVE = Rounds(5)


@pytest.fixture
def answers(monkeypatch):
    conditions = importlib.import_module("pipeliner.measuring.conditions")
    monkeypatch.setattr(conditions, "gpu", object)
    monkeypatch.setattr(conditions, "gpu_arch", lambda: "sm_90")
    monkeypatch.setitem(sys.modules, "torch", fake_torch)
    return process.Answers()


def test_alone_a_kernel_runs_all_rounds(answers):
    found = answers(Trial(Takes(us=100.0)))
    assert found.samples == pytest.approx([100.0] * 30)
    assert (found.beside, found.failure) == ((), "")
    assert found.conditions["gpu"] == "a stand-in"
    assert found.conditions["arch"] == "sm_90"


def test_both_run_interleaved(answers):
    fast = Takes(path="fast", us=100.0)
    found = answers(Trial(Takes(us=105.0), fast))
    assert found.samples == pytest.approx([105.0] * 30)
    assert found.beside == pytest.approx([100.0] * 30)
    again = answers(Trial(Takes(us=90.0), fast))  # of each trial, its own
    assert len(again.beside) == 30


def test_calls_back_to_back_are_timed_where_asked_for(answers, monkeypatch):
    """A graph of so many calls; what cannot be captured says why, and the rest has its times."""
    answers(ASKED)
    for us in (100.0, 300.0):
        assert answers(Try(Takes(us=us))) == ""
    calls = gpu_bench.CALLS

    def captured(torch, call):
        before = fake_torch.Clock.now
        call()
        if fake_torch.Clock.now - before > 0.2:
            raise RuntimeError("operation not permitted when stream is capturing")
        return types.SimpleNamespace(replay=lambda: [call() for _ in range(calls)])

    monkeypatch.setattr(gpu_bench, "captured", captured)
    fast, slow = answers(Survey((0, 1), Rounds(5, hot=4)))
    assert fast.hot == pytest.approx([100.0] * 4)
    assert (slow.hot, str(slow.not_hot)) == (
        (),
        "operation not permitted when stream is capturing",
    )
    assert slow.us == pytest.approx(300.0)
    assert answers(Survey((0,), FIVE))[0].hot == ()


def test_what_chooses_says_what_it_runs(answers):
    answers(ASKED)
    assert answers(Try(Chooses())) == ""
    (found,) = answers(Survey((0,), FIVE))
    assert found.detail == "the second way"


def test_what_is_clearly_slower_is_given_up(answers):
    found = answers(Trial(Takes(us=200.0), Takes(path="fast", us=100.0)))
    assert len(found.samples) == len(found.beside) == process.BESIDE.fewest


@pytest.mark.parametrize(
    ("late", "code"), [(False, "measure.wrong"), (True, "measure.wrong_later")]
)
def test_a_wrong_kernel_has_no_time(answers, late, code):
    found = answers(Trial(Takes(wrong=1.0, late=late)))
    assert found.samples == ()
    assert the(code, [found.failure])["error"] > 1


def test_many_are_tried_and_then_timed_together(answers):
    answers(ASKED)
    tried = [answers(Try(one)) for one in (Takes(us=500.0), Takes(wrong=1.0), Takes(us=250.0))]
    assert (tried[0], tried[2]) == ("", "")
    assert says("measure.wrong", [tried[1]])
    assert answers(Try(Lost())) == "CUDA error: out of memory"
    both = answers(Survey((0, 1), FIVE))
    assert [(one.us, one.spread) for one in both] == [
        (pytest.approx(500), pytest.approx(0, abs=1e-9)),
        (pytest.approx(250), pytest.approx(0, abs=1e-9)),
    ]
    (again,) = answers(Survey((1,), FIVE))
    assert again.samples == pytest.approx([250.0] * 5)


def test_what_races_at_times_is_found_when_all_were_timed(answers):
    answers(ASKED)
    assert [answers(Try(one)) for one in (Takes(), Takes(wrong=1.0, late=True))] == ["", ""]
    right, wrong = answers(Survey((0, 1), FIVE))
    assert not right.failure
    assert says("measure.wrong_later", [wrong.failure])


def test_a_workload_begins_anew(answers):
    answers(ASKED)
    answers(Try(Takes(us=500.0)))
    other = Gemm(64, 16, 24, layout="NN")
    answers(Open(other))
    answers(Try(Takes(other, us=750.0)))
    assert answers(Survey((0,), FIVE))[0].us == pytest.approx(750)


def test_a_crash_is_the_failure_of_its_trial_alone():
    """In the real process, which has no GPU here and says so: each trial starts another."""
    measurer = GpuMeasurer()
    for _ in range(2):
        found = measurer.measure(Crashes(), None)
        assert says("measure.failed", [found.failure])
    measurer.close()


@pytest.mark.parametrize(
    ("child", "code", "args"),
    [
        (Hangs, "worker.timeout", {"seconds": 1.0}),
        (Dies, "worker.died", {"how": "exit code 3"}),
    ],
)
def test_a_child_that_does_not_answer_is_replaced(child, code, args):
    with GpuMeasurer(make=child) as measurer:
        for _ in range(2):
            with refused(code, ToolError, **args):
                measurer.ask(ANYTHING, 1.0 if child is Hangs else 30.0)


def test_a_child_that_has_lost_its_gpu_is_replaced():
    with GpuMeasurer(make=FailsOnceAskedTwice) as measurer:
        first = measurer.ask(ANYTHING, 30.0)
        with pytest.raises(ToolError, match=r"^the GPU is lost$"):
            measurer.ask(ANYTHING, 30.0)
        assert measurer.ask(ANYTHING, 30.0) != first


@pytest.mark.skipif(gpu() is not None, reason="a GPU is visible")
def test_without_a_gpu_it_says_so():
    with GpuMeasurer() as measurer, refused("gpu.none", ToolError):
        measurer.ask(ASKED, 60.0)
