"""Whatever its indices are, an access is of the element that they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.script import tirx as T

import pipeliner

THREADS = 64


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
        I: T.Buffer((2, 2), "int32"),  # noqa: E741
        B: T.Buffer((THREADS,), "float32"),
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for p in T.thread_binding(THREADS, thread="threadIdx.x"):
                with T.sblock("copy"):
                    B[p] = A[
                        (I[(p // 2 - 1) % 2, (p % 2 - 1) % 2] // 2 - 1) % 2,
                        (I[(p // 2 - 1) % 2, (p % 2 - 1) % 2] % 2 - 1) % 2,
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


DESCENDING = [
    "(63 - p) // 8",
    "(7 - p) % 8",
    "(63 - p) // 32 * 32 + (63 - p) % 32",
    "((63 - p) // 8) % 4",
    "(63 - p // 4) // 4",
    "7 - (63 - p) // 8",
    "31 - (63 - p) % 32",
    "(255 - 3 * p) % 32",
    "(p * 2 + 7) // 4",
]


@pytest.mark.parametrize("text", DESCENDING)
def test_an_index_that_counts_down(text: str) -> None:
    def index(p: Any) -> Any:
        return eval(text, {"p": p})

    check((1, 64), lambda p: p * 0, index)
    check((64, 64), index, lambda p: p)
