"""Consumers that take whole tiles by turns (ping-pong): what that needs, and when it comes unasked.

Of two teams one runs its main loop while the other stores its tile. A team holds all accumulators
of its tile, so that tiles are smaller than where both share them, and more is copied.
"""

from __future__ import annotations

from typing import Final

from ..kernel import KernelInfo
from ..plan import CopyPlan, MatmulPlan
from .usage import gathers
from .wgmma import team_accumulators

LEAST_ACCUMULATORS: Final = 160
"""Of a thread of a team, from which on turns are compared unasked. Measured on an H100 at 4096 and
8192 cubed: teams with a tile of 128 x 192 took 1.5 % less than warpgroups that share it, with
128 x 128 as much or 2 % more."""

LEAST_STEPS: Final = 8
"""Of a tile, as that. At 8192 x 8192 x 256, of four steps, turns took 3 % longer than the best tile
that is shared, which waits for memory to be written; at 8192 x 8192 x 1024, of 16, 5 % less."""


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

    Where pixels are gathered, seven convolutions on an H100 took 0.3 to 6.5 % longer by turns: the
    next tile's loads are what both teams wait for.
    """
    obstacle = turns_obstacle(info, by_role=any(copy.mechanism == "tma" for copy in copies))
    if obstacle:
        return obstacle
    if any(gathers(loop, copies) for loop in info.loops):
        return "both would wait for the pixels that are gathered"
    steps = min(LEAST_STEPS if loop.trip is None else loop.trip for loop in info.loops)
    if steps < LEAST_STEPS:
        return f"a tile has {steps} steps, turns gain from {LEAST_STEPS} on"
    most = max(map(team_accumulators, matmuls))
    if most < LEAST_ACCUMULATORS:
        return f"{most} accumulators a thread of a team, turns gain from {LEAST_ACCUMULATORS} on"
    return ""
