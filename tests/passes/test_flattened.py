"""Whatever its indices are, an access is of the element that they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx
from tvm.script import tirx as T

import pipeliner
from pipeliner.passes.device.flattened import flatten_indices

THREADS = 64
COUNTING_UP = "(tx + 5) // 8 * 8 + tx % 8"


def gathered(shape: tuple[int, int], first: Any, second: Any) -> Any:
    """Copy an element of A for each thread, at two indices computed of its number."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer(shape, "float32"), B: T.Buffer((THREADS,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for p in T.thread_binding(THREADS, thread="threadIdx.x"):
                with T.sblock("copy"):
                    B[p] = A[first(p), second(p)]

    return main


def check(shape: tuple[int, int], first: Any, second: Any) -> None:
    kernel = pipeliner.build(gathered(shape, first, second), "a100")
    a, p = np.random.default_rng(0).random(shape, "float32"), np.arange(THREADS)
    found = kernel.emulate(a, np.full(THREADS, np.nan, "float32")).outputs["B"]
    np.testing.assert_array_equal(found, a[first(p), second(p)])


def test_two_quotients_with_offsets_of_one_value() -> None:
    """TVM 0.27 reads ``A[(p + 2) % 4]``."""
    check((2, 2), lambda p: (p // 2 - 1) % 2, lambda p: (p % 2 - 1) % 2)


powers = st.sampled_from([1, 2, 4, 8])
split = st.tuples(st.sampled_from(["//", "%"]), powers, st.integers(-3, 3), st.integers(0, 3))


@settings(deadline=None, max_examples=60)
@given(powers, powers, split, split)
def test_quotients_and_modulos_of_one_value(rows: int, columns: int, one: Any, other: Any) -> None:
    def index(number: Any, extent: int) -> Any:
        sign, by, outside, inside = number

        def at(p: Any) -> Any:
            split = (p + inside) // by if sign == "//" else (p + inside) % by
            return (split + outside) % extent

        return at

    check((rows, columns), index(one, rows), index(other, columns))


def test_of_rows_counted_when_it_runs() -> None:
    @T.prim_func(s_tir=True)
    def main(a: T.handle, B: T.Buffer((THREADS,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        n = T.int32()
        A = T.match_buffer(a, (n, 2, 2), "float32")
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for p in T.thread_binding(THREADS, thread="threadIdx.x"):
                with T.sblock("copy"):
                    B[p] = A[p % n, (p // 2 - 1) % 2, (p % 2 - 1) % 2]

    kernel = pipeliner.build(main, "a100")
    for rows in (1, 7):
        values, p = np.random.default_rng(0).random((rows, 2, 2), "float32"), np.arange(THREADS)
        found = kernel.emulate(values, np.full(THREADS, np.nan, "float32")).outputs["B"]
        np.testing.assert_array_equal(found, values[p % rows, (p // 2 - 1) % 2, (p % 2 - 1) % 2])


def test_of_indices_that_are_loaded() -> None:
    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((2, 2), "float32"),
        At: T.Buffer((2, 2), "int32"),
        B: T.Buffer((THREADS,), "float32"),
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for p in T.thread_binding(THREADS, thread="threadIdx.x"):
                with T.sblock("copy"):
                    B[p] = A[
                        (At[(p // 2 - 1) % 2, (p % 2 - 1) % 2] // 2 - 1) % 2,
                        (At[(p // 2 - 1) % 2, (p % 2 - 1) % 2] % 2 - 1) % 2,
                    ]

    kernel = pipeliner.build(main, "a100")
    values, loaded = (
        np.arange(4, dtype="float32").reshape(2, 2),
        np.array([[9, 2], [7, 4]], "int32"),
    )
    found = kernel.emulate(values, loaded, np.full(THREADS, np.nan, "float32")).outputs["B"]
    p = np.arange(THREADS)
    at = loaded[(p // 2 - 1) % 2, (p % 2 - 1) % 2]
    np.testing.assert_array_equal(found, values[(at // 2 - 1) % 2, (at % 2 - 1) % 2])


INDICES = [
    "(63 - tx) // 8",
    "(7 - tx) % 8",
    "(63 - tx) // 32 * 32 + (63 - tx) % 32",
    "(k * 64 - tx + 63) % 16",
    "((63 - tx) // 8) % 4",
    "(63 - tx // 4) // 4",
    "7 - (63 - tx) // 8",
    "31 - (63 - tx) % 32",
    "(255 - k * 64 - tx) % 32",
    "(k * 64 + 63 - tx) // 128",
    "(tx * 2 - k + 7) // 4",
]


def gather(index: str) -> Any:
    return tvm.script.from_source(
        f"""
@T.prim_func(s_tir=True)
def main(X: T.Buffer((256,), "float32"), Y: T.Buffer((4, 64), "float32")):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for k in T.thread_binding(4, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("store"):
                Y[k, tx] = X[{index}]
"""
    )


@pytest.mark.parametrize("index", INDICES)
def test_an_index_that_counts_down_reads_what_it_says(index: str) -> None:
    kernel = pipeliner.build(gather(index), "sm_80")
    X = np.arange(256, dtype="float32")
    tx = np.arange(64)
    want = np.stack([X[eval(index, {"tx": tx, "k": k})] for k in range(4)])
    found = kernel.emulate(X, np.zeros((4, 64), "float32"))
    assert not found.hazards
    np.testing.assert_array_equal(found.outputs["Y"], want)


@pytest.mark.filterwarnings("error")
def test_a_quotient_by_what_is_zero_elsewhere() -> None:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((THREADS,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for p in T.thread_binding(THREADS, thread="threadIdx.x"):
                with T.sblock("copy"):
                    if p > 0:
                        B[p] = A[(64 % p) % 8, p % 8]

    kernel = pipeliner.build(main, "a100")
    values, p = np.random.default_rng(0).random((8, 8), "float32"), np.arange(1, THREADS)
    found = kernel.emulate(values, np.full(THREADS, np.nan, "float32")).outputs["B"]
    np.testing.assert_array_equal(found[1:], values[64 % p % 8, p % 8])


def test_an_access_that_tvm_flattens_rightly_is_as_tvm_has_it() -> None:
    func = tirx.transform.FlattenBuffer()(tvm.IRModule({"main": gather(COUNTING_UP)}))["main"]
    assert tvm_ffi.structural_equal(flatten_indices(gather(COUNTING_UP)), func)
