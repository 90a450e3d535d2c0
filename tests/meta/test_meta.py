"""meta_schedule with our space, builder, postprocessor and model; its database and our records."""

from __future__ import annotations

import json
import random

import pytest
import tvm
import tvm_ffi

import pipeliner
from pipeliner import meta
from pipeliner.errors import PlanError, WorkloadError
from pipeliner.meta.model import planned
from pipeliner.meta.workload import annotate, candidate_of, spec_of
from pipeliner.plan.request import Request
from pipeliner.records import Record, Records
from pipeliner.records.candidate import NOTHING_ASKED, Candidate, versions_key, workload_key
from pipeliner.schedules import ConvTile, DepthwiseTile, Gemm, GemmTile, conv2d
from pipeliner.verification.verdict import verify_workload

pytest.importorskip("psutil", reason="meta_schedule needs psutil")

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from tests.refusals import refused, the

SPEC = Gemm(128, 128, 128)
H100 = meta.target("h100")


@derived_object
class Now(ms.runner.PyRunnerFuture):
    def __init__(self, result):
        super().__init__()
        self._result = result

    def done(self):
        return True

    def result(self):
        return self._result


@derived_object
class Runner(ms.runner.PyRunner):
    """Times from 1 to 2 us; every other candidate fails as on a GPU."""

    def __init__(self):
        super().__init__()
        self.ran = []
        self._rng = random.Random(0)

    def run(self, runner_inputs):
        found = []
        for one in runner_inputs:
            self.ran.append(str(one.artifact_path))
            if len(self.ran) % 4 == 0:
                found.append(Now(ms.runner.RunnerResult(None, "no such launch")))
            else:
                found.append(Now(ms.runner.RunnerResult([self._rng.uniform(1e-6, 2e-6)], None)))
        return found


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ms")
    runner = Runner()
    database = ms.tune_tir(
        meta.workload(SPEC),
        H100,
        str(folder),
        6,
        num_trials_per_iter=6,
        space=meta.space(3),
        builder=meta.builder(2),
        runner=runner,
        cost_model=meta.cost_model(),
        strategy="replay-trace",
        seed=1,
    )
    return database, runner, folder


def timed(database):
    return [r for r in database.get_all_tuning_records() if r.run_secs and float(r.run_secs[0]) < 1]


def test_it_tunes_with_our_parts(tuned):
    database, runner, _ = tuned
    assert len(runner.ran) == 6
    assert len(timed(database)) >= 3


def test_its_database_replays_the_plan_from_its_files(tuned):
    """Read again from disk, the best trace gives the same schedule, annotations and plan."""
    database, _, folder = tuned
    again = ms.database.JSONDatabase(
        str(folder / "database_workload.json"), str(folder / "database_tuning_record.json")
    )
    mod = meta.workload(SPEC)
    first = ms.tir_integration.compile_tir(database, mod, H100)
    second = ms.tir_integration.compile_tir(again, mod, H100)
    assert tvm_ffi.structural_equal(first.mod, second.mod)
    candidate = candidate_of(second)
    kernel = pipeliner.build(second.mod, "h100")
    direct = pipeliner.build(candidate.function(SPEC), "h100", **candidate.request.as_dict())
    assert kernel.plan.matmuls == direct.plan.matmuls
    assert kernel.plan.copies == direct.plan.copies
    assert [loop.rings for loop in kernel.plan.loops] == [loop.rings for loop in direct.plan.loops]
    assert verify_workload(kernel, SPEC, timings=("late",), orders=("random",)).ok


def test_records_go_there_and_back(tuned, tmp_path):
    database, *_ = tuned
    count = meta.import_database(database, tmp_path / "r")
    assert count == len(timed(database))
    assert meta.import_database(database, tmp_path / "r") == 0  # the same ones are not added twice
    with Records(tmp_path / "r") as records:
        kept = records.find()
    assert {one.source for one in kept} == {"meta_schedule"}
    assert all(json.loads(one.trace) for one in kept)
    best = pipeliner.build(SPEC, "h100", db=tmp_path / "r").plan
    assert the("recorded.tuned", best.reasons[:1])["us"] == min(one.us for one in kept)

    back = ms.database.MemoryDatabase()
    assert meta.export_database(tmp_path / "r", back) == count
    assert meta.import_database(back, tmp_path / "s") == count
    with Records(tmp_path / "s") as records:
        again = {(one.candidate, round(one.us, 6)) for one in records.find()}
    assert again == {(one.candidate, round(one.us, 6)) for one in kept}


