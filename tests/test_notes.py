"""What a schedule says of a block: a reason by its code, or a person's words."""

from __future__ import annotations

import json

import pytest
import tvm

import pipeliner
from pipeliner.diagnostics import Reason, Why, all_of, each_of
from pipeliner.schedules import ConvTile, Gemm, GemmTile, conv2d, schedule_conv, schedule_gemm
from pipeliner.values.notes import NOTE, note_in, note_text

RUNS = Reason("conv.runs", positions=7, channels=3)
SPLIT = Reason("split.faster", tiles=8, busy=0.25, sms=108, us=9.3, whole_us=17.5, whole="64x64x32")


@pytest.mark.parametrize(
    "why", [RUNS, all_of((Reason("split.sum", splits=4), SPLIT, "as I said")), "my words", ""]
)
def test_a_note_is_read_as_it_was_written(why: Why) -> None:
    found = note_in({NOTE: note_text(why)})
    assert found == why
    assert type(found) is type(why)
    assert str(found) == str(why)


def test_a_note_holds_codes_and_no_sentences() -> None:
    assert json.loads(note_text(RUNS)) == {
        "code": "conv.runs",
        "args": {"positions": 7, "channels": 3},
    }
    assert str(RUNS) not in note_text(all_of((RUNS, SPLIT)))


@pytest.mark.parametrize(
    "words",
    [
        "rows of a table",
        "7",
        "[1, 2]",
        '{"code": "no.such", "args": {}}',
        '{"code": "conv.runs", "args": {}}',
        '{"code": "conv.runs"}',
        '{"note": 1}',
    ],
)
def test_any_other_text_is_words(words: str) -> None:
    found = note_in({NOTE: words})
    assert found == words
    assert not isinstance(found, Reason)


def test_no_note_is_empty() -> None:
    assert note_in({}) == ""


def test_a_plan_repeats_words_of_a_schedule() -> None:
    schedule = schedule_gemm(Gemm(128, 128, 128), GemmTile(64, 64, 32))
    schedule.annotate(schedule.get_sblock("A_shared"), NOTE, "rows of a table")
    plan = pipeliner.plan_of(pipeliner.pipeline(schedule, "a100"))
    reasons = {copy.src: each_of(copy.reason) for copy in plan.copies}
    assert "rows of a table" in reasons["A"]
    assert "rows of a table" not in reasons["B"]
    assert "rows of a table" in plan.explain()


def test_a_note_survives_the_text_of_the_function() -> None:
    conv = conv2d(2, 16, 16, 3, 64, 7, 7, stride=2, pad=3)
    function = schedule_conv(conv, ConvTile(64, 64, 32, fold=True)).mod["main"]
    read = tvm.script.from_source(function.script())
    for each in (function, read):
        plan = pipeliner.plan_of(pipeliner.pipeline(each, "a100"))
        (pixels,) = [copy for copy in plan.copies if copy.src == "X"]
        assert Reason("conv.runs", positions=7, channels=3) in each_of(pixels.reason)
