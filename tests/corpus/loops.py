"""Loops written by hand, bound to threads by hand: streams, scans, indirect reads, atomics."""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from ..bound_kernels import accumulating, bound
from .case import Case, Declined, Pipelined, one, uniform

THREADS = 64


stream_add = bound(
    "A: float32[2048], B: float32[2048], C: float32[2048]",
    """
for i in T.serial(16):
    with T.sblock("add"):
        v = T.axis.spatial(2048, i * 128 + bx * 64 + tx)
        C[v] = A[v] + B[v]
""",
    ctas=2,
)


@T.prim_func(s_tir=True)
def stream_scale_dynamic(a: T.handle, c: T.handle, n: T.int32):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    A = T.match_buffer(a, (n,), "float32")
    C = T.match_buffer(c, (n,), "float32")
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            for i in T.serial((n + 2 * THREADS - 1) // (2 * THREADS)):
                with T.sblock("scale"):
                    v = T.axis.spatial(n, i * (2 * THREADS) + bx * THREADS + tx)
                    T.where(i * (2 * THREADS) + bx * THREADS + tx < n)
                    C[v] = A[v] * T.float32(3)


column_sum = accumulating(
    "A: float32[64, 128], B: float32[128]",
    """
for k in T.serial(64):
    with T.sblock("accumulate"):
        acc[0] = acc[0] + A[k, bx * 64 + tx]
B[bx * 64 + tx] = acc[0]
""",
    ctas=2,
)


gemv_stream = bound(
    "W: float32[64, 512], x: float32[512], y: float32[64]",
    """
with T.sblock("root2"):
    x_shared = T.sblock_alloc_buffer((512,), "float32", scope="shared")
    acc = T.sblock_alloc_buffer((1,), "float32", scope="local")
    for i in T.serial(16):
        with T.sblock("x_shared"):
            x_shared[i * 32 + tx] = x[i * 32 + tx]
    acc[0] = T.float32(0)
    for k in T.serial(64):
        with T.sblock("row"):
            w = T.sblock_alloc_buffer((8,), "float32", scope="local")
            for v in T.vectorized(4):
                w[v] = W[bx * 32 + tx, k * 8 + v]
            for v in T.vectorized(4):
                w[4 + v] = W[bx * 32 + tx, k * 8 + 4 + v]
            for v in T.unroll(8):
                acc[0] = acc[0] + w[v] * x_shared[k * 8 + v]
    y[bx * 32 + tx] = acc[0]
""",
    ctas=2,
    threads=32,
)


gather_sum = accumulating(
    "A: float32[256], idx: int32[32, 64], B: float32[64]",
    """
for k in T.serial(32):
    with T.sblock("gather"):
        acc[0] = acc[0] + A[idx[k, tx]]
B[tx] = acc[0]
""",
)


linked_list = bound(
    "succ: int32[256], A: float32[256], B: float32[64]",
    """
with T.sblock("root2"):
    p = T.sblock_alloc_buffer((1,), "int32", scope="local")
    p[0] = tx
    for k in T.serial(16):
        with T.sblock("follow"):
            p[0] = succ[p[0]]
    B[tx] = A[p[0]]
""",
)


prefix_sum = bound(
    "A: float32[64, 64], B: float32[64, 64]",
    """
with T.sblock("root2"):
    run = T.sblock_alloc_buffer((1,), "float32", scope="local")
    run[0] = T.float32(0)
    for k in T.serial(64):
        with T.sblock("add"):
            run[0] = run[0] + A[k, tx]
        with T.sblock("store"):
            B[k, tx] = run[0]
""",
)


in_place_recurrence = bound(
    "A: float32[33, 64]",
    """
for k in T.serial(32):
    with T.sblock("recur"):
        vk = T.axis.opaque(32, k)
        vt = T.axis.spatial(64, tx)
        A[vk + 1, vt] = A[vk, vt] * T.float32(0.5) + A[vk + 1, vt]
""",
)


histogram = bound(
    "A: int32[1024], H: int32[16]",
    """
for i in T.serial(8):
    with T.sblock("count"):
        T.reads(A[i * 128 + bx * 64 + tx], H[0:16])
        T.writes(H[0:16])
        T.cuda.atomic_add(T.address_of(H[A[i * 128 + bx * 64 + tx]]), 1)
""",
    ctas=2,
)


thread_if = accumulating(
    "A: float32[32, 64], B: float32[64]",
    """
for k in T.serial(32):
    if tx % 2 == 0:
        acc[0] = acc[0] + A[k, tx]
B[tx] = acc[0]
""",
)


opaque_extern = bound(
    "A: float32[16, 64], C: float32[16, 64]",
    """
for k in T.serial(16):
    with T.sblock("tile"):
        S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
        with T.sblock("S"):
            S[tx] = A[k, tx]
        with T.sblock("sine"):
            C[k, tx] = T.call_extern("float32", "sinf", S[63 - tx])
""",
)


siblings = accumulating(
    "A: float32[8, 64], B: float32[12, 64], C: float32[64]",
    """
for i in T.serial(8):
    with T.sblock("tile_a"):
        A_shared = T.sblock_alloc_buffer((64,), "float32", scope="shared")
        with T.sblock("A_shared"):
            A_shared[tx] = A[i, tx]
        with T.sblock("sum_a"):
            acc[0] = acc[0] + A_shared[63 - tx]
for j in T.serial(12):
    with T.sblock("tile_b"):
        B_shared = T.sblock_alloc_buffer((64,), "float32", scope="shared")
        with T.sblock("B_shared"):
            B_shared[tx] = B[j, tx]
        with T.sblock("sum_b"):
            acc[0] = acc[0] * T.float32(0.5) + B_shared[(tx + 1) % 64]
C[tx] = acc[0]
""",
)


@T.prim_func(s_tir=True)
def transpose_tiles(A: T.Buffer((16, 128), "float32"), B: T.Buffer((128, 16), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for ty in T.thread_binding(4, thread="threadIdx.y"):
            for tx in T.thread_binding(16, thread="threadIdx.x"):
                for t in T.serial(8):
                    with T.sblock("tile"):
                        S = T.sblock_alloc_buffer((16, 17), "float32", scope="shared")
                        for r in T.serial(4):
                            with T.sblock("S"):
                                S[r * 4 + ty, tx] = A[r * 4 + ty, t * 16 + tx]
                        for r in T.serial(4):
                            with T.sblock("B"):
                                B[t * 16 + r * 4 + ty, tx] = S[tx, r * 4 + ty]


def _linked_list(x):
    p = np.arange(64)
    for _ in range(16):
        p = x["succ"][p]
    return {"B": x["A"][p]}


def _in_place(x):
    a = x["A"].copy()
    for k in range(32):
        a[k + 1] = a[k] * np.float32(0.5) + a[k + 1]
    return {"A": a}


def _siblings(x):
    acc = x["A"].sum(0)[::-1].copy()
    for row in x["B"]:
        acc = acc * np.float32(0.5) + np.roll(row, -1)
    return {"C": acc}


CASES = [
    Case(
        "stream_add",
        lambda: stream_add,
        lambda r: {"A": uniform(r, 2048), "B": uniform(r, 2048)},
        lambda x: {"C": x["A"] + x["B"]},
        Pipelined(),
        "A, B and C do not alias, so the loads of iterations ahead may be in flight in registers",
        nvcc=True,
    ),
    Case(
        "stream_scale_dynamic",
        lambda: stream_scale_dynamic,
        lambda r: {"A": uniform(r, 1000), "n": 1000},
        lambda x: {"C": x["A"] * 3},
        Pipelined(),
        "a uniform dynamic trip; the ragged guard moves with the load, registers need no barrier",
    ),
    Case(
        "column_sum",
        lambda: column_sum,
        lambda r: one("A", r, 64, 128),
        lambda x: {"B": x["A"].sum(0)},
        Pipelined(),
        "only the sum is carried; the loads that feed it are not",
    ),
    Case(
        "gemv_stream",
        lambda: gemv_stream,
        lambda r: {"W": uniform(r, 64, 512), "x": uniform(r, 512)},
        lambda x: {"y": x["W"] @ x["x"]},
        Pipelined(),
        "a decode step: the row of weights is a register ring, x stays in shared memory",
        nvcc=True,
    ),
    Case(
        "gather_sum",
        lambda: gather_sum,
        lambda r: {"A": uniform(r, 256), "idx": r.integers(0, 256, (32, 64)).astype("int32")},
        lambda x: {"B": x["A"][x["idx"]].sum(0)},
        Pipelined(),
        "idx is only read, so idx[k] and then A[idx[k]] may both be loaded iterations ahead",
    ),
    Case(
        "linked_list",
        lambda: linked_list,
        lambda r: {"succ": r.permutation(256).astype("int32"), "A": uniform(r, 256)},
        _linked_list,
        Declined("loop.carried_addresses"),
        "the address of each load is the value of the load before: RecMII is the load latency",
    ),
    Case(
        "prefix_sum",
        lambda: prefix_sum,
        lambda r: one("A", r, 64, 64),
        lambda x: {"B": np.cumsum(x["A"], axis=0, dtype="float32")},
        Pipelined(),
        "the running sum is carried in a register and must keep one version; the loads are free",
    ),
    Case(
        "in_place_recurrence",
        lambda: in_place_recurrence,
        lambda r: one("A", r, 33, 64),
        _in_place,
        Declined("loop.carried_loads"),
        "iteration k reads from global memory what iteration k - 1 wrote there: nothing may move",
    ),
    Case(
        "histogram",
        lambda: histogram,
        lambda r: {"A": r.integers(0, 16, 1024).astype("int32"), "H": np.zeros(16, "int32")},
        lambda x: {"H": np.bincount(x["A"], minlength=16).astype("int32")},
        Declined("loop.atomic"),
        "the loop's only effect is an atomic, whose order with its neighbours is not ours to change",
    ),
    Case(
        "thread_if",
        lambda: thread_if,
        lambda r: one("A", r, 32, 64),
        lambda x: {"B": np.where(np.arange(64) % 2 == 0, x["A"].sum(0), 0).astype("float32")},
        Pipelined(),
        "no shared memory, hence no barrier: the load may move ahead under the thread's own guard",
    ),
    Case(
        "opaque_extern",
        lambda: opaque_extern,
        lambda r: one("A", r, 16, 64),
        lambda x: {"C": np.sin(x["A"][:, ::-1])},
        Declined("loop.opaque_call"),
        "an extern call (not a pure one) may touch any memory: no load may cross it, so nothing overlaps",
    ),
    Case(
        "siblings",
        lambda: siblings,
        lambda r: {"A": uniform(r, 8, 64), "B": uniform(r, 12, 64)},
        _siblings,
        Pipelined(loops=2),
        "two loops one after the other, each with its own tile",
    ),
    Case(
        "transpose_tiles",
        lambda: transpose_tiles,
        lambda r: one("A", r, 16, 128),
        lambda x: {"B": x["A"].T.copy()},
        Pipelined(),
        "tiles are independent; the copy of the next tile overlaps the store of this one",
    ),
]
