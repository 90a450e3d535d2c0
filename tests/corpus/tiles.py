"""Tile loops bound to threads by hand: attention, quantised, grouped and fused GEMMs."""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from .case import Case, Pipelined, uniform

ROWS, KV_TILE, DIM, KV = 16, 16, 16, 96
"""Attention: query rows of a CTA, keys of a tile, head dimension, keys."""


@T.prim_func(s_tir=True)
def attention(
    Q: T.Buffer((ROWS, DIM), "float32"),
    K: T.Buffer((KV, DIM), "float32"),
    V: T.Buffer((KV, DIM), "float32"),
    Out: T.Buffer((ROWS, DIM), "float32"),
):
    """64 threads: thread tx owns row tx // 4 and columns tx % 4 * 4 to + 3 of S and Out."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("cta"):
                Q_shared = T.sblock_alloc_buffer((ROWS, DIM), "float32", scope="shared")
                acc = T.sblock_alloc_buffer((4,), "float32", scope="local")
                row_max = T.sblock_alloc_buffer((1,), "float32", scope="local")
                row_sum = T.sblock_alloc_buffer((1,), "float32", scope="local")
                with T.sblock("Q_shared"):
                    for v in T.vectorized(4):
                        Q_shared[tx // 4, tx % 4 * 4 + v] = Q[tx // 4, tx % 4 * 4 + v]
                with T.sblock("init"):
                    row_max[0] = T.float32(-1e30)
                    row_sum[0] = T.float32(0)
                    for j in T.unroll(4):
                        acc[j] = T.float32(0)
                for t in T.serial(KV // KV_TILE):
                    with T.sblock("kv"):
                        K_shared = T.sblock_alloc_buffer((KV_TILE, DIM), "float32", scope="shared")
                        V_shared = T.sblock_alloc_buffer((KV_TILE, DIM), "float32", scope="shared")
                        S_shared = T.sblock_alloc_buffer((ROWS, KV_TILE), "float32", scope="shared")
                        P_shared = T.sblock_alloc_buffer((ROWS, KV_TILE), "float32", scope="shared")
                        scores = T.sblock_alloc_buffer((4,), "float32", scope="local")
                        new_max = T.sblock_alloc_buffer((1,), "float32", scope="local")
                        scale = T.sblock_alloc_buffer((1,), "float32", scope="local")
                        with T.sblock("K_shared"):
                            for v in T.vectorized(4):
                                K_shared[tx // 4, tx % 4 * 4 + v] = K[
                                    t * KV_TILE + tx // 4, tx % 4 * 4 + v
                                ]
                        with T.sblock("V_shared"):
                            for v in T.vectorized(4):
                                V_shared[tx // 4, tx % 4 * 4 + v] = V[
                                    t * KV_TILE + tx // 4, tx % 4 * 4 + v
                                ]
                        with T.sblock("scores"):
                            for j in T.serial(4):
                                scores[j] = T.float32(0)
                                for d in T.serial(DIM):
                                    scores[j] = (
                                        scores[j]
                                        + Q_shared[tx // 4, d] * K_shared[tx % 4 * 4 + j, d]
                                    )
                        with T.sblock("S_shared"):
                            for j in T.serial(4):
                                S_shared[tx // 4, tx % 4 * 4 + j] = scores[j]
                        with T.sblock("new_max"):
                            new_max[0] = row_max[0]
                            for j in T.serial(KV_TILE):
                                new_max[0] = T.max(new_max[0], S_shared[tx // 4, j])
                        with T.sblock("scale"):
                            scale[0] = T.exp(row_max[0] - new_max[0])
                            row_max[0] = new_max[0]
                        with T.sblock("P_shared"):
                            for j in T.serial(4):
                                P_shared[tx // 4, tx % 4 * 4 + j] = T.exp(scores[j] - new_max[0])
                        with T.sblock("row_sum"):
                            row_sum[0] = row_sum[0] * scale[0]
                            for j in T.serial(KV_TILE):
                                row_sum[0] = row_sum[0] + P_shared[tx // 4, j]
                        with T.sblock("output"):
                            for j in T.serial(4):
                                acc[j] = acc[j] * scale[0]
                                for k in T.serial(KV_TILE):
                                    acc[j] = (
                                        acc[j] + P_shared[tx // 4, k] * V_shared[k, tx % 4 * 4 + j]
                                    )
                with T.sblock("Out"):
                    for j in T.unroll(4):
                        Out[tx // 4, tx % 4 * 4 + j] = acc[j] / row_sum[0]


@T.prim_func(s_tir=True)
def int4_gemm(
    A: T.Buffer((16, 128), "float32"),
    W: T.Buffer((64, 32), "uint8"),
    scales: T.Buffer((8, 32), "float32"),
    C: T.Buffer((16, 32), "float32"),
):
    """W packs two 4-bit values along K, low nibble first, zero point 8, one scale for 16 of K."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("cta"):
                acc = T.sblock_alloc_buffer((8,), "float32", scope="local")
                for j in T.serial(8):
                    acc[j] = T.float32(0)
                for ko in T.serial(8):
                    with T.sblock("tile"):
                        A_shared = T.sblock_alloc_buffer((16, 16), "float32", scope="shared")
                        W_shared = T.sblock_alloc_buffer((8, 32), "uint8", scope="shared")
                        B_shared = T.sblock_alloc_buffer((16, 32), "float32", scope="shared")
                        with T.sblock("A_shared"):
                            for v in T.vectorized(4):
                                A_shared[tx // 4, tx % 4 * 4 + v] = A[
                                    tx // 4, ko * 16 + tx % 4 * 4 + v
                                ]
                        with T.sblock("W_shared"):
                            for v in T.vectorized(4):
                                W_shared[tx // 8, tx % 8 * 4 + v] = W[
                                    ko * 8 + tx // 8, tx % 8 * 4 + v
                                ]
                        with T.sblock("dequantise"):
                            for v in T.serial(8):
                                B_shared[tx // 4, tx % 4 * 8 + v] = (
                                    T.Cast(
                                        "float32",
                                        T.bitwise_and(
                                            T.shift_right(
                                                T.Cast(
                                                    "int32",
                                                    W_shared[tx // 4 // 2, tx % 4 * 8 + v],
                                                ),
                                                tx // 4 % 2 * 4,
                                            ),
                                            15,
                                        ),
                                    )
                                    - T.float32(8)
                                ) * scales[ko, tx % 4 * 8 + v]
                        with T.sblock("C_update"):
                            for j, k in T.grid(8, 16):
                                acc[j] = acc[j] + A_shared[tx // 4, k] * B_shared[k, tx % 4 * 8 + j]
                for j in T.serial(8):
                    C[tx // 4, tx % 4 * 8 + j] = acc[j]


@T.prim_func(s_tir=True)
def grouped_gemm(
    A: T.Buffer((16, 160), "float32"),
    B: T.Buffer((160, 16), "float32"),
    first: T.Buffer((5,), "int32"),
    C: T.Buffer((4, 16, 16), "float32"),
):
    """Group g multiplies columns first[g] to first[g + 1] of A (K ragged, from 0 tiles of 8 up)."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for g in T.thread_binding(4, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("cta"):
                acc = T.sblock_alloc_buffer((8,), "float32", scope="local")
                for j in T.serial(8):
                    acc[j] = T.float32(0)
                for ko in T.serial((first[g + 1] - first[g]) // 8):
                    with T.sblock("tile"):
                        A_shared = T.sblock_alloc_buffer((16, 8), "float32", scope="shared")
                        B_shared = T.sblock_alloc_buffer((8, 16), "float32", scope="shared")
                        with T.sblock("A_shared"):
                            for v in T.vectorized(4):
                                A_shared[tx // 2, tx % 2 * 4 + v] = A[
                                    tx // 2, first[g] + ko * 8 + tx % 2 * 4 + v
                                ]
                        with T.sblock("B_shared"):
                            for v in T.vectorized(4):
                                B_shared[tx // 4, tx % 4 * 4 + v] = B[
                                    first[g] + ko * 8 + tx // 4, tx % 4 * 4 + v
                                ]
                        with T.sblock("C_update"):
                            for j, k in T.grid(8, 8):
                                acc[j] = acc[j] + A_shared[tx // 2, k] * B_shared[k, tx % 2 * 8 + j]
                for j in T.serial(8):
                    C[g, tx // 2, tx % 2 * 8 + j] = acc[j]


@T.prim_func(s_tir=True)
def softmax_gemm(
    S: T.Buffer((16, 64), "float32"),
    V: T.Buffer((64, 16), "float32"),
    Out: T.Buffer((16, 16), "float32"),
):
    """The row maxima first, then exp(S - max) @ V with the exponentials computed on the way in."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("cta"):
                row_max = T.sblock_alloc_buffer((1,), "float32", scope="local")
                row_sum = T.sblock_alloc_buffer((1,), "float32", scope="local")
                acc = T.sblock_alloc_buffer((4,), "float32", scope="local")
                row_max[0] = T.float32(-1e30)
                for k in T.serial(64):
                    with T.sblock("row_max"):
                        row_max[0] = T.max(row_max[0], S[tx // 4, k])
                row_sum[0] = T.float32(0)
                for j in T.unroll(4):
                    acc[j] = T.float32(0)
                for ko in T.serial(8):
                    with T.sblock("tile"):
                        P_shared = T.sblock_alloc_buffer((16, 8), "float32", scope="shared")
                        V_shared = T.sblock_alloc_buffer((8, 16), "float32", scope="shared")
                        with T.sblock("P_shared"):
                            for v in T.serial(2):
                                P_shared[tx // 4, tx % 4 * 2 + v] = T.exp(
                                    S[tx // 4, ko * 8 + tx % 4 * 2 + v] - row_max[0]
                                )
                        with T.sblock("V_shared"):
                            for v in T.vectorized(2):
                                V_shared[tx // 8, tx % 8 * 2 + v] = V[
                                    ko * 8 + tx // 8, tx % 8 * 2 + v
                                ]
                        with T.sblock("row_sum"):
                            for k in T.serial(8):
                                row_sum[0] = row_sum[0] + P_shared[tx // 4, k]
                        with T.sblock("O_update"):
                            for j, k in T.grid(4, 8):
                                acc[j] = acc[j] + P_shared[tx // 4, k] * V_shared[k, tx % 4 * 4 + j]
                for j in T.unroll(4):
                    Out[tx // 4, tx % 4 * 4 + j] = acc[j] / row_sum[0]


@T.prim_func(s_tir=True)
def persistent_gemm(
    A: T.Buffer((48, 32), "float32"),
    B: T.Buffer((32, 32), "float32"),
    C: T.Buffer((48, 32), "float32"),
):
    """A persistent kernel: two CTAs, six tiles of 16 x 16; the K loop is inside the tile loop."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for t in T.serial(3):
                with T.sblock("tile"):
                    acc = T.sblock_alloc_buffer((4,), "float32", scope="local")
                    for j in T.serial(4):
                        acc[j] = T.float32(0)
                    for ko in T.serial(4):
                        with T.sblock("step"):
                            A_shared = T.sblock_alloc_buffer((16, 8), "float32", scope="shared")
                            B_shared = T.sblock_alloc_buffer((8, 16), "float32", scope="shared")
                            with T.sblock("A_shared"):
                                for v in T.vectorized(2):
                                    A_shared[tx // 4, tx % 4 * 2 + v] = A[
                                        t * 16 + tx // 4, ko * 8 + tx % 4 * 2 + v
                                    ]
                            with T.sblock("B_shared"):
                                for v in T.vectorized(2):
                                    B_shared[tx // 8, tx % 8 * 2 + v] = B[
                                        ko * 8 + tx // 8, bx * 16 + tx % 8 * 2 + v
                                    ]
                            with T.sblock("C_update"):
                                for j, k in T.grid(4, 8):
                                    acc[j] = (
                                        acc[j] + A_shared[tx // 4, k] * B_shared[k, tx % 4 * 4 + j]
                                    )
                    for j in T.serial(4):
                        C[t * 16 + tx // 4, bx * 16 + tx % 4 * 4 + j] = acc[j]


FIRST = np.array([0, 64, 64, 72, 160], "int32")
"""Group offsets of grouped_gemm: 8, 0, 1 and 11 tiles."""


def _attention(x):
    s = x["Q"] @ x["K"].T
    p = np.exp(s - s.max(1, keepdims=True))
    return {"Out": p @ x["V"] / p.sum(1, keepdims=True)}


def _int4(x):
    low, high = x["W"] & 15, x["W"] >> 4
    weights = np.stack([low, high], axis=1).reshape(128, 32).astype("float32") - 8
    return {"C": x["A"] @ (weights * np.repeat(x["scales"], 16, axis=0))}


def _grouped(x):
    first = x["first"]
    spans = [slice(first[g], first[g + 1]) for g in range(4)]
    return {"C": np.stack([x["A"][:, s] @ x["B"][s] for s in spans])}


def _softmax_gemm(x):
    p = np.exp(x["S"] - x["S"].max(1, keepdims=True))
    return {"Out": p @ x["V"] / p.sum(1, keepdims=True)}


CASES = [
    Case(
        "attention",
        lambda: attention,
        lambda r: {"Q": uniform(r, ROWS, DIM), "K": uniform(r, KV, DIM), "V": uniform(r, KV, DIM)},
        _attention,
        Pipelined(),
        "K and V of the next tile are independent of this one; the running max, sum and output are "
        "carried and stay single",
        nvcc=True,
    ),
    Case(
        "int4_gemm",
        lambda: int4_gemm,
        lambda r: {
            "A": uniform(r, 16, 128),
            "W": r.integers(0, 256, (64, 32)).astype("uint8"),
            "scales": uniform(r, 8, 32),
        },
        _int4,
        Pipelined(),
        "both copies are plain; the dequantised tile is computed from a landed one",
        nvcc=True,
    ),
    Case(
        "grouped_gemm",
        lambda: grouped_gemm,
        lambda r: {"A": uniform(r, 16, 160), "B": uniform(r, 160, 16), "first": FIRST},
        _grouped,
        Pipelined(),
        "the trip count is loaded from memory but the same for the whole CTA; it may be 0",
    ),
    Case(
        "softmax_gemm",
        lambda: softmax_gemm,
        lambda r: {"S": uniform(r, 16, 64), "V": uniform(r, 64, 16)},
        _softmax_gemm,
        Pipelined(loops=2),
        "the V copy is plain, the P tile is computed from a load that registers can hold; the loop of "
        "the maxima streams S",
    ),
    Case(
        "persistent_gemm",
        lambda: persistent_gemm,
        lambda r: {"A": uniform(r, 48, 32), "B": uniform(r, 32, 32)},
        lambda x: {"C": x["A"] @ x["B"]},
        Pipelined(),
        "the K loop is pipelined inside the tile loop, drained at each tile",
    ),
]
