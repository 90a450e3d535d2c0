"""What recognition will find in a loop of several operations as scheduled, in closed form."""

from __future__ import annotations

import math

from ...errors import WorkloadError
from ...instructions.dtypes import element_bytes
from ...values.facts import (
    CopyInfo,
    KernelInfo,
    LoopInfo,
    MatmulInfo,
    StatementInfo,
)
from ..tiles import AttentionTile, RowTile, Tile, power_of_two, row_major
from ..workloads import SCALE_BLOCK, Attention, LoopWorkload, ScaledGemm
from .attention_info import attention_info
from .scaled import products_of


def loop_info(what: LoopWorkload, tile: Tile) -> KernelInfo:
    """What recognition will find in ``what`` as scheduled with ``tile``.

    WorkloadError: the tile is another kind's.
    """
    if isinstance(what, Attention) and isinstance(tile, AttentionTile):
        return attention_info(what, tile)
    if isinstance(what, ScaledGemm) and isinstance(tile, RowTile):
        return scaled_info(what, tile)
    raise WorkloadError("tile.kind", workload=what.name, kind=type(tile).__name__)


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
