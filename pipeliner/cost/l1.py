"""Cycles that copies wait for lines of L1, which is what shared memory leaves of one array.

    wait = LINE_WAIT_CYCLES * lines * max(0, 1 - L1 / L1_ENOUGH_BYTES)      of an iteration

Rows that begin inside a sector are copied through L1 (``copies``), each in two lines that stay
taken while they are in flight. With little L1 left the load and store units wait for lines.
"""

from __future__ import annotations

from typing import Final

from ..instructions.dtypes import LINE_BYTES, element_bytes
from ..machine import Machine
from ..machine.constant import constant, documented, measured
from ..mechanisms.copies import of_pixels
from ..mechanisms.table import moved_by
from ..mechanisms.tma import lines_of_row
from ..plan import CopyPlan
from ..values.facts import CopyInfo

LINE_WAIT_CYCLES: Final = constant(
    "LINE_WAIT_CYCLES",
    0.55,
    "cycles",
    "wait for a line where no L1 is left",
    formula="wait = LINE_WAIT_CYCLES * lines * max(0, 1 - L1 / L1_ENOUGH_BYTES)",
    source=measured(
        "H100, wgmma, 4000x4104x4040, shared memory's part from ncu: 128x128x64 306, 323 and 349 "
        "us with 124, 92 and 60 KB of L1 and one CTA an SM, 310 and 345 with 124 and 60 KB and "
        "two; 256x128x64 269 and 284 with 92 and 60 KB",
        "three other products show the same (45 kernels)",
    ),
    date="2026-11-22",
)

L1_ENOUGH_BYTES: Final = constant(
    "L1_ENOUGH_BYTES",
    128 * 1024,
    "bytes",
    "L1 from which on nothing waits for lines",
    formula="wait = LINE_WAIT_CYCLES * lines * max(0, 1 - L1 / L1_ENOUGH_BYTES)",
    source=measured("H100, as LINE_WAIT_CYCLES"),
    date="2026-11-22",
)

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
    if not moved_by(plan).names_cache or plan.cache != "L1" or of_pixels(copy):
        return 0.0
    row = min(LINE_BYTES, copy.shape[-1] * element_bytes(copy.dtype))
    rows = copy.elements * element_bytes(copy.dtype) / row
    return rows * lines_of_row(copy)


def l1_wait_cycles(machine: Machine, lines: float, shared: int) -> float:
    """Cycles that copies of ``lines`` lines wait for L1 in an iteration.

    ``shared``: bytes of shared memory that all CTAs of an SM take together.
    """
    array = L1_ARRAY_KB.get(machine.capability)
    if not lines or array is None:
        return 0.0
    part = next((size for size in SHARED_PARTS_KB if size * 1024 >= shared), array)
    return LINE_WAIT_CYCLES * lines * max(0.0, 1 - (array - part) * 1024 / L1_ENOUGH_BYTES)
