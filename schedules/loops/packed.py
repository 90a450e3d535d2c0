"""The un-pipelined schedule of a GEMM with weights of 4 bits: one group of K in a step.

    for blockIdx.y in splits, blockIdx.x in tiles:      # grouped: neighbours share operands in L2
      acc = 0                                           # [n, m]: weights are the first operand
      for s in groups of K of the split:
        A_shared, W_shared = A[tile], W[tile]           # plain box copies, zero outside
        D = (bits of W_shared - 8) * S[s]               # a tile in registers
        acc += D * A_shared                             # a plain matmul over a tile
      C[tile] = acc                                     # guarded at ragged edges
      # several splits: Part[split, tile] = acc, and a second kernel
    for blockIdx.x in pieces of C:
      C = the sum of all Part

Nothing is bound to threads. Few rows of A are the columns of the instruction, which has no fewer
than 64 rows.
"""

from __future__ import annotations

import functools
import math
import operator
from dataclasses import replace
from typing import Any, Final

from tvm import s_tir
from tvm.script import tirx as T

from ...diagnostics import Reason
from ...errors import WorkloadError
from ...instructions.dtypes import element_bytes
from ...machine import VECTOR_BYTES, Machine
from ...values.facts import (
    CopyInfo,
    ElementwiseInfo,
    KernelInfo,
    LoopInfo,
    MatmulInfo,
    StatementInfo,
    StoreInfo,
)
from ..tiles import RowTile, divisor, power_of_two, row_major
from ..workloads import IN_WORD, WORD_TYPE, PackedGemm
from ..workloads.fused.packed import dequantised, word_of
from .products import ProductCut, guarded, piece_of

PACKED_ROWS: Final = (8, 16, 32, 64, 128, 256)
"""Rows of A of a tile to compare: columns of an instruction, half as many registers of sums."""

PACKED_COLUMNS: Final = (64, 128)
"""Columns of C of a tile to compare: one or two warpgroups of 64."""

FEWEST_GROUPS: Final = 8
"""Fewest steps of a split: a CTA fills and drains its rings."""

DECLARED: Final = 64
"""Bytes to which TVM declares a parameter aligned."""

SPLIT_ROUNDS: Final = (1, 2, 4)
"""How often the CTAs of all splits fill the SMs: a few of them at once hide what each waits for."""


def schedule_packed(what: PackedGemm, tile: RowTile) -> Any:
    """``what`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc.

    WorkloadError: splits do not divide the groups, or it is persistent.
    """
    if tile.persistent is not None:
        raise WorkloadError("option.persistent", workload=what.name, count=tile.persistent)
    if what.groups % tile.splits:
        raise WorkloadError("packed.splits", groups=what.groups, splits=tile.splits)
    return s_tir.Schedule(_function(what, ProductCut.of(what, tile)))


def packed_tiles(what: PackedGemm, machine: Machine, splits: int | None = None) -> list[RowTile]:
    """The tiles to compare; none but the smallest has twice as many rows as A.

    ``splits``: of the groups of K; None: one, and so many that CTAs fill the SMs once or twice.
    """
    rows = [m for m in PACKED_ROWS if m < 2 * what.m] or [PACKED_ROWS[0]]
    tiles = [RowTile(m, n) for m in rows for n in PACKED_COLUMNS]
    if splits is not None:
        return [replace(tile, splits=splits) for tile in tiles]
    return [replace(tile, splits=count) for tile in tiles for count in _counts(what, tile, machine)]