def test_what_our_own_search_found_replays_there(tmp_path):
    spec = conv2d(1, 8, 8, 32, 32, 3, 3, pad=1)
    candidate = Candidate.from_json(
        '{"tile": {"kind": "ConvTile", "m": 64, "n": 32, "k": 32}, '
        '"request": {"depth": 3, "instruction": "mma"}}'
    )
    with Records(tmp_path / "r") as records:
        key = (workload_key(spec), "h100", versions_key())
        records.add(Record(*key, candidate.to_json(), samples=(3.0, 4.0, 5.0)))
        records.add(Record(*key, contender="cuDNN", samples=(1.0,)))
        records.add(Record(*key, candidate.to_json(), failure="no"))
    database = ms.database.MemoryDatabase()
    assert meta.export_database(tmp_path / "r", database) == 1
    schedule = ms.tir_integration.compile_tir(database, meta.workload(spec), H100)
    assert candidate_of(schedule) == candidate
    (record,) = database.get_all_tuning_records()
    assert [float(one) for one in record.run_secs] == pytest.approx([3e-6, 4e-6, 5e-6])
    executable = tvm.compile(schedule.mod, H100, tir_pipeline="pipeliner")  # TVM's own driver
    assert executable is not None
    plan = planned(schedule, H100)
    assert {ring.depth for loop in plan.loops for ring in loop.rings if ring.scope == "shared"} == {
        3
    }


TILE = GemmTile(64, 64, 64)


def sketch(request=NOTHING_ASKED):
    schedule = Candidate(TILE).function(SPEC)
    annotate(schedule, Candidate(TILE), [Request(), request], 1)
    return schedule


def test_the_postprocessor_takes_what_can_be_planned():
    """200 KB of rings are right although VerifyGPUCode, told of 48 KB, would not have them."""
    context = ms.TuneContext(mod=meta.workload(SPEC), target=H100)
    fits = meta.postproc()
    fits._initialize_with_tune_context(context)
    assert fits.apply(sketch(request=Request(depth=8, mechanism="tma", instruction="wgmma")))
    assert not fits.apply(sketch(request=Request(depth=64)))
    assert not fits.apply(sketch(request=Request(mechanism="tma", instruction="simt")))


def test_the_model_scores_as_it_predicts():
    context = ms.TuneContext(mod=meta.workload(SPEC), target=H100)
    schedules = [sketch(), sketch(request=Request(depth=1)), sketch(request=Request(depth=64))]
    scores = meta.cost_model().predict(context, [ms.MeasureCandidate(one, []) for one in schedules])
    times = [planned(one, H100).predicted_us for one in schedules[:2]]
    assert list(scores) == pytest.approx([1e6 / times[0], 1e6 / times[1], 0.0])
    assert scores[0] > scores[1] > scores[2]


def test_a_trace_replays_as_json():
    schedule = sketch(request=Request(depth=2))
    again = Schedule(meta.workload(SPEC))
    type(schedule.trace).apply_json_to_schedule(schedule.trace.as_json(), again)
    assert candidate_of(again) == Candidate(GemmTile(64, 64, 64), Request(depth=2))
    assert spec_of(again.mod) == SPEC


