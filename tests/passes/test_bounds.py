"""Bounds and bits hold for every value of the variables."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tvm import tirx

from pipeliner.passes.ir import nodes as ir
from pipeliner.passes.ir.bounds import Bounds, KnownBounds

EXTENTS = (8, 5)
EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "constant": lambda x, y: ir.i32(12),
    "sum without carries": lambda x, y: x % 4 + 8,
    "sum with carries": lambda x, y: x + y,
    "product": lambda x, y: x * 6,
    "shift": lambda x, y: y * 16 + x,
    "quotient": lambda x, y: x // 2 + y // 3,
    "remainder": lambda x, y: (x * 4 + 1) % 8,
    "odd remainder": lambda x, y: (x * y) % 3 + (x + 7) % 5,
    "exclusive or": lambda x, y: tirx.bitwise_xor(x, y * 2),
    "least": lambda x, y: tirx.min(x * 3, y + 6),
    "greatest": lambda x, y: tirx.max(x - 4, y),
    "select": lambda x, y: tirx.Select(x < y, x * 4, y),
    "difference": lambda x, y: x * 2 - y,
    "negative quotient": lambda x, y: (x - 5) // 4 + 9,
    "negative remainder": lambda x, y: (x - 5) % 4 + (x - 9) % 16,
    "negative product": lambda x, y: (x - 3) * (y - 1),
}
"""Of ``x`` and ``y`` in ``0 .. EXTENTS - 1``."""


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_no_value_breaks_what_is_known(name: str) -> None:
    x, y, bounds = ir.Var("x", "int32"), ir.Var("y", "int32"), KnownBounds()
    for var, extent in zip((x, y), EXTENTS):
        bounds.bind(var, 0, extent - 1)
    expr = EXPRESSIONS[name](x, y)
    known = bounds.of(expr)
    values = [
        ir.const_int(EXPRESSIONS[name](ir.i32(a), ir.i32(b)))
        for a, b in itertools.product(*map(range, EXTENTS))
    ]
    assert known is not None
    assert known.low <= min(values)
    assert max(values) <= known.high < 4 * max(values) + 4
    if min(values) >= 0:
        assert known.bits is not None
        assert all(value & ~known.bits == 0 for value in values)
    else:
        assert known.bits is None


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_nothing_is_known_of_a_variable_without_bounds(offset: int) -> None:
    bounds, x = KnownBounds(), ir.Var("x", "int32")
    assert bounds.of(x + offset) is None
    assert bounds.of((x + offset) // 2) is None
    assert bounds.of((x + offset) % 8) == Bounds.within(0, 7)


def test_a_conversion_that_cuts_bits_off_is_unknown() -> None:
    bounds, x = KnownBounds(), ir.Var("x", "int64")
    bounds.bind(x, 0, 1 << 40)
    assert bounds.of(tirx.Cast("int32", x)) is None
    assert bounds.of(tirx.Cast("int32", x // 1024)) == Bounds.within(0, 1 << 30)
