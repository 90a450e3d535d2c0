"""Known bits and bounds hold for every value of the variables."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tvm import tirx

from pipeliner.passes.ir import nodes as ir
from pipeliner.passes.ir.bits import Bits

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
    "select": lambda x, y: tirx.Select(x < y, x * 4, y),
}
"""Of ``x`` and ``y`` in ``0 .. EXTENTS - 1``."""


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_no_value_breaks_what_is_known(name: str) -> None:
    x, y, bits = ir.Var("x", "int32"), ir.Var("y", "int32"), Bits()
    for var, extent in zip((x, y), EXTENTS):
        bits.bound(var, extent - 1)
    expr = EXPRESSIONS[name](x, y)
    known = bits.of(expr)
    values = [
        ir.const_int(EXPRESSIONS[name](ir.i32(a), ir.i32(b)))
        for a, b in itertools.product(*map(range, EXTENTS))
    ]
    assert known is not None
    assert all(value & ~known.mask == 0 for value in values)
    assert max(values) <= known.high < 4 * max(values) + 4


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_nothing_is_known_of_what_may_be_negative(offset: int) -> None:
    bits, x = Bits(), ir.Var("x", "int32")
    assert bits.of(x + offset) is None
    assert bits.of((x + offset) // 2) is None
    assert bits.of((x + offset) % 8) is not None
