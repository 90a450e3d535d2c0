"""Programs about memory do what they mean: views, and tiles never read or filled in part.

The random ones are of the kind ``memory`` of ``random_trials``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

import pipeliner

from .memory_programs import (
    Element,
    MemoryProgram,
    Row,
    Statement,
    Tile,
    meaning,
    script,
)
from .random_trials import check_seed

A, B, C = Row("A"), Row("B"), Row("C")
S, U = Element("S"), Element("U")
BACKWARDS = Element("S", "63 - tx")
INSIDE, OUTSIDE = Tile("S"), Tile("S", inside=False)
REQUESTS: list[dict[str, Any]] = [{}, {"depth": 1}, {"depth": 2}, {"mechanism": "register"}]


def out(element: Element, ahead: int = 0) -> Statement:
    return Statement(Row("C", ahead), element)


PROGRAMS = {
    "refilled, never read": (
        (INSIDE, Tile("U")),
        (Statement(U, A), Statement(S, Element("U", "63 - tx"), grows=True), out(BACKWARDS)),
        (Statement(S, B),),
    ),
    "filled, never read at all": (
        (INSIDE, Tile("U")),
        (Statement(U, A), out(U)),
        (Statement(S, B),),
    ),
    "refilled for the next iteration": ((OUTSIDE,), (out(BACKWARDS),), (Statement(S, B),)),
    "filled twice": ((INSIDE,), (Statement(S, A), Statement(S, B)), (out(BACKWARDS),)),
    "refilled in part": (
        (INSIDE,),
        (Statement(S, A), Statement(Element("S", "63 - tx"), B, "high")),
        (out(BACKWARDS), Statement(S, A, "low")),
    ),
    "refilled at times": (
        (OUTSIDE,),
        (Statement(S, A, guard="{k} % 2 == 0"), out(BACKWARDS)),
        (Statement(S, B, guard="{k} < m"),),
    ),
    "filled by few threads": (
        (INSIDE,),
        (Statement(S, A), Statement(S, B, guard="tx < 5")),
        (out(BACKWARDS), Statement(S, B, guard="tx < 5")),
    ),
}


@pytest.mark.part(18)
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_nobody_reads_lands_before_its_bytes_are_used_again(name: str, target: str) -> None:
    tiles, body, rest = PROGRAMS[name]
    program = MemoryProgram(tiles, (*body, *rest), trips=6, tail=True)
    func = tvm.script.from_source(script(program))
    arrays = program.arrays(6)
    want = meaning(program, arrays, 6, 3)
    built = 0
    for asked in REQUESTS:
        try:
            kernel = pipeliner.build(func, target, **asked)
        except pipeliner.PipelinerError:
            assert asked  # a depth that its dependences do not allow
            continue
        built += 1
        for timing in ("late", "early", "random"):
            found = kernel.emulate(*arrays.values(), 6, 3, timing=timing, order="random")
            assert not found.hazards, found.hazards
            for output, value in want.items():
                np.testing.assert_array_equal(found.outputs[output], value)
    assert built >= 2


SOURCES = {
    "before anybody reads it": (
        "sm_90",
        (INSIDE, Tile("U", inside=False)),
        (
            Statement(S, Row("G", 1)),
            out(S),
            Statement(S, Row("B", view="int32")),
            Statement(Row("G", 1), U),
        ),
        7,
    ),
    "and nobody reads it": (
        "sm_80",
        (INSIDE, Tile("U")),
        (
            Statement(Element("S", view="int32"), Row("G", 2)),
            Statement(U, Row("G", 1)),
            Statement(Element("U", view="int32"), Row("G", 3)),
            Statement(S, Row("G", 4)),
            Statement(S, A),
            Statement(Row("G", 1), S),
        ),
        7,
    ),
    "while the last tile would be repeated": (
        "sm_90",
        (INSIDE,),
        (
            Statement(S, A),
            Statement(S, Row("G", 4, "matched")),
            Statement(Row("G", 4), S),
            out(S),
        ),
        "n",
    ),
}
"""What a loop's copies read, overwritten in the loop."""


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.part(3)
def test_what_a_copy_reads_is_overwritten_when_it_has_landed(name: str) -> None:
    target, tiles, body, trips = SOURCES[name]
    program = MemoryProgram(tiles, body, trips)
    arrays = program.arrays(7)
    want = meaning(program, arrays, 7, 3)
    asynchronous = 0
    for asked in ({}, {"depth": 1}, {"depth": 3}, {"epilogue": "clamped"}):
        try:
            kernel = pipeliner.build(tvm.script.from_source(script(program)), target, **asked)
        except pipeliner.PipelinerError:
            assert asked
            continue
        asynchronous += "cp.async" in kernel.cuda
        for timing in ("late", "early"):
            found = kernel.emulate(*arrays.values(), 7, 3, timing=timing)
            assert not found.hazards, found.hazards
            for output, value in want.items():
                np.testing.assert_array_equal(found.outputs[output], value)
    assert asynchronous


@pytest.mark.part(2)
@pytest.mark.parametrize("number", range(2))
def test_random_programs_about_memory_do_what_they_mean(number: int) -> None:
    outcomes = check_seed(("memory", number), 25)
    assert outcomes.total() >= 25
    assert outcomes["pipelined"] >= 0.2 * outcomes.total(), outcomes
