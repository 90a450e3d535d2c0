"""A product with weights of 4 bits, two in a byte, and a scale for each 128 of K: nothing bound.

for blockIdx.x in tiles:
  for s in steps:
    A_shared, W_shared = A[tile], W[tile]          # W packed: the even k in the low nibble
    D = (nibble of W_shared - 8) * S[k / 128, n]   # a tile in registers
    acc += D * A_shared
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import s_tir, tirx
from tvm.script import tirx as T

from pipeliner.schedules.workloads import numpy_dtype

GROUP: Final = 128
"""Elements of K that have a scale in common."""

ZERO: Final = 8
"""The nibble that stands for zero."""


@dataclass(frozen=True)
class Packed:
    """``C[m, n] = sum over k of A[m, k] * (W[n, k] - 8) * S[k / 128, n]``, and its tile."""

    m: int
    n: int
    k: int
    rows: int
    columns: int
    step: int
    dtype: str = "float16"

    def inputs(self, seed: int) -> tuple[Any, ...]:
        """A, the packed weights, their scales, and an output full of NaN."""
        rng, kind = np.random.default_rng(seed), numpy_dtype(self.dtype)
        a = rng.standard_normal((self.m, self.k)).astype(kind)
        w = rng.integers(0, 256, (self.n, self.k // 2)).astype(np.uint8)
        scales = rng.uniform(0.5, 2, (self.k // GROUP, self.n)).astype(kind)
        return a, w, scales, np.full((self.m, self.n), np.nan, np.float32)

    def reference(self, a: Any, w: Any, scales: Any) -> Any:
        """The product of A and the dequantised weights, rounded to their type, in float64."""
        nibbles = np.stack([w & 15, w >> 4], -1).reshape(self.n, self.k).astype(np.float32)
        spread = np.repeat(scales.astype(np.float32).T, GROUP, 1)
        weights = ((nibbles - ZERO) * spread).astype(numpy_dtype(self.dtype))
        return a.astype(np.float64) @ weights.astype(np.float64).T

    def schedule(self) -> Any:
        """The plain tiles, as a schedule."""
        kind, m, n, k = self.dtype, self.rows, self.columns, self.step
        down, across, ragged = -(-self.m // m), self.n // n, self.m % m > 0

        def element(A: Any, x: Any, i: Any, d: Any) -> Any:
            row = x // across * m + i
            value, zero = A[row, d], tirx.const(0, kind)
            return tirx.if_then_else(row < self.m, value, zero) if ragged else value

        @T.prim_func(s_tir=True)
        def packed(a: T.handle, w: T.handle, scales: T.handle, o: T.handle) -> None:
            T.func_attr({"global_symbol": "packed", "tirx.noalias": True})
            A = T.match_buffer(a, (self.m, self.k), kind)
            W = T.match_buffer(w, (self.n, self.k // 2), "uint8")
            S = T.match_buffer(scales, (self.k // GROUP, self.n), kind)
            C = T.match_buffer(o, (self.m, self.n), "float32")
            for x in T.thread_binding(down * across, thread="blockIdx.x"):
                with T.sblock("cta"):
                    T.reads()
                    T.writes()
                    acc = T.sblock_alloc_buffer((n, m), "float32", scope="local")
                    for j, i in T.grid(n, m):
                        with T.sblock("acc_init"):
                            acc[j, i] = T.float32(0)
                    for s in range(self.k // k):
                        with T.sblock("step"):
                            T.reads()
                            T.writes()
                            A_shared = T.sblock_alloc_buffer((m, k), kind, scope="shared")
                            W_shared = T.sblock_alloc_buffer((n, k // 2), "uint8", scope="shared")
                            D = T.sblock_alloc_buffer((n, k), kind, scope="local")
                            for i, d in T.grid(m, k):
                                with T.sblock("A_shared"):
                                    A_shared[i, d] = element(A, x, i, s * k + d)
                            for j, d in T.grid(n, k // 2):
                                with T.sblock("W_shared"):
                                    W_shared[j, d] = W[x % across * n + j, s * (k // 2) + d]
                            for j, d in T.grid(n, k):
                                with T.sblock("D"):
                                    D[j, d] = (
                                        T.Cast(
                                            kind,
                                            (W_shared[j, d // 2] >> T.Cast("uint8", d % 2 * 4))
                                            & T.uint8(15),
                                        )
                                        - tirx.const(ZERO, kind)
                                    ) * S[(s * k + d) // GROUP, x % across * n + j]
                            for j, i, d in T.grid(n, m, k):
                                with T.sblock("acc"):
                                    acc[j, i] = acc[j, i] + T.Cast("float32", D[j, d]) * T.Cast(
                                        "float32", A_shared[i, d]
                                    )
                    for j, i in T.grid(n, m):
                        with T.sblock("C"):
                            if ragged:
                                T.where(x // across * m + i < self.m)
                            C[x // across * m + i, x % across * n + j] = acc[j, i]

        return s_tir.Schedule(packed)
