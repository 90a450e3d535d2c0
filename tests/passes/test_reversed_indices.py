"""Indices that count down keep their values where TVM flattens them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

import pipeliner
from pipeliner.passes.device.reversed_indices import unreversed

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


def test_a_function_whose_indices_count_up_is_left_alone() -> None:
    func = gather("(tx + 5) // 8 * 8 + tx % 8")
    assert unreversed(func).same_as(func)
