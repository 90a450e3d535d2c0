"""Names of signed values: what TVM would bound as unsigned and fail on."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

import pipeliner
from pipeliner.passes.device.signed import keep_signed
from pipeliner.passes.ir import nodes as ir


@T.prim_func(s_tir=True)
def windows(A: T.Buffer((10, 32), "float32"), B: T.Buffer((64,), "float32")):
    """Sums rows from the second on without their last two elements; 8 threads copy a row."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("root2"):
                acc = T.sblock_alloc_buffer((1,), "float32", scope="local")
                acc[0] = T.float32(0)
                for k in T.serial(9):
                    with T.sblock("tile"):
                        S = T.sblock_alloc_buffer((32,), "float32", scope="shared")
                        with T.sblock("S"):
                            T.where(tx * 4 < 32)
                            for v in T.vectorized(4):
                                S[tx * 4 + v] = T.if_then_else(
                                    k >= 1 and (tx * 4 + v) % 32 < 30,
                                    A[k, tx * 4 + v],
                                    T.float32(0),
                                )
                        with T.sblock("sum"):
                            acc[0] = acc[0] + S[(tx + 3) % 32]
                B[tx] = acc[0]


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.part(2)
def test_a_size_named_outside_of_its_condition_is_lowered(depth: int) -> None:
    kernel = pipeliner.build(pipeliner.pipeline(windows, "sm_80", depth=depth))
    a = np.random.default_rng(0).standard_normal((10, 32)).astype("float32")
    result = kernel.emulate(a, np.zeros(64, "float32"))
    assert not result.hazards
    kept = a[1:9] * (np.arange(32) < 30)
    want = kept.astype(np.float64).sum(0)[(np.arange(64) + 3) % 32]
    np.testing.assert_allclose(result.outputs["B"], want, atol=1e-5)
    assert "cp.async" in kernel.cuda


def test_a_conversion_moves_from_the_name_to_its_uses() -> None:
    x, size = ir.Var("x", "int32"), ir.Var("size", "uint32")
    out = tvm.tirx.decl_buffer((4,), "uint32", "out")
    body = ir.seq(
        tvm.tirx.Bind(size, tvm.tirx.Cast("uint32", 8 - x)),
        tvm.tirx.BufferStore(out, size, [0]),
        tvm.tirx.BufferStore(out, size + tvm.tirx.const(1, "uint32"), [1]),
    )
    done = keep_signed(tvm.tirx.PrimFunc([x, out], body))
    text = done.script()
    assert "size: T.let[T.int32] = 8 - x" in text
    assert 'out[0] = T.Cast("uint32", size)' in text
    assert 'out[1] = T.Cast("uint32", size) + T.uint32(1)' in text


def test_what_is_unsigned_already_keeps_its_name() -> None:
    x, size = ir.Var("x", "uint32"), ir.Var("size", "uint32")
    out = tvm.tirx.decl_buffer((4,), "uint32", "out")
    body = ir.seq(
        tvm.tirx.Bind(size, x + tvm.tirx.const(1, "uint32")),
        tvm.tirx.BufferStore(out, size, [0]),
    )
    func = tvm.tirx.PrimFunc([x, out], body)
    assert keep_signed(func).script() == func.script()
