"""Which rows, pixels and channels of a grouped convolution a CTA has: the least predicted time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ...diagnostics import Reason
from ...instructions.dtypes import element_bytes
from ...machine import VECTOR_BYTES, Machine
from ..tiles import GemmTile, GroupTile
from ..workloads import Conv
from .cut import BLOCK, WARP, GroupCut, fits, has_group_rows

PIXELS: Final = (16, 32, 64)
"""Of a tile to compare; more, and the sums take the registers."""

CHANNELS: Final = (32, 48, 64, 96, 128)
"""Of a CTA to compare: 32 to 128 bytes of 16-bit channels lie beside each other in memory."""

PARTS: Final = (1, 2, 3, 4, 6, 8)
"""Into which the rows of an image are cut to compare."""

OTHER_REGISTERS: Final = 40
"""Of a thread, beside weights and sums: addresses, and the operands of an instruction."""

STEP: Final = 60
"""Instructions of a step, whatever it multiplies: addresses, waits, the loop."""

ALONE: Final = 0.5
"""Of the smaller of what memory and what instructions take: the part that no other warp hides."""

FEW_WARPS: Final = 4
"""Over the warps of an SM: the part that is not hidden because they are few.

Measured on an H200, fp16: 3 x 3 over 56 x 56 of 128 channels, 4 a group, took 36.9 us with 16 warps
on an SM and 41.4 us with 8. Over 28 x 28 of 512 channels it took 36.1 us with 16 a group, 55.3 us
with 32 and 119 us with 64: predicted 34, 50 and 83 us.
"""

SAME_TIME: Final = 0.05
"""Relative difference in time below which the tile of more channels is taken.

They lie beside each other in memory: 16 a group took 36.1 us with 128 and 42.8 us with 64 of them.
"""

WEIGHT_CYCLES: Final = 50
"""For each KB of weights that threads of an SM load into registers before their first step.

Measured on an H200, fp16: 138 kernels of six layers, 3 x 3 with 32 channels a group, took 2.6 to 19
us more than their steps and bytes. With it, and ``GROUP_LATENCIES``, they are predicted 10 % wrong
in the mean and the first choice is 4.8 % behind the best; without 40 % and 12 %.
"""

GROUP_LATENCIES: Final = 4
"""Of memory that a CTA waits for beside: of its weights, of its first rows, and of its results."""

STEPS_AHEAD: Final = 3
"""Of which a CTA copies rows while it multiplies those of one."""


def group_tiles(conv: Conv) -> Iterator[GroupTile]:
    """The tiles of a grouped convolution that are compared."""
    if not has_group_rows(conv):
        return
    rows = dict.fromkeys(-(-conv.out_size[0] // parts) for parts in PARTS)
    for each, pixels, channels in itertools.product(rows, PIXELS, CHANNELS):
        tile = GroupTile(each, pixels, channels)
        if fits(conv, tile) and pixels < conv.out_size[1] + BLOCK:
            yield tile


def group_tile(conv: Conv, machine: Machine) -> tuple[float, GroupTile] | None:
    """The tile with the least predicted time, in us, and that; None: there is none."""
    rate = machine.mma(conv.dtype)
    if rate is None or rate.shape != (BLOCK, BLOCK // 2, BLOCK):
        return None
    found = [(group_us(conv, tile, machine), tile) for tile in group_tiles(conv)]
    if not found:
        return None
    most = min(us for us, _ in found) * (1 + SAME_TIME)
    return max((one for one in found if one[0] <= most), key=lambda one: (one[1].channels, -one[0]))


def faster_groups(
    conv: Conv, machine: Machine, whole: GemmTile, whole_us: float
) -> GroupTile | None:
    """The tile of rows with the least predicted time, where that is less than ``whole`` takes."""
    found = group_tile(conv, machine)
    if found is None or found[0] >= whole_us:
        return None
    us, tile = found
    why = Reason(
        "groups.faster",
        channels=tile.channels,
        us=us,
        whole_us=whole_us,
        whole=f"{whole.m}x{whole.n}x{whole.k}",
    )
    return replace(tile, why=why)


def group_us(conv: Conv, tile: GroupTile, machine: Machine) -> float:
    """How long the kernel takes: its memory, or the steps of the CTAs of an SM.

    A step takes what tensor cores, shared memory or instructions do, or where few CTAs are at once
    its own latency. Weights are loaded before the first one. Memory is waited for where the rows
    that CTAs copy ahead are fewer than arrive in one latency.
    """
    rate = machine.mma(conv.dtype)
    assert rate is not None
    cut = GroupCut.of(conv, tile)
    high, wide = conv.kernel
    nbytes = element_bytes(conv.storage)
    tiles, warps = tile.pixels // BLOCK, cut.threads // WARP
    row = cut.fresh * cut.run * tile.channels * nbytes
    sums = tiles * wide * (cut.reads // BLOCK)
    products = sums * high * 2
    operands = sums * cut.fresh
    copied = math.ceil(row / VECTOR_BYTES / cut.threads)
    instructions = products + operands * 4 + (cut.live + 2) * tiles * 8 + copied * 12 + STEP
    step = max(
        warps * products * 2 * math.prod(rate.shape) / rate.ops_per_cycle,
        (warps * operands * BLOCK * BLOCK * nbytes + row) / machine.smem_bytes_per_cycle,
        warps * instructions / machine.issue_per_cycle,
    )
    rounds = math.ceil(cut.ctas / machine.sms)
    registers = (cut.words + OTHER_REGISTERS) * cut.threads
    resident = max(1, min(rounds, machine.registers_per_sm // registers))
    loaded = resident * cut.words * cut.threads * element_bytes("float32") / 1024 * WEIGHT_CYCLES
    latency = (
        sums // tiles * cut.fresh * rate.latency
        + machine.shared_latency
        + 2 * machine.barrier_cycles
    )
    moved = sum(math.prod(shape) for shape in conv.shapes()) * nbytes
    arriving = machine.dram_bytes_per_cycle * machine.global_latency
    waited = max(1.0, arriving / (resident * STEPS_AHEAD * row))
    memory = moved / machine.dram_bytes_per_cycle / machine.sms * waited
    steps = rounds * cut.steps * max(step, latency / resident)
    alone = min(1.0, ALONE + FEW_WARPS / (warps * resident))
    busy = max(memory, steps) + alone * min(memory, steps)
    once = loaded + GROUP_LATENCIES * machine.global_latency
    return machine.cycles_to_us(busy + once) + machine.start_us
