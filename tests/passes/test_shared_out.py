"""Functions without threads, copies and matmuls: their nests are shared out over a CTA of threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

import pipeliner
from pipeliner.diagnostics import Reason

from ..refusals import the


@T.prim_func(s_tir=True)
def softmax_like(X: T.Buffer((2, 64, 48), "float32"), Y: T.Buffer((2, 64, 48), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.sblock("cta"):
            most = T.sblock_alloc_buffer((64,), "float32", scope="local")
            total = T.sblock_alloc_buffer((64,), "float32", scope="local")
            for i in T.serial(64):
                with T.sblock("lowest"):
                    most[i] = T.min_value("float32")
            for i, j in T.grid(64, 48):
                with T.sblock("most"):
                    most[i] = T.max(most[i], X[bx, i, j])
            for i in T.serial(64):
                with T.sblock("zero"):
                    total[i] = T.float32(0)
            for i, j in T.grid(64, 48):
                with T.sblock("total"):
                    total[i] = total[i] + (X[bx, i, j] - most[i])
            for i, j in T.grid(64, 48):
                with T.sblock("out"):
                    Y[bx, i, j] = X[bx, i, j] - most[i] + total[i]


@T.prim_func(s_tir=True)
def prefix_sums(X: T.Buffer((2, 64, 48), "float32"), Y: T.Buffer((2, 64, 48), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.sblock("cta"):
            S = T.sblock_alloc_buffer((64, 48), "float32", scope="shared")
            for i, j in T.grid(64, 48):
                with T.sblock("copy"):
                    S[i, j] = X[bx, i, j]
            for i, j in T.grid(64, 47):
                with T.sblock("along"):
                    S[i, j + 1] = S[i, j + 1] + S[i, j]
            for i, j in T.grid(64, 48):
                with T.sblock("out"):
                    Y[bx, i, j] = S[i, j]


@T.prim_func(s_tir=True)
def doubled_until(Y: T.Buffer((2, 96), "float32"), N: T.Buffer((2,), "int32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.sblock("cta"):
            done = T.sblock_alloc_buffer((1,), "int32", scope="local")
            done[0] = 0
            while done[0] < N[bx]:
                for j in T.serial(96):
                    with T.sblock("double"):
                        Y[bx, j] = Y[bx, j] * T.float32(2)
                done[0] = done[0] + 1


def run(func: Any, inputs: list[np.ndarray]) -> tuple[Any, Mapping[str, np.ndarray]]:
    kernel = pipeliner.build(func, "h100")
    result = kernel.emulate(*inputs, order="random", timing="late")
    assert not result.hazards, list(map(str, result.hazards))
    assert "__launch_bounds__(256)" in kernel.cuda
    return kernel.plan, result.outputs


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, (2, 64, 48)).astype("float32")


def test_rows_are_shared_out_and_reduced_by_one_thread_each(rows: np.ndarray) -> None:
    plan, outputs = run(softmax_like, [rows, np.zeros_like(rows)])
    less = rows - rows.max(2, keepdims=True)
    np.testing.assert_array_equal(outputs["Y"], less + less.sum(2, keepdims=True))
    assert Reason("mapped.shared", buffer="most") in plan.reasons


def test_what_is_carried_along_a_row_stays_in_the_thread_of_the_row(rows: np.ndarray) -> None:
    plan, outputs = run(prefix_sums, [rows, np.zeros_like(rows)])
    np.testing.assert_array_equal(outputs["Y"], rows.cumsum(2))
    along = the("mapped.along", plan.reasons)
    assert (along["block"], along["axes"]) == ("along", ("i",))


def test_threads_agree_on_a_condition_that_the_loop_changes(rows: np.ndarray) -> None:
    times = np.array([2, 3], "int32")
    _, outputs = run(doubled_until, [rows.reshape(2, -1)[:, :96].copy(), times])
    np.testing.assert_array_equal(outputs["Y"], rows.reshape(2, -1)[:, :96] * [[4], [8]])
