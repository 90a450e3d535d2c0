"""What an expression computes: operations, and functions of the special units."""

from __future__ import annotations

import pytest
from tvm import tirx
from tvm.ir import Var

from pipeliner.passes.ir.arithmetic import Computed, computed
from pipeliner.schedules.workloads.base.epilogue import computed_by

X, Y = Var("x", "float32"), Var("y", "float32")


@pytest.mark.parametrize(
    ("value", "flops", "functions"),
    [
        (X, 0, 0),
        (X + Y, 1, 0),
        ((X + Y) * (X + Y), 2, 0),  # the sum is computed once
        (X * tirx.sigmoid(X) * Y, 2, 2),
        (tirx.const(1.0, "float32") / (X + Y), 2, 1),
        (Var("i", "int32") + Var("j", "int32"), 0, 0),
    ],
)
def test_what_a_value_computes(value: object, flops: int, functions: int) -> None:
    assert computed(value) == Computed(flops, functions)


def test_a_division_by_a_row_s_sum_is_one_reciprocal_for_many() -> None:
    sums = tirx.decl_buffer((4,), "float32", name="sums")
    assert computed(X / sums[Var("i", "int32")]) == Computed(1, 0)


@pytest.mark.parametrize(
    ("steps", "found"),
    [((), (0, 0)), (("bias",), (1, 0)), (("bias", "silu"), (2, 2)), (("relu",), (1, 0))],
)
def test_what_the_steps_of_an_epilogue_compute(steps: tuple[str, ...], found: Computed) -> None:
    assert computed_by(steps, "float32") == found
