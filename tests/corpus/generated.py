"""Functions that TVM's own schedulers made: dlight, meta_schedule and tvm.testing's mma schedule.

The meta_schedule ones are random samples, recorded as the TVMScript text that TVM 0.27 printed
(recorded/*.tir): seeds do not carry over between releases. dlight's tensor-core matmul is recorded
too: importing the intrinsics that it needs takes 17 seconds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import dlight
from tvm.script import tirx as T
from tvm.target import Target

from .case import Case, Declined, Pipelined, uniform

RECORDED = Path(__file__).with_name("recorded")


def _matmul(m: int, n: int, k: int, dtype: str, b_transposed: bool):
    b_shape = (n, k) if b_transposed else (k, n)

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((m, k), dtype), B: T.Buffer(b_shape, dtype), C: T.Buffer((m, n), dtype)):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i, j, r in T.grid(m, n, k):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, r])
                with T.init():
                    C[vi, vj] = T.FloatImm(dtype, 0.0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * (B[vj, vk] if b_transposed else B[vk, vj])

    return main


def _batched_matmul():
    A = te.placeholder((2, 32, 64), "float32", "A")
    B = te.placeholder((2, 64, 32), "float32", "B")
    k = te.reduce_axis((0, 64), "k")
    C = te.compute((2, 32, 32), lambda b, i, j: te.sum(A[b, i, k] * B[b, k, j], axis=k), "C")
    return te.create_prim_func([A, B, C])


def _row_sum(rows: int, columns: int):
    A = te.placeholder((rows, columns), "float32", "A")
    k = te.reduce_axis((0, columns), "k")
    return te.create_prim_func([A, te.compute((rows,), lambda i: te.sum(A[i, k], axis=k), "B")])


def _softmax(rows: int, columns: int):
    A = te.placeholder((rows, columns), "float32", "A")
    k = te.reduce_axis((0, columns), "k")
    top = te.compute((rows,), lambda i: te.max(A[i, k], axis=k), "top")
    e = te.compute((rows, columns), lambda i, j: te.exp(A[i, j] - top[i]), "e")
    k2 = te.reduce_axis((0, columns), "k2")
    total = te.compute((rows,), lambda i: te.sum(e[i, k2], axis=k2), "total")
    return te.create_prim_func(
        [A, te.compute((rows, columns), lambda i, j: e[i, j] / total[i], "B")]
    )


def _transpose():
    A = te.placeholder((64, 96), "float32", "A")
    return te.create_prim_func([A, te.compute((96, 64), lambda i, j: A[j, i], "B")])


def _elementwise():
    A = te.placeholder((4096,), "float32", "A")
    return te.create_prim_func([A, te.compute((4096,), lambda i: te.exp(A[i]) + 1.0, "B")])


def _dlight(func, rule):
    """``func`` as dlight's ``rule`` schedules it for an A100."""
    target = Target(
        {
            "kind": "cuda",
            "arch": "sm_80",
            "max_threads_per_block": 1024,
            "max_shared_memory_per_block": 49152,
            "thread_warp_size": 32,
        }
    )
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    with target:
        return dlight.ApplyDefaultSchedule(rule)(module)["main"]


def _recorded(name: str):
    """A meta_schedule sample as TVM printed it."""
    text = (RECORDED / f"{name}.tir").read_text()
    return tvm.script.from_source(text).with_attr("global_symbol", "main")


def _mma_schedule(annotations: dict[str, list[int]] | None = None):
    """``tvm.testing.tir.mma_schedule`` of 64 x 64 x 128, fp16 to fp32, one warp a 32 x 32 tile.

    Recorded as JSON: TVM 0.27 cannot parse what it prints of ``mma_fill_legacy``, and importing the
    intrinsics that the schedule needs takes 17 seconds.
    """
    func = tvm.ir.load_json((RECORDED / "mma_schedule.json").read_text())
    sch = tvm.s_tir.Schedule(func)
    loop = sch.get_loops(sch.get_sblock("C_o_update"))[3]
    for key, value in (annotations or {}).items():
        sch.annotate(loop, key, value)
    return sch.mod["main"]


