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
    m, n, k = tile.m, tile.n, SCALE_BLOCK
    size, wide = element_bytes(what.storage), element_bytes(what.accumulator)
    of_a, of_b, *_ = what.shapes()
    a, b = (
        CopyInfo(
            op=f"{name}_shared",
            src=name,
            dst=f"{name}_shared",
            dst_scope="shared",
            dtype=what.storage,
            shape=(rows, k),
            src_dims=(0, 1),
            src_strides=row_major(shape),
            aligned=power_of_two(math.gcd(what.k, k)),
            masked=bool(shape[0] % rows or what.k % k),
            bound=False,
            src_bytes=math.prod(shape) * size,
        )
        for name, rows, shape in (("A", m, of_a), ("B", n, of_b))
    )
    part = MatmulInfo(
        op="part",
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
    scales = m + (1 if n <= k else m * n)
    ops = (
        a,
        b,
        StatementInfo(op="part_init", kind="compute", bound=False, loads=False),
        part,
        StatementInfo(
            op="acc",
            kind="compute",
            flops=3 * m * n,
            global_bytes=scales * wide,
            bound=False,
            loads=True,
        ),
    )
    tiles = -(-what.m // m) * -(-what.n // n)
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
                    (b.dst, "shared", n * k * size),
                    ("part", "local", m * n * wide),
                ),
            ),
        ),
        accumulators=(("acc", "local", m * n * wide),),
    )
