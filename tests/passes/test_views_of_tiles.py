"""Tiles of a matmul that are written, or read beside it, through views of another type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

import pipeliner

TIMINGS = ("late", "random")
SAME = 'V = T.decl_buffer((32, 32), "int16", data=As.data, scope="shared")'
PAIRS = 'V = T.decl_buffer((32, 16), "int32", data=As.data, scope="shared")'
PLAIN = ("32, 32", "As[vi, vk] = A[vb * 32 + vi, vk0 * 32 + vk]")
TAP = """
                    for i, k in T.grid(32, 16):
                        with T.sblock("tap"):
                            vi, vk = T.axis.remap("SS", [i, k])
                            D[vb * 32 + vi, vk0 * 16 + vk] = V[vi, vk]"""


def product(views: str, copy: tuple[str, str], load: str = "As[vi, vk]", tap: str = "") -> Any:
    """C = A B^T, a tile of A through shared memory as said."""
    return tvm.script.from_source(
        f"""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((32, 64), "float16"), B: T.Buffer((32, 64), "float16"),
         C: T.Buffer((32, 32), "float32"), D: T.Buffer((32, 32), "int32")):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        with T.sblock("cta"):
            vb = T.axis.spatial(1, bx)
            acc = T.sblock_alloc_buffer((32, 32), "float32", scope="local")
            G = T.decl_buffer((32, 32), "int32", data=A.data)
            for i, j in T.grid(32, 32):
                with T.sblock("zero"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    acc[vi, vj] = T.float32(0)
            for k0 in T.serial(2):
                with T.sblock("step"):
                    vk0 = T.axis.opaque(2, k0)
                    As = T.sblock_alloc_buffer((32, 32), "float16", scope="shared")
                    Bs = T.sblock_alloc_buffer((32, 32), "float16", scope="shared")
                    {views}
                    for i, k in T.grid({copy[0]}):
                        with T.sblock("As"):
                            vi, vk = T.axis.remap("SS", [i, k])
                            {copy[1]}
                    for i, k in T.grid(32, 32):
                        with T.sblock("Bs"):
                            vi, vk = T.axis.remap("SS", [i, k])
                            Bs[vi, vk] = B[vi, vk0 * 32 + vk]{tap}
                    for i, j, k in T.grid(32, 32, 32):
                        with T.sblock("mm"):
                            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                            acc[vi, vj] = acc[vi, vj] + T.Cast("float32", {load}) * T.Cast(
                                "float32", Bs[vj, vk])
            for i, j in T.grid(32, 32):
                with T.sblock("out"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vb * 32 + vi, vj] = acc[vi, vj]
""",
        check_well_formed=False,
    )


CASES = {
    "written as integers": (
        SAME,
        ("32, 32", 'V[vi, vk] = T.reinterpret("int16", A[vb * 32 + vi, vk0 * 32 + vk])'),
    ),
    "read as integers": (SAME, PLAIN, 'T.reinterpret("float16", V[vi, vk])'),
    "written in pairs": (PAIRS, ("32, 16", "V[vi, vk] = G[vb * 32 + vi, vk0 * 16 + vk]")),
    "read in pairs beside the matmul": (PAIRS, PLAIN, "As[vi, vk]", TAP),
}


@pytest.mark.parametrize("target", ["a100", "h100"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.part(9)
def test_the_product_is_right(case: str, target: str) -> None:
    kernel = pipeliner.build(product(*CASES[case]), target)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (32, 64)).astype("float16") for _ in range(2))
    c, d = np.zeros((32, 32), "float32"), np.zeros((32, 32), "int32")
    want = a.astype("float32") @ b.astype("float32").T
    for timing in TIMINGS:
        found = kernel.emulate(a, b, c, d, timing=timing)
        assert not found.hazards, "\n".join(map(str, found.hazards))
        np.testing.assert_array_equal(found.outputs["C"], want)
        if "beside" in case:
            np.testing.assert_array_equal(found.outputs["D"], a.view("int32"))


@pytest.mark.parametrize("case", ["written as integers", "read as integers"])
def test_a_tile_that_elements_as_large_view_is_copied_as_any_other(case: str) -> None:
    plan = pipeliner.build(product(*CASES[case]), "a100").plan
    assert [(copy.dst, copy.mechanism) for copy in plan.copies] == [
        ("As", "cp_async"),
        ("Bs", "cp_async"),
    ]
