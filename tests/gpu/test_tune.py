"""A search on a GPU: kernels that hang or crash cost their trial, and what is found is faster."""

from __future__ import annotations

import time

import numpy as np
import pytest

import pipeliner
from pipeliner.measuring import ROUNDS, Compiler, GpuMeasurer, process
from pipeliner.measuring.rounds import FEWEST
from pipeliner.records import Records
from pipeliner.records.candidate import Candidate, default_candidate
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.targets import cuda_target
from pipeliner.tuning import tune
from tests.measuring.planted import Crashes, Hangs
from tests.refusals import says
from tests.tuning.functions import COLUMNS, ROWS, knobbed, reversing

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
        assert len(again.samples) == len(again.beside) >= FEWEST, "others may share the GPU"
    finally:
        measurer.close()
        compiler.close()


def test_a_function_of_knobs_is_tuned(tmp_path):
    """Each candidate is compared with the function's first setting, unpipelined, on this GPU."""
    found = tune(knobbed, trials=6, db=tmp_path / "r", jobs=4)
    assert (found.done, found.failed) == (6, 0)
    with Records(tmp_path / "r") as records:
        assert all(len(one.samples) >= 5 for one in records.find())
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype("float32")
    y = np.empty_like(x)
    found.kernel(x, y)
    assert (y == 2 * x[:, ::-1]).all()


def test_a_scheduled_matmul_is_tuned_by_its_plan_alone(tmp_path):
    """Also one whose instructions round in another order than the reference's."""
    gemm = Gemm(256, 256, 512)
    function = schedule_gemm(gemm, GemmTile(64, 64, 32)).mod["main"]
    found = tune(function, trials=12, db=tmp_path / "r", jobs=4)
    with Records(tmp_path / "r") as records:
        kept = records.find()
    assert found.best is not None
    assert not [one.failure for one in kept if says("measure.wrong", [one.failure])]
    assert len({one.plan for one in kept if one.samples}) > 1
    a, b = gemm.inputs()
    c = np.empty((256, 256), gemm.out)
    pipeliner.build(function, db=tmp_path / "r")(a, b, c)
    np.testing.assert_allclose(c, gemm.reference(a, b), rtol=0.02, atol=0.05)


def test_a_wrong_setting_is_told_from_a_right_one(tmp_path):
    """What makes another function of one knob has no time."""

    def tuned(rows=[8, 4]):  # noqa: B006
        return reversing(rows, factor=2.0 if rows == 8 else 2.5)

    tune(tuned, trials=4, db=tmp_path / "r", jobs=2)
    with Records(tmp_path / "r") as records:
        failures = {
            dict(Candidate.from_json(one.candidate).tile.values)["rows"]: one.failure
            for one in records.find()
        }
    assert failures[8] == ""
    assert says("measure.wrong", [failures[4]])


def test_autotune_makes_a_kernel(tmp_path):
    @pipeliner.autotune(key=["columns"], space={"rows": [1, 2, 4]}, trials=3, db=tmp_path / "r")
    def tuned(columns, rows):
        return reversing(rows, columns=columns)

    kernel = tuned(64)
    assert tuned(64) is kernel
    x = np.ones((ROWS, 64), "float32")
    y = np.empty_like(x)
    kernel(x, y)
    assert (y == 2).all()
