"""The un-pipelined schedule of two products one after the other: a tile of rows, and a loop.

    for blockIdx.y in splits, blockIdx.x in tiles of rows:
      A_shared = A[tile]
      acc = 0
      for step in tiles of columns of A B of the split:
        B_shared, C_shared = B[tile], C[tile]
        hidden = A_shared * B_shared           # a plain matmul over a tile
        made = activation(hidden) in the type of C
        acc += made * C_shared                 # a plain matmul over a tile
      O[tile] = acc                            # guarded at ragged edges
      # several splits: Part[split, tile] = acc, and a second kernel
    for blockIdx.x in pieces of O:
      O = the sum of all Part, in order

Few rows make few tiles, each with all columns between the products to sum over; those are then
split among CTAs, as K is in split-K. All splits take as many steps; those of the last one may lie
beyond the last column.

Nothing is bound to threads. Attention (``attention.py``) makes more of the first product, and of
its rows. Reads beyond the last row or column are zero, and so is what an activation makes of zero.
"""

from __future__ import annotations

import functools
import itertools
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
from ...values.notes import NOTE, note_text
from ..tiles import RowTile, power_of_two, row_major
from ..workloads import BackToBackGemm
from ..workloads.base.epilogue import apply, computed_by
from .attention_cut import splits_of
from .products import guarded, piece_of

ROWS: Final = (64, 128, 192)
"""Rows of a tile to compare: one to three warpgroups of 64."""

FEW_ROWS: Final = 32
"""The same where FMA multiplies, whose threads have fewer sums than those of warps."""

COLUMNS: Final = (32, 64, 96, 128)
"""Columns of the first product in a step to compare; 128 are 64 registers a thread of sums."""


FEWEST_STEPS: Final = 4
"""Fewest steps of a split: a CTA fills and drains its rings."""

SPLIT_ROUNDS: Final = (1, 2)
"""How often the CTAs of all splits fill the SMs."""


def schedule_back_to_back(what: BackToBackGemm, tile: RowTile) -> Any:
    """``what`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc.

    WorkloadError: it is persistent, or has not that many splits.
    """
    _check(what, tile)
    return s_tir.Schedule(_function(what, tile))


