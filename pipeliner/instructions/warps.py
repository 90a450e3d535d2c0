"""A mapped matmul, and the warps of a CTA that may share its tile."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..diagnostics import Reason
from ..machine import WARP
from ..machine.constant import constant, documented
from ..plan import MatmulPlan
from ..values.facts import MatmulInfo

MAX_WARPS: Final = constant(
    "MAX_WARPS",
    32,
    "warps",
    "the most of a CTA on every GPU described: 1024 threads",
    formula="warps_m * warps_n <= MAX_WARPS",
    source=documented("CUDA C++ Programming Guide, technical specifications"),
    date="2026-11-21",
)


PARTITIONS: Final = constant(
    "PARTITIONS",
    4,
    "1",
    "partitions of an SM, each with registers, a scheduler and tensor cores of its own: a warp "
    "has those of one",
    formula="ctas = registers_per_sm / PARTITIONS / warp_registers * PARTITIONS / warps",
    source=documented("cuda_occupancy.h of the CUDA toolkit 13.0: 6.1 and later, not 6.0"),
    date="2026-11-22",
)


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapped matmul: its plan, threads of a CTA, and estimated registers of a thread."""

    plan: MatmulPlan
    threads: int
    registers: int


def warp_layouts(
    info: MatmulInfo, warps: tuple[int, int] | None, threads: int | None
) -> Iterator[tuple[int, int]]:
    """Warps along M and N to consider; those that are asked for are the only ones.

    Powers of two, and three times those along M where something is computed of rows: of 192 rows
    a power of two of warps that have whole ones would have 24 each, no multiple of 16.
    """
    if warps is not None:
        yield warps
        return
    down = powers(MAX_WARPS)
    if info.by_rows:
        down += [3 * count for count in powers(MAX_WARPS // 3)]
    for rows, columns in itertools.product(down, powers(MAX_WARPS)):
        count = rows * columns
        if count <= MAX_WARPS and (threads is None or count * WARP == threads):
            yield rows, columns


def powers(at_most: int) -> list[int]:
    """Powers of two up to ``at_most``."""
    return [1 << e for e in range(at_most.bit_length()) if 1 << e <= at_most]


def with_asked(why: Reason, *asked: Reason) -> Reason:
    """``why`` a tile does not split, with what was asked for of its parts."""
    return Reason("mapping.with_asked", why=why, asked=asked) if asked else why


def asked_warps(warps: tuple[int, int] | None) -> tuple[Reason, ...]:
    """The warps that are asked for, for ``with_asked``."""
    return (Reason("mapping.asked_warps", warps=warps),) if warps else ()
