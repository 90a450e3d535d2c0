"""The un-pipelined schedule of a product with statistics of rows.

    for blockIdx.x, t in CTAs, tiles of one:   # grouped: neighbours share operands in the L2 cache
      acc, squares = 0, 0
      for s in steps of K:
        A_shared, B_shared = A[tile], B[tile]  # plain box copies, zero outside
        acc += A_shared * B_shared             # a plain matmul over a tile
        squares += A_shared ** 2               # rms: of each row
      C[tile] = acc * rsqrt(squares / K)       # rms
      # sum, lse: of the rows of each tile; lse: the sum of exp(acc - max)
      Most[tile], Sum[tile] = max(acc), sum(acc)
      C[tile] = acc

    for blockIdx.x in runs of rows:            # sum, lse: a second kernel
      R = combined Most and Sum of the tiles of each row

Nothing is bound to threads. Columns beyond the last count in no statistic. C is stored last: stores
of the statistics keep their arithmetic before it, where it waits for nothing.
"""

from __future__ import annotations

import math
from typing import Any, Final

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Var
from tvm.script import tirx as T

from ...errors import WorkloadError
from ...instructions.warpgroup_tiles import grids
from ...machine import Machine
from ...passes.ir.nodes import i32, substitute
from ..tiles import RowTile, divisor
from ..tiles.raster import square_group
from ..workloads import EPSILON, GroupedGemm, RowGemm
from ..workloads.base.blocks import all_of
from .products import ProductCut

ROW_TILES: Final = ((64, 64), (64, 128), (64, 256), (128, 64), (128, 128), (128, 256))
"""To compare, the smallest first: one or two warpgroups of 64 rows."""

GROUPED_ROWS: Final = 8
"""Rows of a raster group of a grouped GEMM, whose groups have few."""

MOST_TILES: Final = 128
"""Of a row. Each is a term of one sum, whose loads are in flight at once."""

PART: Final = 32
"""Rows that a CTA of the second kernel combines: few, so that most SMs have some."""

LOWEST: Final = -3.0e38
"""Lower than any sum, and finite."""

WALK: Final = "t"
"""The loop over the tiles of a CTA."""

_LOG2E: Final = math.log2(math.e)


def schedule_rows(what: RowGemm, tile: RowTile) -> Any:
    """``what`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc.

    WorkloadError: a row has more tiles than a second kernel combines.
    """
    cut = ProductCut.of(what, tile)
    if what.statistic != "rms" and cut.tiles[1] > MOST_TILES:
        raise WorkloadError(
            "rows.many_tiles", workload=what.name, tiles=cut.tiles[1], most=MOST_TILES
        )
    func = _function(what, cut)
    params = func.params[:-1] if what.statistic == "rms" else func.params
    body = func.body if cut.walked > 1 else once(func.body)
    return s_tir.Schedule(tirx.PrimFunc(params, body, func.ret_type, func.attrs))


def once(body: Any) -> Any:
    """``body`` without the loop over the tiles of a CTA, which has one."""

    def inner(loop: Any) -> Any:
        walks = str(loop.loop_var.name) == WALK
        return substitute(loop.body, {loop.loop_var: i32(0)}) if walks else loop

    return tvm_ffi.structural_map(body, [(tirx.For, inner)], order="post")


def row_tiles(what: RowGemm | GroupedGemm, machine: Machine) -> list[RowTile]:
    """The tiles of ``what`` to compare; none but the smallest is larger than C.

    Each with a CTA for each tile, and with one for each SM (persistent) where warpgroups multiply.
    Raster groups are squares of a wave: on an H200 log-sum-exp of 4096 cubed takes 185.2 us by 128
    x 256 in groups of 16, and 188.4, 186.7 and 186.9 in groups of 2, 4 and 8.
    """
    (least, narrow), *_ = ROW_TILES
    fit = [(m, n) for m, n in ROW_TILES if m < what.m + least and n < what.n + narrow]
    grouped = isinstance(what, GroupedGemm)
    return [
        RowTile(m, n, GROUPED_ROWS if grouped else square_group(m, n, machine), persistent=ctas)
        for m, n in fit or [(least, narrow)]
        for ctas in (
            grids(ProductCut.of(what, RowTile(m, n)).count, machine)
            if machine.multiplies_by_warpgroup
            else [None]
        )
    ]


