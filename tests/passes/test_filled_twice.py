"""A tile that two copies of one iteration fill: no role hands it over, and the last copy counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

import pipeliner
from tests.refusals import refused

SIZE, TILE, STEPS = 64, 64, 3
DEPTH = TILE * STEPS

REFILL = """
                    for i, j in T.grid(64, 64):
                        with T.sblock("again"):
                            vi, vj = T.axis.remap("SS", [i, j])
                            vk = T.axis.spatial(3, k)
                            As[vi, vj] = Z[vi, vk * 64 + vj]"""


def product(before: str = "", after: str = "") -> Any:
    """C = A B in tiles of K, with more done to the tile of A before or after it is used."""
    return tvm.script.from_source(
        f"""
@T.prim_func(s_tir=True)
def main(A: T.Buffer(({SIZE}, {DEPTH}), "float16"), Z: T.Buffer(({SIZE}, {DEPTH}), "float16"),
         B: T.Buffer(({DEPTH}, {SIZE}), "float16"), C: T.Buffer(({SIZE}, {SIZE}), "float32")):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for by in T.thread_binding(1, thread="blockIdx.y"):
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            with T.sblock("cta"):
                As = T.sblock_alloc_buffer((64, 64), "float16", scope="shared")
                Bs = T.sblock_alloc_buffer((64, 64), "float16", scope="shared")
                acc = T.sblock_alloc_buffer((64, 64), "float32", scope="local")
                for i, j in T.grid(64, 64):
                    with T.sblock("zero"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        acc[vi, vj] = T.float32(0)
                for k in T.serial({STEPS}):
                    for i, j in T.grid(64, 64):
                        with T.sblock("A"):
                            vi, vj = T.axis.remap("SS", [i, j])
                            vk = T.axis.spatial({STEPS}, k)
                            As[vi, vj] = A[vi, vk * 64 + vj]
                    for i, j in T.grid(64, 64):
                        with T.sblock("B"):
                            vi, vj = T.axis.remap("SS", [i, j])
                            vk = T.axis.spatial({STEPS}, k)
                            Bs[vi, vj] = B[vk * 64 + vi, vj]{before}
                    for i, j, l in T.grid(64, 64, 64):
                        with T.sblock("multiply"):
                            vi, vj, vl = T.axis.remap("SSR", [i, j, l])
                            acc[vi, vj] = acc[vi, vj] + T.Cast("float32", As[vi, vl]) * T.Cast(
                                "float32", Bs[vl, vj])
{after}
                for i, j in T.grid(64, 64):
                    with T.sblock("out"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        C[vi, vj] = acc[vi, vj]
"""
    )


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("target", ["h100", "a100"])
@pytest.mark.part(2)
def test_a_tile_that_is_filled_twice_holds_what_the_program_says(target: str, where: str) -> None:
    kernel = pipeliner.build(product(**{where: REFILL}), target)
    random = np.random.default_rng(0)
    a, z, b = (
        random.integers(-2, 3, shape).astype("float16")
        for shape in ((SIZE, DEPTH), (SIZE, DEPTH), (DEPTH, SIZE))
    )
    want = (z if where == "before" else a).astype("float32") @ b.astype("float32")
    for timing in ("late", "early", "random"):
        found = kernel.emulate(a, z, b, np.zeros((SIZE, SIZE), "float32"), timing=timing)
        assert not found.hazards, found.hazards
        np.testing.assert_array_equal(found.outputs["C"], want)


def test_tma_for_a_tile_that_is_filled_twice_is_refused() -> None:
    assert pipeliner.build(product(), "h100", mechanism="tma").plan.roles
    with refused("producer.filled_twice", pipeliner.PipelinerError, other="again", buffer="As"):
        pipeliner.build(product(before=REFILL), "h100", mechanism="tma")
