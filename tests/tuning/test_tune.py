"""A whole search, measured on a GPU that is made up: what it finds, keeps, resumes and builds."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.errors import EmulatorError, RecordsError, TargetError, ToolError, WorkloadError
from pipeliner.machine import machine_for
from pipeliner.measuring import Compiler as RealCompiler
from pipeliner.measuring import Measurement
from pipeliner.records import Record, Records
from pipeliner.records.candidate import Candidate, default_candidate, workload_key
from pipeliner.schedules import Gemm, GemmTile, conv2d
from pipeliner.targets import cuda_target, gpu
from pipeliner.tuning import space, tune
from tests.refusals import refused, says, the

from .fakes import NOT_COMPILED, Compiler, Fake, Loop, MadeUpGpu
from .interrupted import SPEC, TRIALS

ROOT = Path(__file__).parents[2]


known_space = functools.cache(space)


@pytest.fixture(autouse=True)
def _ranked_once(monkeypatch):
    """A second each time is most of what these tests would take."""
    monkeypatch.setattr("pipeliner.tuning.subjects.space", known_space)


@pytest.fixture
def db(tmp_path):
    return tmp_path / "tuned.sqlite"


def search(db, spec=SPEC, trials=12, *, fake=None, compiler=None, **options):
    fake = fake or Fake(MadeUpGpu(spec))
    compiler = compiler or Compiler()
    options.setdefault("prove", False)
    options.setdefault("all_trials", True)
    found = tune(spec, "h100", trials=trials, db=db, measurers=[fake], compiler=compiler, **options)
    return found, fake, compiler


def kept(db) -> list[Record]:
    with Records(db) as records:
        return records.find()


def test_it_finds_a_faster_kernel_than_the_models_choice(db):
    found, fake, compiler = search(db, trials=24)
    gpu, first = fake.gpu, default_candidate(SPEC, "h100")
    assert compiler.compiled[0] == first
    assert (found.done, found.failed, found.interrupted) == (24, 0, False)
    assert gpu.us(found.candidate) < 0.95 * gpu.us(first)
    best = min(gpu.times(known_space(SPEC, machine_for("h100"))))
    assert best / gpu.us(found.candidate) > 0.9
    assert compiler.log == ["start", "end", "close"]


def test_every_sample_is_kept_under_the_key(db):
    found, fake, _ = search(db, trials=5)
    assert repr(found).startswith(
        f"Tuned({SPEC.title!r}: {found.best.us:.1f} us, 5 trials, 0 failed"
    )
    records = kept(db)
    assert len(records) == 5
    for record, (candidate, beside) in zip(records, fake.measured):
        assert (record.workload, record.machine) == (workload_key(SPEC), "h100")
        assert Candidate.from_json(record.candidate) == candidate
        assert len(record.samples) == 9
        assert len(record.beside) == (0 if beside is None else 9)
        assert record.conditions == {"gpu": "made up"}
        assert record.source == "tune"
    assert min(records, key=lambda record: record.us) == found.best


def test_each_trial_runs_beside_the_fastest_before_it(db):
    _, fake, _ = search(db, trials=10)
    best, fastest = None, float("inf")
    for record, (candidate, beside) in zip(kept(db), fake.measured):
        assert beside == best
        if record.us < fastest:
            best, fastest = candidate, record.us


def test_drift_does_not_decide(db):
    """Everything becomes 5 % slower each trial; times still compare, as those of a cold GPU."""
    _, fake, _ = search(db, trials=16, fake=Fake(MadeUpGpu(SPEC), drift=0.05))
    errors = [record.us / fake.gpu.us(Candidate.from_json(record.candidate)) for record in kept(db)]
    assert max(errors) / min(errors) < 1.05
    drifted = [statistics.median(record.samples) / record.us for record in kept(db)]
    assert drifted[-1] > 1.5


def test_what_fails_is_recorded_and_costs_its_trial(db):
    broken = default_candidate(SPEC, "h100")
    found, fake, _ = search(db, trials=6, compiler=Compiler(lambda one: one == broken))
    assert (found.done, found.failed) == (6, 1)
    assert broken not in [candidate for candidate, _ in fake.measured]
    (failure,) = [record for record in kept(db) if record.failure]
    assert failure.failure == NOT_COMPILED
    assert failure.candidate == broken.to_json()


class Predicted(Fake):
    """Takes what is predicted, so that nothing better than the best predicted is left."""

    def _samples(self, candidate: Candidate) -> tuple[float, ...]:
        return (candidate.plan(SPEC, machine_for("h100")).predicted_us,) * 9


def test_it_stops_once_nothing_better_is_left_and_says_why(db, tmp_path, monkeypatch):
    """Of a space whose first points are far ahead; all trials are made where that is asked."""
    points = known_space(SPEC, machine_for("h100"))
    least = points[0].predicted_us
    clear = [points[0], *(one for one in points if one.predicted_us > 1.4 * least)][:60]
    monkeypatch.setattr("pipeliner.tuning.subjects.space", lambda *_: clear)
    found, _, _ = search(db, trials=60, fake=Predicted(MadeUpGpu(SPEC)), all_trials=False)
    assert found.stopped is not None
    assert found.stopped.code == "tune.stopped"
    assert found.stopped["chance"] < found.stopped["enough"]
    assert found.done < 0.8 * len(clear)
    again, _, other = search(db, trials=60, fake=Predicted(MadeUpGpu(SPEC)), all_trials=False)
    assert again.stopped is not None
    assert again.done == found.done
    assert other.compiled == [found.candidate]  # what others would have been measured beside
    every, _, _ = search(tmp_path / "all.sqlite", trials=40, fake=Predicted(MadeUpGpu(SPEC)))
    assert (every.done, every.stopped) == (40, None)


def test_a_record_has_the_prediction_of_what_could_not_be_compiled(db):
    """A kernel that is not there has no plan to say it."""
    broken = default_candidate(SPEC, "h100")
    search(db, trials=3, compiler=Compiler(lambda one: one == broken))
    (failure,) = [record for record in kept(db) if record.failure]
    plan = broken.plan(SPEC, machine_for("h100"))
    assert failure.predicted_us == plan.predicted_us > 0


def test_nothing_but_failures_is_an_answer_too(db):
    found, *_ = search(db, trials=3, fake=Loop())
    assert (found.done, found.failed, found.best) == (3, 3, None)
    with refused("tune.no_best", WorkloadError):
        _ = found.candidate


DRIVER = "CUDA error: initialization error"


class Lost(Loop):
    """A GPU that is lost from its ``after``-th trial on."""

    def __init__(self, after: int = 0) -> None:
        self.after, self.asked = after, 0
        self.fake = Fake(MadeUpGpu(SPEC))

    def measure(self, built, incumbent):
        self.asked += 1
        if self.asked > self.after:
            return Measurement(failure=Reason("measure.failed", why=DRIVER))
        return self.fake.measure(built, incumbent)


def test_where_no_candidate_is_at_fault_the_search_says_so_at_once(db):
    lost = Lost()
    with refused("tune.alike", ToolError, trials=4, failure=Reason("measure.failed", why=DRIVER)):
        search(db, trials=32, fake=lost)
    assert lost.asked <= 6  # what was under way
    assert kept(db) == []  # nor do they lose by it: they are tried when the GPU is back
    found, fake, _ = search(db, trials=6)
    assert (found.done, found.failed) == (6, 0)
    assert default_candidate(SPEC, "h100") in [candidate for candidate, _ in fake.measured]


def test_once_one_ran_failures_are_the_candidates(db):
    found, *_ = search(db, trials=8, fake=Lost(after=1))
    assert (found.done, found.failed) == (8, 7)
    assert len(kept(db)) == 8


def test_a_finished_search_is_done_at_once_and_a_longer_one_goes_on(db):
    search(db, trials=4)
    again, fake, compiler = search(db, trials=4)
    assert (again.done, fake.measured, compiler.compiled) == (4, [], [])
    longer, fake, compiler = search(db, trials=6)
    tried = [record.candidate for record in kept(db)]
    assert len(set(tried)) == len(tried) == longer.done == 6
    # The fastest so far is compiled again: it is what the new ones run beside.
    assert compiler.compiled[0] == again.candidate
    assert fake.measured[0][1] == again.candidate


def test_records_of_others_are_not_taken_for_ones_own(db):
    other = Gemm(512, 256, 256)
    search(db, trials=3)
    found, *_ = search(db, spec=other, trials=3)
    assert found.done == 3
    assert len(kept(db)) == 6


def test_time_ends_it(db):
    started = time.monotonic()
    found, *_ = search(db, trials=500, fake=Fake(MadeUpGpu(SPEC), seconds=0.3), seconds=4.0)
    assert time.monotonic() - started < 16
    assert 0 < found.done < 500
    assert not found.interrupted


def test_several_gpus_measure_at_once(db):
    fakes = [Fake(MadeUpGpu(SPEC), seconds=0.05) for _ in range(3)]
    found = tune(SPEC, "h100", trials=12, db=db, measurers=fakes, compiler=Compiler())
    assert found.done == 12
    assert all(len(fake.measured) > 1 for fake in fakes)
    assert len(kept(db)) == 12


def test_progress_tells_the_best_the_rate_and_the_time_left(db):
    told = []
    search(db, trials=4, fake=Fake(MadeUpGpu(SPEC), seconds=0.05), say=told.append)
    assert [progress.done for progress in told] == [0, 1, 2, 3, 4]
    assert (told[0].best_us, told[0].left, told[0].rate) == (None, None, 0.0)
    last = told[-1]
    assert last.best_us == min(record.us for record in kept(db))
    assert last.tflops == pytest.approx(SPEC.flops() / last.best_us * 1e-6)
    assert 0 < last.rate < 1 / 0.05
    assert last.left == 0.0
    assert told[1].left == pytest.approx(3 / told[1].rate)


@pytest.mark.deep("tests/measuring/test_lab.py::test_an_interrupt_keeps_what_was_kept")
def test_interrupted_it_keeps_what_it_has_and_goes_on_from_there(db):
    def begin():
        return subprocess.Popen(
            [sys.executable, "-m", "tests.tuning.interrupted", str(db)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )

    process = begin()
    for line in process.stdout:
        if int(line) == 3:
            break
    process.send_signal(signal.SIGINT)
    rest = process.communicate()[0].split()
    assert process.returncode == 0
    assert rest[-2] == "interrupted"
    assert 3 <= int(rest[-1]) == len(kept(db)) < TRIALS

    process = begin()
    told = process.communicate()[0].split()
    assert told[0] == rest[-1]
    assert told[-2:] == ["done", str(TRIALS)]
    tried = [record.candidate for record in kept(db)]
    assert len(set(tried)) == len(tried) == TRIALS


@pytest.mark.parametrize("spec", [Gemm(256, 128, 128), conv2d(1, 8, 8, 32, 32, 3, 3)], ids=str)
@pytest.mark.deep("each alone: tests/bench/test_compiling.py, tests/verify, the other tests here")
def test_with_the_real_compiler_and_the_emulator(db, spec):
    """Processes compile each candidate, and the emulator runs a small one of it first."""
    fake = Fake(MadeUpGpu(spec, "a100"))
    found = tune(spec, "a100", trials=2, db=db, jobs=2, verify=True, measurers=[fake])
    assert (found.done, found.failed) == (2, 0), [record.failure for record in kept(db)]
    for record in kept(db):
        plan = pipeliner.KernelPlan.from_json(record.plan)
        assert plan.predicted_us == record.predicted_us > 0
        assert plan.matmuls
    assert not any(Path(built).exists() for built in [str(db) + "-wal"])


def test_build_uses_the_record_and_says_so(db, monkeypatch):
    found, *_ = search(db)
    kernel = pipeliner.build(SPEC, "h100", db=db)
    why = Reason("recorded.tuned", us=found.best.us, tried=12, file="tuned.sqlite")
    assert kernel.plan.reasons[0] == why
    assert str(why) in " ".join(kernel.plan.explain().split())
    tile = found.candidate.tile
    assert (kernel.plan.matmuls[0].m, kernel.plan.matmuls[0].n) == (tile.m, tile.n)
    assert kernel.cuda
    monkeypatch.setenv("PIPELINER_DB", str(db))
    assert pipeliner.build(SPEC, "h100").plan == kernel.plan


def test_the_plan_on_record_says_whether_it_was_proved(db, monkeypatch):
    found, *_ = search(db, trials=2, prove=True)
    assert found.proof is not None
    assert found.proof.has("proof.proved")
    with Records(db) as records:
        best = records.best(*records.keys()[0])
        assert len(records) == 2  # amended, not added
    plan = pipeliner.KernelPlan.from_json(best.plan)
    assert plan.reasons[0] == found.proof
    monkeypatch.setattr("pipeliner.tuning.tuner.with_proof", None)
    again, *_ = search(db, trials=2, prove=True)  # not proved again
    assert again.proof == found.proof
    (why, *_) = pipeliner.build(SPEC, "h100", db=db).plan.reasons
    assert (why.code, why["proof"]) == ("recorded.with_proof", found.proof)


def test_a_kernel_that_cannot_be_proved_is_recorded_as_that(db, monkeypatch):
    def fails(_kernel):
        raise EmulatorError("emulator.sync", scope="moon")

    monkeypatch.setattr("pipeliner.kernel.compiled.Kernel.proof", property(fails))
    found, *_ = search(db, trials=1, prove=True)
    assert found.proof.code == "recorded.not_proved"
    assert found.proof.has("emulator.sync")


def test_without_a_record_the_models_choice_is_built_and_says_so(db, monkeypatch):
    search(db, trials=1)
    tile = default_candidate(SPEC, "a100").tile
    other = pipeliner.build(SPEC, "a100", db=db).plan
    assert the("recorded.no_record", other.reasons[:1])["machine"] == "a100"
    assert (other.matmuls[0].m, other.matmuls[0].n) == (tile.m, tile.n)
    asked = pipeliner.build(SPEC, "h100", db=db, depth=2).plan
    assert says("recorded.not_used", asked.reasons[:1])
    assert not any("tuned" in str(reason) for reason in pipeliner.build(SPEC, "h100").plan.reasons)
    monkeypatch.setenv("PIPELINER_DB", str(db.with_name("later.sqlite")))
    early = pipeliner.build(SPEC, "h100").plan
    assert early.reasons[0] == Reason("recorded.no_file", file="later.sqlite")


def test_what_adds_in_no_order_is_not_taken_from_records(db):
    """Others may have measured it, where it was asked for."""
    found, *_ = search(db, trials=1)
    (record,) = kept(db)
    request = dataclasses.replace(found.candidate.request, reduction="atomic")
    faster = dataclasses.replace(found.candidate, request=request).to_json()
    samples = tuple(us / 2 for us in record.samples)
    with Records(db) as records:
        records.add(dataclasses.replace(record, candidate=faster, samples=samples, us=0.0))
    plan = pipeliner.build(SPEC, "h100", db=db).plan
    assert the("recorded.tuned", plan.reasons[:1])["us"] == record.us
    again, *_ = search(db, trials=1)
    assert again.best == record


def test_a_record_of_other_versions_is_not_used(db):
    search(db, trials=1)
    (record,) = kept(db)
    old = db.with_name("old.sqlite")
    with Records(old) as records:
        records.add(
            Record(
                record.workload, "h100", "pipeliner 0.0.1", record.candidate, samples=record.samples
            )
        )
    plan = pipeliner.build(SPEC, "h100", db=old).plan
    assert the("recorded.other_versions", plan.reasons[:1])["found"] == "pipeliner 0.0.1"


def test_what_cannot_be_built_or_tuned_is_refused(db, monkeypatch):
    monkeypatch.delenv("PIPELINER_DB", raising=False)
    with refused("records.missing", RecordsError):
        pipeliner.build(SPEC, "h100", db=db)
    function = Candidate(GemmTile(64, 64, 32)).function(SPEC)
    with refused("records.missing", RecordsError):
        pipeliner.build(function, "h100", db=db)
    with refused("tune.no_file", RecordsError):
        tune(SPEC, "h100")
    with refused("gemm.symbolic_m", WorkloadError):
        search(db, spec=Gemm(None, 64, 64))
    with refused("tune.trials", WorkloadError, value=0):
        search(db, trials=0)
    assert not os.path.exists(db)


@pytest.mark.skipif(gpu() is not None, reason="a GPU is visible")
def test_without_a_gpu_one_line_says_so(db):
    with refused("gpu.none", TargetError):
        tune(SPEC, "h100", db=db)


@pytest.mark.nvcc
@pytest.mark.deep("test_interrupted_it_keeps_what_it_has_and_goes_on_from_there")
def test_what_is_being_compiled_leaves_nothing_behind(tmp_path, monkeypatch):
    """Neither ours nor nvcc's files, when a search is interrupted in the middle of it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    target = cuda_target("a100")
    compiler = RealCompiler(target, 1)
    candidate = default_candidate(SPEC, target)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(compiler.compile, SPEC, candidate)
        deadline = time.monotonic() + 60
        while not list(tmp_path.rglob("tmpxft*")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        compiler.end()
        assert made.result().failure
    compiler.close()
    assert list(tmp_path.iterdir()) == []
