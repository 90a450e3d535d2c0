"""Functions of a user's: what is searched of them, what is refused, and what tunes itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tvm import IRModule, s_tir

import pipeliner
from pipeliner.errors import RecordsError, WorkloadError
from pipeliner.measuring import BuiltCandidate, RemoteMeasurer
from pipeliner.records import Records
from pipeliner.records.candidate import Candidate, describe, workload_key, workload_of
from pipeliner.records.functions import Knobs, function_workload, is_function
from pipeliner.schedules import Gemm
from pipeliner.tuning import ranked, subject_of, tune
from tests.refusals import refused, says, the

from .fakes import Compiler
from .functions import COLUMNS, ROWS, ByKnobs, by_rows, knobbed, reversing

TARGET = "a100"
GEMM = Gemm(64, 64, 64)


@pytest.fixture
def db(tmp_path):
    return tmp_path / "tuned.sqlite"


def tuned(db, what=knobbed, us=by_rows, **options):
    fake, compiler = ByKnobs(us), Compiler()
    options.setdefault("prove", False)
    found = tune(what, TARGET, db=db, measurers=[fake], compiler=compiler, **options)
    return found, fake


@pytest.mark.parametrize("form", ["PrimFunc", "Schedule", "IRModule"])
def test_of_a_function_the_choices_of_the_plan_are_searched(form):
    function = reversing(8)
    made = {"PrimFunc": function, "Schedule": s_tir.Schedule(function)}.get(form)
    points = ranked(IRModule({"reverse": function}) if made is None else made, TARGET)
    requests = [point.candidate.request for point in points]
    assert {request.depth for request in requests} >= {"auto", 1, 2, 4}
    assert {request.mechanism for request in requests} >= {"auto", "register"}
    assert {point.candidate.tile.values for point in points} == {()}
    times = [point.predicted_us for point in points]
    assert times == sorted(times)
    assert len(times) == len(set(map(str, requests)))


def test_of_knobs_every_setting_is_tried_and_the_plan_of_the_best(db):
    found, fake = tuned(db, trials=40)
    settings = {dict(built.candidate.tile.values)["rows"] for built in fake.measured}
    assert settings == {1, 2, 4, 8}
    assert dict(found.candidate.tile.values) == {"rows": 2}
    assert found.candidate.request.depth == 1
    assert found.done == len(fake.measured) < 40  # there are no more
    assert describe(found.candidate)[0] == "rows 2"


def test_each_is_compiled_as_its_knobs_make_it(db):
    _, fake = tuned(db, space={"rows": [4, 2], "depth": [2]}, trials=8)
    for built in fake.measured:
        rows = dict(built.candidate.tile.values)["rows"]
        assert built.spec.function().script() == reversing(rows).script()
        assert built.spec.source().script() == reversing(4).script()  # the first, for all
    assert len(fake.measured) == 2


def test_a_space_of_options_alone_is_of_those(db):
    _, fake = tuned(db, reversing(8), lambda knobs, request: request.depth, space={"depth": [3, 2]})
    assert {built.candidate.request.depth for built in fake.measured} == {3, 2}
    assert len(fake.measured) == 2


def test_it_goes_on_where_it_ended_and_the_best_is_built(db):
    tuned(db, trials=2)
    found, fake = tuned(db, trials=4)
    assert (found.done, len({built.candidate for built in fake.measured})) == (4, 2)
    kernel = found.kernel
    x = np.arange(ROWS * COLUMNS, dtype="float32").reshape(ROWS, COLUMNS)
    outcome = kernel.emulate(x, np.zeros_like(x))
    assert not outcome.hazards
    assert (outcome.outputs["Y"] == 2 * x[:, ::-1]).all()


def test_a_function_is_built_as_it_was_tuned(db):
    function = reversing(8)
    tuned(db, function, lambda knobs, request: 1.0 + (request.depth != 4), space={"depth": [2, 4]})
    kernel = pipeliner.build(function, TARGET, db=db)
    assert says("recorded.tuned", kernel.plan.reasons[:1])
    assert {ring.depth for loop in kernel.plan.loops for ring in loop.rings} == {4}
    other = pipeliner.build(reversing(4), TARGET, db=db)
    assert says("recorded.no_record", other.plan.reasons[:1])
    with refused("records.function", RecordsError):
        pipeliner.build(pipeliner.pipeline(function, TARGET), db=db)


def test_a_function_of_knobs_is_built_in_the_setting_that_was_tuned(db):
    found, _ = tuned(db, trials=40)
    kernel = pipeliner.build(knobbed, TARGET, db=db)
    told = the("recorded.setting", kernel.plan.reasons[:1])
    assert told["setting"] == "rows 2"
    assert says("recorded.tuned", [told["why"]])
    assert kernel.original.script() == reversing(2).script()
    assert kernel.plan.loops == found.kernel.plan.loops
    asked = pipeliner.build(knobbed, TARGET, db=db, depth=1)
    assert says("recorded.not_used", asked.plan.reasons[:1])
    assert asked.original.script() == reversing(1).script()  # the first of its settings
    with Records(db.with_name("empty.sqlite")):
        pass
    other = pipeliner.build(knobbed, TARGET, db=db.with_name("empty.sqlite"))
    assert says("recorded.no_record", other.plan.reasons[:1])


def test_what_makes_another_schedule_now_is_not_what_was_tuned(db):
    def once(rows=[1, 2]):  # noqa: B006
        return reversing(rows)

    def changed(rows=[1, 2]):  # noqa: B006
        return reversing(rows, factor=2.0 if rows == 1 else 3.0)

    tuned(db, once, trials=40)
    with refused("tune.no_such_setting", WorkloadError, setting="rows 2"):
        pipeliner.build(changed, TARGET, db=db)


def test_a_candidate_is_text_and_back():
    one = Candidate(Knobs((("tile", (64, 128)), ("way", "row"), ("fast", True)), "ab12"))
    assert Candidate.from_json(one.to_json()) == one


def test_records_know_a_function_by_what_it_is():
    one, other = function_workload(reversing(8)), function_workload(reversing(4))
    assert one == function_workload(reversing(8))
    assert one.key != other.key
    assert one.key != function_workload(reversing(8), ("rows",)).key
    assert dataclasses.replace(one, made="{}") == one
    assert is_function(one.key)
    assert not is_function(workload_key(GEMM))
    with refused("tune.of_function", RecordsError, function="reverse"):
        workload_of(one.key)


def test_a_setting_that_cannot_be_is_left_out():
    points = ranked(knobbed, TARGET, {"rows": [3, 4, 5]})
    assert {point.candidate.tile.values for point in points} == {(("rows", 4),)}


def test_what_is_left_out_is_said_with_its_reason(db):
    found, _ = tuned(db, space={"rows": [3, 4, 5], "depth": [2]})
    assert [dict(one.knobs.values) for one in found.left_out] == [{"rows": 3}, {"rows": 5}]
    assert all("does not divide 8 (functions.py:" in str(one.why) for one in found.left_out)
    assert found.subject.settings == 3
    none, _ = tuned(db)
    assert none.left_out == ()


def test_a_setting_without_a_plan_is_left_out_when_it_is_ranked():
    """With a CTA for each row there is no loop to give slots to."""
    subject = subject_of(knobbed, TARGET, {"rows": [8, 1], "depth": [4]})
    assert subject.left_out == ()
    subject.ranked()
    (left,) = subject.left_out
    assert dict(left.knobs.values) == {"rows": 1}
    assert says("depth.kernel", [left.why])


def nothing():
    return 7


@pytest.mark.parametrize(
    ("what", "space", "code", "args"),
    [
        (knobbed, {"rows": []}, "tune.knob_empty", {"knob": "rows"}),
        (knobbed, {"rows": 4}, "tune.knob_list", {"knob": "rows", "value": "4"}),
        (knobbed, {"columns": [4]}, "tune.unknown_knob", {"knob": "columns"}),
        (knobbed, {"rows": [3, 5]}, "tune.no_setting", {"function": "knobbed"}),
        (knobbed, {"rows": [4] * 5000}, "tune.settings", {"count": 5000}),
        (reversing, None, "tune.no_value", {"parameter": "rows"}),
        (lambda columns=[32, 64]: reversing(8, columns=columns), None, "tune.settings_differ", {}),
        (nothing, None, "tune.no_schedule", {"function": "nothing", "type": "int"}),
        (7, None, "tune.no_schedule", {"type": "int"}),
        (GEMM, {"depth": [2]}, "tune.space_of_workload", {}),
    ],
)
def test_what_cannot_be_searched_is_refused(what, space, code, args):
    with refused(code, WorkloadError, **args):
        subject_of(what, TARGET, space)


def test_what_a_tracker_would_measure_is_refused(db):
    remote = RemoteMeasurer("127.0.0.1", 1, "here")
    with refused("tune.remote_function", WorkloadError, function="reverse"):
        tune(knobbed, TARGET, db=db, measurers=[remote])


def test_an_option_that_no_kernel_could_have_is_refused():
    with refused("request.slots", WorkloadError, option="depth"):
        subject_of(reversing(8), TARGET, {"depth": [0]})


class TestAutotune:
    """``@autotune``, with a GPU whose times are made up."""

    def made(self, db, us=by_rows, key=("columns",), **options):
        self.fake = ByKnobs(us)
        self.calls = []

        @pipeliner.autotune(
            key=key,
            space={"rows": [1, 2, 4]},
            target=TARGET,
            db=db,
            measurers=[self.fake],
            compiler=Compiler(),
            **options,
        )
        def tuned(columns, rows, name="reverse"):
            """Rows of so many columns."""
            self.calls.append(rows)
            return reversing(rows, name, columns)

        return tuned

    def test_the_first_call_tunes_and_others_take_the_kernel(self, db):
        tuned = self.made(db)
        kernel = tuned(COLUMNS)
        assert isinstance(kernel, pipeliner.Kernel)
        measured = len(self.fake.measured)
        assert measured > 3
        assert tuned(columns=COLUMNS) is kernel
        assert len(self.fake.measured) == measured
        assert (tuned.__name__, tuned.__doc__) == ("tuned", "Rows of so many columns.")

    def test_each_key_is_tuned_by_itself(self, db):
        tuned = self.made(db, trials=3)
        tuned(COLUMNS)
        assert len(self.fake.measured) == 3
        tuned(32)
        assert len(self.fake.measured) == 6

    def test_what_is_no_key_takes_what_was_found(self, db):
        tuned = self.made(db, trials=3)
        tuned(COLUMNS)
        kernel = tuned(COLUMNS, name="other")
        assert (kernel.name, len(self.fake.measured)) == ("other", 3)

    def test_records_are_enough(self, db):
        self.made(db, trials=3)(COLUMNS)
        tuned = self.made(db, trials=3)
        assert tuned(COLUMNS).name == "reverse"
        assert self.fake.measured == []
        with Records(db) as records:
            assert len(records) == 3

    def test_it_can_be_tuned_by_hand_and_ranked(self, db):
        tuned = self.made(db, key=(), trials=3)
        assert tuned.tune(COLUMNS).done == 3
        knobs = self.made(db, key=())
        with refused("tune.no_value", WorkloadError, parameter="columns"):
            ranked(knobs, TARGET)

    def test_what_is_no_knob_is_refused(self):
        with refused("tune.no_knobs", WorkloadError, function="nothing"):
            pipeliner.autotune()(nothing)
        with refused("tune.unknown_key", WorkloadError, key="m"):
            pipeliner.autotune(key=["m"])(knobbed)
        with refused("tune.knob_empty", WorkloadError, knob="rows"):
            pipeliner.autotune(space={"rows": []})(knobbed)
        with refused("tune.unknown_knob", WorkloadError, knob="depths"):
            pipeliner.autotune(space={"depths": [2]})(knobbed)


def test_a_failure_has_no_kernel(db):
    broken = Compiler(lambda candidate: True)
    found = tune(
        reversing(8), TARGET, db=db, measurers=[ByKnobs(by_rows)], compiler=broken, trials=2
    )
    assert (found.done, found.failed, found.best) == (2, 2, None)
    with refused("tune.no_best", WorkloadError):
        _ = found.kernel
    assert BuiltCandidate().failure == ""


@pytest.mark.deep("tests/test_examples.py::test_example[first_hour.py]")
def test_with_the_real_compiler_and_the_emulator(db):
    """A process is given the schedule, not the function that made it, which may be a closure."""

    def doubled(rows=[4, 2]):  # noqa: B006
        return reversing(rows)

    fake = ByKnobs(by_rows)
    found = tune(doubled, TARGET, db=db, jobs=2, trials=2, verify=True, measurers=[fake])
    with Records(db) as records:
        kept = records.find()
    assert (found.done, [one.failure for one in kept]) == (2, ["", ""])
    assert all(pipeliner.KernelPlan.from_json(one.plan).loops for one in kept)