def test_what_is_not_ours_is_refused(tmp_path):
    with refused("tune.not_workload", WorkloadError):
        spec_of(tvm.IRModule({"main": SPEC.function()}))
    with refused("tune.other_space", WorkloadError):
        candidate_of(Schedule(meta.workload(SPEC)))
    broken = Candidate(GemmTile(64, 64, 64)).function(SPEC)
    broken.annotate(broken.get_sblock("root"), "pipeliner.requests", "[{]")
    with refused("annotation.unreadable", PlanError, key="pipeliner.requests"):
        pipeliner.pipeline(broken, "h100")
    other = ms.database.MemoryDatabase()
    mod = tvm.IRModule({"main": SPEC.function().with_attr("global_symbol", "main")})
    stranger = ms.database.TuningRecord(
        Schedule(mod).trace, other.commit_workload(mod), [1e-6], H100
    )
    other.commit_tuning_record(stranger)
    assert meta.import_database(other, tmp_path / "r") == 0


LONG = Gemm(64, 64, 16384)
DEPTHWISE = conv2d(1, 8, 8, 32, 32, 3, 3, pad=1, groups=32)


@pytest.mark.parametrize(
    "spec",
    [LONG, conv2d(8, 14, 14, 64, 64, 3, 3, pad=1, layout="NCHW")],
    ids=["product", "convolution"],
)
@pytest.mark.deep("test_it_tunes_with_our_parts")
def test_every_sketch_replays_where_the_best_tiles_split_the_reduction(spec):
    """Whose schedules begin with another function than the workload's: no trace makes that."""
    context = ms.TuneContext(mod=meta.workload(spec), target=H100)
    space = meta.space(2)
    space._initialize_with_tune_context(context)
    sketches = space.generate_design_space(meta.workload(spec))
    assert len(sketches) == 2
    for sketch in sketches:
        again = Schedule(meta.workload(spec))
        sketch.trace.apply_to_schedule(again, remove_postproc=False)
        tile = candidate_of(again).tile
        assert tile.splits == 1
    best = pipeliner.tuning.ranked(spec, "h100")[0].candidate.tile
    assert best.splits > 1
    trace, again = Candidate(best).function(spec).trace, Schedule(meta.workload(spec))
    with pytest.raises(RuntimeError):
        trace.apply_to_schedule(again, remove_postproc=False)


def test_a_workload_whose_tiles_do_not_replay_is_refused():
    space = meta.space(2)
    mod = meta.workload(DEPTHWISE)
    space._initialize_with_tune_context(ms.TuneContext(mod=mod, target=H100))
    with refused("tune.traces", WorkloadError):
        space.generate_design_space(mod)


def test_what_does_not_replay_is_not_exported(tmp_path):
    candidates = {
        LONG: [GemmTile(64, 64, 64), GemmTile(64, 64, 64, splits=8)],
        DEPTHWISE: [DepthwiseTile(1, 4)],
        conv2d(1, 8, 8, 3, 32, 7, 7, pad=3): [ConvTile(64, 32, 32, fold=True)],
    }
    with Records(tmp_path / "r") as records:
        for spec, tiles in candidates.items():
            key = (workload_key(spec), "h100", versions_key())
            for tile in tiles:
                records.add(Record(*key, Candidate(tile).to_json(), samples=(3.0,)))
    database = ms.database.MemoryDatabase()
    assert meta.export_database(tmp_path / "r", database) == 1
    schedule = ms.tir_integration.compile_tir(database, meta.workload(LONG), H100)
    assert candidate_of(schedule).tile == GemmTile(64, 64, 64)


def test_what_cannot_be_imported_is_left_out(tmp_path):
    """A trace of another version that does not apply any more, and a GPU that is not described."""
    database = ms.database.MemoryDatabase()
    mod = meta.workload(SPEC)
    workload = database.commit_workload(mod)
    right, wrong = sketch().trace, Candidate(GemmTile(64, 64, 64, splits=2)).function(SPEC).trace
    for trace, target in (
        (right, H100),
        (wrong, H100),
        (right, Target({"kind": "cuda", "arch": "sm_52"})),
    ):
        database.commit_tuning_record(
            ms.database.TuningRecord(
                trace, workload, [2e-6], target, ms.arg_info.ArgInfo.from_prim_func(mod["main"])
            )
        )
    assert meta.import_database(database, tmp_path / "r") == 1
