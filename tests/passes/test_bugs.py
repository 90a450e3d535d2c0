"""A bug of ours in one candidate: another one is taken, and the plan and a warning say where."""

from __future__ import annotations

import re
from typing import Any

import pytest

import pipeliner
from pipeliner.choice.mapped import uses_wgmma
from pipeliner.commands.kernels.why import show
from pipeliner.errors import BugWarning, InternalError
from pipeliner.explain.why import alternatives
from pipeliner.passes import carry_out
from pipeliner.passes.ir.named_pass import Pass
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

from ..refusals import the


def product() -> Any:
    return schedule_gemm(Gemm(64, 64, 128), GemmTile(64, 64, 32))


def breaks(monkeypatch: pytest.MonkeyPatch, err: Exception, *, only_wgmma: bool) -> None:
    """Have ``map_tiles`` raise ``err``."""
    whole = carry_out.map_tiles

    def broken(func: Any, kernel: Any, plan: KernelPlan, notes: list[str]) -> Any:
        if uses_wgmma(plan.matmuls) or not only_wgmma:
            raise err
        return whole(func, kernel, plan, notes)

    monkeypatch.setattr(carry_out, "map_tiles", Pass(whole.name, broken))


@pytest.mark.parametrize(
    ("err", "told"),
    [
        (KeyError("A_shared"), r"KeyError: .*A_shared"),
        (IndexError("tuple index out of range"), "IndexError: tuple index out of range"),
        (AssertionError(), "AssertionError"),
        (InternalError("ops of one step wait for each other"), "InternalError: ops of one step"),
        (RuntimeError("InternalError: Check failed: (a == b) is false"), "InternalError: Check"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.part(2)
def test_a_bug_in_one_candidate_leaves_the_others(
    err: Exception, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    breaks(monkeypatch, err, only_wgmma=True)
    with pytest.warns(BugWarning, match=told):
        plan = pipeliner.plan_of(pipeliner.pipeline(product(), "h100"))
    assert [matmul.instruction for matmul in plan.matmuls] == ["mma.m16n8k16.f16.f32"]
    not_taken = the("plan.not_taken", plan.reasons)
    assert str(not_taken["name"]).startswith("wgmma, ")
    error = str(the("plan.bug", [not_taken])["error"])
    assert re.search(told, error)
    assert "(steps.py:" in error
    with pytest.warns(BugWarning, match=told):
        show(alternatives(product(), "h100", Request()))
    assert "bug in pipeliner" in capsys.readouterr().out


def test_a_bug_in_every_candidate_leaves_the_function_to_tvm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaks(monkeypatch, KeyError("A_shared"), only_wgmma=False)
    with pytest.warns(BugWarning):
        plan = pipeliner.plan_of(pipeliner.pipeline(product(), "a100"))
    assert plan.sync.by == "tvm"
    assert str(the("plan.bug", plan.reasons)["error"]).startswith("KeyError")


def test_a_bug_on_the_way_to_what_is_asked_for_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, KeyError("A_shared"), only_wgmma=False)
    with pytest.warns(BugWarning), pytest.raises(KeyError, match="A_shared"):
        pipeliner.pipeline(product(), "a100", depth=2)
