"""The kernels that write an operand otherwise, before the kernel that multiplies it.

    for blockIdx.x in pieces of the operand:
      for place, channel in piece:
        X_reordered[n, place, channel] = X[n, channel, place]

A plain elementwise block over a piece: neighbours along one of its loops are neighbours where it
reads, along the other where it writes; of rows that are padded, along the last one in both. Which
thread takes what, and how much at once, belongs to the passes.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ..instructions.dtypes import element_bytes
from ..machine import VECTOR_BYTES
from ..values.facts import ElementwiseInfo
from ..values.notes import NOTE, note_text
from .tiles import divisor
from .workloads import Contraction
from .workloads.base.operand import Operand, Reordered

SIDE: Final = 128
"""Elements of a piece along either of its last two loops, at most."""

PIECE: Final = SIDE * SIDE // 2
"""Elements of a piece, at most."""

ROW_PIECE: Final = 2048
"""Elements of a piece of rows that stay in order, at most."""


def schedule_reordered(sch: Any, what: Contraction) -> None:
    """Cut each kernel that writes an operand of ``what`` first into pieces, one a CTA."""
    for operand in written_first(what):
        made = operand.reordered
        assert made is not None
        block = sch.get_sblock(operand.source)
        loops = sch.get_loops(block)
        cut = [sch.split(at, [None, size]) for at, size in zip(loops, _piece(made))]
        outer, inner = ([pair[side] for pair in cut] for side in (0, 1))
        sch.reorder(*outer, *inner)
        sch.bind(sch.fuse(*outer), "blockIdx.x")
        if made.note:
            sch.annotate(block, NOTE, note_text(made.note))


def written_first(what: Contraction) -> list[Operand]:
    """The operands of ``what`` that a kernel of its own writes first."""
    return [operand for operand in what.operands if operand.reordered is not None]


def reordered_infos(what: Contraction) -> tuple[ElementwiseInfo, ...]:
    """What recognition will find of those kernels."""
    found: list[ElementwiseInfo] = []
    for which, operand in enumerate(what.operands):
        made = operand.reordered
        if made is None:
            continue
        size = element_bytes(what.storage(which))
        piece = _piece(made)
        side = block_side(made, size)
        elements = math.prod(piece)
        found.append(
            ElementwiseInfo(
                op=operand.source,
                ctas=math.prod(
                    -(-(extent or 1) // part) for (_, extent), part in zip(made.axes, piece)
                ),
                elements=elements,
                vector=side if made.inside else side * side,
                global_bytes=2 * elements * size,
                note=made.note,
            )
        )
    return tuple(found)


def block_side(made: Reordered, size: int) -> int:
    """Side of the square of elements of ``size`` bytes that a thread moves at once.

    Of rows that are padded the elements in a row, all of them inside or none.
    """
    *_, places, channels = (extent or 1 for _, extent in made.axes)
    if made.inside:
        return math.gcd(VECTOR_BYTES // size, made.shape[-1], _piece(made)[-1])
    return math.gcd(VECTOR_BYTES // size, places, channels, *_piece(made)[-2:])


def _piece(made: Reordered) -> list[int]:
    """What a CTA has of each loop: divisors, of whole vectors along the last two where it can.

    Of rows that are padded whole lines: as many elements, whatever the extents, where there are so
    many rows.
    """
    *outer, places, channels = (extent or 1 for _, extent in made.axes)
    if made.inside:
        columns = math.gcd(channels, ROW_PIECE)
        return [*[1] * len(outer), min(places, ROW_PIECE // columns), columns]
    inner = [_even(channels, SIDE)]
    inner = [_even(places, PIECE // inner[0]), *inner]
    left = PIECE // math.prod(inner)
    return [*[1] * (len(outer) - 1), divisor(outer[-1], max(1, left)), *inner]


def _even(extent: int, most: int) -> int:
    """A divisor of ``extent`` up to ``most``: of those with the widest vectors the largest."""
    found = [size for size in range(1, min(extent, most) + 1) if extent % size == 0]
    return max(found, key=lambda size: (math.gcd(size, VECTOR_BYTES // 2), size))
