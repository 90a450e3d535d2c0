"""Say what recognition will find of a tile of attention, in closed form."""

from __future__ import annotations

import math

from ...diagnostics import Reason, Why
from ...instructions.dtypes import element_bytes
from ...machine import VECTOR_BYTES
from ...values.facts import (
    CopyInfo,
    ElementwiseInfo,
    KernelInfo,
    LoopInfo,
    MatmulInfo,
    StatementInfo,
    StoreInfo,
    TmaView,
)
from ..tiles import AttentionTile, power_of_two, row_major
from ..workloads import Attention
from .attention_cut import (
    CUT_SHORT,
    TILES,
    Cut,
    check_splits,
    columns_of,
    note_of,
    steps_of,
)


def attention_info(what: Attention, tile: AttentionTile) -> KernelInfo:
    """``kernel_info`` of attention; the steps of a causal one are those of its average tile."""
    check_splits(what, tile)
    cut = Cut(what, tile)
    m, n, dim, size = tile.m, tile.n, columns_of(what), element_bytes(what.storage)
    of_q, of_k, of_v, _ = what.shapes()
    q, k, v = (
        CopyInfo(
            op=f"{name}_shared",
            src=name,
            dst=f"{name}_shared",
            dst_scope="shared",
            dtype=what.storage,
            shape=(rows, dim),
            src_dims=dims,
            src_strides=row_major(shape),
            aligned=power_of_two(what.dim),
            masked=extent % whole != 0 or dim != what.dim,
            bound=False,
            no_tma=CUT_SHORT if cut.is_cut_short(which) else "",
            view=view,
            src_bytes=math.prod(shape) * size,
            around=TILES if cut.is_persistent and name == "Q" else "",
        )
        for which, (name, rows, shape, (extent, whole), dims, view) in enumerate(
            (
                ("Q", m, of_q, (cut.rows, m), *_query_view(cut)),
                ("K", n, of_k, (what.keys, cut.keys), _keys_in(what, 1), "tensor"),
                ("V", n, of_v, (what.keys, cut.keys), _keys_in(what, 2), "tensor"),
            )
        )
    )
    scores, acc = (
        MatmulInfo(
            op=name, acc=name, a=a, b=b.dst, m=m, n=columns, k=depth, a_dtype=what.storage,
            b_dtype=what.storage, acc_dtype=what.accumulator, a_k_major=True,
            b_k_major=name == "scores", k_last=depth, computed=() if a == q.dst else (a,),
            by_rows=True,
        )
        for name, a, b, columns, depth in (
            ("scores", q.dst, k, n, dim),
            ("acc", "weights", v, dim, n),
        )
    )  # fmt: skip

    def statement(name: str, count: int = 0, flops: int = 0, exps: int = 0) -> StatementInfo:
        return StatementInfo(
            op=name,
            kind="compute",
            flops=count * flops,
            transcendentals=count * exps,
            bound=False,
            loads=False,
        )

    rows = m * element_bytes(what.accumulator)
    masked = [statement("mask")] if cut.is_masked else []
    every = [steps_of(what, tile, at) for at in range(cut.tiles)]
    same = not what.causal or cut.tiles == 1
    loop = LoopInfo(
        name="step",
        trip=every[0] if same else None,
        trip_text=str(every[0]) if same else "min",
        mean_trip=None if same else sum(every) / len(every),
        most_trip=None if same else max(every),
        ops=(
            k,
            v,
            statement("scores_init"),
            scores,
            *masked,
            statement("before"),
            statement("largest", m * n, 1),
            statement("exp", m * n, 3, 1),
            statement("factor", m, 2, 1),
            statement("total_scale", m, 1),
            statement("total", m * n, 1),
            statement("acc_scale", m * dim, 1),
            statement("weights"),
            acc,
        ),
        rings=(
            (k.dst, "shared", n * dim * size),
            (v.dst, "shared", n * dim * size),
            ("scores", "local", m * n * element_bytes(what.accumulator)),
            ("weights", "local", m * n * size),
            ("before", "local", rows),
            ("factor", "local", rows),
        ),
        outer=-(-cut.all_tiles // cut.ctas),
        by_tile=cut.is_persistent,
    )
    whole = (what.batch, cut.heads, cut.tiles * tile.splits)
    return KernelInfo(
        name=what.name,
        grid=(cut.ctas,) if cut.is_persistent else whole,
        threads=0,
        loops=(loop,),
        accumulators=(
            ("Q_shared", "shared", m * dim * size),
            ("acc", "local", rows * dim),
            ("largest", "local", rows),
            ("total", "local", rows),
        ),
        stores=(_attention_store(cut),),
        before=(q,),
        elementwise=() if tile.splits == 1 else (_combination(cut),),
        kernels=1 if tile.splits == 1 else 2,
        ends_elementwise=tile.splits > 1,
        declined=((TILES, Reason("loop.inner")),) if cut.is_persistent else (),
    )


def _keys_in(what: Attention, which: int) -> tuple[int | None, ...]:
    """Which dimensions of K or V a tile of it has."""
    return (None, *what.lying(which, None, 0), 1)


def _query_view(cut: Cut) -> tuple[tuple[int | None, ...], TmaView]:
    """Which dimensions of Q a tile of it has, and what it is to the tensor memory accelerator."""
    what = cut.what
    if not cut.tile.grouped or what.queries % cut.tile.m == 0:
        return (None, *what.lying(0, None, 0), 1), "tensor"
    if what.queries == 1:
        return (None, *what.lying(0, 0, None), 1), "window" if cut.rows % cut.tile.m else "tensor"
    if cut.is_cut_short(0):
        return (None, None, None, 1), "tensor"
    return (None, None, None, 1), "im2col" if what.within[0] else "flattened"


def _attention_store(cut: Cut) -> StoreInfo:
    """The store of O, or of what a split has of it."""
    what, splits = cut.what, cut.tile.splits
    name, dtype, shape = "Out", what.out, what.shapes()[-1]
    if splits > 1:
        name, dtype, shape = "Parts", what.accumulator, (splits, cut.lines, what.dim)
    beyond: Why = ""
    if cut.rows % cut.tile.m and (splits > 1 or cut.tile.grouped):
        beyond = Reason("store.mask", buffer=name, condition=f"i < {cut.rows}")
    divided = 0 if splits > 1 else 1
    return StoreInfo(name, "acc", name, dtype, row_major(shape), no_tma=beyond, flops=divided)


def _combination(cut: Cut) -> ElementwiseInfo:
    """The kernel that combines splits: each CTA has a query of one head, or several."""
    what, splits, together = cut.what, cut.tile.splits, cut.combined_together
    wide, out = element_bytes(what.accumulator), element_bytes(what.out)
    statistics = 2 * splits * wide
    return ElementwiseInfo(
        op="Out",
        ctas=cut.combining_ctas,
        elements=together * what.dim,
        vector=math.gcd(what.dim, VECTOR_BYTES // wide),
        global_bytes=together * (what.dim * (out + splits * wide) + statistics),
        note=note_of(cut.tile),
    )
