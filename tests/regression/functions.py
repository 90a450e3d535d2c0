"""Small loops that bring out one known defect each."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def read_then_overwrite(
    A: T.Buffer((16, 16), "float32"),
    first: T.Buffer((16,), "float32"),
    C: T.Buffer((16, 16), "float32"),
):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(0, 16, thread="threadIdx.x"):
        with T.sblock():
            B = T.sblock_alloc_buffer((16, 1), dtype="float32", scope="shared")
            with T.sblock("first"):
                B[tx, 0] = first[tx]
            for i in T.serial(0, 16):
                with T.sblock("read"):
                    C[i, tx] = B[tx, 0] + T.float32(1)
                with T.sblock("overwrite"):
                    B[tx, 0] = A[i, tx]


@T.prim_func(s_tir=True)
def carried_sum(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(0, 16, thread="threadIdx.x"):
        with T.sblock():
            S = T.sblock_alloc_buffer((16, 1), dtype="float32", scope="shared")
            with T.sblock("init"):
                S[tx, 0] = T.float32(0)
            for i in T.serial(0, 16):
                with T.sblock("compute"):
                    B = T.sblock_alloc_buffer((16, 1), dtype="float32", scope="shared")
                    with T.sblock("add"):
                        S[tx, 0] = S[tx, 0] + A[tx, i]
                    with T.sblock("copy"):
                        B[tx, 0] = S[tx, 0]
                    with T.sblock("use"):
                        C[tx, i] = B[tx, 0] + S[tx, 0]


@T.prim_func(s_tir=True)
def used_after_the_loop(
    A: T.Buffer((16, 16), "float32"),
    C: T.Buffer((16, 16), "float32"),
    last: T.Buffer((16,), "float32"),
):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(0, 16, thread="threadIdx.x"):
        with T.sblock():
            B = T.sblock_alloc_buffer((16, 1), dtype="float32", scope="shared")
            for i in T.serial(0, 16):
                with T.sblock("load"):
                    B[tx, 0] = A[tx, i]
                with T.sblock("use"):
                    C[tx, i] = B[15 - tx, 0]
            with T.sblock("last"):
                last[tx] = B[15 - tx, 0]


@T.prim_func(s_tir=True)
def two_copies_and_a_stranger(
    A: T.Buffer((16, 16), "float32"),
    B: T.Buffer((16, 16), "float32"),
    X: T.Buffer((16, 16), "float32"),
    Y: T.Buffer((16, 16), "float32"),
    C: T.Buffer((16, 16), "float32"),
):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(0, 16, thread="threadIdx.x"):
        for i in T.serial(0, 16):
            with T.sblock("compute"):
                A_shared = T.sblock_alloc_buffer((16, 1), dtype="float32", scope="shared")
                B_shared = T.sblock_alloc_buffer((16, 1), dtype="float32", scope="shared")
                with T.sblock("A_shared"):
                    A_shared[tx, 0] = A[tx, i]
                with T.sblock("stranger"):
                    Y[tx, i] = X[tx, i] + T.float32(1)
                with T.sblock("B_shared"):
                    B_shared[tx, 0] = B[tx, i]
                with T.sblock("add"):
                    C[tx, i] = A_shared[15 - tx, 0] + B_shared[15 - tx, 0]


@T.prim_func(s_tir=True)
def one_statement(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(0, 16, thread="threadIdx.x"):
        for i in T.serial(0, 16):
            with T.sblock("copy"):
                C[tx, i] = A[tx, i]


@T.prim_func(s_tir=True)
def hand_written_ring(A: T.Buffer((16, 64), "float32"), C: T.Buffer((16, 64), "float32")):
    """A delay line of four slots: C[k] is A[k - 3] reversed, and A[k] reversed before that exists."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("cta"):
                S = T.sblock_alloc_buffer((4, 64), "float32", scope="shared")
                for k in T.serial(16):
                    with T.sblock("fill"):
                        S[k % 4, tx] = A[k, tx]
                    with T.sblock("use"):
                        C[k, tx] = S[T.Select(k >= 3, (k + 1) % 4, k % 4), 63 - tx]


