"""Consumers that take whole tiles by turns (ping-pong): what that needs, and when it comes unasked.

Of two teams one runs its main loop while the other stores its tile. A team holds all accumulators
of its tile, so that tiles are smaller than where both share them, and more is copied.
"""

from __future__ import annotations

from typing import Final

from ..kernel import KernelInfo, MatmulInfo
from ..plan import CopyPlan, MatmulPlan
from .rates import gathers
from .sizes import element_bytes
from .wgmma import CUT, team_accumulators

LEAST_ACCUMULATORS: Final = 160
"""Of a thread of a team, from which on turns are compared unasked. Measured on an H100 at 4096 and
8192 cubed: teams with a tile of 128 x 192 took 1.5 % less than warpgroups that share it, with
128 x 128 as much or 2 % more."""

LEAST_FP8_COLUMNS: Final = 192
LEAST_FP8_STEP: Final = 128
"""Columns of an instruction and K of a step, as that, for operands of fp8, which shared memory
hardly delivers. Measured on an H100, turns with a tile of 128 x 192 x 128 beside 128 x 256 x 128
that is shared: 2.3 to 2.9 % less at 8192 cubed, 5 at 8192 x 8192 x 2048, 16384 x 8192 x 1024 and
8192 x 14336 x 4096, 2 at 6144 cubed. At 8192 cubed 192 x 128 x 128 took 6 % more, 128 x 192 x 64
5 %."""

LEAST_STEPS: Final = 8
"""Of a tile, as that. At 8192 x 8192 x 256, of four steps, turns took 3 % longer than the best tile
that is shared, which waits for memory to be written; at 8192 x 8192 x 1024, of 16, 5 % less."""

_PIXELS: Final = {
    "im2col": "which are gathered",
    "patch": "which come as boxes",
    "rows": "which come as rows of a matrix",
}
"""What is said of a convolution's pixels, by what they are to the tensor memory accelerator."""


def turns_obstacle(info: KernelInfo, *, by_role: bool) -> str:
    """Why consumers cannot take whole tiles by turns; empty when they can."""
    if not by_role:
        return "no role of its own copies for them, as by tma"
    if any(loop.outer == 1 for loop in info.loops):
        return "a CTA has one tile, only a persistent grid walks several"
    if len(info.loops) > 1 or not all(loop.by_tile for loop in info.loops):
        loops = " and ".join(f"'{loop.name}'" for loop in info.loops)
        return f"it is not one loop over tiles, each of which runs {loops} once"
    return ""


def why_shared(
    info: KernelInfo, matmuls: tuple[MatmulPlan, ...], copies: tuple[CopyPlan, ...]
) -> str:
    """Why turns are not even compared unasked; empty when they are.

    Of pixels, seven convolutions on an H100 took 1 to 12 % longer by turns, but for
    one (0.5 % less): the next tile's loads are what both teams wait for. What turns gain is
    measured for operands of 16 bits and fp8.
    """
    obstacle = turns_obstacle(info, by_role=any(copy.mechanism == "tma" for copy in copies))
    if obstacle:
        return obstacle
    if any(gathers(loop, copies) for loop in info.loops):
        views = {copy.view for copy in copies}
        how = next(words for view, words in _PIXELS.items() if view in views)
        return f"both would wait for the next tile's pixels, {how}"
    why = _why_by_type(info, matmuls)
    if why:
        return why
    steps = min(LEAST_STEPS if loop.trip is None else loop.trip for loop in info.loops)
    if steps < LEAST_STEPS:
        return f"a tile has {steps} steps, turns gain from {LEAST_STEPS} on"
    most = max(map(team_accumulators, matmuls))
    if most < LEAST_ACCUMULATORS:
        return f"{most} accumulators a thread of a team, turns gain from {LEAST_ACCUMULATORS} on"
    return ""


def waits_alone(matmuls: tuple[MatmulPlan, ...]) -> str:
    """Why a team that takes turns leaves tensor cores idle in each step, or empty."""
    if not any(plan.promoted for plan in matmuls):
        return ""
    return (
        "each step's sums are promoted, and while one team waits for them and adds them none "
        "multiplies (at 8192 cubed, on an H100, 1.6 times as long as the same tile shared)"
    )


def _why_by_type(info: KernelInfo, matmuls: tuple[MatmulPlan, ...]) -> str:
    """What about the operands' types speaks against a comparison, or empty."""
    ops = [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]
    others = {kind for op in ops for kind in (op.a_dtype, op.b_dtype) if element_bytes(kind) != 2}
    if not others:
        return ""
    if others - set(CUT):
        return "what turns gain is measured for operands of 16 bits and fp8"
    if alone := waits_alone(matmuls):
        return alone
    columns = min(plan.warp_tile[0 if plan.swapped else 1] for plan in matmuls)
    if columns < LEAST_FP8_COLUMNS:
        return f"instructions of {columns} columns, turns of fp8 gain from {LEAST_FP8_COLUMNS} on"
    step = min(op.k for op in ops)
    if step < LEAST_FP8_STEP:
        return f"steps of {step} of K, turns of fp8 gain from {LEAST_FP8_STEP} on"
    return ""
