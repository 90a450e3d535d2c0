"""What recognition will find in a loop of several operations as scheduled, in closed form."""

from __future__ import annotations

import math
from dataclasses import replace

from ...diagnostics import Reason
from ...errors import WorkloadError
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
)
from ..tiles import AttentionTile, RowTile, Tile, power_of_two, row_major
from ..workloads import (
    OFFSETS,
    SCALE_BLOCK,
    Attention,
    BackToBackGemm,
    GroupedGemm,
    LoopWorkload,
    PackedGemm,
    RowGemm,
    ScaledGemm,
)
from .attention_info import attention_info
from .back_to_back import back_to_back_info
from .packed import packed_info
from .products import ProductCut
from .rows import WALK, rows_of_part
from .scaled import products_of


def loop_info(what: LoopWorkload, tile: Tile) -> KernelInfo:
    """What recognition will find in ``what`` as scheduled with ``tile``.

    WorkloadError: the tile is another kind's.
    """
    if isinstance(what, Attention) and isinstance(tile, AttentionTile):
        return attention_info(what, tile)
    if isinstance(what, BackToBackGemm) and isinstance(tile, RowTile):
        return back_to_back_info(what, tile)
    if isinstance(what, RowGemm) and isinstance(tile, RowTile):
        return rows_info(what, tile)
    if isinstance(what, GroupedGemm) and isinstance(tile, RowTile):
        return grouped_info(what, tile)
    if isinstance(what, PackedGemm) and isinstance(tile, RowTile):
        return packed_info(what, tile)
    if isinstance(what, ScaledGemm) and isinstance(tile, RowTile):
        return scaled_info(what, tile)
    raise WorkloadError("tile.kind", workload=what.name, kind=type(tile).__name__)


def rows_info(what: RowGemm, tile: RowTile) -> KernelInfo:
    """``loop_info`` of a product with statistics of rows."""
    cut = ProductCut.of(what, tile)
    m, n, wide = tile.m, tile.n, element_bytes(what.accumulator)
    a, b = operands_of(what, cut)
    of_rms = what.statistic == "rms"
    squares = StatementInfo(
        op="squares",
        kind="compute",
        shared_bytes=m * what.step * element_bytes(what.storage),
        flops=2 * m * what.step,
        bound=False,
        loads=False,
        reads=(a.dst,),
    )
    names = ("squares", "factor") if of_rms else ("most", "total")
    return KernelInfo(
        name=what.name,
        grid=(cut.ctas,),
        threads=0,
        loops=(
            LoopInfo(
                name="s",
                outer=cut.walked,
                by_tile=cut.walked > 1,
                trip=cut.steps,
                trip_text=str(cut.steps),
                ops=(a, b, multiplied(what, cut, "acc"), *((squares,) if of_rms else ())),
                rings=tuple((one.dst, "shared", slot_bytes(one)) for one in (a, b)),
            ),
        ),
        declined=((WALK, Reason("loop.inner")),) if cut.walked > 1 else (),
        accumulators=(
            ("acc", "local", m * n * wide),
            *((name, "local", m * wide) for name in names),
        ),
        stores=(
            StoreInfo("C", "acc", "C", what.out, row_major((what.m, what.n)), flops=int(of_rms)),
        ),
        elementwise=() if of_rms else (combination(what, cut),),
        kernels=1 if of_rms else 2,
        ends_elementwise=not of_rms,
    )


