"""A timeline against the emulator, which runs the same ops in the same order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pipeliner import api
from pipeliner.emulator import emulate
from pipeliner.emulator.engine import thread_group as emulated
from pipeliner.kernel.compiled import plan_of
from pipeliner.machine import machine_for
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.timeline import trace
from pipeliner.timeline.trace import ARRIVE, BARRIER


@pytest.mark.parametrize("options", [{"epilogue": "rolled"}, {"epilogue": "clamped"}, {"depth": 2}])
@pytest.mark.parametrize("k", [64, 96, 160])
@pytest.mark.part(3)
def test_the_emulator_runs_the_same_order(options, k, monkeypatch):
    """Op by op with its iteration, barriers between, to the end; what is past it counts as last."""
    gemm = Gemm(64, 64, k)
    function = api.pipeline(schedule_gemm(gemm, GemmTile(64, 64, 32)), "sm_80", **options)
    (loop,) = (loop for loop in plan_of(function).loops if loop.pipelined)
    drawn = trace(loop, int(loop.trip), machine_for("sm_80"))
    last = drawn.iterations - 1
    assert executed(api.build(function), gemm, last, monkeypatch) == [
        (event.op, min(event.iteration, last)) for event in drawn.events if event.op != ARRIVE
    ]


def executed(built, gemm, last, monkeypatch):
    """Ops and barriers of the only CTA, as the emulator's first thread came to them."""
    origins = []
    step = emulated.ThreadGroup.step

    def noted(self, at):
        step(self, at)
        if self.tids[0] == 0:
            origins.append(self.cta.site(at).origin)

    monkeypatch.setattr(emulated.ThreadGroup, "step", noted)
    shapes = (gemm.m, gemm.k), (gemm.n, gemm.k), (gemm.m, gemm.n)
    assert not emulate(built, [np.ones(shape, "float16") for shape in shapes]).hazards
    order = [
        (BARRIER if found.kind == "barrier" else found.op, min(int(found.iteration or last), last))
        for found in origins
        if found is not None and found.stage is not None and found.kind != "commit"
    ]
    return [op for op, _ in itertools.groupby(order)]
