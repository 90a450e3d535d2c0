"""Which matmul's sums a store is of, and what a warpgroup has of them."""

from __future__ import annotations

from typing import Final

from ...machine.constant import constant, documented
from ...plan import MatmulPlan
from ...values.facts import KernelInfo, MatmulInfo, StoreInfo

WARPGROUP_WARPS: Final = constant(
    "WARPGROUP_WARPS",
    4,
    "warps",
    "warps of a warpgroup",
    formula="groups = warps / WARPGROUP_WARPS",
    source=documented("PTX ISA, warpgroup"),
    date="2026-11-21",
)


def stored(
    store: StoreInfo, info: KernelInfo, matmuls: tuple[MatmulPlan, ...]
) -> list[tuple[MatmulInfo, MatmulPlan]]:
    """The matmuls whose sums are stored, with their plans, in the order of the plans."""
    by_op = {op.op: op for op in _matmuls(info) if op.acc == store.acc}
    return [(by_op[plan.op], plan) for plan in matmuls if plan.op in by_op]


def _matmuls(info: KernelInfo) -> list[MatmulInfo]:
    return [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]


def extent(matmul: MatmulPlan) -> tuple[int, int]:
    """Rows and columns of a warpgroup's part of the tile."""
    rows, columns = matmul.warp_tile
    return (
        (rows, columns * WARPGROUP_WARPS) if matmul.swap_ab else (rows * WARPGROUP_WARPS, columns)
    )
