"""Reasons are codes with arguments: each code has one sentence, and each sentence a use."""

from __future__ import annotations

import ast
import json
import pickle
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from tvm import tirx

from pipeliner.commands.shared.console import print_json
from pipeliner.diagnostics import SENTENCES, Reason, each_of
from pipeliner.diagnostics.formatting import fields
from pipeliner.errors import PlanError
from pipeliner.plan import KernelPlan

from .refusals import refused, says, the
from .rooms import ROOT, modules

ERRORS: Final = frozenset(
    {
        "EmulatorError",
        "LoweringError",
        "PlanError",
        "RecordsError",
        "ScheduleRefused",
        "TargetError",
        "ToolError",
        "WorkloadError",
    }
)

IN_WORDS: Final = frozenset((Path(__file__).parent / "in_words.txt").read_text().split())
"""Files whose errors are words still; none may be added."""


def code_of(call: ast.Call) -> str | None:
    """The code that ``call`` names; None: its first argument is no literal."""
    first = call.args[0]
    value = first.value if isinstance(first, ast.Constant) else None
    return value if isinstance(value, str) else None


@cache
def calls() -> list[tuple[Path, ast.Call]]:
    """Where an error or a reason is made from a code or words."""
    return [
        (module.path, node)
        for module in modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") in ERRORS | {"Reason"}
        and node.args
    ]


def test_every_code_has_a_sentence_and_gives_what_it_names() -> None:
    for path, call in calls():
        code = code_of(call)
        given = {keyword.arg for keyword in call.keywords}
        where = f"{path.relative_to(ROOT)}:{call.lineno}"
        if code is not None and (code in SENTENCES or given):
            assert code in SENTENCES, f"{where}: no sentence has the code {code!r}"
            assert None in given or given == fields(SENTENCES[code]), f"{where}: {code}"


def test_every_sentence_is_used() -> None:
    literals = {
        node.value
        for module in modules().values()
        if "diagnostics" not in module.path.parts
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert sorted(SENTENCES.keys() - literals - {"text", "reason.all"}) == []


def test_errors_are_codes() -> None:
    worded = {
        path.relative_to(ROOT).as_posix()
        for path, call in calls()
        if isinstance(call.args[0], ast.JoinedStr | ast.BinOp)
        or (" " in (code_of(call) or "") and getattr(call.func, "id", "") in ERRORS)
    }
    assert sorted(worded - IN_WORDS) == []
    assert sorted(IN_WORDS - worded) == [], "these raise codes now: take them off the list"


def test_sentences() -> None:
    reason = Reason("request.cluster", choices=(1, 2, 4), value="3")
    assert str(reason) == "expected cluster to be 'auto' or one of 1, 2, 4, not 3"
    assert reason == Reason("request.cluster", choices=(1, 2, 4), value="3")
    assert reason != Reason("request.cluster", choices=(1, 2, 4), value="5")
    assert hash(reason) == hash(pickle.loads(pickle.dumps(reason)))
    with pytest.raises(LookupError, match=r"no\.such"):
        Reason("no.such")
    with pytest.raises(AttributeError):
        reason.code = "text"


def test_a_reason_within_a_reason_goes_through_json() -> None:
    inner = Reason("request.roles", value="-1")
    outer = Reason("request.choice", option="a", choices=(inner, "b"), value="c")
    data = json.loads(json.dumps(outer.as_dict()))
    assert Reason.from_dict(data) == outer
    assert data["text"] == str(outer)
    assert says("request.roles", [outer])
    assert the("request.roles", ["words", outer]) == inner


def test_arguments_are_of_pythons_own_types() -> None:
    given = {"value": str(tirx.Var("n", "int32")), "choices": (np.int64(3), np.float32(0.5))}
    reason = Reason("request.choice", option="a", **given)
    assert [type(reason["value"]), *map(type, reason["choices"])] == [str, int, float]
    assert Reason.from_dict(json.loads(json.dumps(reason.as_dict()))) == reason
    assert pickle.loads(pickle.dumps(reason)) == reason


def test_a_plan_keeps_codes() -> None:
    reason = Reason("request.roles", value="-1")
    plan = KernelPlan("f", "sm_90", "H100", reasons=(reason, "a person's words"))
    assert KernelPlan.from_json(plan.to_json()) == plan
    for wrong, code in (
        ({"code": "no.such", "args": {}}, "plan.reason"),
        ({"args": {}}, "plan.reason"),
        ({"code": "request.roles", "args": {}}, "plan.reason"),
        ({"code": "tune.seconds", "args": {"value": "long"}}, "plan.reason"),
        ({"code": "request.roles", "args": {"value": {}}}, "plan.reason"),
        (
            {"code": "request.roles", "args": {"value": {"code": "request.roles", "args": None}}},
            "plan.reason",
        ),
        ({"code": ["request.roles"], "args": {}}, "plan.reason"),
        ({"code": "text", "args": []}, "plan.type"),
        (3, "plan.type"),
    ):
        data = {**json.loads(plan.to_json()), "reasons": [wrong]}
        with refused(code, PlanError, where="plan.reasons[0]"):
            KernelPlan.from_json(json.dumps(data))


def test_a_plan_of_another_version_keeps_the_words_of_its_reasons() -> None:
    """Its sentences had other arguments, or are none any more."""
    inner = {"code": "request.roles", "args": {"count": -1}, "text": "expected roles, not -1"}
    gone = {"code": "choice.gone", "args": {"why": inner}, "text": "gone: expected roles, not -1"}
    every = {"code": "reason.all", "args": {"reasons": [inner, gone]}, "text": "..."}
    data = json.loads(KernelPlan("f", "sm_90", "H100").to_json())
    plan = KernelPlan.from_json(json.dumps({**data, "reasons": [every]}))
    (reason,) = plan.reasons
    assert str(reason) == "expected roles, not -1; gone: expected roles, not -1"
    assert [one.code for one in each_of(reason)] == ["request.roles", "choice.gone"]
    assert the("request.roles", [reason])["count"] == -1
    assert KernelPlan.from_json(plan.to_json()) == plan
    assert pickle.loads(pickle.dumps(reason)) == reason
    assert str(pickle.loads(pickle.dumps(reason))) == str(reason)


def test_an_error_keeps_its_code_in_another_process_and_through_tvm() -> None:
    error = PlanError("request.roles", value="-1")
    assert pickle.loads(pickle.dumps(error)).reason == error.reason
    assert PlanError(str(error)).reason == error.reason
    with refused("request.roles", PlanError, value="-1"):
        raise error


def test_the_latest_reasons_are_found_again_whichever_came_first() -> None:
    error = PlanError("request.roles", value="-1")
    for at in range(63):
        PlanError("request.roles", value=str(at))
    PlanError("request.roles", value="-1")
    PlanError("request.roles", value="63")
    assert PlanError(str(error)).reason == error.reason


def test_commands_print_a_reason_as_json_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    reason = Reason("request.roles", value="-1")
    print_json(results=[{"failure": reason, "why": ("words", reason)}])
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result == {"failure": reason.as_dict(), "why": ["words", reason.as_dict()]}
    assert result["failure"]["text"] == str(reason)
