"""Small CUDA kernels with shared memory, each the question of one test."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

DEPTH = 4


@T.prim_func(s_tir=True)
def waits_first(a: T.handle, c: T.handle, n: T.int32):
    """Steady step: wait(k), copies(k + 3), compute(k)."""
    A = T.match_buffer(a, (n, 64), "float32")
    C = T.match_buffer(c, (n, 64), "float32")
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                T.reads(A[0:n, 0:64])
                T.writes(C[0:n, 0:64])
                S = T.sblock_alloc_buffer((DEPTH, 64), "float32", scope="shared")
                for p in T.unroll(DEPTH - 1):
                    if p < n:
                        T.evaluate(
                            T.ptx["cp.async.ca.shared.global"](
                                T.address_of(S[p, tx]), T.address_of(A[p, tx]), 4
                            )
                        )
                    T.ptx.cp.async_.commit_group()
                for k in T.serial(n, annotations={"pipeliner.phase": "steady"}):
                    T.ptx.cp.async_.wait_group(DEPTH - 2)
                    if k + DEPTH - 1 < n:
                        T.evaluate(
                            T.ptx["cp.async.ca.shared.global"](
                                T.address_of(S[(k + DEPTH - 1) % DEPTH, tx]),
                                T.address_of(A[k + DEPTH - 1, tx]),
                                4,
                            )
                        )
                    T.ptx.cp.async_.commit_group()
                    C[k, tx] = S[k % DEPTH, 63 - tx]


@T.prim_func(s_tir=True)
def guard_and_clamp(a: T.handle, c: T.handle, n: T.int32):
    """Steady step: stores of k + 2 in the slot of k, use of k, load of k + 1, past the end of n - 1.

    While there is something to store, the slots of the two differ.
    """
    A = T.match_buffer(a, (n, 64), "float32")
    C = T.match_buffer(c, (n, 64), "float32")
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                T.reads(A[0:n, 0:64])
                T.writes(C[0:n, 0:64])
                S = T.sblock_alloc_buffer((2, 64), "float32", scope="shared")
                held = T.sblock_alloc_buffer((1,), "float32", scope="local")
                for p in T.unroll(2):
                    if p < n:
                        S[p, tx] = A[p, tx]
                if n > 0:
                    held[0] = S[0, 63 - tx]
                for k in T.serial(n, annotations={"pipeliner.phase": "steady"}):
                    if k + 2 < n:
                        S[k % 2, tx] = A[k + 2, tx]
                    C[k, tx] = held[0]
                    held[0] = S[T.min(k + 1, n - 1) % 2, 63 - tx]


@T.prim_func(s_tir=True)
def own_copies(a: T.handle, c: T.handle, n: T.int32):
    """The loop of ``waits_first``, but each thread reads what it copied itself."""
    A = T.match_buffer(a, (n, 64), "float32")
    C = T.match_buffer(c, (n, 64), "float32")
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                T.reads(A[0:n, 0:64])
                T.writes(C[0:n, 0:64])
                S = T.sblock_alloc_buffer((DEPTH, 64), "float32", scope="shared")
                for p in T.unroll(DEPTH - 1):
                    if p < n:
                        T.evaluate(
                            T.ptx["cp.async.ca.shared.global"](
                                T.address_of(S[p, 63 - tx]), T.address_of(A[p, tx]), 4
                            )
                        )
                    T.ptx.cp.async_.commit_group()
                for k in T.serial(n, annotations={"pipeliner.phase": "steady"}):
                    T.ptx.cp.async_.wait_group(DEPTH - 2)
                    if k + DEPTH - 1 < n:
                        T.evaluate(
                            T.ptx["cp.async.ca.shared.global"](
                                T.address_of(S[(k + DEPTH - 1) % DEPTH, 63 - tx]),
                                T.address_of(A[k + DEPTH - 1, tx]),
                                4,
                            )
                        )
                    T.ptx.cp.async_.commit_group()
                    C[k, tx] = S[k % DEPTH, 63 - tx]


@T.prim_func(s_tir=True)
def fragments_ahead(a: T.handle, c: T.handle, n: T.int32):
    """Steady step: copies(k + 3), load and compute the rest of k, wait(k + 1), load the first of k + 1."""
    A = T.match_buffer(a, (n, 64), "float32")
    C = T.match_buffer(c, (n, 64), "float32")
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                T.reads(A[0:n, 0:64])
                T.writes(C[0:n, 0:64])
                S = T.sblock_alloc_buffer((DEPTH, 64), "float32", scope="shared")
                first = T.sblock_alloc_buffer((1,), "float32", scope="local")
                second = T.sblock_alloc_buffer((1,), "float32", scope="local")
                for p in T.unroll(DEPTH - 1):
                    if p < n:
                        T.evaluate(
                            T.ptx["cp.async.ca.shared.global"](
                                T.address_of(S[p, tx]), T.address_of(A[p, tx]), 4
                            )
                        )
                    T.ptx.cp.async_.commit_group()
                T.ptx.cp.async_.wait_group(DEPTH - 2)
                if n > 0:
                    first[0] = S[0, 63 - tx]
                for k in T.serial(n, annotations={"pipeliner.phase": "steady"}):
                    if k + DEPTH - 1 < n:
                        T.evaluate(
                            T.ptx["cp.async.ca.shared.global"](
                                T.address_of(S[(k + DEPTH - 1) % DEPTH, tx]),
                                T.address_of(A[k + DEPTH - 1, tx]),
                                4,
                            )
                        )
                    T.ptx.cp.async_.commit_group()
                    second[0] = S[k % DEPTH, tx]
                    C[k, tx] = first[0] + second[0]
                    T.ptx.cp.async_.wait_group(DEPTH - 2)
                    first[0] = S[T.min(k + 1, n - 1) % DEPTH, 63 - tx]


@T.prim_func(s_tir=True)
def one_slot(a: T.handle, c: T.handle, n: T.int32):
    A = T.match_buffer(a, (n, 64), "float32")
    C = T.match_buffer(c, (n, 64), "float32")
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                T.reads(A[0:n, 0:64])
                T.writes(C[0:n, 0:64])
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                for k in range(n):
                    S[tx] = A[k, tx]
                    C[k, tx] = S[63 - tx]


@T.prim_func(s_tir=True)
def stores_ahead(a: T.handle, c: T.handle, n: T.int32):
    """Two slots filled by plain stores; the loop may run zero times between prologue and epilogue."""
    A = T.match_buffer(a, (n, 64), "float32")
    C = T.match_buffer(c, (n, 64), "float32")
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                T.reads(A[0:n, 0:64])
                T.writes(C[0:n, 0:64])
                S = T.sblock_alloc_buffer((2, 64), "float32", scope="shared")
                S[0, tx] = A[0, tx]
                for k in range(n - 1):
                    S[(k + 1) % 2, tx] = A[k + 1, tx]
                    C[k, tx] = S[k % 2, 63 - tx]
                C[n - 1, tx] = S[(n - 1) % 2, 63 - tx]


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
