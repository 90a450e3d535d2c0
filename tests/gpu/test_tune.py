"""A search on a GPU: kernels that hang or crash cost their trial, and what is found is faster."""

from __future__ import annotations

import time

import numpy as np
import pytest

import pipeliner
from pipeliner.measuring import ROUNDS, Compiler, GpuMeasurer, process
from pipeliner.records import Records
from pipeliner.records.candidate import default_candidate
from pipeliner.schedules import Gemm
from pipeliner.targets import cuda_target
from pipeliner.tuning import tune
from tests.measuring.planted import Crashes, Hangs
from tests.refusals import says

pytestmark = pytest.mark.gpu

SPEC = Gemm(512, 512, 512)


def test_a_short_search(tmp_path):
    db = tmp_path / "r"
    found = tune(SPEC, trials=6, db=db, jobs=4)
    assert (found.done, found.interrupted) == (6, False)
    assert found.best is not None
    with Records(db) as records:
        kept = records.find()
    assert all(one.samples or one.failure for one in kept)
    assert all(one.plan for one in kept if one.samples)
    first = next(r for r in kept if r.candidate == default_candidate(SPEC, cuda_target()).to_json())
    assert found.best.us <= first.us
    kernel = pipeliner.build(SPEC, db=db)
    assert says("recorded.tuned", kernel.plan.reasons[:1])
    a, b = SPEC.inputs()
    c = np.empty(SPEC.shapes()[-1], SPEC.out)
    kernel(a, b, c)
    np.testing.assert_allclose(c, SPEC.reference(a, b), rtol=0.02, atol=0.05)


def test_a_hanging_and_a_crashing_kernel_cost_a_trial_each(monkeypatch):
    monkeypatch.setattr(process, "SECONDS", 5.0)
    compiler = Compiler(cuda_target(), 1)
    measurer = GpuMeasurer()
    try:
        good = compiler.compile(SPEC, default_candidate(SPEC, cuda_target()))
        assert len(measurer.measure(good, None).samples) == ROUNDS
        started = time.monotonic()
        hung = measurer.measure(Hangs(SPEC), good)
        assert time.monotonic() - started < 15
        assert hung.failure == "cannot measure: cannot wait any longer: nothing came for 5 s"
        assert measurer.measure(Crashes(SPEC), good).failure.endswith("the process ended: SIGSEGV")
        again = measurer.measure(good, good)
        assert len(again.samples) == len(again.beside) == ROUNDS
    finally:
        measurer.close()
        compiler.close()
