"""The recorder, with kernels and a timer that are made up."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from pipeliner.errors import ToolError
from pipeliner.logs.recorder import CLOSING_SECONDS, jobs_for, record
from pipeliner.machine import H100
from pipeliner.measuring import BuiltCandidate, Measurement, Open, Try
from pipeliner.records.candidate import workload_of
from pipeliner.records.log import AGAIN, group_of, read_any
from pipeliner.schedules.suites import suite
from pipeliner.targets import cuda_target

SPECS = {name: suite("gemm")[name] for name in ("sq1024", "sq2048", "bert_fc1")}
LIMIT = 20


class Compiler:
    """``broken`` numbers fail; after ``most`` libraries the next takes until the end."""

    jobs = 1

    def __init__(self, broken=(), most=10**6) -> None:
        self.count = 0
        self.broken, self.most = broken, most
        self.ended = threading.Event()

    def compile(self, spec, candidate):
        number = self.count
        self.count += 1
        if number >= self.most:
            self.ended.wait(10)
        if number in self.broken:
            return BuiltCandidate(spec, candidate, failure="nvcc said no")
        return BuiltCandidate(
            spec, candidate, path=f"{number}.so", name="f", resources={"registers": number}
        )

    def end(self) -> None:
        self.ended.set()


class Bench:
    """Kernel ``n`` takes ``100 + n`` us, ``101 + n`` when it is timed again."""

    def __init__(self, hangs=(), wrong=()) -> None:
        self.hangs = [f"{number}.so" for number in hangs]
        self.wrong = [f"{number}.so" for number in wrong]
        self.tried = []
        self.asked = []
        self.asked_rounds = itertools.count()

    def end(self) -> None:
        return

    def ask(self, question, seconds):
        self.asked.append(question)
        if isinstance(question, Open):
            self.tried = []
            return None
        if isinstance(question, Try):
            if question.built.path in self.hangs:
                raise ToolError("cannot time it: no answer within 20 seconds")
            if question.built.path in self.wrong:
                return "wrong: very"
            self.tried.append(question.built.resources["registers"])
            return ""
        more = next(self.asked_rounds) % 2
        return [Measurement((100.0 + self.tried[at] + more,) * 3) for at in question.which]


class HangsInRounds(Bench):
    """The first ``times`` of all rounds get no answer, and end the process."""

    def __init__(self, times) -> None:
        super().__init__()
        self.left = times

    def ask(self, question, seconds):
        if isinstance(question, (Open, Try)):
            return super().ask(question, seconds)
        if self.left:
            self.left -= 1
            self.tried = []
            raise ToolError("cannot wait any longer: nothing came for 60 s")
        return super().ask(question, seconds)


class Backwards(Bench):
    """The later a kernel was asked for, the faster it is."""

    def ask(self, question, seconds):
        found = super().ask(question, seconds)
        if isinstance(question, (Open, Try)):
            return found
        return [Measurement((300.0 - one.us,) * 3) for one in found]


def label(record) -> str:
    return group_of(workload_of(record.workload))[0]


def recorded(tmp_path, compiler, bench, seconds=1000.0, specs=SPECS, name="log.csv"):
    log = tmp_path / name
    jobs = jobs_for(specs, cuda_target("sm_90a"), log, LIMIT)
    said = []
    done = record(jobs, compiler, bench, log, seconds, said.append)
    return done, read_any(log, H100) if log.exists() else [], said


@pytest.mark.parametrize("name", ["log.csv", "records.sqlite"])
def test_every_candidate_is_recorded_and_the_fastest_twice(tmp_path, name) -> None:
    done, records, said = recorded(tmp_path, Compiler(), Bench(), name=name)
    assert done
    first = [one for one in records if one.label != AGAIN]
    again = [one for one in records if one.label == AGAIN]
    assert len(first) == 3 * LIMIT
    numbers = [one.resources.get("registers", 0) for one in first]
    assert [one.us for one in first] == [pytest.approx(100 + number) for number in numbers]
    assert sorted(numbers) == list(range(3 * LIMIT))
    assert len(again) == 3 * 16
    assert all(one.us == 101 + one.resources.get("registers", 0) for one in again)
    assert len(said) == 3
    assert said[0].startswith("sq1024 float16: 20 of 20 timed, 0 failed; ")


def test_the_first_that_was_asked_for_is_timed_with_the_fastest(tmp_path) -> None:
    """It may be what is judged by the best of them: in the same rounds as that."""
    _, records, _ = recorded(tmp_path, Compiler(), Backwards(), specs={"sq1024": SPECS["sq1024"]})
    again = [one.resources.get("registers", 0) for one in records if one.label == AGAIN]
    assert sorted(again) == [0, *range(LIMIT - 16, LIMIT)]


def test_what_fails_in_one_attempt_alone_is_recorded_once(tmp_path) -> None:
    class FailsFirst(HangsInRounds):
        def ask(self, question, seconds):
            if isinstance(question, Try) and self.left and question.built.path == "5.so":
                return "wrong: very"
            return super().ask(question, seconds)

    only = {"sq1024": SPECS["sq1024"]}
    _, records, _ = recorded(tmp_path, Compiler(), FailsFirst(1), specs=only)
    first = [one for one in records if one.label != AGAIN]
    assert len({one.candidate for one in first}) == len(first) == LIMIT
    assert not any(one.failure for one in first)


@pytest.mark.parametrize(("times", "timed"), [(1, LIMIT), (2, 0)])
def test_rounds_that_hang_are_tried_once_more(tmp_path, times, timed) -> None:
    only = {"sq1024": SPECS["sq1024"]}
    _, records, said = recorded(tmp_path, Compiler(), HangsInRounds(times), specs=only)
    assert sum(one.label != AGAIN and not one.failure for one in records) == timed
    assert said[:times] == ["sq1024: cannot wait any longer: nothing came for 60 s"] * times


def test_what_the_log_has_is_not_measured_again(tmp_path) -> None:
    recorded(tmp_path, Compiler(), Bench(), specs={"sq1024": SPECS["sq1024"]})
    assert [
        job.label for job in jobs_for(SPECS, cuda_target("sm_90a"), tmp_path / "log.csv", LIMIT)
    ] == [
        "sq2048",
        "bert_fc1",
    ]


def test_failures_are_logged_with_their_reasons(tmp_path) -> None:
    bench = Bench(hangs=[5], wrong=[7])
    done, entries, _ = recorded(tmp_path, Compiler(broken=[3]), bench)
    assert done
    assert {entry.failure for entry in entries} == {
        "",
        "nvcc said no",
        "wrong: very",
        "cannot time it: no answer within 20 seconds",
    }
    one = [entry for entry in entries if label(entry) == "sq1024" and entry.label != AGAIN]
    assert sum(not entry.failure for entry in one) == LIMIT - 3
    # After the one that hung, the others of the workload were tried again.
    assert sum(isinstance(question, Open) for question in bench.asked) == 4
    assert len({entry.candidate for entry in one}) == len(one) == LIMIT


def test_what_is_not_compiled_in_time_is_left_for_later(tmp_path) -> None:
    compiler = Compiler(most=3 * LIMIT - 5)
    done, entries, _ = recorded(tmp_path, compiler, Bench(), seconds=CLOSING_SECONDS + 1.5)
    assert not done
    assert sum(entry.label != AGAIN for entry in entries) == 3 * LIMIT - 5
    left = jobs_for(SPECS, cuda_target("sm_90a"), tmp_path / "log.csv", LIMIT)
    assert sum(len(job.candidates) for job in left) == 5


def test_it_stops_when_time_is_up(tmp_path) -> None:
    class Slow(Bench):
        def ask(self, question, seconds):
            time.sleep(0.3 * isinstance(question, Open))
            return super().ask(question, seconds)

    done, entries, _ = recorded(tmp_path, Compiler(), Slow(), seconds=CLOSING_SECONDS + 0.2)
    assert not done
    assert {label(entry) for entry in entries} == {"sq1024"}


def test_a_timer_that_cannot_work_leaves_nothing_wrong_behind(tmp_path) -> None:
    class Lost(Bench):
        def ask(self, question, seconds):
            raise ToolError("cannot time kernels: no GPU is visible")

    done, entries, said = recorded(tmp_path, Compiler(), Lost())
    assert (done, entries) == (False, [])
    assert said[0] == "sq1024: cannot time kernels: no GPU is visible"
