"""The example that stands alone decides what the library decides on its loop, and is as right."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import pipeliner

EXAMPLE = Path(__file__).parents[1] / "examples" / "the_idea.py"


@pytest.fixture(scope="module")
def idea() -> Any:
    spec = importlib.util.spec_from_file_location("the_idea", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def plan(idea: Any) -> Any:
    _, tile, ops = idea.recognise(idea.reverse)
    return idea.schedule(ops, idea.dependences(ops, str(tile.name)))


def test_stages_and_slots_are_those_of_the_library(idea: Any, plan: Any) -> None:
    fast = pipeliner.pipeline(idea.reverse, "a100", depth=plan.depth)
    (loop,) = (loop for loop in pipeliner.plan_of(fast).loops if loop.pipelined)
    stages = {op.name: op.stage for op in loop.ops}
    assert {name: stages[name] for name in plan.stage} == plan.stage == {"load": 0, "use": 1}
    assert [ring.depth for ring in loop.rings] == [plan.depth] == [2]


def test_the_steady_state_waits_as_that_of_the_library_does(idea: Any, plan: Any) -> None:
    own = idea.cuda(idea.expand(idea.reverse, plan))
    library = pipeliner.build(idea.reverse, "a100", depth=plan.depth).cuda
    for synchronisation in ("wait_group_0();", "__syncthreads();", "commit_group();"):
        counts = [_steady(text).count(synchronisation) for text in (own, library)]
        assert counts == [1, 1], synchronisation


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_it_is_right(idea: Any, plan: Any, depth: int) -> None:
    right, hazards = idea.judge(idea.expand(idea.reverse, plan._replace(depth=depth)))
    assert right
    assert not hazards


def test_one_slot_is_refused(idea: Any, plan: Any) -> None:
    with pytest.raises(AssertionError, match="would be overwritten"):
        idea.expand(idea.reverse, plan._replace(depth=1))


def test_the_emulator_would_see_a_slot_too_few(idea: Any, plan: Any) -> None:
    """Three stages apart need four slots; an edited schedule that frees them too early is caught."""
    three_apart = plan._replace(stage={"load": 0, "use": 3}, depth=4)
    assert not idea.judge(idea.expand(idea.reverse, three_apart))[1]
    short = idea.at_iteration

    def one_slot_short(stmt: Any, i: Any, loop: Any, tile: Any, ring: Any) -> Any:
        return short(stmt, i % (int(ring.shape[0]) - 1), loop, tile, ring)

    idea.at_iteration = one_slot_short
    try:
        assert idea.judge(idea.expand(idea.reverse, three_apart))[1]
    finally:
        idea.at_iteration = short


def _steady(cuda: str) -> str:
    """The body of the loop over t."""
    body = cuda[cuda.index("for (int t = 0;") :]
    return body[: body.index("\n  }")]
