"""Exchange among four lanes: what each gets, where GEMMs use it, and the stores that it buys."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as T

import pipeliner
from pipeliner.passes.fragments import quads
from pipeliner.passes.ir import nodes as ir
from pipeliner.schedules.gemm import GemmTile
from pipeliner.schedules.workloads import Gemm, numpy_dtype

from .lowering_tools import run
from .tiles import calls, mapped, scheduled

SMALL = GemmTile(64, 64, 32)


def exchanging() -> Any:
    """A kernel of two warps in which each quad of lanes transposes four words."""
    source = ir.buffer([64, quads.RUN], "float16", "S", "global")
    target = ir.buffer([64, quads.RUN], "float16", "D", "global")
    pairs, row = (ir.buffer([quads.RUN], "float16", name, "local") for name in ("pairs", "row"))
    tx = ir.Var("tx", "int32")

    def load(v: Any) -> Any:
        return tirx.BufferStore(pairs, tirx.BufferLoad(source, [tx, v]), [v])

    def store(v: Any) -> Any:
        return tirx.BufferStore(target, tirx.BufferLoad(row, [v]), [tx, v])

    body = ir.seq(
        ir.vectorized("v", quads.RUN, load),
        quads.exchange(pairs, row, tirx.floormod(tx, quads.LANES)),
        ir.vectorized("v", quads.RUN, store),
    )
    threads = ir.thread_loop(tx, 64, "threadIdx.x", ir.block("", body, [pairs, row]))
    grid = ir.thread_loop(ir.Var("bx", "int32"), 1, "blockIdx.x", threads)
    func = tirx.PrimFunc([source, target], ir.block("root", grid))
    return func.with_attr("global_symbol", "main")


def test_a_quad_of_lanes_transposes_its_words() -> None:
    values = np.arange(512, dtype="float16").reshape(64, 8)
    result = run(exchanging(), [values, np.zeros((64, 8), "float16")])
    assert not result.hazards
    words = values.view("uint32").reshape(16, 4, 4)
    want = np.ascontiguousarray(words.swapaxes(1, 2)).view("float16").reshape(64, 8)
    np.testing.assert_array_equal(result.outputs["D"], want)


def exact(gemm: Gemm, tile: GemmTile, m: int | None = None) -> None:
    """Emulate ``gemm`` on small integers: every sum is exact, so every bit must agree."""
    done = pipeliner.pipeline(scheduled(gemm, tile), "sm_80")
    assert calls(done.body, "shuffle_xor")
    rng = np.random.default_rng(0)
    kind = numpy_dtype(gemm.storage)
    a, b = (rng.integers(-1, 2, shape).astype(kind) for shape in gemm.shapes(m)[:2])
    c = np.full(gemm.shapes(m)[2], np.nan, numpy_dtype(gemm.out))
    result = run(done, [a, b, c])
    assert not result.hazards, "\n".join(map(str, result.hazards))
    np.testing.assert_array_equal(result.outputs["C"].astype("f8"), gemm.reference(a, b))


@pytest.mark.part(24)
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["NN", "TN"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("m", "n"), [(128, 128), (67, 72), (61, 132), (3, 4)])
def test_every_bit_of_a_gemm(dtype: str, layout: str, m: int, n: int) -> None:
    exact(Gemm(m, n, 96, dtype=dtype, layout=layout), SMALL)


@pytest.mark.parametrize(
    ("gemm", "tile", "m"),
    [
        (Gemm(70, 72, 64, batch=3, layout="NN"), SMALL, None),
        (Gemm(None, 72, 64, layout="NN"), SMALL, 37),
        (Gemm(64, 64, 64, layout="NN", accumulator="float16"), SMALL, None),
        (Gemm(48, 96, 64, layout="NN"), GemmTile(48, 96, 32, warps=(3, 1)), None),
        (Gemm(32, 128, 64, layout="NN"), GemmTile(32, 128, 32, warps=(1, 4)), None),
    ],
    ids=["batched", "symbolic", "half accumulator", "three warps", "warps side by side"],
)
@pytest.mark.part(6)
def test_every_bit_of_other_gemms(gemm: Gemm, tile: GemmTile, m: int | None) -> None:
    exact(gemm, tile, m)


@pytest.mark.parametrize(
    ("gemm", "tile"),
    [
        (Gemm(128, 128, 64), SMALL),
        (Gemm(128, 128, 64, layout="NN", out="float32"), SMALL),
        (Gemm(128, 70, 64, layout="NN"), SMALL),
        (Gemm(128, 67, 64, layout="NN"), SMALL),
        (Gemm(64, 48, 64, layout="NN"), GemmTile(64, 48, 32, warps=(2, 2))),
        (Gemm(128, 128, 128, dtype="int8", layout="NN"), GemmTile(64, 64, 64)),
    ],
    ids=["K-major B", "32 bits", "even rows", "odd rows", "three tiles a warp", "8 bits"],
)
def test_no_exchange_where_it_widens_nothing(gemm: Gemm, tile: GemmTile) -> None:
    func, _ = mapped(gemm, tile)
    assert not calls(func.body, "shuffle")


def test_no_thread_may_miss_an_exchange() -> None:
    """Ragged rows and columns are guarded, the shuffles are not."""
    func, _ = mapped(Gemm(67, 72, 64, layout="NN"), SMALL)
    guarded: list[Any] = []
    ir.walk(func.body, tirx.IfThenElse, lambda branch: guarded.append(branch.then_case))
    assert any("C[" in str(part) for part in guarded)
    assert not any(calls(part, "shuffle") for part in guarded)
    assert calls(func.body, "shuffle")


@T.prim_func(s_tir=True)
def residual(
    A: T.Buffer((70, 64), "float16"),
    B: T.Buffer((64, 72), "float16"),
    bias: T.Buffer((72,), "float32"),
    D: T.Buffer((70, 72), "float16"),
    C: T.Buffer((70, 72), "float16"),
) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    acc = T.sblock_alloc_buffer((70, 72), "float32")
    for i, j, k in T.grid(70, 72, 64):
        with T.sblock("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                acc[vi, vj] = T.float32(0)
            acc[vi, vj] = acc[vi, vj] + T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vk, vj])
    for i, j in T.grid(70, 72):
        with T.sblock("store"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.Cast(
                "float16", T.max(acc[vi, vj] + bias[vj] + T.Cast("float32", D[vi, vj]), 0.0)
            )


@T.prim_func(s_tir=True)
def in_place(
    A: T.Buffer((64, 64), "float16"),
    B: T.Buffer((64, 64), "float16"),
    C: T.Buffer((64, 64), "float16"),
) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        with T.sblock("cta"):
            acc = T.sblock_alloc_buffer((64, 64), "float32", scope="local")
            for i, j in T.grid(64, 64):
                with T.sblock("init"):
                    acc[i, j] = T.float32(0)
            for k in range(2):
                with T.sblock("step"):
                    A_shared = T.sblock_alloc_buffer((64, 32), "float16", scope="shared")
                    B_shared = T.sblock_alloc_buffer((32, 64), "float16", scope="shared")
                    for i, j in T.grid(64, 32):
                        with T.sblock("A_shared"):
                            A_shared[i, j] = A[i, k * 32 + j]
                    for i, j in T.grid(32, 64):
                        with T.sblock("B_shared"):
                            B_shared[i, j] = B[k * 32 + i, j]
                    for i, j, r in T.grid(64, 64, 32):
                        with T.sblock("matmul"):
                            acc[i, j] = acc[i, j] + T.Cast("float32", A_shared[i, r]) * T.Cast(
                                "float32", B_shared[r, j]
                            )
            for i, j in T.grid(64, 64):
                with T.sblock("store"):
                    C[i, j] = C[i, j] + T.Cast("float16", acc[i, j])


def test_values_are_computed_before_they_are_exchanged() -> None:
    gemm = Gemm(70, 72, 64, layout="NN")
    done = pipeliner.pipeline(scheduled(gemm, SMALL, residual), "sm_80")
    assert calls(done.body, "shuffle")
    rng = np.random.default_rng(0)
    a, b, d = (rng.integers(-2, 3, shape).astype("f2") for shape in gemm.shapes())
    bias = rng.integers(-2, 3, 72).astype("f4")
    result = run(done, [a, b, bias, d, np.full((70, 72), np.nan, "f2")])
    assert not result.hazards
    want = np.maximum(gemm.reference(a, b) + bias + d, 0)
    np.testing.assert_array_equal(result.outputs["C"].astype("f8"), want)


def test_a_nest_that_reads_what_it_stores_exchanges_nothing() -> None:
    gemm = Gemm(64, 64, 64, layout="NN")
    done = pipeliner.pipeline(in_place, "sm_80")
    assert not calls(done.body, "shuffle")
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-2, 3, shape).astype("f2") for shape in gemm.shapes())
    result = run(done, [a, b, c.copy()])
    assert not result.hazards
    np.testing.assert_array_equal(result.outputs["C"].astype("f8"), gemm.reference(a, b) + c)


@pytest.mark.nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.deep("test_every_bit_of_a_gemm; the CUDA is that of verify/test_fixed_plans.py")
def test_machine_code_stores_16_bytes_from_registers(dtype: str, arch: str) -> None:
    """A thread of the default tile holds 64 words of C: 16 stores, each of three words received."""
    gemm = Gemm(1024, 1024, 1024, dtype=dtype, layout="NN")
    func = scheduled(gemm, GemmTile(128, 256, 64))
    kernel = pipeliner.build(pipeliner.pipeline(func, arch, instruction="mma"), arch)
    assert kernel.resources.stack == kernel.resources.spills == 0
    code = re.findall(r"\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\S*)", kernel.sass)
    assert [name for name in code if name.startswith("STG")] == ["STG.E.128"] * 16
    assert sum(name.startswith("SHFL.BFLY") for name in code) == 48
    assert not [name for name in code if name.startswith(("LDL", "STL"))]
