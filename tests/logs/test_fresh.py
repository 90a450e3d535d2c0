"""Workloads that a seed draws, measured by a timer that is made up."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

import pipeliner.measuring
from pipeliner import cli
from pipeliner.commands.lab import fresh as commands
from pipeliner.errors import WorkloadError
from pipeliner.logs import drawn, fresh
from pipeliner.logs.drawn import KINDS, MOST_FLOPS, fresh_specs
from pipeliner.logs.fresh import Timed, fresh_jobs, fresh_scores, judge
from pipeliner.logs.grid import grid
from pipeliner.logs.recorder import record
from pipeliner.machine import H100
from pipeliner.records.candidate import Candidate, workload_key
from pipeliner.records.log import read_any
from pipeliner.schedules import Gemm, GemmTile
from pipeliner.targets import cuda_target
from pipeliner.tuning.search import Search
from pipeliner.tuning.space import Point, point_of
from tests.logs.made import candidate
from tests.logs.test_recorder import Bench, Compiler

SEED = 5


@pytest.fixture
def few(monkeypatch):
    """Small products of a space of eight points, of which three and two drawn ones are measured.

    And the one that would be tried first, which is the best predicted.
    """

    def space(spec, machine):
        found = [point_of(spec, machine, one) for one in grid(spec, machine, 8)]
        return sorted(found, key=lambda point: point.predicted_us)

    def product(draw):
        return Gemm(64, 64, 64 * draw.randint(1, 9))

    monkeypatch.setattr(drawn, "KINDS", {"product": product})
    monkeypatch.setattr(fresh, "space", space)
    monkeypatch.setattr(fresh, "PREDICTED", 3)
    monkeypatch.setattr(fresh, "DRAWN", 2)
    monkeypatch.setattr(fresh, "TOP", 1)


def measured(log, seconds=1000.0, count=2):
    known = read_any(log, H100) if log.exists() else []
    compiler = Compiler()
    said = []
    jobs = fresh_jobs(SEED, H100, count, known)
    done = record(jobs, compiler, Bench(), log, seconds, said.append)
    return done, compiler.count


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_draws_a_workload_of_each_kind(seed):
    found = fresh_specs(seed, 2 * len(KINDS))
    assert found == fresh_specs(seed, 2 * len(KINDS))
    assert found[:5] == fresh_specs(seed, 5)
    assert all(0 < spec.flops() <= MOST_FLOPS for spec in found)
    assert {spec.types.dtype for spec in found} >= {"float16"}
    assert fresh_specs(seed + 1, 8) != found[:8]


def test_the_best_predicted_are_measured_and_some_that_are_drawn(few):
    (job,) = fresh_jobs(SEED, H100, 1)
    points = fresh.space(job.spec, H100)
    best = [point.candidate for point in points[:3]]
    assert list(job.candidates[:3]) == best
    assert len(job.candidates) == 5
    assert set(job.candidates[3:]) < {point.candidate for point in points[3:]}
    assert next(fresh_jobs(SEED, H100, 1)).candidates == job.candidates


def test_processes_that_plan_ahead_draw_the_same(monkeypatch):
    monkeypatch.setattr(
        drawn, "KINDS", {"product": lambda draw: Gemm(16, 16, 64 * draw.randint(1, 9))}
    )
    with ThreadPoolExecutor(2) as pool:
        ahead = [job.candidates for job in fresh_jobs(SEED, H100, 2, pool=pool)]
    assert ahead == [job.candidates for job in fresh_jobs(SEED, H100, 2)]
    (spec, *_), (first, *_) = fresh_specs(SEED, 2), ahead
    assert pickle.loads(pickle.dumps((spec, H100, first))) == (spec, H100, first)


def test_what_is_measured_is_not_measured_again(few, tmp_path):
    log = tmp_path / "fresh.sqlite"
    assert measured(log, count=1) == (True, 5)
    assert measured(log) == (True, 5)  # the second workload alone
    assert measured(log) == (True, 0)
    assert len(judge(SEED, read_any(log, H100), H100, 2)) == 2
    assert len(judge(SEED, read_any(log, H100), H100, 1)) == 1


def test_a_seed_that_the_log_has_nothing_of_is_not_judged(few, tmp_path):
    log = tmp_path / "fresh.sqlite"
    measured(log, count=1)
    with pytest.raises(WorkloadError) as caught:
        judge(SEED + 1, read_any(log, H100), H100, 1)
    assert caught.value.reason.code == "command.log_without_time"


def test_where_time_runs_out_not_all_is_done(few, tmp_path):
    done, _ = measured(tmp_path / "fresh.sqlite", seconds=0.0)
    assert not done


def timed(predicted, us, again=0.0, splits=1, features=(0.0,)):
    tile = GemmTile(64, 64, 64, splits=splits)
    return Timed(Point(Candidate(tile), predicted, features), us, again)


def test_scores_are_ratios_to_the_best_measured():
    found = [timed(10.0 + at, 12.0, splits=1 + at) for at in range(9)]
    found[8] = timed(18.0, 6.0, splits=9)  # the ninth by prediction is the fastest
    scored = fresh_scores("w", "float16", found)
    assert (scored.first, scored.top, scored.us, scored.measured) == (2.0, 2.0, 6.0, 9)
    off = [(10.0 + at) / one.us - 1 for at, one in enumerate(found)]
    assert scored.error == pytest.approx(sum(map(abs, off)) / 9)
    assert scored.bias == pytest.approx(sum(off) / 9)
    assert (scored.their_first, scored.their_top) == (None, None)
    found[3] = timed(13.0, 6.0, splits=4)
    assert fresh_scores("w", "float16", found).top == 1.0


def test_the_best_of_what_tune_would_try_first_counts():
    """Of ten variants of one kernel, mispredicted alike, it does not try eight before another."""
    alike = [timed(10.0 + at / 100, 12.0, splits=1 + at) for at in range(10)]
    other = timed(10.5, 6.0, splits=11, features=(20.0,))
    scored = fresh_scores("w", "float16", [*alike, other])
    assert (scored.first, scored.top) == (2.0, 1.0)
    hopeless = timed(40.0, 6.0, splits=11, features=(20.0,))
    assert fresh_scores("w", "float16", [*alike, hopeless]).top == 2.0


def test_what_tune_would_try_first_is_measured_too(few, monkeypatch):
    """Whatever is drawn beside it."""
    drawn = next(fresh_jobs(SEED, H100, 1)).candidates
    points = fresh.space(next(iter(fresh_specs(SEED, 1))), H100)
    for top in (0, 4):
        monkeypatch.setattr(fresh, "TOP", top)
        monkeypatch.setattr(fresh, "PREDICTED", 1)
        (job,) = fresh_jobs(SEED, H100, 1)
        tried = {point.candidate for point in Search(points).next(top)}
        assert tried <= set(job.candidates)
        assert job.candidates[0] == drawn[0]
        assert len(job.candidates) <= 3 + top
    assert len(job.candidates) > 3


def test_others_choices_are_judged_by_the_same_times():
    """Of what they choose, what was measured counts, in their order."""
    found = [timed(10.0 + at, 12.0 - at, splits=1 + at) for at in range(4)]
    theirs = [one.point.candidate for one in (timed(0.0, 1.0, splits=7), found[1], found[2])]
    scored = fresh_scores("w", "float16", found, theirs)
    assert scored.their_first == pytest.approx(11 / 9)
    assert scored.their_top == pytest.approx(10 / 9)
    assert scored.first == pytest.approx(12 / 9)


def test_what_others_choose_is_measured_too(few):
    theirs = [candidate("wgmma/tma 64x64x64 d2")]
    (job,) = fresh_jobs(SEED, H100, 1, theirs=lambda spec: theirs)
    assert set(job.candidates) == {*next(fresh_jobs(SEED, H100, 1)).candidates, *theirs}


def test_the_command_measures_and_judges(few, monkeypatch, tmp_path, capsys):
    """Interrupted while the second workload is timed, it judges the first, and goes on later."""
    benches = itertools.count()

    class Interrupted(Bench):
        def ask(self, question, seconds):
            if isinstance(question, pipeliner.measuring.Open) and next(benches) == 1:
                raise KeyboardInterrupt
            return super().ask(question, seconds)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    def compiler(target, jobs):
        made = Compiler()
        made.start, made.close = (lambda: None), (lambda: None)
        return made

    monkeypatch.setattr(pipeliner.measuring, "require_gpu", lambda: None)
    monkeypatch.setattr(pipeliner.measuring, "GpuMeasurer", Interrupted)
    monkeypatch.setattr(pipeliner.measuring, "Compiler", compiler)
    monkeypatch.setattr(pipeliner.measuring, "current_conditions", lambda: None)
    monkeypatch.setattr("pipeliner.targets.cuda_target", lambda *_: cuda_target("h100"))
    monkeypatch.setattr(commands, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    log = str(tmp_path / "fresh.sqlite")
    asked = ["regret", "--fresh", str(SEED), "--shapes", "2", "--log", log]
    assert cli.main(asked) == 1
    assert "1 of 2 workloads" in capsys.readouterr().out
    assert cli.main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["workloads"]) == 2
    keys = {workload_key(spec) for spec in fresh_specs(SEED, 2)}
    assert {one.workload for one in read_any(tmp_path / "fresh.sqlite", H100)} == keys
    firsts = [one["first"] for one in found["workloads"]]
    assert found["mean"]["first"] == pytest.approx(math.fsum(firsts) / 2)
    assert found["mean"]["worst_first"] == max(firsts)