@T.prim_func(s_tir=True)
def loaded_condition(
    A: T.Buffer((16, 64), "float32"),
    keep: T.Buffer((16,), "int32"),
    C: T.Buffer((16, 64), "float32"),
):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("cta"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                for k in T.serial(16):
                    if keep[k] > 0:
                        S[tx] = A[k, tx]
                        C[k, tx] = S[63 - tx]


@T.prim_func(s_tir=True)
def rows_from_the_third_byte(A: T.Buffer((8, 512), "int8"), C: T.Buffer((8, 64), "int32")):
    """Rows whose first two bytes count as zero: the mask changes inside a vector of eight."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for k in T.serial(8):
                with T.sblock("tile"):
                    S = T.sblock_alloc_buffer((512,), "int8", scope="shared")
                    with T.sblock("S"):
                        for v in T.vectorized(8):
                            S[tx * 8 + v] = T.if_then_else(
                                tx * 8 + v >= 2, A[k, tx * 8 + v], T.int8(0)
                            )
                    with T.sblock("sum"):
                        C[k, tx] = T.Cast("int32", S[504 - tx * 8]) + T.Cast(
                            "int32", S[507 - tx * 8]
                        )


@T.prim_func(s_tir=True)
def reset_in_each_row(A: T.Buffer((8, 64), "float32"), C: T.Buffer((8, 64), "float32")):
    """A statement that takes no time: it sets a register to a constant."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("cta"):
                last = T.sblock_alloc_buffer((1,), "float32", scope="local")
                for k in T.serial(8):
                    with T.sblock("reset"):
                        last[0] = T.float32(0)
                    with T.sblock("load"):
                        if tx < 40:
                            last[0] = A[k, tx]
                    with T.sblock("store"):
                        C[k, tx] = last[0]


@T.prim_func(s_tir=True)
def one_buffer_after_another(
    A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32"), D: T.Buffer((64,), "float32")
):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
                U = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
                S[tx] = A[tx]
                C[tx] = S[63 - tx]
                U[tx] = A[tx] + T.float32(1)
                D[tx] = U[63 - tx]


@T.prim_func(s_tir=True)
def counted_rows(
    A: T.Buffer((2, 8, 64), "float32"),
    trips: T.Buffer((2,), "int32"),
    C: T.Buffer((2, 64), "float32"),
):
    """Each CTA loads from memory how many rows it reads, and reads them twice."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("cta"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                acc = T.sblock_alloc_buffer((1,), "float32", scope="local")
                acc[0] = T.float32(0)
                for t in T.serial(2):
                    for k in T.serial(trips[bx]):
                        with T.sblock("tile"):
                            with T.sblock("S"):
                                S[tx] = A[bx, k, tx]
                            with T.sblock("sum"):
                                acc[0] = acc[0] + S[63 - tx]
                C[bx, tx] = acc[0]


@T.prim_func(s_tir=True)
def reversed_rows(a: T.handle, c: T.handle, n: T.int32):
    """n rows through shared memory: the smallest tile loop with a dynamic trip count."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    A = T.match_buffer(a, (n, 64), "float32")
    C = T.match_buffer(c, (n, 64), "float32")
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for k in T.serial(n):
                with T.sblock("tile"):
                    S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                    with T.sblock("S"):
                        S[tx] = A[k, tx]
                    with T.sblock("reverse"):
                        C[k, tx] = S[63 - tx]


@T.prim_func(s_tir=True)
def atomic_then_read(
    A: T.Buffer((16, 64), "int32"), H: T.Buffer((64,), "int32"), C: T.Buffer((16, 64), "int32")
):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for k in T.serial(16):
                with T.sblock("update"):
                    T.reads(A[k, tx], H[tx])
                    T.writes(H[tx])
                    T.cuda.atomic_add(T.address_of(H[tx]), A[k, tx])
                with T.sblock("read"):
                    C[k, tx] = H[tx]


def annotate(
    func: Any, stage: list[int], order: list[int], asynchronous: tuple[int, ...] = ()
) -> Any:
    """``func`` with TVM's pipeline annotations on its serial loop that has none above it."""

    def rewrite(loop: Any, mutator: Any) -> Any:
        if loop.thread_binding is not None:
            return mutator.default_mutate(loop)
        notes = {"software_pipeline_stage": stage, "software_pipeline_order": order}
        if asynchronous:
            notes["software_pipeline_async_stages"] = list(asynchronous)
        return tirx.For(
            loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, loop.thread_binding, notes
        )

    body = tvm_ffi.structural_mutate(func.body, [(tirx.For, rewrite)])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
