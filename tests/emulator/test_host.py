"""The host side: argument order, symbolic shapes, launch dimensions, dtypes, messages."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tvm.script import tirx as T

from pipeliner.emulator import emulate, lower_for_emulation
from pipeliner.errors import EmulatorError

from ..refusals import refused
from .raw import CUDA, lower


@T.prim_func(s_tir=True)
def scaled(a: T.handle, factor: T.float32, C: T.Buffer((4, 64), "float32"), offset: T.int32):
    n = T.int32()
    A = T.match_buffer(a, (n, 64), "float32")
    for bx in T.thread_binding(n, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            C[bx + offset, tx] = A[bx, tx] * factor


ROWS = np.arange(128, dtype=np.float32).reshape(2, 64)


def blank() -> np.ndarray:
    return np.full((4, 64), -1, np.float32)


def test_arguments_in_order_or_by_name():
    lowered = lower(scaled)
    expected = np.r_[blank()[:1], ROWS * 3, blank()[:1]]
    by_order = emulate(lowered, [ROWS, 3.0, blank(), 1])
    names = [p.name for p in scaled.params]
    by_name = emulate(lowered, dict(zip(names, [ROWS, 3.0, blank(), 1], strict=True)))
    for result in (by_order, by_name):
        assert result.hazards == ()
        np.testing.assert_array_equal(result.outputs["C"], expected)
    assert len(by_order.stats) == 2  # one CTA for each row of A: the grid is symbolic


def test_a_subset_of_the_grid():
    result = emulate(lower(scaled), [ROWS, 3.0, blank(), 0], blocks=[(1, 0, 0)])
    np.testing.assert_array_equal(result.outputs["C"][1], ROWS[1] * 3)
    np.testing.assert_array_equal(result.outputs["C"][0], -1)
    assert [cta.block for cta in result.stats] == [(1, 0, 0)]


def test_an_index_the_arguments_put_out_of_bounds():
    (hazard,) = emulate(lower(scaled), [ROWS, 3.0, blank(), 3]).hazards
    assert (hazard.kind, hazard.block) == ("out-of-bounds", (1, 0, 0))
    assert hazard.buffer == "C"


@pytest.mark.parametrize(
    ("args", "what", "numbers"),
    [
        ([ROWS, 3.0, blank()], "count", {"expected": 4, "count": 3}),
        ([ROWS.astype("float64"), 3.0, blank(), 1], "dtype", {"name": "A", "expected": "float32"}),
        ([ROWS[:, :32], 3.0, blank(), 1], "extent", {"expected": 64, "axis": 1, "extent": 32}),
        ([ROWS, blank(), blank(), 1], "scalar", {"name": "factor"}),
        ([ROWS[0], 3.0, blank(), 1], "rank", {"name": "A", "expected": 2, "rank": 1}),
    ],
)
def test_arguments_that_do_not_fit(args, what, numbers):
    with refused(f"emulator.argument_{what}", EmulatorError, **numbers):
        emulate(lower(scaled), args)


def test_an_unknown_argument_name():
    with refused("emulator.argument_names", EmulatorError, unknown=("nonsense",)):
        emulate(lower(scaled), {"A": ROWS, "nonsense": 3.0})


def test_a_wrong_timing():
    with refused("request.choice", EmulatorError, option="timing", value="never"):
        emulate(lower(scaled), [ROWS, 3.0, blank(), 1], timing="never")


def test_a_function_that_is_not_lowered():
    with refused("emulator.not_lowered", EmulatorError):
        emulate(scaled, [ROWS, 3.0, blank(), 1])


def test_bfloat16_as_its_dtype_or_as_its_bits():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((64,), "bfloat16"), C: T.Buffer((64,), "bfloat16")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            C[tx] = A[tx] + A[tx]

    a = np.random.default_rng(0).standard_normal(64).astype(ml_dtypes.bfloat16)
    lowered = lower_for_emulation(main, CUDA)
    as_dtype = emulate(lowered, [a, np.zeros_like(a)])
    as_bits = emulate(lowered, [a.view(np.uint16), np.zeros(64, np.uint16)])
    for result in (as_dtype, as_bits):
        np.testing.assert_array_equal(result.outputs["C"], a + a)
