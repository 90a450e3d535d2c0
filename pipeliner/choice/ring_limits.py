"""Constants of the depth of rings that TMA fills, and of clamped epilogues."""

from __future__ import annotations

from typing import Final

from ..machine.constant import constant, derived, measured

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

ENOUGH_IN_FLIGHT_BYTES: Final = constant(
    "ENOUGH_IN_FLIGHT_BYTES",
    7.5e6,
    "bytes",
    "bytes in flight from memory, each counted once, beyond which a deeper ring is not compared",
    formula="depth <= ENOUGH_IN_FLIGHT_BYTES / bytes that all CTAs read a step",
    source=measured(
        "H100: 256x256x65536 with split-K 16 35.6, 35.1 and 40.6 us with 5, 7 and 9 MB; "
        "128x8192x8192 58.3, 56.4 and 57.8 with 5, 7 and 8"
    ),
    date="2026-11-22",
)

CLAMP_TRIPS: Final = constant(
    "CLAMP_TRIPS",
    8,
    "1",
    "iterations for each overrunning load from which on those are clamped to the last tile; a "
    "shorter loop guards them",
    formula="clamped where trip >= CLAMP_TRIPS * (depth - 1)",
    source=measured(
        "H100, 33 products by cp.async with 2 to 4 slots of that length",
        "a guard costs 2 % as a mean, 13 % at most, and saves 3 % at most",
    ),
    date="2026-11-21",
)

IM2COL_CLAMP_TRIPS: Final = constant(
    "IM2COL_CLAMP_TRIPS",
    12,
    "1",
    "CLAMP_TRIPS for implicit GEMM by wgmma; by mma.sync overrunning loads are always guarded",
    formula="clamped where trip >= IM2COL_CLAMP_TRIPS * (depth - 1)",
    source=measured(
        "H100, 3x3 filters: with 64 of them overrunning loads cost 3 to 19 % of loops of nine "
        "steps, 4 % at most of 18; a guard costs 1 to 7 % of 36 and more",
        "mma.sync guarded: 1 to 11 % less with 3 and 4 slots, 2 and 8 % more where channels are no "
        "power of two; fp32: a guard costs 3 % as a mean of 108 kernels, 21 % at most, saves 6 %",
    ),
    date="2026-11-22",
)