def _check(what: BackToBackGemm, tile: RowTile) -> None:
    if tile.persistent is not None:
        raise WorkloadError("option.persistent", workload=what.name, count=tile.persistent)
    steps = -(-what.n // tile.n)
    if tile.splits != splits_of(steps, tile.splits):
        raise WorkloadError("back_to_back.splits", steps=steps, splits=tile.splits)


def steps_of_split(what: BackToBackGemm, tile: RowTile) -> int:
    """Steps that each split of the columns takes."""
    steps = -(-what.n // tile.n)
    return -(-steps // tile.splits)


def covered(what: BackToBackGemm, tile: RowTile) -> int:
    """Columns that the steps of all splits take, some of them beyond the last."""
    return tile.splits * steps_of_split(what, tile) * tile.n


def _function(what: BackToBackGemm, tile: RowTile) -> Any:
    m, n, k, p, parts = tile.m, tile.n, what.k, what.p, tile.splits
    of_a, of_b, of_c, of_o = what.shapes()
    kind, out = what.storage, what.out
    partial = what.m % m != 0
    each, columns = steps_of_split(what, tile), covered(what, tile)
    piece = piece_of(p)
    across = p // piece

    def read(x: Any, row: Any, rows: int, size: int, column: Any) -> Any:
        """An element; zero beyond the last of ``rows``, where tiles reach as far as ``size``."""
        return guarded(x[row, column], [row < rows] if size > rows else [], kind)

    def total(Part: Any, row: Any, column: Any) -> Any:
        return functools.reduce(operator.add, [Part[z, row, column] for z in range(parts)])

    @T.prim_func(s_tir=True)
    def back_to_back(a: T.handle, b: T.handle, c: T.handle, o: T.handle) -> None:
        T.func_attr({"global_symbol": what.name, "tirx.noalias": True})
        A = T.match_buffer(a, of_a, kind)
        B = T.match_buffer(b, of_b, kind)
        C = T.match_buffer(c, of_c, kind)
        Out = T.match_buffer(o, of_o, out)
        if parts > 1:
            Part = T.alloc_buffer((parts, what.m, p), "float32")
        for z in T.thread_binding(parts, thread="blockIdx.y"):
            for y in T.thread_binding(-(-what.m // m), thread="blockIdx.x"):
                with T.sblock("cta"):
                    T.reads()
                    T.writes()
                    A_shared = T.sblock_alloc_buffer((m, k), kind, scope="shared")
                    acc = T.sblock_alloc_buffer((m, p), "float32", scope="local")
                    for i, d in T.grid(m, k):
                        with T.sblock("A_shared"):
                            A_shared[i, d] = read(A, y * m + i, what.m, -(-what.m // m) * m, d)
                    for i, j in T.grid(m, p):
                        with T.sblock("acc_init"):
                            acc[i, j] = T.float32(0)
                    for s in range(each):
                        with T.sblock("step"):
                            T.reads()
                            T.writes()
                            B_shared = T.sblock_alloc_buffer((n, k), kind, scope="shared")
                            C_shared = T.sblock_alloc_buffer((n, p), kind, scope="shared")
                            hidden = T.sblock_alloc_buffer((m, n), "float32", scope="local")
                            made = T.sblock_alloc_buffer((m, n), kind, scope="local")
                            for j, d in T.grid(n, k):
                                with T.sblock("B_shared"):
                                    B_shared[j, d] = read(
                                        B, (z * each + s) * n + j, what.n, columns, d
                                    )
                            for j, d in T.grid(n, p):
                                with T.sblock("C_shared"):
                                    C_shared[j, d] = read(
                                        C, (z * each + s) * n + j, what.n, columns, d
                                    )
                            for i, j in T.grid(m, n):
                                with T.sblock("hidden_init"):
                                    hidden[i, j] = T.float32(0)
                            for i, j, d in T.grid(m, n, k):
                                with T.sblock("hidden"):
                                    hidden[i, j] = hidden[i, j] + T.Cast(
                                        "float32", A_shared[i, d]
                                    ) * T.Cast("float32", B_shared[j, d])
                            for i, j in T.grid(m, n):
                                with T.sblock("made"):
                                    made[i, j] = T.Cast(
                                        kind, apply(what.activation, hidden[i, j], None)
                                    )
                            for i, d, j in T.grid(m, p, n):
                                with T.sblock("acc"):
                                    acc[i, d] = acc[i, d] + T.Cast("float32", made[i, j]) * T.Cast(
                                        "float32", C_shared[j, d]
                                    )
                    for i, d in T.grid(m, p):
                        with T.sblock("Out"):
                            if partial:
                                T.where(y * m + i < what.m)
                            if parts > 1:
                                Part[z, y * m + i, d] = acc[i, d]
                            else:
                                Out[y * m + i, d] = T.Cast(out, acc[i, d])
        if parts > 1:
            for x in T.thread_binding(what.m * across, thread="blockIdx.x"):
                for d in range(piece):
                    with T.sblock("total"):
                        T.sblock_attr({NOTE: note_text(_note(tile))})
                        Out[x // across, x % across * piece + d] = T.Cast(
                            out, total(Part, x // across, x % across * piece + d)
                        )

    return back_to_back


def _note(tile: RowTile) -> Reason:
    """What the plan is to say of the kernel that adds the partial sums."""
    return Reason("split.sum", splits=tile.splits)


def back_to_back_tiles(
    what: BackToBackGemm, machine: Machine, splits: int | None = None
) -> list[RowTile]:
    """The tiles of ``what`` to compare: those whose operands fit into shared memory once.

    ``splits``: of the columns between the products; None: one, and so many that CTAs fill the SMs
    once or twice, where tiles of rows do not.
    """
    size = element_bytes(what.storage)
    few = (FEW_ROWS,) if machine.mma(what.storage) is None else ()
    found = [
        RowTile(m, n)
        for m, n in itertools.product((*few, *ROWS), COLUMNS)
        if m < what.m + ROWS[0] and n < what.n + COLUMNS[0]
        if (m * what.k + n * (what.k + what.p)) * size <= machine.smem_per_cta
    ]
    found = found or [RowTile(ROWS[0], COLUMNS[0])]
    if splits is not None:
        return [replace(tile, splits=splits) for tile in found]
    return [replace(tile, splits=count) for tile in found for count in _counts(what, tile, machine)]


def _counts(what: BackToBackGemm, tile: RowTile, machine: Machine) -> list[int]:
    ctas, steps = -(-what.m // tile.m), -(-what.n // tile.n)
    most = max(1, steps // FEWEST_STEPS)
    filling = (rounds * machine.sms // ctas for rounds in SPLIT_ROUNDS)
    return sorted({1, *(splits_of(steps, min(most, count)) for count in filling if count > 1)})


def back_to_back_alike(
    small: BackToBackGemm, what: BackToBackGemm, tile: RowTile, few: tuple[int, int]
) -> bool:
    """Whether the kernel of ``small`` has every kind of CTA and step that that of ``what`` has.

    ``few``: how many tiles and steps are enough.
    """
    _check(small, tile)
    beyond = [covered(one, tile) - one.n for one in (small, what)]
    edges = [
        (one.m % tile.m, cut % tile.n, cut > tile.n) for one, cut in zip((small, what), beyond)
    ]
    counts = [(-(-one.m // tile.m), steps_of_split(one, tile)) for one in (small, what)]
    return edges[0] == edges[1] and all(
        found >= min(enough, whole) for found, whole, enough in zip(*counts, few)
    )


def back_to_back_info(what: BackToBackGemm, tile: RowTile) -> KernelInfo:
    """What recognition will find in ``what`` as scheduled with ``tile``.

    Raises what ``schedule_back_to_back`` raises.
    """
    _check(what, tile)
    m, n, k, p, size = tile.m, tile.n, what.k, what.p, element_bytes(what.storage)
    wide, parts = element_bytes(what.accumulator), tile.splits
    tiles, trip = -(-what.m // m), steps_of_split(what, tile)
    reaches = (tiles * m, covered(what, tile), covered(what, tile))
    a, b, c = (
        CopyInfo(
            op=f"{name}_shared",
            src=name,
            dst=f"{name}_shared",
            dst_scope="shared",
            dtype=what.storage,
            shape=(rows, shape[1]),
            src_dims=(0, 1),
            src_strides=row_major(shape),
            aligned=power_of_two(shape[1]),
            masked=reach > shape[0],
            bound=False,
            src_bytes=math.prod(shape) * size,
        )
        for name, rows, shape, reach in zip("ABC", (m, n, n), what.shapes(), reaches)
    )
    hidden, acc = (
        MatmulInfo(
            op=name, acc=name, a=left, b=right.dst, m=m, n=columns, k=depth, a_dtype=what.storage,
            b_dtype=what.storage, acc_dtype=what.accumulator, a_k_major=True,
            b_k_major=name == "hidden", k_last=depth, computed=() if left == a.dst else (left,),
        )
        for name, left, right, columns, depth in (
            ("hidden", a.dst, b, n, k),
            ("acc", "made", c, p, n),
        )
    )  # fmt: skip
    init, made = (
        StatementInfo(
            op=name,
            kind="compute",
            flops=m * n * flops,
            transcendentals=m * n * exps,
            bound=False,
            loads=False,
        )
        for name, (flops, exps) in (
            ("hidden_init", (0, 0)),
            ("made", computed_by((what.activation,), what.accumulator)),
        )
    )
    loop = LoopInfo(
        name="s",
        trip=trip,
        trip_text=str(trip),
        ops=(b, c, init, hidden, made, acc),
        rings=(
            (b.dst, "shared", n * k * size),
            (c.dst, "shared", n * p * size),
            (hidden.acc, "local", m * n * wide),
            (made.op, "local", m * n * size),
        ),
    )
    return KernelInfo(
        name=what.name,
        grid=(parts, tiles),
        threads=0,
        loops=(loop,),
        accumulators=((a.dst, "shared", m * k * size), (acc.acc, "local", m * p * wide)),
        stores=(_stored(what, tile),),
        before=(a,),
        elementwise=(_sums(what, tile),) if parts > 1 else (),
        kernels=min(parts, 2),
        ends_elementwise=parts > 1,
    )


def _stored(what: BackToBackGemm, tile: RowTile) -> StoreInfo:
    """Where the sums of a CTA go."""
    if tile.splits == 1:
        return StoreInfo("Out", "acc", "Out", what.out, row_major((what.m, what.p)))
    shape = (tile.splits, what.m, what.p)
    return StoreInfo("Out", "acc", "Part", what.accumulator, row_major(shape))


def _sums(what: BackToBackGemm, tile: RowTile) -> ElementwiseInfo:
    """The kernel that adds partial sums."""
    piece, wide = piece_of(what.p), element_bytes(what.accumulator)
    return ElementwiseInfo(
        op="total",
        ctas=what.m * what.p // piece,
        elements=piece,
        vector=math.gcd(piece, VECTOR_BYTES // wide),
        global_bytes=piece * (tile.splits * wide + element_bytes(what.out)),
        note=_note(tile),
    )
