"""GEMMs and a convolution that bring out one known defect each, from schedules of TVM's own."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.script import tirx as T

from ..corpus.annotated import gemm, simt_gemm
from ..corpus.generated import CASES as GENERATED


def dynamic_k_gemm(stage: list[int], asynchronous: tuple[int, ...] = (), multiple: int = 8) -> Any:
    """C[32, 32] = A[32, n * multiple] @ B: n is a parameter of the kernel."""

    @T.prim_func(s_tir=True)
    def main(a: T.handle, b: T.handle, C: T.Buffer((32, 32), "float32"), n: T.int32):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        A = T.match_buffer(a, (32, n * multiple), "float32")
        B = T.match_buffer(b, (n * multiple, 32), "float32")
        for i, j, k in T.grid(32, 32, n * multiple):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    return simt_gemm(stage, [0, 1, 2] if stage else [], asynchronous, func=main)


def shifted_gemm() -> Any:
    """C = A[:, 1:] @ B with rows of 65 elements: no load of A is 16-byte aligned."""

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((32, 65), "float32"),
        B: T.Buffer((64, 32), "float32"),
        C: T.Buffer((32, 32), "float32"),
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i, j, k in T.grid(32, 32, 64):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk + 1] * B[vk, vj]

    return simt_gemm([0, 0, 2], [0, 1, 2], [0], func=main)


def padded_gemm(m: int, n: int, k: int, dtype: str, accumulator: str, vector: int) -> Any:
    """A ragged GEMM padded to tiles of 32 x 32 x 32, the zeros selected inside the tile copies."""

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((m, k), dtype), B: T.Buffer((k, n), dtype), C: T.Buffer((m, n), accumulator)
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i, j, r in T.grid(m, n, k):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, r])
                with T.init():
                    C[vi, vj] = T.Cast(accumulator, 0)
                C[vi, vj] = C[vi, vj] + T.Cast(accumulator, A[vi, vk]) * T.Cast(
                    accumulator, B[vk, vj]
                )

    sch = tvm.s_tir.Schedule(main)
    C = sch.get_sblock("C")
    sch.pad_einsum(C, [32, 32, 32])
    children = sch.get_child_blocks(sch.get_sblock("root"))
    pads = [block for block in children if "pad" in sch.get(block).name_hint]
    i, j, r = sch.get_loops(C)
    by, ty, yi = sch.split(i, [None, 8, 4])
    bx, tx, xi = sch.split(j, [None, 8, 4])
    ko, ki = sch.split(r, [None, 32])
    sch.reorder(by, bx, ty, tx, ko, ki, yi, xi)
    sch.reverse_compute_at(sch.cache_write(C, 0, "local"), tx)
    axes = ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")
    for axis, thread in zip((by, bx, ty, tx), axes):
        sch.bind(axis, thread)
    for operand in (0, 1):
        copy = sch.cache_read(C, operand, "shared")
        sch.compute_at(copy, ko, preserve_unit_loops=True)
        _, a, b, v = sch.split(sch.fuse(*sch.get_loops(copy)[-2:]), [None, 8, 8, vector])
        sch.bind(a, "threadIdx.y")
        sch.bind(b, "threadIdx.x")
        sch.vectorize(v)
    for block in pads:
        if sch.get(block).name_hint.startswith("C"):
            sch.reverse_compute_inline(block)
        else:
            sch.compute_inline(block)
    sch.decompose_reduction(C, ko)
    return sch.mod["main"]


def fused_conv() -> Any:
    """A 3 x 3 convolution whose pixels and whose taps are fused: compaction loses the tile shapes."""

    @T.prim_func(s_tir=True)
    def main(
        X: T.Buffer((1, 8, 8, 16), "float32"),
        W: T.Buffer((3, 3, 16, 32), "float32"),
        Y: T.Buffer((1, 8, 8, 32), "float32"),
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        P = T.sblock_alloc_buffer((1, 10, 10, 16), "float32")
        for n, h, w, c in T.grid(1, 10, 10, 16):
            with T.sblock("pad"):
                vn, vh, vw, vc = T.axis.remap("SSSS", [n, h, w, c])
                P[vn, vh, vw, vc] = T.if_then_else(
                    vh >= 1 and vh < 9 and vw >= 1 and vw < 9,
                    X[vn, vh - 1, vw - 1, vc],
                    T.float32(0),
                )
        for n, h, w, f, ry, rx, rc in T.grid(1, 8, 8, 32, 3, 3, 16):
            with T.sblock("C"):
                vn, vh, vw, vf, vy, vx, vc = T.axis.remap("SSSSRRR", [n, h, w, f, ry, rx, rc])
                with T.init():
                    Y[vn, vh, vw, vf] = T.float32(0)
                Y[vn, vh, vw, vf] = (
                    Y[vn, vh, vw, vf] + P[vn, vh + vy, vw + vx, vc] * W[vy, vx, vc, vf]
                )

    sch = tvm.s_tir.Schedule(main)
    C = sch.get_sblock("C")
    n, h, w, f, ry, rx, rc = sch.get_loops(C)
    by, ty, yi = sch.split(sch.fuse(n, h, w), [None, 8, 4])
    bx, tx, xi = sch.split(f, [None, 8, 4])
    ko, ki = sch.split(sch.fuse(ry, rx, rc), [None, 8])
    sch.reorder(by, bx, ty, tx, ko, ki, yi, xi)
    sch.reverse_compute_at(sch.cache_write(C, 0, "local"), tx)
    axes = ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")
    for axis, thread in zip((by, bx, ty, tx), axes):
        sch.bind(axis, thread)
    for operand in (0, 1):
        copy = sch.cache_read(C, operand, "shared")
        sch.compute_at(copy, ko, preserve_unit_loops=True)
        _, a, b, v = sch.split(sch.fuse(*sch.get_loops(copy)[-4:]), [None, 8, 8, 4])
        sch.bind(a, "threadIdx.y")
        sch.bind(b, "threadIdx.x")
        sch.vectorize(v)
    sch.compute_inline(sch.get_sblock("pad"))
    sch.decompose_reduction(C, ko)
    return sch.mod["main"]


def double_buffered_gemm() -> Any:
    """A plain GEMM whose tiles carry TVM's ``double_buffer_scope``."""
    sch = tvm.s_tir.Schedule(simt_gemm([], [], func=gemm(32, 64)))
    for name in ("A_shared", "B_shared"):
        sch.annotate(sch.get_sblock(name), "double_buffer_scope", 0)
    return sch.mod["main"]


