"""Small CUDA kernels whose threads meet in shared memory, each the question of one test."""

from __future__ import annotations

from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def uniform_condition(
    A: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32"), n: T.int32
):
    for bx in T.thread_binding(4, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                for k in range(16):
                    if bx * 16 + k < n:
                        S[tx] = A[bx * 16 + k, tx]
                        C[bx * 16 + k, tx] = S[63 - tx]


@T.prim_func(s_tir=True)
def divergent_reader(A: T.Buffer((16, 64), "float32"), C: T.Buffer((16, 64), "float32")):
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                for k in range(16):
                    S[tx] = A[k, tx]
                    if tx < 32:
                        C[k, tx] = S[63 - tx]


@T.prim_func(s_tir=True)
def divergent_halves(A: T.Buffer((16, 64), "float32"), C: T.Buffer((16, 64), "float32")):
    """Of the threads that store, none stores what another does, nor where it loads."""
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                for k in range(16):
                    if tx < 32:
                        S[tx] = A[k, tx]
                        S[tx + 32] = A[k, tx + 32]
                        S[tx] = S[tx] + S[tx + 32]
                    C[k, tx] = S[63 - tx]


@T.prim_func(s_tir=True)
def divergent_exchange(A: T.Buffer((16, 64), "float32"), C: T.Buffer((16, 64), "float32")):
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                for k in range(16):
                    if tx < 32:
                        S[tx] = A[k, tx]
                        C[k, tx] = S[31 - tx]


@T.prim_func(s_tir=True)
def divergent_loop(A: T.Buffer((16, 64), "float32"), C: T.Buffer((64,), "float32")):
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                for k in range(tx):
                    S[tx] = A[0, tx]
                    C[tx] = S[63 - tx]


@T.prim_func(s_tir=True)
def flag_in_register(
    A: T.Buffer((16, 64), "float32"), C: T.Buffer((16, 64), "float32"), n: T.int32
):
    """The condition is a register: written alike by every thread, or not."""
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                flag = T.sblock_alloc_buffer((1,), "int32", scope="local")
                flag[0] = n
                for k in range(16):
                    if k < flag[0]:
                        S[tx] = A[k, tx]
                        C[k, tx] = S[63 - tx]
                    flag[0] = flag[0] - 1


@T.prim_func(s_tir=True)
def own_elements(A: T.Buffer((16, 64), "float32"), C: T.Buffer((16, 64), "float32")):
    """Every thread reads back what it wrote itself."""
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((4, 64), "float32", scope="shared")
                for k in range(16):
                    for i in range(4):
                        S[i, tx] = A[k, tx]
                    for i in range(4):
                        C[k, tx] = S[3 - i, tx]


@T.prim_func(s_tir=True)
def disjoint_halves(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    """The first statement and the second touch different halves."""
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                S[tx] = A[tx]
                S[63 - tx] = A[63 - tx]
                C[tx] = S[tx]
                C[63 - tx] = S[tx + 32]


@T.prim_func(s_tir=True)
def other_mapping(A: T.Buffer((1, 64), "float32"), C: T.Buffer((1, 64), "float32")):
    """Two statements write one element from different threads: the second must win."""
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                S[tx] = T.float32(0)
                S[63 - tx] = A[0, 63 - tx]
                C[0, 63 - tx] = S[63 - tx]


@T.prim_func(s_tir=True)
def barriers_of_the_user(A: T.Buffer((16, 64), "float32"), C: T.Buffer((16, 64), "float32")):
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                for k in range(16):
                    S[tx] = A[k, tx]
                    T.tvm_storage_sync("shared")
                    C[k, tx] = S[63 - tx]
                    T.tvm_storage_sync("shared")


@T.prim_func(s_tir=True)
def read_before_inner_loop(A: T.Buffer((16, 64), "float32"), C: T.Buffer((16, 64), "float32")):
    """The barrier for a reader in an inner loop stands before that loop."""
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                acc = T.sblock_alloc_buffer((1,), "float32", scope="local")
                for k in range(16):
                    S[tx] = A[k, tx]
                    acc[0] = T.float32(0)
                    for i in range(64):
                        acc[0] = acc[0] + S[i]
                    C[k, tx] = acc[0]


@T.prim_func(s_tir=True)
def virtual_threads(A: T.Buffer((8, 128), "float32"), C: T.Buffer((8, 128), "float32")):
    """Each virtual thread owns a copy of the buffer; the barrier is passed once."""
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for vx in T.thread_binding(2, thread="vthread.x"):
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                with T.sblock("kernel"):
                    S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                    for k in range(8):
                        S[tx] = A[k, vx * 64 + tx]
                        C[k, vx * 64 + tx] = S[63 - tx]


@T.prim_func(s_tir=True)
def histogram(A: T.Buffer((16, 64), "int32"), C: T.Buffer((64,), "int32")):
    """Atomics need no barrier among themselves, but one before and after."""
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                T.reads(A[0:16, 0:64])
                T.writes(C[0:64])
                S = T.sblock_alloc_buffer((64,), "int32", scope="shared")
                S[63 - tx] = 0
                for k in range(16):
                    T.evaluate(
                        T.call_intrin(
                            "int32", "tirx.atomic_add", T.address_of(S[A[k, tx]]), T.int32(1)
                        )
                    )
                C[tx] = S[tx]
