"""The un-pipelined schedule of attention: a tile of queries, and a loop over tiles of keys.

    for blockIdx.z, blockIdx.y, blockIdx.x in batch, heads, tiles of queries:
      Q_shared = Q[tile]
      acc, largest, total = 0, the lowest, 0     # O so far, and of each row: maximum, sum
      for step in tiles of keys:                 # causal: as far as the last query sees
        K_shared, V_shared = K[tile], V[tile]
        scores = Q_shared * K_shared             # a plain matmul over a tile
        scores = -inf where no key is, or the query does not see it
        before, largest = largest, max(largest, scores)
        scores = exp(scores - largest)
        factor = exp(before - largest)           # of each row
        total = total * factor + sum(scores)
        acc = acc * factor
        weights = scores in the type of V
        acc += weights * V_shared                # a plain matmul over a tile
      O[tile] = acc / total                      # guarded at ragged edges

Online softmax (Milakov and Gimelshein, arXiv 1805.02867). Nothing is bound to threads. Reads beyond
the last query, key or column are zero; keys beyond the last are masked besides. ``exp(x * scale)``
is ``exp2(x * scale * log2(e))``, which is one multiplication and one instruction. Of a causal one,
the tiles of the last queries, which see most keys, come first.

``largest`` starts as the lowest finite number: a score of -inf then weighs 0 in every row.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tvm import s_tir, tirx
from tvm.script import tirx as T

from ..errors import WorkloadError
from .matmul import MAX_GRID_Z
from .tiles import AttentionTile
from .workloads import Attention
from .workloads.blocks import all_of

COLUMNS: Final = 16
"""Columns of a head are read in multiples of so many, those beyond the last as zero."""

LOWEST: Final = -3.0e38
"""Lower than any score, and finite, so that no difference of two of it is no number."""


def schedule_attention(attention: Attention, tile: AttentionTile) -> Any:
    """``attention`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc.

    WorkloadError: a grid has not that many heads or batches.
    """
    for count in (attention.heads, attention.batch):
        if count > MAX_GRID_Z:
            raise WorkloadError("tile.batch_axes", count=count, most=MAX_GRID_Z)
    return s_tir.Schedule(_function(attention, tile))


def columns_of(attention: Attention) -> int:
    """Columns of a tile of Q, K, V or O, those beyond the last of a head included."""
    return -(-attention.dim // COLUMNS) * COLUMNS


def steps_of(attention: Attention, tile: AttentionTile, at: Any) -> Any:
    """Steps of tile ``at`` of queries, a number or an expression: as far as its last query sees."""
    steps, tiles = -(-attention.keys // tile.n), -(-attention.queries // tile.m)
    if not attention.causal:
        return steps
    sees = (at * tile.m + tile.m + tile.n - 1) // tile.n
    if tiles * tile.m <= steps * tile.n:
        return sees
    return min(sees, steps) if isinstance(at, int) else tirx.min(sees, steps)


def _function(what: Attention, tile: AttentionTile) -> Any:
    m, n, dim = tile.m, tile.n, columns_of(what)
    tiles = -(-what.queries // m)
    of_q, of_k, of_v, of_out = what.shapes()
    kind, group = what.storage, what.group
    masked = what.causal or what.keys % n != 0
    partial = what.queries % m != 0 or dim != what.dim
    scale = what.scale * math.log2(math.e)

    def inside(row: Any, rows: int, cut: int, column: Any) -> list[Any]:
        """The conditions under which an element is one of the tensor's."""
        ragged = (row < rows, rows % cut), (column < what.dim, what.dim % COLUMNS)
        return [condition for condition, rest in ragged if rest]

    def read(which: int, x: Any, b: Any, h: Any, row: Any, column: Any) -> Any:
        """An element of Q, K or V (0, 1, 2); zero beyond the last row and the last column."""
        rows, cut = (what.keys, n) if which else (what.queries, m)
        conditions = inside(row, rows, cut, column)
        value = x[(b, *what.lying(which, h, row), column)]
        zero = tirx.const(0, kind)
        return tirx.if_then_else(all_of(conditions), value, zero) if conditions else value

    def second(h: Any, row: Any) -> Any:
        """The second index of an element of the output in memory."""
        return what.lying(3, h, row)[0]

    def third(h: Any, row: Any) -> Any:
        """The third one."""
        return what.lying(3, h, row)[1]

    def tile_of(q: Any) -> Any:
        """The tile of queries that is computed as number ``q``: those that see most keys first."""
        return tiles - 1 - q if what.causal else q

    def sees(query: Any, key: Any) -> Any:
        """Whether there is such a key, and the query sees it."""
        conditions = (key <= query, what.causal), (key < what.keys, what.keys % n)
        return all_of([condition for condition, asked in conditions if asked])

    @T.prim_func(s_tir=True)
    def attention(q: T.handle, k: T.handle, v: T.handle, o: T.handle) -> None:
        T.func_attr({"global_symbol": what.name, "tirx.noalias": True})
        Q = T.match_buffer(q, of_q, kind)
        K = T.match_buffer(k, of_k, kind)
        V = T.match_buffer(v, of_v, kind)
        Out = T.match_buffer(o, of_out, kind)
        for b in T.thread_binding(what.batch, thread="blockIdx.z"):
            for h in T.thread_binding(what.heads, thread="blockIdx.y"):
                for x in T.thread_binding(tiles, thread="blockIdx.x"):
                    with T.sblock("cta"):
                        T.reads()
                        T.writes()
                        Q_shared = T.sblock_alloc_buffer((m, dim), kind, scope="shared")
                        acc = T.sblock_alloc_buffer((m, dim), "float32", scope="local")
                        largest = T.sblock_alloc_buffer((m,), "float32", scope="local")
                        total = T.sblock_alloc_buffer((m,), "float32", scope="local")
                        for i, d in T.grid(m, dim):
                            with T.sblock("Q_shared"):
                                Q_shared[i, d] = read(0, Q, b, h, tile_of(x) * m + i, d)
                        for i, d in T.grid(m, dim):
                            with T.sblock("acc_init"):
                                acc[i, d] = T.float32(0)
                        for i in range(m):
                            with T.sblock("largest_init"):
                                largest[i] = T.float32(LOWEST)
                        for i in range(m):
                            with T.sblock("total_init"):
                                total[i] = T.float32(0)
                        for step in range(steps_of(what, tile, tile_of(x))):
                            with T.sblock("step"):
                                T.reads()
                                T.writes()
                                K_shared = T.sblock_alloc_buffer((n, dim), kind, scope="shared")
                                V_shared = T.sblock_alloc_buffer((n, dim), kind, scope="shared")
                                scores = T.sblock_alloc_buffer((m, n), "float32", scope="local")
                                weights = T.sblock_alloc_buffer((m, n), kind, scope="local")
                                before = T.sblock_alloc_buffer((m,), "float32", scope="local")
                                factor = T.sblock_alloc_buffer((m,), "float32", scope="local")
                                for j, d in T.grid(n, dim):
                                    with T.sblock("K_shared"):
                                        K_shared[j, d] = read(1, K, b, h // group, step * n + j, d)
                                for j, d in T.grid(n, dim):
                                    with T.sblock("V_shared"):
                                        V_shared[j, d] = read(2, V, b, h // group, step * n + j, d)
                                for i, j in T.grid(m, n):
                                    with T.sblock("scores_init"):
                                        scores[i, j] = T.float32(0)
                                for i, j, d in T.grid(m, n, dim):
                                    with T.sblock("scores"):
                                        scores[i, j] = scores[i, j] + T.Cast(
                                            "float32", Q_shared[i, d]
                                        ) * T.Cast("float32", K_shared[j, d])
                                if masked:
                                    for i, j in T.grid(m, n):
                                        with T.sblock("mask"):
                                            scores[i, j] = T.if_then_else(
                                                sees(tile_of(x) * m + i, step * n + j),
                                                scores[i, j],
                                                T.float32("-inf"),
                                            )
                                for i in range(m):
                                    with T.sblock("before"):
                                        before[i] = largest[i]
                                for i, j in T.grid(m, n):
                                    with T.sblock("largest"):
                                        largest[i] = T.max(largest[i], scores[i, j])
                                for i, j in T.grid(m, n):
                                    with T.sblock("exp"):
                                        scores[i, j] = T.exp2(
                                            scores[i, j] * T.float32(scale)
                                            - largest[i] * T.float32(scale)
                                        )
                                for i in range(m):
                                    with T.sblock("factor"):
                                        factor[i] = T.exp2(
                                            (before[i] - largest[i]) * T.float32(scale)
                                        )
                                for i in range(m):
                                    with T.sblock("total_scale"):
                                        total[i] = total[i] * factor[i]
                                for i, j in T.grid(m, n):
                                    with T.sblock("total"):
                                        total[i] = total[i] + scores[i, j]
                                for i, d in T.grid(m, dim):
                                    with T.sblock("acc_scale"):
                                        acc[i, d] = acc[i, d] * factor[i]
                                for i, j in T.grid(m, n):
                                    with T.sblock("weights"):
                                        weights[i, j] = T.Cast(kind, scores[i, j])
                                for i, d, j in T.grid(m, dim, n):
                                    with T.sblock("acc"):
                                        acc[i, d] = acc[i, d] + T.Cast(
                                            "float32", weights[i, j]
                                        ) * T.Cast("float32", V_shared[j, d])
                        for i, d in T.grid(m, dim):
                            with T.sblock("Out"):
                                if partial:
                                    T.where(all_of(inside(tile_of(x) * m + i, what.queries, m, d)))
                                Out[
                                    b,
                                    second(h, tile_of(x) * m + i),
                                    third(h, tile_of(x) * m + i),
                                    d,
                                ] = T.Cast(kind, acc[i, d] / total[i])

    return attention
