"""L1, which is what shared memory leaves of one array, and what is copied by way of it.

Rows that begin inside a sector are copied by way of L1 (``copies``), each in two lines that stay
taken while they are on their way. With little L1 left the load and store units wait for lines:

    cycles = LINED * lines * max(0, 1 - L1 / ENOUGH)        of an iteration of a CTA
"""

from __future__ import annotations

from typing import Final

from ..kernel import CopyInfo
from ..machine import Machine
from ..plan import CopyPlan
from .copies import of_pixels
from .sizes import element_bytes
from .tma import LINE, lines_of_row

LINED: Final = 0.55
"""Cycles that a line takes more where no L1 is left. Measured on an H100, wgmma with products of
4000 x 4104 x 4040, ncu saying which part is shared memory's: 128 x 128 x 64 takes 306, 323 and 349
us with 124, 92 and 60 KB of L1 and one CTA an SM, 310 and 345 us with 124 and 60 KB and two; 256 x
128 x 64 269 and 284 us with 92 and 60 KB. Three other products show the same (45 kernels)."""

ENOUGH: Final = 128 * 1024
"""Bytes of L1 from which on nothing waits for lines."""

_TOGETHER: Final = {80: 192, 86: 128, 87: 192, 89: 128, 90: 256}
"""KB of L1 and shared memory together, by compute capability (CUDA C++ Programming Guide, 20, the
sections on shared memory). Earlier ones have no cp.async."""

_PARTS: Final = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)
"""KB that can be shared memory's, as far as there are so many."""


def lines(copy: CopyInfo, plan: CopyPlan) -> float:
    """Lines of L1 that a tile takes on its way; 0 where it goes past L1.

    Pixels that neighbours look at lie in the same lines: they count as none.
    """
    if plan.mechanism != "cp_async" or plan.cache != "L1" or of_pixels(copy):
        return 0.0
    rows = copy.elements * element_bytes(copy.dtype) / _line(copy)
    return rows * lines_of_row(copy)


def waiting(machine: Machine, lines: float, shared: int) -> float:
    """Cycles that copies of so many ``lines`` wait for L1 in an iteration.

    ``shared``: bytes of shared memory that all CTAs of an SM take together.
    """
    together = _TOGETHER.get(machine.capability)
    if not lines or together is None:
        return 0.0
    part = next((size for size in _PARTS if size * 1024 >= shared), together)
    return LINED * lines * max(0.0, 1 - (together - part) * 1024 / ENOUGH)


def _line(copy: CopyInfo) -> int:
    """Bytes of a row, at most a line of it."""
    return min(LINE, copy.shape[-1] * element_bytes(copy.dtype))
