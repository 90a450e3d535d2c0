"""Whole models: which of their times are compared, and the kernels that they run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeliner.bench import models
from pipeliner.bench.models import ModelBench, kernel_lines


class Values(np.ndarray[Any, Any]):
    """A tensor, as far as an error is taken of it."""

    def double(self) -> Any:
        return self.astype("float64")

    def abs(self) -> Any:
        return np.abs(self)


def values(*given: float) -> Any:
    return np.array(given).view(Values)


def test_the_slower_of_our_times_is_compared_with_the_fastest_of_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter((1.0, 3.0, 2.5, 1.25))
    monkeypatch.setattr(models, "milliseconds", lambda run: next(times))
    ours, other = (lambda: values(1.0, -4.0)), (lambda: values(1.5, -4.0))
    ModelBench(values(1.0, -4.25)).beside(ours, iter([("eager", other), ("compiled", other)]))
    first, eager, compiled, again, said = capsys.readouterr().out.splitlines()
    assert first.split() == ["ours", "1.0000", "ms,", "error", "0.25000", "of", "4.250"]
    assert eager.split() == ["eager", "3.0000", "ms,", "error", "0.50000", "of", "4.250"]
    assert (compiled.split()[0], again.split()[:2]) == ("compiled", ["ours", "again"])
    assert said == "ours: 2.000x the fastest of the others"


def test_kernels_are_added_up_by_name_and_what_ran_on_the_host_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = [("attention", "gpu", 7.5), ("linear", "gpu", 5.0), ("linear", "gpu", 4.0)]
    events.append(("cudaLaunchKernel", "host", 99.0))
    ran: list[str] = []

    @contextlib.contextmanager
    def profile(activities: list[str]) -> Iterator[Any]:
        assert activities == ["CUDA"]
        yield SimpleNamespace(events=lambda: [event(*one) for one in events])

    def event(name: str, where: str, us: float) -> Any:
        return SimpleNamespace(name=name, device_type=where, self_device_time_total=us)

    torch = SimpleNamespace(
        cuda=SimpleNamespace(synchronize=lambda: None),
        profiler=SimpleNamespace(profile=profile, ProfilerActivity=SimpleNamespace(CUDA="CUDA")),
        autograd=SimpleNamespace(DeviceType=SimpleNamespace(CUDA="gpu")),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    linear, attention, total = kernel_lines(lambda: ran.append("a run"))
    assert linear.split() == ["9.0", "us", "2", "x", "linear"]
    assert attention.split() == ["7.5", "us", "1", "x", "attention"]
    assert total.split() == ["16.5", "us", "in", "3", "launches"]
    assert len(ran) == 2
