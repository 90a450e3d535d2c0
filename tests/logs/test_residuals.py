"""The interval of a plan: what the logs say is what ships, and what it covers of other workloads."""

from __future__ import annotations

import dataclasses
import json

import pytest

import pipeliner
from pipeliner.cli import main
from pipeliner.cost.interval import COVERED, NEAR_ROOF, RESIDUALS, SHORT_US, residual_of
from pipeliner.logs.residuals import Residual, quantile, summaries
from pipeliner.machine import A100, H100
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.space.ranking import choose

STALE = 0.01
"""By which a shipped residual may differ from that of the logs, in rounding and as formulas move."""


@pytest.fixture(scope="module")
def shipped():
    from contextlib import redirect_stdout
    from io import StringIO

    out = StringIO()
    with redirect_stdout(out):
        assert main(["residuals", "--json"]) == 0
    return {one["bound"]: one for one in json.loads(out.getvalue())["residuals"]}


@pytest.mark.parametrize("bound", RESIDUALS)
def test_what_ships_is_what_the_logs_say(shipped, bound) -> None:
    """`pipeliner residuals` prints what belongs into pipeliner/cost/interval.py."""
    found = shipped[bound]
    assert found["shipped"] == RESIDUALS[bound]
    assert found["residual"] == pytest.approx(RESIDUALS[bound], abs=STALE)


@pytest.mark.parametrize("bound", RESIDUALS)
def test_other_workloads_lie_within_as_often_as_is_said(shipped, bound) -> None:
    assert shipped[bound]["covered"] == pytest.approx(COVERED, abs=0.03)
    assert shipped[bound]["workloads"] > 10


def test_a_workload_is_not_judged_by_itself() -> None:
    """One whose errors are its own alone lies without, however large it makes the residual."""
    quiet = [Residual(f"quiet{at}", "roof", 0.1) for at in range(5)]
    wild = [Residual("wild", "roof", 0.9)] * 5
    found = next(one for one in summaries([*quiet, *wild]) if one.bound == "roof")
    assert found.covered == 0.5
    assert found.residual == quantile([*quiet, *wild]) == pytest.approx(0.9)


def planned(size: int, machine=H100) -> KernelPlan:
    return choose(kernel_info(Gemm(size, size, size), GemmTile(128, 128, 64)), machine, Request())


def test_a_plan_has_the_interval_of_what_bounds_it() -> None:
    long, short = planned(4096), planned(512)
    assert long.predicted_us > SHORT_US > short.predicted_us
    assert short.predicted_within == RESIDUALS["short"]
    assert long.predicted_within == RESIDUALS["roof"]
    low, high = long.predicted_interval
    assert high / long.predicted_us - 1 == pytest.approx(long.predicted_within)
    assert 1 - low / long.predicted_us == pytest.approx(long.predicted_within)


def test_a_gpu_without_a_log_has_no_interval() -> None:
    plan = planned(4096, A100)
    assert plan.predicted_us > 0
    assert (plan.predicted_within, plan.predicted_interval) == (0.0, None)
    assert "+-" not in plan.explain()


def test_nothing_is_said_where_nothing_is_predicted() -> None:
    assert residual_of(0.0, [], H100) == 0.0
    assert residual_of(SHORT_US / NEAR_ROOF, [], H100) == RESIDUALS["waiting"]


def test_the_plan_says_it_in_words_and_in_json() -> None:
    made = pipeliner.pipeline(schedule_gemm(Gemm(4096, 4096, 4096), GemmTile(128, 128, 64)), "h100")
    plan = pipeliner.plan_of(made)
    assert f"{plan.predicted_us:.1f} us +- {plan.predicted_within * 100:.0f} %" in " ".join(
        plan.explain().split()
    )
    assert json.loads(plan.to_json())["predicted_within"] == plan.predicted_within > 0
    bare = dataclasses.replace(plan, predicted_within=0.0)
    assert bare.predicted == f"predicted {plan.predicted_us:.1f} us"
