"""Requests: what no kernel could honour is refused when it is written down."""

from __future__ import annotations

from typing import Any

import pytest

from pipeliner.errors import PlanError
from pipeliner.plan.request import EPILOGUES, INSTRUCTIONS, MECHANISMS, Request
from tests.refusals import refused


def test_everything_is_free_by_default() -> None:
    request = Request()
    assert request.depth_of("A_shared") is None
    assert (request.mechanism, request.instruction, request.epilogue) == ("auto", "auto", "auto")


def test_a_depth_is_for_every_ring_or_for_those_named() -> None:
    assert Request(depth=3).depth_of("A_shared") == 3
    named = Request(depth={"A_shared": 2})
    assert named.depth_of("A_shared") == 2
    assert named.depth_of("B_shared") is None


@pytest.mark.parametrize(
    ("options", "code", "args"),
    [
        ({"depth": 0}, "request.slots", {"option": "depth", "value": "0"}),
        ({"depth": True}, "request.slots", {"option": "depth", "value": "True"}),
        ({"depth": "deep"}, "request.slots", {"option": "depth", "value": "'deep'"}),
        ({"depth": {"A": 0}}, "request.slots", {"option": "depth of 'A'", "value": "0"}),
        ({"mechanism": "dma"}, "request.choice", {"option": "mechanism", "choices": MECHANISMS}),
        (
            {"instruction": "tcgen05"},
            "request.choice",
            {"option": "instruction", "choices": INSTRUCTIONS, "value": "'tcgen05'"},
        ),
        ({"roles": -1}, "request.roles", {"value": "-1"}),
        ({"roles": True}, "request.roles", {"value": "True"}),
        ({"epilogue": "none"}, "request.choice", {"option": "epilogue", "choices": EPILOGUES}),
        ({"warps": (2, 0)}, "request.pair", {"option": "warps", "value": "(2, 0)"}),
        ({"thread_tile": (4,)}, "request.pair", {"option": "thread_tile", "value": "(4,)"}),
    ],
)
def test_nonsense_is_refused_by_name(
    options: dict[str, Any], code: str, args: dict[str, Any]
) -> None:
    with refused(code, PlanError, **args):
        Request(**options)
