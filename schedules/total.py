"""The kernel that adds the parts of a split reduction and finishes what the whole would have done.

    for blockIdx.x in pieces of the output:
      for i, j in piece:
        C[i, j] = epilogue(P[0, i, j] + P[1, i, j] + ...)

A plain elementwise block over a small piece: memory bounds it, and many CTAs keep memory busy.
Which thread takes what, and how much at once, belongs to the passes.
"""

from __future__ import annotations

from typing import Any, Final

from .workloads import Contraction

PIECE: Final = 512
"""Outputs of a CTA: 128 threads with a vector of four sums each, and room for many CTAs an SM."""

VECTOR: Final = 4
"""Sums in 16 bytes."""


def schedule_sum(sch: Any, store: Any, what: Contraction) -> None:
    """Cut the block ``store`` into pieces, each a CTA's."""
    *lead, i, j = sch.get_loops(store)
    columns = _columns(what.n[1] or PIECE)
    i_out, i_in = sch.split(i, [None, max(1, PIECE // columns)])
    j_out, j_in = sch.split(j, [None, columns])
    sch.reorder(*lead, i_out, j_out, i_in, j_in)
    sch.bind(sch.fuse(*lead, i_out, j_out), "blockIdx.x")


def _columns(extent: int) -> int:
    """Columns of a piece: what divides a row into whole vectors, or as many as there are."""
    whole = [n for n in range(VECTOR, min(extent, PIECE) + 1, VECTOR) if extent % n == 0]
    return max(whole, default=min(extent, PIECE))
