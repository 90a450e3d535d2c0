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

Few queries make few tiles, each with many keys to read. Then the keys are split among CTAs
(``splits``), which keep acc, largest and total of their keys in memory, and a second kernel
combines what they have of each query (flash decoding):

    for blockIdx.x in queries of all heads:
      for d in columns:
        top = max(largest[0], largest[1], ..)
        O[d] = sum of exp(largest[s] - top) * acc[s, d] / sum of exp(largest[s] - top) * total[s]

All splits take as many steps; those of the last one may lie beyond the last key. ``attention_walk``
gives a CTA several tiles (``persistent``). A ``grouped`` tile
has as rows the queries of all heads that share a head of K and V, and reads its keys once.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tvm import s_tir, tirx
from tvm.ir import Var
from tvm.script import tirx as T

from ...errors import WorkloadError
from ...values.notes import NOTE, note_text
from ..tiles import MAX_GRID_Z, AttentionTile
from ..workloads import Attention
from .attention_cut import Cut, check_splits, columns_of, note_of, steps_of
from .attention_walk import walked

LOWEST: Final = -3.0e38
"""Lower than any score, and finite, so that no difference of two of it is no number."""


def schedule_attention(attention: Attention, tile: AttentionTile) -> Any:
    """``attention`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc.

    WorkloadError: a grid has not that many heads or batches, keys have not that many splits, or a
    causal one is split or grouped.
    """
    for count in (attention.heads, attention.batch):
        if count > MAX_GRID_Z:
            raise WorkloadError("tile.batch_axes", count=count, most=MAX_GRID_Z)
    check_splits(attention, tile)
    cut = Cut(attention, tile)
    func = _function(attention, tile, cut)
    return s_tir.Schedule(walked(func, cut) if cut.is_persistent else func)


def _combined(have: tuple[Any, Any, Any], kind: str, scale: float, row: Any, column: Any) -> Any:
    """The output of a query and column, of what the splits ``have`` of it: sums, maxima, totals."""
    parts, largest, total = have
    splits = range(int(parts.shape[0]))
    top = Var("top", "float32")
    weights = [Var(f"weight_{s}", "float32") for s in splits]
    most = largest[0, row]
    sums, totals = weights[0] * parts[0, row, column], weights[0] * total[0, row]
    for s in splits[1:]:
        most = tirx.max(most, largest[s, row])
        sums = sums + weights[s] * parts[s, row, column]
        totals = totals + weights[s] * total[s, row]
    whole = Var("whole", "float32")
    value = tirx.Let(whole, totals, tirx.Cast(kind, sums / whole))
    for s in reversed(splits):
        weight = tirx.exp2((largest[s, row] - top) * tirx.const(scale, "float32"))
        value = tirx.Let(weights[s], weight, value)
    return tirx.Let(top, most, value)


def _function(what: Attention, tile: AttentionTile, cut: Cut) -> Any:
    m, n, dim, splits = tile.m, tile.n, columns_of(what), tile.splits
    of_q, of_k, of_v, of_out = what.shapes()
    kind = what.storage
    masked, partial = cut.is_masked, cut.is_partial
    scale = what.scale * math.log2(math.e)
    lines, together = cut.lines, cut.combined_together

    @T.prim_func(s_tir=True)
    def attention(q: T.handle, k: T.handle, v: T.handle, o: T.handle) -> None:
        T.func_attr({"global_symbol": what.name, "tirx.noalias": True})
        Q = T.match_buffer(q, of_q, kind)
        K = T.match_buffer(k, of_k, kind)
        V = T.match_buffer(v, of_v, kind)
        Out = T.match_buffer(o, of_out, kind)
        if splits > 1:
            Parts = T.alloc_buffer((splits, lines, what.dim), "float32")
            Largest = T.alloc_buffer((splits, lines), "float32")
            Total = T.alloc_buffer((splits, lines), "float32")
        for b in T.thread_binding(what.batch, thread="blockIdx.z"):
            for h in T.thread_binding(cut.heads, thread="blockIdx.y"):
                for x in T.thread_binding(cut.tiles * splits, thread="blockIdx.x"):
                    with T.sblock("cta"):
                        T.reads()
                        T.writes()
                        Q_shared = T.sblock_alloc_buffer((m, dim), kind, scope="shared")
                        acc = T.sblock_alloc_buffer((m, dim), "float32", scope="local")
                        largest = T.sblock_alloc_buffer((m,), "float32", scope="local")
                        total = T.sblock_alloc_buffer((m,), "float32", scope="local")
                        for i, d in T.grid(m, dim):
                            with T.sblock("Q_shared"):
                                Q_shared[i, d] = cut.read_query(Q, b, h, x, i, d)
                        for i, d in T.grid(m, dim):
                            with T.sblock("acc_init"):
                                acc[i, d] = T.float32(0)
                        for i in range(m):
                            with T.sblock("largest_init"):
                                largest[i] = T.float32(LOWEST)
                        for i in range(m):
                            with T.sblock("total_init"):
                                total[i] = T.float32(0)
                        for step in range(steps_of(what, tile, cut.at(x))):
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
                                        K_shared[j, d] = cut.read_key(
                                            1, K, b, h, cut.key(x, step, j), d
                                        )
                                for j, d in T.grid(n, dim):
                                    with T.sblock("V_shared"):
                                        V_shared[j, d] = cut.read_key(
                                            2, V, b, h, cut.key(x, step, j), d
                                        )
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
                                                cut.sees(x, i, cut.key(x, step, j)),
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
                        if splits == 1:
                            for i, d in T.grid(m, dim):
                                with T.sblock("Out"):
                                    if partial:
                                        T.where(cut.stored(x, i, d))
                                    Out[b, cut.second(x, h, i), cut.third(x, h, i), d] = T.Cast(
                                        kind, acc[i, d] / total[i]
                                    )
                        else:
                            for i, d in T.grid(m, dim):
                                with T.sblock("Parts"):
                                    if partial:
                                        T.where(cut.stored(x, i, d))
                                    Parts[x % splits, cut.line(b, h, x, i), d] = acc[i, d]
                            for i in range(m):
                                with T.sblock("Largest"):
                                    if cut.rows % m != 0:
                                        T.where(cut.row(x, i) < cut.rows)
                                    Largest[x % splits, cut.line(b, h, x, i)] = largest[i]
                            for i in range(m):
                                with T.sblock("Total"):
                                    if cut.rows % m != 0:
                                        T.where(cut.row(x, i) < cut.rows)
                                    Total[x % splits, cut.line(b, h, x, i)] = total[i]
        if splits > 1:
            for x in T.thread_binding(cut.combining_ctas, thread="blockIdx.x"):
                for i, d in T.grid(together, what.dim):
                    with T.sblock("Out"):
                        if lines % together != 0:
                            T.where(x * together + i < lines)
                        T.sblock_attr({NOTE: note_text(note_of(tile))})
                        Out[
                            cut.batch_of(x * together + i),
                            cut.second_of(x * together + i),
                            cut.third_of(x * together + i),
                            d,
                        ] = _combined((Parts, Largest, Total), kind, scale, x * together + i, d)

    return attention
