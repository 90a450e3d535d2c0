"""Requests: what no kernel could honour is refused when it is written down."""

from __future__ import annotations

from typing import Any

import pytest

from pipeliner.errors import PlanError
from pipeliner.request import Request


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
    ("options", "message"),
    [
        ({"depth": 0}, "expected depth to be 'auto' or an integer of at least 1, not 0"),
        ({"depth": True}, "expected depth to be 'auto' or an integer of at least 1, not True"),
        ({"depth": "deep"}, "expected depth to be 'auto' or an integer of at least 1, not 'deep'"),
        (
            {"depth": {"A": 0}},
            "expected depth of 'A' to be 'auto' or an integer of at least 1, not 0",
        ),
        (
            {"mechanism": "dma"},
            "expected mechanism to be one of auto, tma, cp_async, register, direct, not 'dma'",
        ),
        (
            {"instruction": "tcgen05"},
            "expected instruction to be one of auto, simt, mma, wgmma, not 'tcgen05'",
        ),
        ({"roles": -1}, "expected roles to be 'auto' or a number of warpgroups, not -1"),
        ({"roles": True}, "expected roles to be 'auto' or a number of warpgroups, not True"),
        (
            {"epilogue": "none"},
            "expected epilogue to be one of auto, rolled, clamped, peeled, not 'none'",
        ),
        ({"warps": (2, 0)}, "expected warps to be two positive integers, not (2, 0)"),
        ({"thread_tile": (4,)}, "expected thread_tile to be two positive integers, not (4,)"),
    ],
)
def test_nonsense_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        Request(**options)
    assert str(caught.value) == message
