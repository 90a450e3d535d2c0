"""Memory that a statement allocates is pipelined like memory of a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

import pipeliner
from pipeliner.passes.prepare.allocations import give_to_blocks

from .tile_product import tile_product


@T.prim_func
def by_statements(
    A: T.Buffer((128, 256), "float16"),
    B: T.Buffer((256, 128), "float16"),
    C: T.Buffer((128, 128), "float32"),
):
    T.func_attr({"tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for by in T.thread_binding(2, thread="blockIdx.y"):
            P = T.alloc_shared((64, 32), "float16")
            Q = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_local((64, 64), "float32")
            tile_product(A, B, C, P, Q, acc, bx * 64, by * 64, 8)


@T.prim_func(s_tir=True)
def by_blocks(
    A: T.Buffer((128, 256), "float16"),
    B: T.Buffer((256, 128), "float16"),
    C: T.Buffer((128, 128), "float32"),
):
    T.func_attr({"tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for by in T.thread_binding(2, thread="blockIdx.y"):
            with T.sblock("tile"):
                P = T.sblock_alloc_buffer((64, 32), "float16", scope="shared")
                Q = T.sblock_alloc_buffer((32, 64), "float16", scope="shared")
                acc = T.sblock_alloc_buffer((64, 64), "float32", scope="local")
                tile_product(A, B, C, P, Q, acc, bx * 64, by * 64, 8)


@T.prim_func
def carried(X: T.Buffer((2, 16, 64), "float32"), Y: T.Buffer((2, 16, 64), "float32")):
    """A register and two rows of shared memory that carry from one step to the next."""
    T.func_attr({"tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            total = T.alloc_local((1,), "float32")
            S = T.alloc_shared((2, 64), "float32")
            total[0] = T.float32(0)
            S[1, tx] = T.float32(0)
            for t in range(16):
                S[t % 2, tx] = X[bx, t, tx]
                total[0] = total[0] + S[t % 2, 63 - tx] + S[(t + 1) % 2, tx]
                Y[bx, t, tx] = total[0]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["a100", "h100"])
@pytest.mark.part(2)
def test_the_kernel_is_that_of_blocks(target: str) -> None:
    mine, theirs = (pipeliner.build(func, target) for func in (by_statements, by_blocks))
    assert mine.plan.pipelined
    assert mine.plan.loops == theirs.plan.loops
    assert mine.cuda.replace("by_statements", "by_blocks") == theirs.cuda
    rng = np.random.default_rng(0)
    a, b = rng.integers(-3, 4, (128, 256)), rng.integers(-3, 4, (256, 128))
    out = np.full((128, 128), np.nan, "float32")
    result = mine.emulate(a.astype("float16"), b.astype("float16"), out, timing="late")
    assert not result.hazards
    np.testing.assert_array_equal(result.outputs["C"], a @ b)


def test_what_carries_from_step_to_step_still_does() -> None:
    kernel = pipeliner.build(carried, "a100")
    x = np.random.default_rng(1).integers(-4, 5, (2, 16, 64)).astype("float32")
    result = kernel.emulate(x, np.zeros_like(x), order="random", timing="late")
    assert not result.hazards, list(map(str, result.hazards))
    before = np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], 1)
    np.testing.assert_array_equal(result.outputs["Y"], np.cumsum(x[..., ::-1] + before, 1))


def test_a_function_of_blocks_is_left_as_it_is() -> None:
    assert give_to_blocks(by_blocks).same_as(by_blocks)


def allocated(func: Any) -> str:
    return str(give_to_blocks(func).script())


def test_each_allocation_has_a_block_around_what_follows() -> None:
    told = allocated(carried)
    assert told.count("T.sblock(") == told.count("sblock_alloc_buffer") == 2
    assert "alloc_local" not in told
    assert "alloc_shared" not in told


def test_annotations_of_an_allocation_are_those_of_its_block() -> None:
    """A register tile so annotated was left as a statement, and ended in an InternalError."""
    text = str(by_statements.script())
    annotated = text.replace(
        "T.alloc_local((64, 64))",
        'T.alloc_buffer((64, 64), "float32", scope="local", annotations={"mine": 1})',
    )
    assert annotated != text
    func = tvm.script.from_source(annotated)
    assert "mine" in allocated(func)
    kernel = pipeliner.build(func, "a100")
    assert kernel.plan.pipelined
    assert "mma" in kernel.cuda