def _ab(rng, m, n, k, dtype="float32", b_transposed=False):
    b = (n, k) if b_transposed else (k, n)
    return {"A": uniform(rng, m, k, dtype=dtype), "B": uniform(rng, *b, dtype=dtype)}


def _product(x, b_transposed=False, dtype=None):
    a, b = x["A"].astype("float32"), x["B"].astype("float32")
    return {"C": (a @ (b.swapaxes(-1, -2) if b_transposed else b)).astype(dtype or x["A"].dtype)}


def _softmax_ref(x):
    e = np.exp(x["A"] - x["A"].max(1, keepdims=True))
    return {"B": e / e.sum(1, keepdims=True)}


def _conv(x):
    padded = np.pad(x["X"], ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [
        np.einsum("nhwc,cf->nhwf", padded[:, i : i + 8, j : j + 8], x["W"][i, j])
        for i in range(3)
        for j in range(3)
    ]
    return {"Y": np.sum(taps, axis=0, dtype="float32")}


def _conv_inputs(rng):
    return {"X": uniform(rng, 1, 8, 8, 16), "W": uniform(rng, 3, 3, 16, 16)}


def _bmm_inputs(rng):
    return {"A": uniform(rng, 2, 32, 64), "B": uniform(rng, 2, 64, 32)}


HALF_TOLERANCE = 2e-2
"""Sums of 64 to 256 products in [-1, 1], accumulated in fp16 by the schedule itself."""

CASES = [
    Case(
        "dlight_matmul_fp32",
        lambda: _dlight(_matmul(64, 64, 64, "float32", True), dlight.gpu.Matmul()),
        lambda r: _ab(r, 64, 64, 64, b_transposed=True),
        lambda x: _product(x, True),
        Pipelined(),
        "two tile copies and a register-tiled product over four K tiles",
        nvcc=True,
    ),
    Case(
        "dlight_matmul_fp16_wmma",
        lambda: _recorded("dlight_matmul_wmma"),
        lambda r: _ab(r, 128, 128, 256, "float16", True),
        lambda x: _product(x, True),
        Pipelined(),
        "annotated by dlight for TVM's own passes: two levels, seven entries for three statements; the "
        "tile copies are plain and WMMA fragments are loaded from the ring",
        tolerance=HALF_TOLERANCE,
        nvcc=True,
    ),
    Case(
        "dlight_matmul_fp16_small",
        lambda: _dlight(_matmul(64, 64, 64, "float16", True), dlight.gpu.Matmul()),
        lambda r: _ab(r, 64, 64, 64, "float16", True),
        lambda x: _product(x, True),
        Pipelined(),
        "too small for dlight's tensor-core rule: SIMT on fp16",
        tolerance=HALF_TOLERANCE,
    ),
    Case(
        "dlight_batched_matmul",
        lambda: _dlight(_batched_matmul(), dlight.gpu.Matmul()),
        _bmm_inputs,
        _product,
        Pipelined(),
        "the batch is on the grid, the K loop is that of a matmul",
    ),
    Case(
        "dlight_gemv",
        lambda: _dlight(_matmul(1, 64, 1024, "float32", True), dlight.gpu.GEMV()),
        lambda r: _ab(r, 1, 64, 1024, b_transposed=True),
        lambda x: _product(x, True),
        Pipelined(),
        "weights stream through a per-thread buffer that the loop allocates",
        nvcc=True,
    ),
    Case(
        "dlight_reduction",
        lambda: _dlight(_row_sum(4, 8192), dlight.gpu.Reduction()),
        lambda r: {"A": uniform(r, 4, 8192)},
        lambda x: {"B": x["A"].sum(1)},
        Pipelined(),
        "each thread sums a strided row into a register, then the CTA reduces; the loads are free",
        tolerance=1e-4,
    ),
    Case(
        "dlight_softmax",
        lambda: _dlight(_softmax(4, 2048), dlight.gpu.GeneralReduction()),
        lambda r: {"A": uniform(r, 4, 2048)},
        _softmax_ref,
        Pipelined(loops=3),
        "three streams over a row (max, sum, quotient), each of eight steps a thread",
    ),
    Case(
        "dlight_transpose",
        lambda: _dlight(_transpose(), dlight.gpu.Transpose()),
        lambda r: {"A": uniform(r, 64, 96)},
        lambda x: {"B": x["A"].T.copy()},
        Declined("loop.trip"),
        "one tile a CTA: every serial loop has one iteration",
    ),
    Case(
        "dlight_elementwise",
        lambda: _dlight(_elementwise(), dlight.gpu.Fallback()),
        lambda r: {"A": uniform(r, 4096)},
        lambda x: {"B": np.exp(x["A"]) + 1},
        Declined("loop.none"),
        "one element a thread, no loop at all",
    ),
    Case(
        "dlight_fallback_row_sum",
        lambda: _dlight(_row_sum(1024, 32), dlight.gpu.Fallback()),
        lambda r: {"A": uniform(r, 1024, 32)},
        lambda x: {"B": x["A"].sum(1)},
        Pipelined(),
        "the sum lives in global memory and is carried, the loads of A are not: A and B do not alias",
    ),
    Case(
        "ms_matmul",
        lambda: _recorded("cuda_matmul"),
        lambda r: _ab(r, 64, 64, 64),
        _product,
        Pipelined(),
        "meta_schedule's plain sketch: no annotation, eight K tiles",
        nvcc=True,
    ),
    Case(
        "ms_matmul_async",
        lambda: _recorded("cuda_matmul_async"),
        lambda r: _ab(r, 64, 64, 64),
        _product,
        Pipelined(min_depth=4),
        "meta_schedule's asynchronous sketch: stage [0, 0, 3] is the user's plan",
        nvcc=True,
    ),
    Case(
        "ms_conv",
        lambda: _recorded("cuda_conv"),
        _conv_inputs,
        _conv,
        Pipelined(),
        "direct convolution: halo and weights in shared memory, the halo masked, two virtual threads",
    ),
    Case(
        "ms_conv_async",
        lambda: _recorded("cuda_conv_async"),
        _conv_inputs,
        _conv,
        Pipelined(min_depth=3),
        "the same with stages [0, 0, 2] or [0, 0, 3] from meta_schedule",
    ),
    Case(
        "ms_batched_matmul_async",
        lambda: _recorded("cuda_batched_matmul_async"),
        _bmm_inputs,
        _product,
        Pipelined(min_depth=3),
        "the asynchronous sketch of a batched product",
    ),
    Case(
        "ms_row_sum",
        lambda: _recorded("cuda_row_sum"),
        lambda r: {"A": uniform(r, 16, 2048)},
        lambda x: {"B": x["A"].sum(1)},
        Pipelined(),
        "64 steps of a stream, then a reduction over the warp",
        tolerance=1e-4,
    ),
    Case(
        "ms_tensorcore_matmul",
        lambda: _recorded("tensorcore_matmul"),
        lambda r: _ab(r, 64, 64, 256, "float16"),
        _product,
        Pipelined(),
        "WMMA without any annotation: copies of four K tiles, fragments loaded inside",
        tolerance=HALF_TOLERANCE,
    ),
    Case(
        "tvm_mma_schedule",
        _mma_schedule,
        lambda r: _ab(r, 64, 64, 128, "float16"),
        lambda x: _product(x, dtype="float32"),
        Pipelined(),
        "TVM's tensorised mma.sync schedule keeps its instruction; only its copies are ours",
        tolerance=1e-3,
    ),
    Case(
        "tvm_mma_schedule_annotated",
        lambda: _mma_schedule(
            {
                "software_pipeline_stage": [0, 0, 2],
                "software_pipeline_order": [0, 1, 2],
                "software_pipeline_async_stages": [0],
            },
        ),
        lambda r: _ab(r, 64, 64, 128, "float16"),
        lambda x: _product(x, dtype="float32"),
        Pipelined(min_depth=3),
        "the same with a three-stage asynchronous pipeline asked for by the user",
        tolerance=1e-3,
    ),
]
