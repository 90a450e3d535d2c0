"""What a gathered copy asks of index expressions: conditions of whole vectors, runs over dimensions."""

from __future__ import annotations

import operator

import pytest
from tvm import sym, tirx
from tvm.ir import Range

from pipeliner.passes.copy.cp_async import as_cp_async
from pipeliner.passes.ir.indexing import conjunction, is_uniform, offset
from pipeliner.passes.ir.linear import affine
from pipeliner.passes.ir.nodes import ForKind, Var, buffer, const_int, i32, loop, substitute

LANE, X, STEP = (Var(name, "int32") for name in ("lane", "x", "step"))
COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@pytest.mark.parametrize("lanes", [2, 4, 8])
@pytest.mark.parametrize("sign", COMPARE)
@pytest.mark.parametrize("base", [-9, -8, -7, -1, 0, 1, 3, 4, 8])
@pytest.mark.part(2)
def test_a_condition_is_uniform_only_if_all_lanes_agree(base, sign, lanes):
    """Against every value of ``x``: bounds below and above, in every spelling."""
    place = X * lanes + LANE + base
    for left, right in ((place, i32(16)), (i32(16), place)):
        condition = COMPARE[sign](left, right)
        agree = all(
            len({_holds(condition, x, lane) for lane in range(lanes)}) == 1 for x in range(-12, 13)
        )
        assert is_uniform(condition, LANE, lanes) == agree


def _holds(condition, x, lane):
    return const_int(substitute(condition, {X: i32(x), LANE: i32(lane)})) == 1


@pytest.mark.parametrize("shift", [0, 1, 2])
def test_a_position_split_over_dimensions_is_found_again(shift):
    image = buffer([4, 16, 3], "float16", "A", "global")
    flat = X * 6 + LANE + shift
    indices = [i32(2), tirx.floordiv(flat, i32(3)) - 1, tirx.floormod(flat, i32(3))]
    known = affine(offset(image, indices), [LANE])
    assert known is not None
    assert known.coefficients == {LANE: 1}
    for x in range(3):
        at = {X: i32(x), LANE: i32(1)}
        by_hand = 2 * 48 + ((6 * x + 1 + shift) // 3 - 1) * 3 + (6 * x + 1 + shift) % 3
        assert const_int(substitute(offset(image, indices), at)) == by_hand


def copied(*conditions):
    """``S[x * 8 + v] = A[x + step - 1, v]`` under ``conditions``, as cp.async in a loop over step."""
    source = buffer([64, 8], "float16", "A", "global")
    shared = buffer([64 * 8], "float16", "S", "shared")
    analyzer = sym.Analyzer()
    analyzer.bind(X, Range(0, 64))
    analyzer.bind(STEP, Range(0, 3))

    def body(v):
        value = tirx.BufferLoad(source, [X + STEP - 1, v])
        inside = conjunction(conditions)
        masked = tirx.if_then_else(inside, value, tirx.const(0, "float16"))
        return tirx.BufferStore(shared, masked, [X * 8 + v])

    stmt = as_cp_async("A", loop("v", 8, body, ForKind.VECTORIZED), analyzer, [STEP])
    _, address, _, size, *_ = stmt.value.args
    return address.args[0].indices[0], size


def test_a_halo_is_all_or_nothing_and_leaves_the_address_alone():
    row, size = copied(X + STEP >= 1, X + STEP < 65)
    for x, step, wanted in ((0, 0, 0), (0, 1, 16), (63, 1, 16), (63, 2, 0)):
        at = {X: i32(x), STEP: i32(step)}
        assert const_int(substitute(row, at)) == x + step - 1
        assert const_int(substitute(size, at)) == wanted


def test_one_bound_clamps_its_index():
    row, size = copied(X + STEP < 65)
    for x, step, clamped, wanted in ((63, 2, 63, 0), (10, 1, 10, 16)):
        at = {X: i32(x), STEP: i32(step)}
        assert const_int(substitute(row, at)) == clamped
        assert const_int(substitute(size, at)) == wanted
