"""Small CUDA kernels with a ring and asynchronous copies by hand, each the question of one test."""

from __future__ import annotations

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
                kept = T.sblock_alloc_buffer((1,), "float32", scope="local")
                for p in T.unroll(2):
                    if p < n:
                        S[p, tx] = A[p, tx]
                if n > 0:
                    kept[0] = S[0, 63 - tx]
                for k in T.serial(n, annotations={"pipeliner.phase": "steady"}):
                    if k + 2 < n:
                        S[k % 2, tx] = A[k + 2, tx]
                    C[k, tx] = kept[0]
                    kept[0] = S[T.min(k + 1, n - 1) % 2, 63 - tx]


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
