"""Requests: what no kernel could honour is refused when it is written down."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any

import pytest

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.plan.request import EPILOGUES, INSTRUCTIONS, MECHANISMS, OPTIONS, Options, Request
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


def test_keyword_arguments_are_typed_as_the_fields_are() -> None:
    declared = {field.name: field.type for field in fields(Request)}
    assert Options.__annotations__.keys() == declared.keys() == OPTIONS.keys()
    types = {name: one.__forward_arg__ for name, one in Options.__annotations__.items()}
    assert types == declared


def test_pipeline_says_what_each_option_does() -> None:
    """In the order in which they are declared, as numpy's docstrings list parameters."""
    text = inspect.getdoc(pipeliner.pipeline).partition("Raises")[0]
    listed = re.findall(r"^(\w+(?:, \w+)*)$", text, re.M)[1:]
    names = [name for line in listed for name in line.split(", ")]
    assert names[2:] == [*OPTIONS]


@pytest.mark.parametrize("call", [pipeliner.pipeline, pipeliner.passes.SoftwarePipeline])
def test_an_option_that_is_none_is_named(call: Any) -> None:
    with pytest.raises(TypeError) as caught:
        call(**({"func": None} if call is pipeliner.pipeline else {}), stages=3)
    assert caught.value.args[0].args == {"option": "stages"}
