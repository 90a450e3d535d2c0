"""Small CUDA kernels whose buffers may share memory, each the question of one test."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def in_turn(A: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
    """Three buffers, of which the first and the third are never alive together."""
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((64, 64), "float32", scope="shared")
                U = T.sblock_alloc_buffer((64, 64), "float32", scope="shared")
                V = T.sblock_alloc_buffer((64, 64), "float32", scope="shared.dyn")
                for k in range(64):
                    S[k, tx] = A[k, tx]
                for k in range(64):
                    U[k, tx] = S[k, 63 - tx]
                for k in range(64):
                    V[k, tx] = U[k, 63 - tx] + T.float32(1)
                for k in range(64):
                    C[k, tx] = V[k, 63 - tx]


@T.prim_func(s_tir=True)
def in_turn_inside_a_loop(A: T.Buffer((4, 64), "float32"), C: T.Buffer((4, 64), "float32")):
    """As ``in_turn``, in each iteration of a loop."""
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for k in range(4):
                with T.sblock("step"):
                    S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                    U = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                    V = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                    S[tx] = A[k, tx]
                    U[tx] = S[63 - tx]
                    V[tx] = U[63 - tx]
                    C[k, tx] = V[63 - tx]


@T.prim_func(s_tir=True)
def reduction_between(A: T.Buffer((4, 64), "float32"), C: T.Buffer((4, 64), "float32")):
    """A cross-thread reduction, whose own shared memory appears later, between uses of a buffer."""
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                T.reads(A[0:4, 0:64])
                T.writes(C[0:4, 0:64])
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                part = T.sblock_alloc_buffer((1,), "float32", scope="local")
                for k in range(4):
                    with T.sblock("row"):
                        T.reads(A[k, 0:64])
                        T.writes(C[k, 0:64])
                        total = T.sblock_alloc_buffer((1,), "float32", scope="local")
                        S[tx] = A[k, tx]
                        part[0] = S[63 - tx]
                        with T.attr(
                            T.comm_reducer(lambda x, y: x + y, [T.float32(0)]),
                            "reduce_scope",
                            T.reinterpret("handle", T.uint64(0)),
                        ):
                            T.tvm_thread_allreduce(T.uint32(1), part[0], True, total[0], tx)
                        C[k, tx] = S[tx] / total[0]


@T.prim_func(s_tir=True)
def two_kernels(
    A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")
):
    """One function, two launches, each with shared memory of the same name."""
    with T.sblock("root"):
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                with T.sblock("first"):
                    S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                    S[tx] = A[tx]
                    B[tx] = S[63 - tx]
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                with T.sblock("second"):
                    S = T.sblock_alloc_buffer((2, 64), "float32", scope="shared")
                    S[0, tx] = B[tx]
                    S[1, tx + 32] = B[tx + 32]
                    C[tx] = S[1, 63 - tx]
                    C[tx + 32] = S[0, 31 - tx]


def large(rows: int) -> Any:
    """``rows`` of 64 floats in shared memory, reversed."""

    @T.prim_func(s_tir=True)
    def kernel(A: T.Buffer((rows, 64), "float32"), C: T.Buffer((rows, 64), "float32")):
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                with T.sblock("kernel"):
                    S = T.sblock_alloc_buffer((rows, 64), "float32", scope="shared")
                    for k in range(rows):
                        S[k, tx] = A[k, tx]
                    for k in range(rows):
                        C[k, tx] = S[k, 63 - tx]

    return kernel


@T.prim_func(s_tir=True)
def large_tiles(A: T.Buffer((16, 128, 64), "float32"), C: T.Buffer((16, 128, 64), "float32")):
    """A tile of 32 KB in each iteration."""
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((128, 64), "float32", scope="shared")
                for k in range(16):
                    for i in range(128):
                        S[i, tx] = A[k, i, tx]
                    for i in range(128):
                        C[k, i, tx] = S[127 - i, 63 - tx]


@T.prim_func(s_tir=True)
def on_the_cpu(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.sblock("C"):
            v = T.axis.spatial(64, i)
            C[v] = A[v] + T.float32(1)
