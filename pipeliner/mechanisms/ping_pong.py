"""Ping-pong: what consumer groups with tiles of their own need, and when they come by default.

``passes/specialise/ping_pong.py`` emits the tokens that order the groups.

Of two groups one runs its main loop while the other stores its tile. A group holds all accumulators
of its tile, so that tiles are smaller than cooperative ones, and more is copied.
"""

from __future__ import annotations

from typing import Final

from ..diagnostics import Reason
from ..instructions.accumulators import words_beside
from ..instructions.dtypes import element_bytes
from ..instructions.table import multiplied_by
from ..instructions.warpgroup_registers import group_accumulators
from ..instructions.wgmma_shapes import WARPGROUP
from ..machine.constant import constant, measured
from ..plan import CopyPlan, MatmulPlan
from ..values.elements import element
from ..values.facts import KernelInfo, MatmulInfo
from .rates import is_implicit_gemm
from .table import have_producer

PING_PONG_ACCUMULATORS: Final = constant(
    "PING_PONG_ACCUMULATORS",
    160,
    "registers",
    "accumulators of a thread of a group from which on ping-pong is compared by default",
    formula="compared where accumulators >= PING_PONG_ACCUMULATORS",
    source=measured(
        "H100, 4096 and 8192 cubed, against cooperative warpgroups with the same tile",
        "128x192 1.5 % less, 128x128 as much or 2 % more",
    ),
    date="2026-11-22",
)

PING_PONG_FP8_COLUMNS: Final = constant(
    "PING_PONG_FP8_COLUMNS",
    192,
    "columns",
    "columns of a wgmma of fp8 from which on ping-pong is compared by default: shared memory "
    "hardly delivers narrower ones",
    formula="compared where columns >= PING_PONG_FP8_COLUMNS",
    source=measured(
        "H100, ping-pong 128x192x128 against cooperative 128x256x128",
        "2.3 to 2.9 % less at 8192 cubed, 5 at 8192x8192x2048, 16384x8192x1024 and "
        "8192x14336x4096, 2 at 6144 cubed; 192x128x128 6 % more",
    ),
    date="2026-11-22",
)
PING_PONG_FP8_STEP: Final = constant(
    "PING_PONG_FP8_STEP",
    128,
    "elements",
    "K of a step of fp8 from which on ping-pong is compared by default",
    formula="compared where k >= PING_PONG_FP8_STEP",
    source=measured("H100, 8192 cubed, 128x192x64 against 128x256x128", "5 % more"),
    date="2026-11-22",
)

_PIXELS: Final = ("im2col", "window", "flattened")
"""How TMA sees an implicit GEMM's operand A."""


def ping_pong_obstacle(
    info: KernelInfo, matmuls: tuple[MatmulPlan, ...], copies: tuple[CopyPlan, ...]
) -> Reason | None:
    """Why consumers cannot ping-pong; None where they can."""
    if not have_producer(copies):
        return Reason("ping_pong.no_producer")
    by_warp = [plan for plan in matmuls if not multiplied_by(plan).warpgroup_wide]
    if by_warp:
        return Reason("ping_pong.by_warp", warps=by_warp[0].warps[0] * by_warp[0].warps[1])
    if any(loop.outer == 1 for loop in info.loops):
        return Reason("ping_pong.one_tile")
    if len(info.loops) > 1 or not all(loop.by_tile for loop in info.loops):
        return Reason("ping_pong.loops", loops=tuple(loop.name for loop in info.loops))
    by_tile = next((copy for copy in info.before if copy.around), None)
    if by_tile is not None:
        return Reason("ping_pong.by_tile", buffer=by_tile.dst, loop=by_tile.around)
    return None


def why_cooperative(
    info: KernelInfo, matmuls: tuple[MatmulPlan, ...], copies: tuple[CopyPlan, ...]
) -> Reason | None:
    """Why ping-pong is not compared by default; None where it is.

    Seven implicit GEMMs on an H100 took 1 to 12 % longer with it, but for one (0.5 % less): both
    groups wait for the next tile's loads. What it gains is measured for operands of 16 bits and
    fp8. However few steps a tile has, the prediction decides: of drawn products with fewer than
    eight, what it takes first with ping-pong and without takes 78 and 88 us of 3800x11992x424 on an
    H200, 14.8 and 16.6 of 5806x968x344, 12.8 and 14.1 of 1372x3770x168.
    """
    obstacle = ping_pong_obstacle(info, matmuls, copies)
    if obstacle is not None:
        return obstacle
    if any(is_implicit_gemm(loop, copies) for loop in info.loops):
        views = {copy.view for copy in copies}
        return Reason("ping_pong.pixels", view=next(view for view in _PIXELS if view in views))
    why = _why_by_type(info, matmuls)
    if why is not None:
        return why
    most = max(
        group_accumulators(plan) + words_beside(plan.op, info) // WARPGROUP for plan in matmuls
    )
    if most < PING_PONG_ACCUMULATORS:
        return Reason("ping_pong.accumulators", registers=most, least=PING_PONG_ACCUMULATORS)
    return None


def promotion_stalls(matmuls: tuple[MatmulPlan, ...]) -> Reason | None:
    """Why ping-pong leaves tensor cores idle in each step, or None."""
    return Reason("ping_pong.promoted") if any(plan.promoted for plan in matmuls) else None


def _why_by_type(info: KernelInfo, matmuls: tuple[MatmulPlan, ...]) -> Reason | None:
    """What about the types of the operands speaks against a comparison, or None."""
    ops = [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]
    others = {kind for op in ops for kind in (op.a_dtype, op.b_dtype) if element_bytes(kind) != 2}
    if not others:
        return None
    if not all(element(kind).low_precision_sums for kind in others):
        return Reason("ping_pong.dtypes")
    if alone := promotion_stalls(matmuls):
        return alone
    columns = min(plan.warp_tile[0 if plan.swap_ab else 1] for plan in matmuls)
    if columns < PING_PONG_FP8_COLUMNS:
        return Reason("ping_pong.fp8_columns", columns=columns, least=PING_PONG_FP8_COLUMNS)
    step = min(op.k for op in ops)
    if step < PING_PONG_FP8_STEP:
        return Reason("ping_pong.fp8_step", k=step, least=PING_PONG_FP8_STEP)
    return None