def mma_gemm() -> Any:
    """TVM's ldmatrix and mma.sync GEMM of 64 x 64 x 128."""
    return next(case for case in GENERATED if case.name == "tvm_mma_schedule").build()


def rows_by_ldmatrix(start: int) -> Any:
    """Eight 8 x 8 tiles through shared memory, read by ldmatrix through ``access_ptr``.

    The loop counts from ``start``; tile ``i - start`` of A, two halves a word, is copied to C. TVM
    flattens the two statements of the reading block, so that its annotation has three entries.
    """

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8, 8, 8), "float16"), C: T.Buffer((8, 32), "uint32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                for i in T.serial(
                    start,
                    start + 8,
                    annotations={
                        "software_pipeline_stage": [0, 2, 2],
                        "software_pipeline_order": [0, 1, 2],
                    },
                ):
                    with T.sblock("tile"):
                        T.reads(A[i - start, tx // 4, tx % 4 * 2 : tx % 4 * 2 + 2])
                        T.writes(C[i - start, tx])
                        S = T.sblock_alloc_buffer((8, 8), "float16", scope="shared")
                        with T.sblock("S"):
                            T.reads(A[i - start, tx // 4, tx % 4 * 2 : tx % 4 * 2 + 2])
                            T.writes(S[tx // 4, tx % 4 * 2 : tx % 4 * 2 + 2])
                            for v in T.vectorized(2):
                                S[tx // 4, tx % 4 * 2 + v] = A[i - start, tx // 4, tx % 4 * 2 + v]
                        with T.sblock("read"):
                            T.reads(S[0:8, 0:8])
                            T.writes(C[i - start, tx])
                            word = T.sblock_alloc_buffer((1,), "uint32", scope="local")
                            T.ptx["ldmatrix.sync.aligned.m8n8.x1.shared.b16"](
                                word[0], S.access_ptr("r", offset=tx % 8 * 8)
                            )
                            C[i - start, tx] = word[0]

    return main
