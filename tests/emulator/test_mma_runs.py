"""Runs of mma.sync: made at once, they do to the bit what they do one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

import pipeliner
from pipeliner.emulator import emulate
from pipeliner.emulator.translate import ptx
from pipeliner.emulator.translate.compiler import compile_kernel
from pipeliner.emulator.units.fragments import mma_spec, multiply
from pipeliner.emulator.units.mma_runs import MmaRun, multiply_all
from pipeliner.mutation.mutants import device_functions
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

from .raw import lower

MMA = "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"
THREADS = 64


def group() -> Any:
    """Return two warps that count nothing and are whole."""
    return SimpleNamespace(n=THREADS, warps=lambda mask, what: mask, count=lambda *_: None)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("shape", "ab", "d"),
    [
        ("m16n8k16", "f16", "f32"),
        ("m16n8k8", "f16", "f16"),
        ("m16n8k16", "bf16", "f32"),
        ("m16n8k4", "tf32", "f32"),
        ("m16n8k32", "s8", "s32"),
        ("m16n8k32", "e4m3", "f32"),
    ],
)
def test_a_run_is_its_products_one_by_one(shape, ab, d, masked):
    spec = mma_spec(shape, ab, ab, d)
    rng = np.random.default_rng(0)
    count = {x: getattr(spec, x).size * spec.a_type.itemsize // 128 for x in "ab"}
    values = 4 * spec.d_type.itemsize // 4  # registers of an accumulator
    # Small numbers of every type, so that nothing is NaN; files wider than what is used.
    a, b = (
        rng.integers(0, 5, (THREADS, 64)).astype(spec.a_type).view(np.uint32)[:, :16].copy()
        for _ in range(2)
    )
    c = np.zeros((THREADS, 12), np.uint32)
    c.view(spec.d_type)[:] = rng.integers(0, 9, (THREADS, 12 * 4 // spec.d_type.itemsize))
    numbers = [rng.permutation(16) for _ in range(2)]
    places = [tuple(map(int, each[: count[x]])) for x, each in zip("ab", numbers, strict=True)]
    others = [tuple(map(int, each[-count[x] :])) for x, each in zip("ab", numbers, strict=True)]
    of_a, of_b = [places[0], others[0], places[0]], [places[1], places[1], others[1]]
    of_c = [tuple(range(at * values, (at + 1) * values)) for at in range(3)]
    mask = np.repeat([True, False], 32) if masked else None

    wanted = c.copy()
    for at in range(3):
        rows = [
            np.ascontiguousarray(file[:, list(which[at])]).reshape(2, 32, -1)
            for file, which in ((a, of_a), (b, of_b), (c, of_c))
        ]
        out = multiply(spec, rows[0], rows[1], rows[2].view(spec.d_type), saturate=True)
        active = slice(None) if mask is None else mask
        words = np.ascontiguousarray(out.reshape(THREADS, -1)).view(np.uint32)
        wanted[active, of_c[at][0] : of_c[at][-1] + 1] = words[active]
    run = MmaRun.of(spec, True, (16, of_a), (16, of_b), of_c, of_c)
    multiply_all(group(), run, a, b, c.view(spec.d_type), c.view(spec.d_type), mask)
    np.testing.assert_array_equal(c, wanted)


def three(last: int, operand: int) -> Any:
    """Three products of halves; the last adds to register ``last`` and reads A at ``operand``."""
    end, next_a = last + 1, operand + 1

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((32, 16), "uint32"), C: T.Buffer((32, 16), "uint32")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            f = T.alloc_buffer((16,), "uint32", scope="local")
            for i in T.unroll(16):
                f[i] = A[tx, i]
            T.ptx[MMA](f[0], f[1], f[6], f[7], f[8], f[0], f[1])
            T.ptx[MMA](f[2], f[3], f[6], f[7], f[9], f[2], f[3])
            T.ptx[MMA](f[last], f[end], f[operand], f[next_a], f[8], f[last], f[end])
            for i in T.unroll(16):
                C[tx, i] = f[i]

    return main


@pytest.mark.parametrize(
    ("last", "operand", "runs"),
    [(4, 10, 1), (0, 10, 2), (4, 2, 2), (4, 6, 1)],
    ids=["apart", "adds to the first", "reads the second", "reads what all read"],
)
def test_what_reads_a_sum_comes_after_it(last, operand, runs, monkeypatch):
    mod = lower(three(last, operand))
    a = np.random.default_rng(0).integers(0, 5, (32, 32)).astype(np.float16).view(np.uint32)
    (kernel,) = device_functions(mod)[0].values()
    assert compile_kernel(kernel).code.source.count("multiply_all") == runs
    together = emulate(mod, [a, np.zeros_like(a)])
    monkeypatch.setattr(ptx, "multiplies", lambda stmt: False)
    assert "multiply_all" not in compile_kernel(kernel).code.source
    alone = emulate(mod, [a, np.zeros_like(a)])
    assert not together.hazards
    assert not alone.hazards
    np.testing.assert_array_equal(together.outputs["C"], alone.outputs["C"])
    assert together.total("mmas") == alone.total("mmas") == 3


@pytest.mark.parametrize("dtype", ["float16", "tfloat32", "int8"])
@pytest.mark.part(3)
def test_a_gemm_is_the_same_to_the_bit(dtype, monkeypatch):
    gemm = Gemm(m=64, n=64, k=96, dtype=dtype)
    kernel = pipeliner.build(schedule_gemm(gemm, GemmTile(64, 64, 32)), "a100", instruction="mma")
    arrays = [*gemm.inputs(0), np.zeros(gemm.shapes()[-1], gemm.out)]
    together = kernel.emulate(*arrays, order="reversed")
    monkeypatch.setattr(ptx, "multiplies", lambda stmt: False)
    alone = kernel.emulate(*arrays, order="reversed")
    assert not together.hazards
    for name, output in together.outputs.items():
        np.testing.assert_array_equal(output, alone.outputs[name])
    assert together.total("mmas") == alone.total("mmas") > 0
