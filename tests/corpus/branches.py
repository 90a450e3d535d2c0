"""Loops bound to threads by hand that run, or do what they do, as the CTA, the thread or data say."""

from __future__ import annotations

import numpy as np

from ..bound_kernels import accumulating, bound
from .case import Case, Declined, Pipelined, one, uniform

triangular = accumulating(
    "A: float32[8, 64], B: float32[8, 64]",
    """
for k in T.serial(bx + 1):
    with T.sblock("tile"):
        S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
        with T.sblock("S"):
            S[tx] = A[k, tx]
        with T.sblock("sum"):
            acc[0] = acc[0] + S[63 - tx]
B[bx, tx] = acc[0]
""",
    ctas=8,
)


trip_by_thread = accumulating(
    "A: float32[64, 64], B: float32[64]",
    """
for k in T.serial(tx + 1):
    with T.sblock("sum"):
        acc[0] = acc[0] + A[k, tx]
B[tx] = acc[0]
""",
)


uniform_if = bound(
    "A: float32[64, 64], C: float32[64, 64], n: T.int32",
    """
if bx * 16 < n:
    for k in T.serial(16):
        with T.sblock("tile"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
            with T.sblock("S"):
                S[tx] = A[bx * 16 + k, tx]
            with T.sblock("reverse"):
                C[bx * 16 + k, tx] = S[63 - tx]
""",
    ctas=4,
)


if_in_body = bound(
    "A: float32[64, 64], C: float32[64, 64], n: T.int32",
    """
with T.sblock("root2"):
    S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
    for k in range(16):
        if bx * 16 + k < n:
            S[tx] = A[bx * 16 + k, tx]
            C[bx * 16 + k, tx] = S[63 - tx]
""",
    ctas=4,
)


data_dependent_if = bound(
    "A: float32[32, 64], B: float32[64]",
    """
with T.sblock("root2"):
    best = T.sblock_alloc_buffer((1,), "float32", scope="local")
    best[0] = T.float32(-2)
    for k in T.serial(32):
        with T.sblock("tile"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
            with T.sblock("S"):
                S[tx] = A[k, tx]
            with T.sblock("best"):
                if S[63 - tx] > best[0]:
                    best[0] = S[63 - tx]
    B[tx] = best[0]
""",
)


def _uniform_if(x):
    out = np.zeros((64, 64), "float32")
    rows = min(64, -(-x["n"] // 16) * 16)
    out[:rows] = x["A"][:rows, ::-1]
    return {"C": out}


def _if_in_body(x):
    out = np.zeros((64, 64), "float32")
    out[: x["n"]] = x["A"][: x["n"], ::-1]
    return {"C": out}


CASES = [
    Case(
        "triangular",
        lambda: triangular,
        lambda r: one("A", r, 8, 64),
        lambda x: {"B": np.cumsum(x["A"], axis=0, dtype="float32")[:, ::-1]},
        Pipelined(),
        "the trip count depends on blockIdx alone: uniform in the CTA, from 1 up",
    ),
    Case(
        "trip_by_thread",
        lambda: trip_by_thread,
        lambda r: one("A", r, 64, 64),
        lambda x: {"B": np.array([x["A"][: t + 1, t].sum() for t in range(64)], "float32")},
        Declined("loop.thread_trip"),
        "the trip count differs between threads: no barrier and no common prologue fits",
    ),
    Case(
        "uniform_if",
        lambda: uniform_if,
        lambda r: {"A": uniform(r, 64, 64), "C": np.zeros((64, 64), "float32"), "n": 40},
        _uniform_if,
        Pipelined(),
        "the guard around the loop is the same for all threads of a CTA: barriers may stand in it",
    ),
    Case(
        "if_in_body",
        lambda: if_in_body,
        lambda r: {"A": uniform(r, 64, 64), "C": np.zeros((64, 64), "float32"), "n": 41},
        _if_in_body,
        Pipelined(),
        "the body under a uniform guard: both statements keep the guard of their own iteration",
    ),
    Case(
        "data_dependent_if",
        lambda: data_dependent_if,
        lambda r: one("A", r, 32, 64),
        lambda x: {"B": x["A"].max(0)[::-1]},
        Pipelined(),
        "the branch is inside the consumer, the copy is unconditional; best is carried, one version",
    ),
]
