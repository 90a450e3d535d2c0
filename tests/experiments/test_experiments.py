"""Experiments: what a file means, that every rung can be climbed, and that a run goes on."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeliner import cli
from pipeliner.bench.problems import library
from pipeliner.bench.results import CUBLAS, TORCH
from pipeliner.commands.lab.experiment import as_dict
from pipeliner.errors import WorkloadError
from pipeliner.experiments import (
    predicted_us,
    read_experiment,
    run_experiment,
    steps_of,
)
from pipeliner.measuring import BuiltCandidate, Measurement, Measurer
from pipeliner.records import OURS, Records
from pipeliner.records.candidate import workload_key
from pipeliner.schedules import GatedGemm, Gemm, conv2d
from pipeliner.targets import accelerated, cuda_target
from tests.refusals import refused

from ..tuning.fakes import NOT_COMPILED, Compiler
from ..tuning.functions import reversing

H100 = accelerated(cuda_target("h100"))

SMALL = """
title = "small"
[[workload]]
kind = "gemm"
square = [64, 128]
[[variant]]
name = "depth {depth}"
tile = { m = 64, n = 64, k = 32 }
depth = [1, 2, 3]
[[variant]]
name = "bf16"
tile = { m = 64, n = 64, k = 32 }
workload = { dtype = "bf16" }
[[variant]]
name = "cuBLAS"
peer = "cublas"
"""


class Counts(Measurer):
    """10 us times the order in which kernels come; what comes after ``most`` is an interrupt."""

    def __init__(self, most: int = 1000) -> None:
        self.seen: list[BuiltCandidate] = []
        self.beside: list[BuiltCandidate | None] = []
        self.most = most

    def measure(self, built: BuiltCandidate, incumbent: BuiltCandidate | None) -> Measurement:
        if len(self.seen) == self.most:
            raise KeyboardInterrupt
        self.seen.append(built)
        self.beside.append(incumbent)
        return Measurement((10.0 * len(self.seen),) * 3, (10.0,) * 3 if incumbent else ())


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return read_experiment(path)


def run(experiment, db, measurer=None, compiler=None, **options):
    measurer = measurer or Counts()
    made = run_experiment(
        experiment, "h100", db=db, measurer=measurer, compiler=compiler or Compiler(), **options
    )
    return made, measurer


def test_lists_make_many(small):
    assert [one.label for one in small.workloads] == ["64^3", "128^3"]
    names = ["depth 1", "depth 2", "depth 3", "bf16", "cuBLAS"]
    assert [one.name for one in small.variants] == names
    assert [one.request.depth for one in small.variants] == [1, 2, 3, "auto", "auto"]
    assert small.variants[3].spec(small.workloads[0]) == Gemm(64, 64, 64, dtype="bf16")
    assert [step.title for step in steps_of(small, H100)][4:6] == ["64^3, cuBLAS", "128^3, depth 1"]


def test_every_step_is_recorded(small, tmp_path):
    said = []
    outcome, measurer = run(small, tmp_path / "r", say=said.append)
    assert (outcome.steps, outcome.before, outcome.done, outcome.failed) == (10, 0, 10, 0)
    with Records(tmp_path / "r") as records:
        kept = records.find()
    assert [(r.experiment, r.label, r.contender) for r in kept[3:5]] == [
        ("small", "bf16", OURS),
        ("small", "cuBLAS", "cuBLAS"),
    ]
    assert kept[0].workload == workload_key(Gemm(64, 64, 64))
    assert kept[4].candidate == ""
    assert said[0].startswith("[1/10] 64^3, depth 1: 10.0 us; ")
    assert said[-1] == "[10/10] 128^3, cuBLAS: 600.0 us; 0 s left"
    # Beside the first of its workload; that is another one where the type is another.
    first = measurer.seen[0]
    assert measurer.beside[:5] == [None, first, first, None, first]
    assert [record.us for record in kept[:3]] == [10.0, 20.0, 30.0]


def test_it_goes_on_where_it_was_interrupted(small, tmp_path):
    outcome, measurer = run(small, tmp_path / "r", Counts(most=4))
    assert (outcome.interrupted, outcome.done) == (True, 4)
    again, measurer = run(small, tmp_path / "r")
    assert (again.interrupted, again.before, again.done) == (False, 4, 6)
    assert measurer.seen[0].name == "cuBLAS"
    assert measurer.beside[0].candidate.request.depth == 1  # compiled again to run beside
    done, measurer = run(small, tmp_path / "r")
    assert (done.before, done.done, measurer.seen) == (10, 0, [])


def test_what_is_changed_in_the_file_is_measured_anew(small, tmp_path):
    run(small, tmp_path / "r")
    path = tmp_path / "small.toml"
    path.write_text(SMALL.replace("k = 32 }\ndepth", "k = 16 }\ndepth"))
    again, _ = run(read_experiment(path), tmp_path / "r")
    assert (again.before, again.done) == (4, 6)


def test_a_failure_is_recorded_with_its_reason(small, tmp_path):
    broken = Compiler(lambda candidate: candidate.request.depth == 2)
    outcome, _ = run(small, tmp_path / "r", compiler=broken)
    assert outcome.failed == 2
    with Records(tmp_path / "r") as records:
        failures = {one.label: one.failure for one in records.find() if one.failure}
    assert failures == {"depth 2": NOT_COMPILED}


def test_what_failed_is_tried_again_when_that_is_asked(small, tmp_path):
    run(small, tmp_path / "r", compiler=Compiler(lambda candidate: candidate.request.depth == 2))
    again, _ = run(small, tmp_path / "r")
    assert (again.before, again.done) == (10, 0)
    assert sum(bool(record.failure) for _, record in again.results) == 2
    retried, measurer = run(small, tmp_path / "r", retry=True)
    assert (retried.before, retried.done, retried.failed) == (8, 2, 0)
    assert [one.candidate.request.depth for one in measurer.seen] == [2, 2]
    assert [step.title for step, _ in retried.results] == [step.title for step, _ in again.results]
    assert not any(record.failure for _, record in retried.results)
    done, _ = run(small, tmp_path / "r", retry=True)
    assert (done.before, done.done) == (10, 0)


def test_two_runs_at_once_lose_nothing(small, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda _: run(small, tmp_path / "r")[0], range(2)))
    assert all(one.before + one.done == 10 for one in outcomes)
    with Records(tmp_path / "r") as records:
        kept = {(one.workload, one.label) for one in records.find()}
    assert len(kept) == 10
    again, measurer = run(small, tmp_path / "r")
    assert (again.before, measurer.seen) == (10, [])


def test_it_is_for_the_machines_that_it_names(tmp_path):
    path = tmp_path / "e.toml"
    path.write_text('machines = ["a100"]' + SMALL.replace('title = "small"', ""))
    with refused("experiment.machine", WorkloadError, machine="h100", machines=("a100",)):
        run(read_experiment(path), tmp_path / "r")


def test_the_command_lists_the_steps(tmp_path, capsys):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    assert cli.main(["experiment", str(path), "--dry-run", "--target", "h100"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("small: 10 steps\n")
    assert "cuBLAS" in out
    times = [line.split()[-1] for line in out.splitlines()[3:]]
    assert times[4] == "-"  # a peer's
    assert float(times[0]) > float(times[1]) > 0


def test_the_command_lists_the_steps_as_json(tmp_path, capsys):
    path = tmp_path / "with space.toml"
    path.write_text(SMALL)
    assert cli.main(["experiment", str(path), "--dry-run", "--target", "h100", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["title"], len(data["steps"])) == ("small", 10)
    assert data["steps"][0]["candidate"]["request"] == {"depth": 1}
    assert data["steps"][4] == {
        "workload": "64^3",
        "variant": "cuBLAS",
        "contender": "cuBLAS",
        "candidate": None,
        "failure": "",
        "predicted_us": None,
    }
    assert 0 < data["steps"][1]["predicted_us"] < data["steps"][0]["predicted_us"]


def test_an_outcome_is_json(small, tmp_path):
    broken = Compiler(lambda candidate: candidate.request.depth == 2)
    outcome, _ = run(small, tmp_path / "r", Counts(most=4), broken)
    data = as_dict(small, outcome)
    assert (data["steps"], data["done"], data["interrupted"]) == (10, 5, True)
    shown = [(one["variant"], one["us"], one["failure"]) for one in data["results"]]
    assert shown[:2] == [("depth 1", 10.0, ""), ("depth 2", None, NOT_COMPILED)]
    assert len(shown) == 5


OWN = """
title = "own"
[[workload]]
kind = "own.py:knobbed"
rows = [2, 4]
[[workload]]
kind = "own.py:whole"
[[workload]]
kind = "own.py:first"
[[workload]]
kind = "gemm"
square = 64
[[variant]]
name = "depth {depth}"
depth = [1, 2]
for = "function"
[[variant]]
name = "cuBLAS"
peer = "cublas"
for = "gemm"
"""


@pytest.fixture
def own(tmp_path):
    """An experiment beside a file with functions, which it names by where it stands itself."""
    source = "from tests.tuning.functions import knobbed, reversing\nwhole = reversing(8)\n"
    source += "def first(rows=[4, 2]):\n    return reversing(rows)\n"
    (tmp_path / "own.py").write_text(source)
    (tmp_path / "own.toml").write_text(OWN)
    return tmp_path / "own.toml"


GATED = """
[[workload]]
kind = "gated"
square = [256, 512]
activation = "relu"
[[workload]]
kind = "gemm"
square = 256
[[variant]]
name = "depth {depth}"
depth = [2, 3]
[[variant]]
name = "torch.compile"
peer = "torch"
for = "gated"
[[variant]]
name = "cuBLAS"
peer = "cublas"
for = "gemm"
"""


def test_gated_gemms_are_workloads(tmp_path):
    (tmp_path / "g.toml").write_text(GATED)
    read = read_experiment(tmp_path / "g.toml")
    specs = [one.spec for one in read.workloads]
    assert specs[0] == GatedGemm(256, 256, 256, activation="relu")
    assert [one.kind for one in read.workloads] == ["gated", "gated", "gemm"]
    steps = steps_of(read, H100)
    assert [step.variant.name for step in steps][2::3] == ["torch.compile"] * 2 + ["cuBLAS"]
    assert all(predicted_us(step, H100) > 0 for step in steps if step.candidate is not None)
    outcome, measurer = run(read, tmp_path / "r")
    assert (outcome.done, outcome.failed) == (9, 0)
    assert measurer.beside[2] is measurer.seen[0]


@pytest.mark.parametrize(
    ("peer", "spec", "code"),
    [
        (CUBLAS, GatedGemm(64, 64, 64), "peer.cublas"),
        (CUBLAS, conv2d(1, 8, 8, 8, 8, 3, 3), "peer.cublas"),
        (TORCH, Gemm(64, 64, 64), "peer.torch"),
    ],
)
def test_what_a_library_does_not_have_it_refuses(peer, spec, code):
    with refused(code, WorkloadError, workload=spec.name):
        library(peer, spec)


def test_functions_of_a_file_are_workloads(own, tmp_path):
    read = read_experiment(own)
    labels = ["knobbed rows 2", "knobbed rows 4", "whole", "first", "64^3"]
    assert [one.label for one in read.workloads] == labels
    outcome, measurer = run(read, tmp_path / "r")
    assert (outcome.steps, outcome.done, outcome.failed) == (9, 9, 0)
    assert read.workloads[3].spec.function().script() == reversing(4).script()
    assert [one.candidate.request.depth for one in measurer.seen[:2]] == [1, 2]
    assert measurer.beside[1] is measurer.seen[0]  # the same function's
    again, measurer = run(read_experiment(own), tmp_path / "r")
    assert (again.before, measurer.seen) == (9, [])
    times = [predicted_us(step, H100) for step in steps_of(read, H100)]
    assert times[0] > times[1] > 0
    assert times[-1] == 0  # a peer's


@pytest.mark.parametrize(
    ("change", "code", "args"),
    [
        (("rows = [2, 4]", "lines = 3"), "experiment.unknown_field", {"name": "lines"}),
        (("rows = [2, 4]", "rows = 3"), "experiment.function", {"kind": "own.py:knobbed"}),
        (("own.py:whole", "own.py:part"), "user_file.not_defined", {"name": "part"}),
        (("own.py:whole", "other.py:whole"), "user_file.missing", {}),
        (('py:whole"', 'py:whole"\nm = 3'), "experiment.no_parameters", {"names": ("m",)}),
        (('for = "gemm"', ""), "experiment.of_function", {"name": "cuBLAS"}),
    ],
)
def test_what_is_no_function_of_a_file_is_said(own, change, code, args):
    own.write_text(OWN.replace(*change))
    with refused(code, WorkloadError, **args):
        read_experiment(own)
