"""What the process on the GPU does with a kernel: checks it, races it, gives up; on a stand-in."""

from __future__ import annotations

import importlib
import sys

import pytest

from pipeliner.tuning import GpuMeasurer, gpu
from tests.refusals import says, the

from .. import fake_torch
from .planted import Crashes, Takes


@pytest.fixture
def bench(monkeypatch):
    conditions = importlib.import_module("pipeliner.bench.conditions")
    monkeypatch.setattr(conditions, "gpu", object)
    monkeypatch.setattr(gpu, "gpu_arch", lambda: "sm_90")
    monkeypatch.setitem(sys.modules, "torch", fake_torch)
    return gpu._Bench(rounds=30)


def test_alone_a_kernel_runs_all_rounds(bench):
    found = bench(Takes(us=100.0), None)
    assert found.samples == pytest.approx([100.0] * 30)
    assert (found.beside, found.failure) == ((), "")
    assert found.conditions["gpu"] == "a stand-in"
    assert found.conditions["arch"] == "sm_90"


def test_both_run_interleaved(bench):
    fast = Takes(path="fast", us=100.0)
    found = bench(Takes(us=105.0), fast)
    assert found.samples == pytest.approx([105.0] * 30)
    assert found.beside == pytest.approx([100.0] * 30)
    again = bench(Takes(us=90.0), fast)  # of each trial, its own
    assert len(again.beside) == 30


def test_what_is_clearly_slower_is_given_up(bench):
    found = bench(Takes(us=200.0), Takes(path="fast", us=100.0))
    assert len(found.samples) == len(found.beside) == gpu.FEWEST


def test_what_takes_too_long_is_cut_short(bench, monkeypatch):
    monkeypatch.setattr(gpu, "MOST_SECONDS", 0.0)
    assert len(bench(Takes(us=100.0), None).samples) == gpu.FEWEST


@pytest.mark.parametrize(
    ("late", "code"), [(False, "measure.wrong"), (True, "measure.wrong_later")]
)
def test_a_wrong_kernel_has_no_time(bench, late, code):
    found = bench(Takes(wrong=1.0, late=late), None)
    assert found.samples == ()
    assert the(code, [found.failure])["error"] > 1


def test_a_crash_is_the_failure_of_its_trial_alone():
    """In the real process, which has no GPU here and says so: each trial starts another."""
    measurer = GpuMeasurer()
    for _ in range(2):
        found = measurer.measure(Crashes(), None)
        assert says("measure.failed", [found.failure])
    measurer.close()