def combination(what: RowGemm, cut: ProductCut) -> ElementwiseInfo:
    """The kernel that combines what the tiles of a row have of it."""
    wide, rows, tiles = element_bytes(what.accumulator), rows_of_part(what), cut.tiles[1]
    elements = rows * (2 if what.statistic == "sum" else 1)
    return ElementwiseInfo(
        op="R",
        ctas=what.m // rows,
        elements=elements,
        vector=math.gcd(rows, VECTOR_BYTES // wide),
        global_bytes=(elements + 2 * tiles * rows) * wide,
        note="",
    )


def operands_of(what: RowGemm | GroupedGemm, cut: ProductCut) -> tuple[CopyInfo, CopyInfo]:
    """The copies of tiles of A and B."""
    depth, tile, ragged = cut.step, cut.tile, cut.ragged
    a, b = (
        CopyInfo(
            op=f"{name}_shared",
            src=name,
            dst=f"{name}_shared",
            dst_scope="shared",
            dtype=what.storage,
            shape=(rows, depth),
            src_dims=(0, 1),
            src_strides=row_major(shape),
            aligned=power_of_two(math.gcd(what.k, depth)),
            masked=bool(over or ragged[2]),
            bound=False,
            src_bytes=math.prod(shape) * element_bytes(what.storage),
        )
        for name, rows, shape, over in (
            ("A", tile.m, (what.m, what.k), ragged[0]),
            ("B", tile.n, (what.n, what.k), ragged[1]),
        )
    )
    return a, b


def slot_bytes(copy: CopyInfo) -> int:
    """Bytes of the tile that a copy fills."""
    return math.prod(copy.shape) * element_bytes(copy.dtype)


def multiplied(what: RowGemm | GroupedGemm, cut: ProductCut, acc: str) -> MatmulInfo:
    """The product of the tiles of a step, added to ``acc``."""
    return MatmulInfo(
        op=acc,
        acc=acc,
        a="A_shared",
        b="B_shared",
        m=cut.tile.m,
        n=cut.tile.n,
        k=cut.step,
        a_dtype=what.storage,
        b_dtype=what.storage,
        acc_dtype=what.accumulator,
        a_k_major=True,
        b_k_major=True,
        k_last=what.k - (cut.steps - 1) * cut.step,
        by_rows=True,
    )


def scaled_info(what: ScaledGemm, tile: RowTile) -> KernelInfo:
    """``loop_info`` of a block-scaled GEMM."""
    m, k, products = tile.m, SCALE_BLOCK, products_of(tile)
    n = tile.n // products
    size, wide = element_bytes(what.storage), element_bytes(what.accumulator)
    of_a, of_b, *_ = what.shapes()

    def load(name: str, to: str, rows: int, cut: int, shape: tuple[int, ...]) -> CopyInfo:
        return CopyInfo(
            op=to,
            src=name,
            dst=to,
            dst_scope="shared",
            dtype=what.storage,
            shape=(rows, k),
            src_dims=(0, 1),
            src_strides=row_major(shape),
            aligned=power_of_two(math.gcd(what.k, k)),
            masked=bool(shape[0] % cut or what.k % k),
            bound=False,
            src_bytes=math.prod(shape) * size,
        )

    behind = ["", *(f"_{number}" for number in range(1, products))]
    a = load("A", "A_shared", m, m, of_a)
    b = [load("B", f"B_shared{mark}", n, tile.n, of_b) for mark in behind]
    scales = m + (1 if n <= k else m * n)

    def product(mark: str, b: CopyInfo) -> tuple[StatementInfo | MatmulInfo, ...]:
        part = MatmulInfo(
            op=f"part{mark}",
            acc="part",
            a=a.dst,
            b=b.dst,
            m=m,
            n=n,
            k=k,
            a_dtype=what.storage,
            b_dtype=what.storage,
            acc_dtype=what.accumulator,
            a_k_major=True,
            b_k_major=True,
            k_last=what.k - (what.blocks - 1) * k,
        )
        acc = StatementInfo(
            op=f"acc{mark}",
            kind="compute",
            flops=3 * m * n,
            global_bytes=scales * wide,
            bound=False,
            loads=True,
        )
        init = StatementInfo(op=f"part_init{mark}", kind="compute", bound=False, loads=False)
        return init, part, acc

    ops = (a, *b, *(op for mark, one in zip(behind, b) for op in product(mark, one)))
    tiles = -(-what.m // m) * -(-what.n // tile.n)
    return KernelInfo(
        name=what.name,
        grid=(tiles,),
        threads=0,
        loops=(
            LoopInfo(
                name="s",
                trip=what.blocks,
                trip_text=str(what.blocks),
                ops=ops,
                rings=(
                    (a.dst, "shared", m * k * size),
                    *((one.dst, "shared", n * k * size) for one in b),
                    ("part", "local", m * n * wide),
                ),
            ),
        ),
        accumulators=tuple((f"acc{mark}", "local", m * n * wide) for mark in behind),
    )


def grouped_info(what: GroupedGemm, tile: RowTile) -> KernelInfo:
    """``loop_info`` of a grouped GEMM."""
    cut = ProductCut.of(what, tile)
    of_a, of_b, _, of_c = what.shapes()
    steps, strides = cut.steps, row_major(of_b)
    a, b = operands_of(what, cut)
    a = replace(a, masked=True, view="window", src_bytes=_bytes_of(what, of_a))
    b = replace(b, src_dims=(None, 0, 1), src_strides=strides, src_bytes=_bytes_of(what, of_b))
    product = replace(multiplied(what, cut, "acc"), by_rows=False)
    size, terms = element_bytes(OFFSETS), what.experts if what.experts > 1 else 0
    starts = ElementwiseInfo(
        op="Starts",
        ctas=what.experts,
        elements=1,
        vector=1,
        global_bytes=size * (terms + 1),
        note="",
    )
    in_place = Reason("share.in_place", buffer=starts.op)
    one_thread = Reason("share.block", block=starts.op, why=in_place)
    mask = Reason("store.mask", buffer="C", condition="the end of a group")
    return KernelInfo(
        name=what.name,
        grid=(cut.ctas,),
        threads=0,
        loops=(
            LoopInfo(
                name="s",
                outer=cut.walked,
                trip=steps,
                trip_text=str(steps),
                ops=(a, b, product),
                rings=tuple((one.dst, "shared", slot_bytes(one)) for one in (a, b)),
            ),
        ),
        declined=((WALK, Reason("loop.inner")),) if cut.walked > 1 else (),
        accumulators=(("acc", "local", tile.m * tile.n * element_bytes(what.accumulator)),),
        stores=(StoreInfo("C", "acc", "C", what.out, row_major(of_c), no_tma=mask),),
        elementwise=(starts,),
        alone=Reason("share.nothing", why=one_thread),
        kernels=3,
    )


def _bytes_of(what: GroupedGemm, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * element_bytes(what.storage)
