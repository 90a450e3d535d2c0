"""Iterations that may depend on each other are made by one thread, in order, or are refused."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

import pipeliner
from pipeliner.errors import LoweringError
from pipeliner.passes.dependence.independence import check_independent, repeated
from pipeliner.passes.ir.nodes import const_int
from pipeliner.passes.ir.patterns import as_nest

from ..refusals import refused, the

FORM = """
@T.prim_func(s_tir=True)
def main(X: T.Buffer((8, 12, 12), "float32"), S: T.Buffer((32, 16), "float32"), b: T.int32):
    for i, j in T.grid({rows}, {columns}):
        with T.sblock("nest"):
            {store}
"""


def nest(store: str, rows: int = 8, columns: int = 12) -> Any:
    text = FORM.format(store=store, rows=rows, columns=columns)
    found = as_nest(tvm.script.from_source(text).body.block.body)
    assert found is not None
    return found


def check(found: Any) -> list[str]:
    """The variables that may be shared out; LoweringError where they may not."""
    again = repeated(found)
    shared = [var for var in found.vars if var not in again]
    check_independent(found, shared)
    return [str(var.name) for var in shared]


@pytest.mark.parametrize(
    ("store", "shared"),
    [
        ("X[i, j, 0] = S[i, j]", ["i", "j"]),
        ("X[i, b, j] = X[i, b, j] + S[i, j]", ["i", "j"]),
        ("X[i, 0, 0] = X[i, 0, 0] + S[i, j]", ["i"]),
        ("X[0, 0, j] = S[i, j]", ["j"]),
        ("X[b, 0, 0] = S[i, j] + X[b, 0, 0]", []),
        ("X[0, (i * 12 + j) // 12, (i * 12 + j) % 12] = S[i, j]", ["i", "j"]),
        ("X[i, (b * 64 + j) % 144 // 12, (b * 64 + j) % 12] = S[i, j]", ["i", "j"]),
        ("X[0, b - i, 11 - j] = S[i, j]", ["i", "j"]),
        ("X[0, (b * 4 + j // 12) % 7, j % 12] = S[0, j]", ["j"]),
        ("X[i, j // 6 * 2 + b % 2, j % 6 * 2 + (b + 1) % 2] = S[i, j]", ["i", "j"]),
        ("X[b // 9, (b % 9 * 16 + j) // 12, (b * 16 + j) % 12] = S[0, j]", ["j"]),
    ],
)
def test_what_may_be_shared_out(store: str, shared: list[str]) -> None:
    assert check(nest(store)) == shared


@pytest.mark.parametrize(
    "store",
    [
        "X[0, (b * 2 + j // 4) % 2, j % 4] = S[0, j]",
        "X[b // 9, (b % 9 * 16 + j) // 12, (b * 15 + j) % 12] = S[0, j]",
        "X[0, 0, i + j] = S[i, j]",
        "X[0, 0, j // 2] = S[i, j]",
        "X[0, j, (b * 12 + j + i * 144) % 12] = S[i, j]",
        "X[i % 4, j, 0] = S[i, j]",
        "X[i, j // 6, j % 6 // 2 * 2] = S[i, j]",
        "X[i, 0, j // 6 * 4 + j % 6] = S[i, j]",
    ],
)
def test_iterations_that_may_store_one_element_are_refused(store: str) -> None:
    with refused("share.same_element", LoweringError):
        check(nest(store))


def test_a_neighbour_that_another_thread_stores_is_refused() -> None:
    with refused("share.reads", LoweringError):
        check(nest("X[i, j, 0] = X[i, (j + 1) % 12, 0]"))


def test_an_accumulator_is_summed_up_by_way_of_shared_memory() -> None:
    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((32, 64), "float16"),
        B: T.Buffer((32, 64), "float16"),
        H: T.Buffer((32,), "float32"),
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            with T.sblock("kernel"):
                acc = T.sblock_alloc_buffer((32, 32), "float32", scope="local")
                for i, j in T.grid(32, 32):
                    with T.sblock("init"):
                        acc[i, j] = T.float32(0)
                for k in T.serial(4):
                    with T.sblock("step"):
                        S = T.sblock_alloc_buffer((32, 16), "float16", scope="shared")
                        U = T.sblock_alloc_buffer((32, 16), "float16", scope="shared")
                        for i, r in T.grid(32, 16):
                            with T.sblock("S"):
                                S[i, r] = A[i, k * 16 + r]
                        for i, r in T.grid(32, 16):
                            with T.sblock("U"):
                                U[i, r] = B[i, k * 16 + r]
                        for i, j, r in T.grid(32, 32, 16):
                            with T.sblock("product"):
                                acc[i, j] = acc[i, j] + T.Cast("float32", S[i, r]) * T.Cast(
                                    "float32", U[j, r]
                                )
                for i, j in T.grid(32, 32):
                    with T.sblock("sum"):
                        H[i] = H[i] + acc[i, j]

    plan = pipeliner.plan_of(pipeliner.pipeline(main, "sm_80"))
    assert plan.pipelined
    assert the("mapped.through_shared", plan.reasons)["block"] == "sum"


def test_the_value_of_a_cast_is_no_constant() -> None:
    x = tirx.Var("x", "int32")
    assert const_int(tirx.Cast("int64", x)) is None
    assert const_int(tirx.const(3, "int64")) == 3
    assert const_int(tirx.const(0.5, "float32")) is None