def rows_of_part(what: RowGemm) -> int:
    """Rows of a CTA of the second kernel."""
    return divisor(what.m, PART)


def _largest(most: Any, row: Any) -> Any:
    top = most[0, row]
    for x in range(1, int(most.shape[0])):
        top = tirx.max(top, most[x, row])
    return top


def _total(sums: Any, row: Any) -> Any:
    total = sums[0, row]
    for x in range(1, int(sums.shape[0])):
        total = total + sums[x, row]
    return total


def _log_sum(most: Any, sums: Any, row: Any) -> Any:
    """The logarithm of the sum of all exponentials of a row."""
    top = Var("top", "float32")

    def of_tile(x: int) -> Any:
        return sums[x, row] * tirx.exp2((most[x, row] - top) * tirx.const(_LOG2E, "float32"))

    total = of_tile(0)
    for x in range(1, int(most.shape[0])):
        total = total + of_tile(x)
    return tirx.Let(top, _largest(most, row), tirx.log(total) + top)


def _function(what: RowGemm, cut: ProductCut) -> Any:
    m, n, k = cut.tile.m, cut.tile.n, what.step
    kind, out = what.storage, what.out
    of_rms, of_exp = what.statistic == "rms", what.statistic == "lse"
    of_r = what.results[-1][0]
    rows, columns = cut.ragged[0] != 0, cut.ragged[1] != 0
    partial, part = rows or columns, rows_of_part(what)
    tiles = cut.tiles[1]

    def row(x: Any, t: Any, i: Any) -> Any:
        return cut.row(cut.at(x, t)) + i

    def column(x: Any, t: Any, j: Any) -> Any:
        return cut.column(cut.at(x, t)) + j

    def across(x: Any, t: Any) -> Any:
        """Which of its row's tiles a tile is."""
        return column(x, t, 0) // n

    def there(x: Any, t: Any, i: Any) -> Any:
        return all_of(cut.of_rows(row(x, t, i)))

    def inside(x: Any, t: Any, j: Any) -> Any:
        return all_of(cut.of_columns(column(x, t, j)))

    @T.prim_func(s_tir=True)
    def row_gemm(a: T.handle, b: T.handle, o: T.handle, r: T.handle) -> None:
        T.func_attr({"global_symbol": what.name, "tirx.noalias": True})
        A = T.match_buffer(a, (what.m, what.k), kind)
        B = T.match_buffer(b, (what.n, what.k), kind)
        C = T.match_buffer(o, (what.m, what.n), out)
        R = T.match_buffer(r, of_r, "float32")
        if not of_rms:
            Most = T.alloc_buffer((tiles, what.m), "float32")
            Sum = T.alloc_buffer((tiles, what.m), "float32")
        for x in T.thread_binding(cut.ctas, thread="blockIdx.x"):
            for t in range(cut.walked):
                with T.sblock("cta"):
                    if cut.count % cut.ctas != 0:
                        T.where(cut.at(x, t) < cut.count)
                    T.reads()
                    T.writes()
                    acc = T.sblock_alloc_buffer((m, n), "float32", scope="local")
                    for i, j in T.grid(m, n):
                        with T.sblock("acc_init"):
                            acc[i, j] = T.float32(0)
                    if of_rms:
                        squares = T.sblock_alloc_buffer((m,), "float32", scope="local")
                        factor = T.sblock_alloc_buffer((m,), "float32", scope="local")
                        for i in range(m):
                            with T.sblock("squares_init"):
                                squares[i] = T.float32(0)
                    else:
                        most = T.sblock_alloc_buffer((m,), "float32", scope="local")
                        total = T.sblock_alloc_buffer((m,), "float32", scope="local")
                    for s in range(cut.steps):
                        with T.sblock("step"):
                            T.reads()
                            T.writes()
                            A_shared = T.sblock_alloc_buffer((m, k), kind, scope="shared")
                            B_shared = T.sblock_alloc_buffer((n, k), kind, scope="shared")
                            for i, d in T.grid(m, k):
                                with T.sblock("A_shared"):
                                    A_shared[i, d] = cut.read_a(A, cut.at(x, t), s, i, d)
                            for j, d in T.grid(n, k):
                                with T.sblock("B_shared"):
                                    B_shared[j, d] = cut.read_b(B, cut.at(x, t), s, j, d)
                            for i, j, d in T.grid(m, n, k):
                                with T.sblock("acc"):
                                    acc[i, j] = acc[i, j] + T.Cast(
                                        "float32", A_shared[i, d]
                                    ) * T.Cast("float32", B_shared[j, d])
                            if of_rms:
                                for i, d in T.grid(m, k):
                                    with T.sblock("squares"):
                                        squares[i] = squares[i] + T.Cast(
                                            "float32", A_shared[i, d]
                                        ) * T.Cast("float32", A_shared[i, d])
                    if of_rms:
                        for i in range(m):
                            with T.sblock("factor"):
                                factor[i] = T.rsqrt(
                                    squares[i] * T.float32(1 / what.k) + T.float32(EPSILON)
                                )
                        for i, j in T.grid(m, n):
                            with T.sblock("C"):
                                if partial:
                                    T.where(cut.stored(cut.at(x, t), i, j))
                                C[row(x, t, i), column(x, t, j)] = T.Cast(
                                    out, acc[i, j] * factor[i]
                                )
                    else:
                        for i in range(m):
                            with T.sblock("most_init"):
                                most[i] = T.float32(LOWEST)
                        for i in range(m):
                            with T.sblock("total_init"):
                                total[i] = T.float32(0)
                        for i, j in T.grid(m, n):
                            with T.sblock("most"):
                                if columns:
                                    T.where(inside(x, t, j))
                                most[i] = T.max(most[i], acc[i, j])
                        for i, j in T.grid(m, n):
                            with T.sblock("total"):
                                if columns:
                                    T.where(inside(x, t, j))
                                if of_exp:
                                    total[i] = total[i] + T.exp2(
                                        acc[i, j] * T.float32(_LOG2E) - most[i] * T.float32(_LOG2E)
                                    )
                                else:
                                    total[i] = total[i] + acc[i, j]
                        for i in range(m):
                            with T.sblock("Most"):
                                if rows:
                                    T.where(there(x, t, i))
                                Most[across(x, t), row(x, t, i)] = most[i]
                        for i in range(m):
                            with T.sblock("Sum"):
                                if rows:
                                    T.where(there(x, t, i))
                                Sum[across(x, t), row(x, t, i)] = total[i]
                        for i, j in T.grid(m, n):
                            with T.sblock("C"):
                                if partial:
                                    T.where(cut.stored(cut.at(x, t), i, j))
                                C[row(x, t, i), column(x, t, j)] = T.Cast(out, acc[i, j])
        if not of_rms:
            for x in T.thread_binding(what.m // part, thread="blockIdx.x"):
                if of_exp:
                    for i in range(part):
                        with T.sblock("R"):
                            R[x * part + i] = _log_sum(Most, Sum, x * part + i)
                else:
                    for of, i in T.grid(2, part):
                        with T.sblock("R"):
                            R[of, x * part + i] = T.if_then_else(
                                of == 0, _total(Sum, x * part + i), _largest(Most, x * part + i)
                            )

    return row_gemm
