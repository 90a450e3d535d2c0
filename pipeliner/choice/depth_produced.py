"""The depth of rings that a producer warp fills: as deep as fits and helps, not the least."""

from __future__ import annotations

import math
from typing import Final

from ..cost.memory import LOADED_LATENCY_US, enough_in_flight
from ..diagnostics import Reason
from ..machine.constant import constant, derived, measured
from ..values.facts import CopyInfo, LoopInfo
from .depth import TOLERANCE, DepthAxis, DepthChoice, depth_reasons, no_fit

TMA_DEPTH: Final = constant(
    "TMA_DEPTH",
    5,
    "slots",
    "the most of a ring filled by a producer warp by default, which is 2000 cycles ahead by then; "
    "a grid of one wave gets more",
    formula="depth <= max(TMA_DEPTH, LOADED_LATENCY_US * bandwidth / bytes that CTAs read a step)",
    source=measured(
        "H100, 128x128 tiles: six slots took 1 to 6 % longer than five at 4096 cubed and larger, 1 "
        "to 2 % less below",
        "one wave, bf16, five slots and as many as fit: 1024 cubed 10.2 and 9.2 us, 512x3072x768 "
        "11.7 and 10.1, 512x768x3072 13.1 and 11.7, 1024x1000x2048 13.6 and 12.0; 3x3 of "
        "32x7x7x512 21.6 and 19.5",
    ),
    date="2026-11-21",
)

LEAST_TMA_DEPTH: Final = constant(
    "LEAST_TMA_DEPTH",
    3,
    "slots",
    "the least of a ring filled by a producer warp, whatever is in flight",
    formula="depth >= min(LEAST_TMA_DEPTH, what fits)",
    source=derived("one slot is read, one has landed, one is being filled"),
    date="2026-11-22",
)


def choose_produced_depth(loop: LoopInfo, axis: DepthAxis) -> DepthChoice | Reason:
    """The depth of rings that a producer warp fills by TMA; a reason where not even 1 fits.

    Its CTA has an SM for itself, so slots that fit cost nothing, and they run ahead of a loaded
    memory system: at 8192 cubed on an H100, 4 slots of 48 KB are 2 % faster than 3.
    """
    fitting = axis.fitting
    if not fitting:
        return no_fit(axis)
    read = _read_in_step(loop, axis)
    wanted = LOADED_LATENCY_US * 1e-6 * axis.machine.dram_bytes_per_second
    together = math.ceil(wanted / read) if read else 0
    in_flight = enough_in_flight(axis.machine, scattered=axis.work.traffic.scattered)
    enough = max(LEAST_TMA_DEPTH, int(in_flight / read)) if read else len(fitting)
    most = min(max(TMA_DEPTH, together), axis.most, enough)
    best = fitting[:most][-1]
    why = Reason("depth.deepest", depth=best.depth, most=most)
    if best.depth > TMA_DEPTH:
        why = Reason("depth.deepest_in_step", depth=best.depth, most=most)
    for deeper in fitting[most:enough]:  # memory, not the loop, asks for more in flight
        if deeper.us < best.us * (1 - TOLERANCE):
            best, why = deeper, Reason("depth.memory", depth=deeper.depth)
    reasons = (*depth_reasons(best, axis, max(most, best.depth)), why)
    if best.depth == enough < fitting[-1].depth:
        mb = {"enough_mb": in_flight / 1e6, "step_mb": read / 1e6}
        reasons = (*reasons, Reason("depth.enough", **mb))
    return DepthChoice(best.depth, best, reasons)


def _read_in_step(loop: LoopInfo, axis: DepthAxis) -> float:
    """Bytes that all CTAs together read from memory in a step; 0 where CTAs are not in step.

    CTAs of one wave walk along K together: memory has each byte of a step in flight once, however
    many CTAs wait for it.
    """
    grid = axis.work.grid
    once = loop.outer == 1 and grid.ctas is not None and grid.ctas <= axis.machine.sms
    read = sum({op.src: op.src_bytes for op in loop.ops if isinstance(op, CopyInfo)}.values())
    return read / grid.trip if once and grid.trip else 0.0
