"""The un-pipelined schedule of a grouped GEMM: offsets in memory say where tiles lie.

    for blockIdx.x in experts:                 # a first kernel
      Starts[e] = tiles of the groups before
    for blockIdx.x in runs of places:          # a second one: of each place
      Expert[place] = whose tile it is         # the groups that start at a place up to there
      Row[place] = its first row, or M         # M: there are fewer tiles

    for blockIdx.x, t in CTAs, tiles of one:   # grouped: neighbours share operands in the L2 cache
      if Row[place] < M:                       # nothing is copied or multiplied of others
        acc = 0
        for s in steps of K:
          A_shared = A[Row[place] + .., step]  # plain box copies, zero outside
          B_shared = B[Expert[place], tile]
          acc += A_shared * B_shared           # a plain matmul over a tile
        C[Row[place] + .., tile] = acc         # guarded by the end of the group

Places without a tile are the last ones, so that persistent CTAs have as many tiles each: with them
behind each group, they took 12 to 25 % longer on an H200. Neighbours are of one expert.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx
from tvm.ir import Var
from tvm.script import tirx as T

from ...passes.ir.nodes import i32
from ..tiles import RowTile
from ..workloads import OFFSETS, GroupedGemm
from ..workloads.base.blocks import all_of
from .products import ProductCut, guarded, place_of
from .rows import once


def schedule_grouped(what: GroupedGemm, tile: RowTile) -> Any:
    """``what`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc."""
    cut = ProductCut.of(what, tile)
    func = _function(what, cut)
    body = func.body if cut.walked > 1 else once(func.body)
    return s_tir.Schedule(tirx.PrimFunc(func.params, body, func.ret_type, func.attrs))


def _sum(terms: list[Any]) -> Any:
    """The sum of ``terms`` as a tree: as few operators as can be stand inside each other."""
    while len(terms) > 1:
        pairs = [terms[at] + terms[at + 1] for at in range(0, len(terms) - 1, 2)]
        terms = pairs + terms[len(pairs) * 2 :]
    return terms[0] if terms else i32(0)


def _function(what: GroupedGemm, cut: ProductCut) -> Any:
    m, n, k = cut.tile.m, cut.tile.n, what.step
    of_a, of_b, of_offsets, of_c = what.shapes()
    kind, out = what.storage, what.out
    places, part = cut.tiles[0], cut.tile.raster_group
    some = cut.count % cut.ctas != 0

    def start(Offsets: Any, e: Any) -> Any:
        tiles = [
            tirx.floordiv(Offsets[one + 1] - Offsets[one] + (m - 1), m)
            for one in range(what.experts - 1)
        ]
        return _sum([tirx.Select(one < e, of, i32(0)) for one, of in enumerate(tiles)])

    def expert(Starts: Any, at: Any) -> Any:
        started = [tirx.Select(Starts[e] <= at, i32(1), i32(0)) for e in range(1, what.experts)]
        return _sum(started)

    def first_row(Offsets: Any, Starts: Any, at: Any) -> Any:
        e = Var("e", OFFSETS)
        row = Offsets[e] + (at - Starts[e]) * m
        there = tirx.if_then_else(row < Offsets[e + 1], row, i32(what.m))
        return tirx.Let(e, expert(Starts, at), there)

    def place(x: Any, t: Any) -> Any:
        return place_of(cut.at(x, t), cut.tiles, cut.tile.raster_group)[0]

    def column(x: Any, t: Any, j: Any) -> Any:
        return cut.column(cut.at(x, t)) + j

    def is_taken(Row: Any, x: Any, t: Any) -> Any:
        inside = [cut.at(x, t) < cut.count] if some else []
        return all_of([*inside, Row[place(x, t)] < what.m])

    def read_a(A: Any, Row: Any, x: Any, t: Any, s: Any, i: Any, d: Any) -> Any:
        row, depth = Row[place(x, t)] + i, s * k + d
        return guarded(A[row, depth], [row < what.m, *cut.of_depth(depth)], kind)

    def read_b(B: Any, Expert: Any, x: Any, t: Any, s: Any, j: Any, d: Any) -> Any:
        at, depth = column(x, t, j), s * k + d
        edges = [*cut.of_columns(at), *cut.of_depth(depth)]
        return guarded(B[Expert[place(x, t)], at, depth], edges, kind)

    def stored(Row: Any, Expert: Any, Offsets: Any, x: Any, t: Any, i: Any, j: Any) -> Any:
        of_group = Row[place(x, t)] + i < Offsets[Expert[place(x, t)] + 1]
        return all_of([of_group, *cut.of_columns(column(x, t, j))])

    @T.prim_func(s_tir=True)
    def grouped_gemm(a: T.handle, b: T.handle, f: T.handle, o: T.handle) -> None:
        T.func_attr({"global_symbol": what.name, "tirx.noalias": True})
        A = T.match_buffer(a, of_a, kind)
        B = T.match_buffer(b, of_b, kind)
        Offsets = T.match_buffer(f, of_offsets, OFFSETS)
        C = T.match_buffer(o, of_c, out)
        Starts = T.alloc_buffer((what.experts,), OFFSETS)
        Expert = T.alloc_buffer((places,), OFFSETS)
        Row = T.alloc_buffer((places,), OFFSETS)
        for x in T.thread_binding(what.experts, thread="blockIdx.x"):
            for i in range(1):
                with T.sblock("Starts"):
                    Starts[x + i] = start(Offsets, x + i)
        for x in T.thread_binding(places // part, thread="blockIdx.x"):
            for i in range(part):
                with T.sblock("Expert"):
                    Expert[x * part + i] = expert(Starts, x * part + i)
            for i in range(part):
                with T.sblock("Row"):
                    T.reads(Offsets[0 : what.experts + 1], Starts[0 : what.experts])
                    T.writes(Row[x * part + i])
                    Row[x * part + i] = first_row(Offsets, Starts, x * part + i)
        for x in T.thread_binding(cut.ctas, thread="blockIdx.x"):
            for t in range(cut.walked):
                with T.sblock("cta"):
                    T.where(is_taken(Row, x, t))
                    T.reads()
                    T.writes()
                    acc = T.sblock_alloc_buffer((m, n), "float32", scope="local")
                    for i, j in T.grid(m, n):
                        with T.sblock("acc_init"):
                            acc[i, j] = T.float32(0)
                    for s in range(cut.steps):
                        with T.sblock("step"):
                            T.reads()
                            T.writes()
                            A_shared = T.sblock_alloc_buffer((m, k), kind, scope="shared")
                            B_shared = T.sblock_alloc_buffer((n, k), kind, scope="shared")
                            for i, d in T.grid(m, k):
                                with T.sblock("A_shared"):
                                    A_shared[i, d] = read_a(A, Row, x, t, s, i, d)
                            for j, d in T.grid(n, k):
                                with T.sblock("B_shared"):
                                    B_shared[j, d] = read_b(B, Expert, x, t, s, j, d)
                            for i, j, d in T.grid(m, n, k):
                                with T.sblock("acc"):
                                    acc[i, j] = acc[i, j] + T.Cast(
                                        "float32", A_shared[i, d]
                                    ) * T.Cast("float32", B_shared[j, d])
                    for i, j in T.grid(m, n):
                        with T.sblock("C"):
                            T.where(stored(Row, Expert, Offsets, x, t, i, j))
                            C[Row[place(x, t)] + i, column(x, t, j)] = T.Cast(out, acc[i, j])

    return grouped_gemm
