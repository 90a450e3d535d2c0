"""The product of two tiles in TVMScript, in a function that allocates the tiles as it likes."""

from __future__ import annotations

from tvm.script import tirx as T


@T.inline
def tile_product(A, B, C, P, Q, acc, row, column, steps):
    """A tile of 64 x 64 of C = A B at ``row`` and ``column``, in so many steps of 32.

    ``P``, ``Q``: tiles of A and B; ``acc``: of C.
    """
    for i, j in T.grid(64, 64):
        acc[i, j] = T.float32(0)
    for k in range(steps):
        for i, j in T.grid(64, 32):
            P[i, j] = A[row + i, k * 32 + j]
        for i, j in T.grid(32, 64):
            Q[i, j] = B[k * 32 + i, column + j]
        for i, j, kk in T.grid(64, 64, 32):
            acc[i, j] = acc[i, j] + T.cast(P[i, kk], "float32") * T.cast(Q[kk, j], "float32")
    for i, j in T.grid(64, 64):
        C[row + i, column + j] = acc[i, j]
