"""The kernel that adds the partial sums of split-K and applies the epilogue to the result.

    for blockIdx.x in pieces of the output:
      for i, j in piece:
        C[i, j] = epilogue(P[0, i, j] + P[1, i, j] + ...)     # gated: of the sums of two workspaces

A plain elementwise block over a small piece: memory bounds it, and many CTAs keep memory busy.
Which thread takes what, and how much at once, belongs to the passes.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ..diagnostics import Reason, Why, all_of
from ..instructions.dtypes import element_bytes
from ..values.facts import ElementwiseInfo
from ..values.notes import NOTE, note_text
from .workloads import PART, STORE, Contraction
from .workloads.base.epilogue import READING, RESIDUAL

PIECE: Final = 512
"""Outputs of a CTA: 128 threads with a vector of four sums each, and room for many CTAs an SM."""

VECTOR: Final = 4
"""Sums in 16 bytes."""


def schedule_sum(sch: Any, store: Any, what: Contraction, why: Why) -> None:
    """Cut the block ``store`` into pieces, one a CTA; ``why``: the plan's reason to split K."""
    *batch, i, j = sch.get_loops(store)
    rows, columns = _piece(what)
    i_out, i_in = sch.split(i, [None, rows])
    j_out, j_in = sch.split(j, [None, columns])
    sch.reorder(*batch, i_out, j_out, i_in, j_in)
    sch.bind(sch.fuse(*batch, i_out, j_out), "blockIdx.x")
    sch.annotate(store, NOTE, note_text(_note(what, why)))


def sum_info(what: Contraction, why: Why) -> ElementwiseInfo:
    """What recognition will find of that kernel, but for its vectors."""
    rows, columns = _piece(what)
    m, n = what.m[1], what.n[1]
    batch = math.prod(extent or 1 for _, extent in what.results[:-2])
    types = what.types
    out = element_bytes(types.out)
    each = len(what.matmuls) * _parts(what) * element_bytes(types.accumulator) + out
    read = sum(
        columns * (rows if step == RESIDUAL else 1) for step in what.epilogue if step in READING
    )
    return ElementwiseInfo(
        op=STORE,
        ctas=None if m is None else batch * -(-m // rows) * -(-(n or 1) // columns),
        elements=rows * columns,
        vector=1,
        global_bytes=rows * columns * each + read * out,
        note=_note(what, why),
    )


def _note(what: Contraction, why: Why) -> Why:
    return all_of((Reason("split.sum", splits=_parts(what)), why))


def _parts(what: Contraction) -> int:
    return dict(what.batch_axes)[PART] or 1


def _piece(what: Contraction) -> tuple[int, int]:
    """Rows and columns: what divides a row into whole vectors, or as many as there are."""
    m, n = what.m[1] or PIECE, what.n[1] or PIECE
    whole = [size for size in range(VECTOR, min(n, PIECE) + 1, VECTOR) if n % size == 0]
    columns = max(whole, default=min(n, PIECE))
    return min(m, max(1, PIECE // columns)), columns