def _counts(what: PackedGemm, tile: RowTile, machine: Machine) -> list[int]:
    ctas, most = ProductCut.of(what, tile).count, max(1, what.groups // FEWEST_GROUPS)
    filling = (min(most, rounds * machine.sms // ctas) for rounds in SPLIT_ROUNDS)
    return sorted({1, *(divisor(what.groups, count) for count in filling if count > 1)})


def _function(what: PackedGemm, cut: ProductCut) -> Any:
    m, n, k = cut.tile.m, cut.tile.n, what.step
    of_a, of_w, of_s, of_c = what.shapes()
    kind, out, parts = what.storage, what.out, cut.tile.splits
    words, each = k // IN_WORD, cut.steps // parts
    partial = any(cut.ragged[:2])
    piece = piece_of(what.n)
    across = what.n // piece

    def read_w(W: Any, x: Any, s: Any, j: Any, d: Any) -> Any:
        column, word = cut.column(x) + j, s * words + d
        inside = [word < of_w[1]] if cut.ragged[2] else []
        return guarded(W[column, word], [*cut.of_columns(column), *inside], WORD_TYPE)

    def weight(W_shared: Any, S: Any, x: Any, s: Any, j: Any, d: Any) -> Any:
        column = cut.column(x) + j
        scale = guarded(S[s, column], cut.of_columns(column), kind)
        return dequantised(W_shared[j, word_of(d)], d, scale, kind)

    def total(Part: Any, row: Any, column: Any) -> Any:
        return functools.reduce(operator.add, [Part[z, row, column] for z in range(parts)])

    @T.prim_func(s_tir=True)
    def packed_gemm(a: T.handle, w: T.handle, f: T.handle, o: T.handle) -> None:
        T.func_attr({"global_symbol": what.name, "tirx.noalias": True})
        A = T.match_buffer(a, of_a, kind)
        W = T.match_buffer(w, of_w, WORD_TYPE)
        S = T.match_buffer(f, of_s, kind)
        C = T.match_buffer(o, of_c, out)
        if parts > 1:
            Part = T.alloc_buffer((parts, what.m, what.n), "float32")
        for z in T.thread_binding(parts, thread="blockIdx.y"):
            for x in T.thread_binding(cut.count, thread="blockIdx.x"):
                with T.sblock("cta"):
                    T.reads()
                    T.writes()
                    acc = T.sblock_alloc_buffer((n, m), "float32", scope="local")
                    for j, i in T.grid(n, m):
                        with T.sblock("acc_init"):
                            acc[j, i] = T.float32(0)
                    for s in range(each):
                        with T.sblock("step"):
                            T.reads()
                            T.writes()
                            A_shared = T.sblock_alloc_buffer((m, k), kind, scope="shared")
                            W_shared = T.sblock_alloc_buffer((n, words), WORD_TYPE, scope="shared")
                            D = T.sblock_alloc_buffer((n, k), kind, scope="local")
                            for i, d in T.grid(m, k):
                                with T.sblock("A_shared"):
                                    A_shared[i, d] = cut.read_a(A, x, z * each + s, i, d)
                            for j, d in T.grid(n, words):
                                with T.sblock("W_shared"):
                                    W_shared[j, d] = read_w(W, x, z * each + s, j, d)
                            for j, d in T.grid(n, k):
                                with T.sblock("D"):
                                    D[j, d] = weight(W_shared, S, x, z * each + s, j, d)
                            for j, i, d in T.grid(n, m, k):
                                with T.sblock("acc"):
                                    acc[j, i] = acc[j, i] + T.Cast("float32", D[j, d]) * T.Cast(
                                        "float32", A_shared[i, d]
                                    )
                    for j, i in T.grid(n, m):
                        with T.sblock("C"):
                            if partial:
                                T.where(cut.stored(x, i, j))
                            if parts > 1:
                                Part[z, cut.row(x) + i, cut.column(x) + j] = acc[j, i]
                            else:
                                C[cut.row(x) + i, cut.column(x) + j] = T.Cast(out, acc[j, i])
        if parts > 1:
            for x in T.thread_binding(what.m * across, thread="blockIdx.x"):
                for j in range(piece):
                    with T.sblock("total"):
                        C[x // across, x % across * piece + j] = T.Cast(
                            out, total(Part, x // across, x % across * piece + j)
                        )

    return packed_gemm


def packed_info(what: PackedGemm, tile: RowTile) -> KernelInfo:
    """What recognition will find in ``what`` as scheduled with ``tile``."""
    cut = ProductCut.of(what, tile)
    m, n, k, parts = tile.m, tile.n, what.step, tile.splits
    of_a, of_w, _, of_c = what.shapes()
    kind, size, wide = what.storage, element_bytes(what.storage), element_bytes(what.accumulator)
    ragged = cut.ragged

    def load(name: str, dtype: str, shape: tuple[int, int], of: tuple[int, ...]) -> CopyInfo:
        over = ragged[0] if name == "A" else ragged[1]
        return CopyInfo(
            op=f"{name}_shared",
            src=name,
            dst=f"{name}_shared",
            dst_scope="shared",
            dtype=dtype,
            shape=shape,
            src_dims=(0, 1),
            src_strides=row_major(of),
            aligned=min(power_of_two(math.gcd(of[1], shape[1])), DECLARED // element_bytes(dtype)),
            masked=bool(over or ragged[2]),
            bound=False,
            src_bytes=math.prod(of) * element_bytes(dtype),
        )

    copies = (
        load("A", kind, (m, k), of_a),
        load("W", WORD_TYPE, (n, k // IN_WORD), of_w),
    )
    weights = StatementInfo(
        op="D",
        kind="compute",
        global_bytes=n * size,
        shared_bytes=n * k // IN_WORD * element_bytes(WORD_TYPE),
        flops=2 * n * k,
        bound=False,
        loads=True,
        reads=("W_shared",),
    )
    product = MatmulInfo(
        op="acc",
        acc="acc",
        a="D",
        b="A_shared",
        m=n,
        n=m,
        k=k,
        a_dtype=kind,
        b_dtype=kind,
        acc_dtype=what.accumulator,
        a_k_major=True,
        b_k_major=True,
        k_last=k,
        computed=("D",),
    )
    to, out, strides = "C", what.out, row_major(of_c)
    if parts > 1:
        to, out, strides = "Part", what.accumulator, row_major((parts, *of_c))
    rings = [(one.dst, "shared", math.prod(one.shape) * element_bytes(one.dtype)) for one in copies]
    scattered = Reason("store.scattered", buffer=to)
    return KernelInfo(
        name=what.name,
        grid=(parts, cut.count),
        threads=0,
        loops=(
            LoopInfo(
                name="s",
                trip=cut.steps // parts,
                trip_text=str(cut.steps // parts),
                ops=(*copies, weights, product),
                rings=(*rings, ("D", "local", n * k * size)),
            ),
        ),
        accumulators=(("acc", "local", m * n * wide),),
        stores=(StoreInfo("C", "acc", to, out, strides, by_rows=False, no_tma=scattered),),
        elementwise=(_sums(what, parts),) if parts > 1 else (),
        kernels=min(parts, 2),
        ends_elementwise=parts > 1,
    )


def _sums(what: PackedGemm, parts: int) -> ElementwiseInfo:
    """The kernel that adds partial sums."""
    piece, wide = piece_of(what.n), element_bytes(what.accumulator)
    return ElementwiseInfo(
        op="total",
        ctas=what.m * what.n // piece,
        elements=piece,
        vector=math.gcd(piece, VECTOR_BYTES // wide),
        global_bytes=piece * (parts * wide + element_bytes(what.out)),
        note="",
    )
