"""Copies through L1, which is what shared memory leaves of one array, and its lines.

    flight = L1 / LINE_BYTES / lines          iterations in flight, by Little's law for lines

Rows that begin inside a sector are copied through L1 (``copies``), each in two lines that stay
taken while they are in flight, however many slots a ring has.
"""

from __future__ import annotations

import math
from typing import Final

from ..instructions.dtypes import LINE_BYTES, element_bytes
from ..machine import Machine
from ..machine.constant import constant, documented
from ..mechanisms.copies import of_pixels
from ..mechanisms.table import moved_by
from ..mechanisms.tma import lines_of_row
from ..mechanisms.vectors import CHUNK
from ..plan import CopyPlan
from ..values.facts import CopyInfo

L1_ARRAY_KB: Final = constant(
    "L1_ARRAY_KB",
    {80: 192, 86: 128, 87: 192, 89: 128, 90: 256, 100: 256, 120: 128},
    "KB",
    "L1 and shared memory of an SM together, by compute capability; earlier GPUs have no cp.async",
    formula="L1 = L1_ARRAY_KB - shared memory's part",
    source=documented("CUDA C++ Programming Guide, 20, the sections on shared memory"),
    date="2026-11-22",
)

SHARED_PARTS_KB: Final = constant(
    "SHARED_PARTS_KB",
    (0, 8, 16, 32, 64, 100, 132, 164, 196, 228),
    "KB",
    "sizes that shared memory's part of the array can have, as far as there is so much",
    formula="part = the least of SHARED_PARTS_KB that holds the CTAs of an SM",
    source=documented("CUDA C++ Programming Guide, 20, the sections on shared memory"),
    date="2026-11-22",
)


def lines(copy: CopyInfo, plan: CopyPlan) -> float:
    """Lines of L1 that a tile occupies on its way; 0 where it bypasses L1.

    Pixels of neighbouring windows lie in the same lines: they count as none.
    """
    through = plan.cache == "L1" or plan.vector_bytes < CHUNK
    if not moved_by(plan).names_cache or not through or of_pixels(copy):
        return 0.0
    row = min(LINE_BYTES, copy.shape[-1] * element_bytes(copy.dtype))
    rows = copy.elements * element_bytes(copy.dtype) / row
    return rows * lines_of_row(copy)


def in_flight_in_l1(machine: Machine, lines: float, shared: int) -> float:
    """Iterations of all CTAs of an SM, ``lines`` lines each, whose loads L1 has room for at once.

    ``shared``: bytes of shared memory of all CTAs that fit an SM: the driver gives so much to
    shared memory, however few CTAs there are. Infinite where copies bypass L1.

    Measured on an H200: 16x11672x2856 with A transposed, 122 CTAs of 16x96x64, takes 35.9 us with
    five slots, of which three CTAs would leave 28 KB, 29.2 with six (60 KB), 35.5 and 35.8 with
    seven and eight (28 KB), and 26.8 with nine, of which no second CTA fits (124 KB).
    """
    left = _left(machine, shared)
    return math.inf if not lines or left is None else left / (LINE_BYTES * lines)


def _left(machine: Machine, shared: int) -> int | None:
    """Bytes that are L1 where CTAs take ``shared`` of the array; None: the GPU is not known."""
    array = L1_ARRAY_KB.get(machine.capability)
    if array is None:
        return None
    part = next((size for size in SHARED_PARTS_KB if size * 1024 >= shared), array)
    return (array - part) * 1024
