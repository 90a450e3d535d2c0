"""Multiply words of fragments by mma.sync: what a schedule that names its threads needs of it.

    sums(16 x 8) += left(16 x 16) * right(16 x 8)      of 16-bit floats, by the lanes of a warp

With ``g = lane / 4`` and ``q = lane % 4``, a lane has rows ``g`` and ``g + 8`` of ``left`` and
column ``g`` of ``right``, of four K each, and columns ``2 q`` and ``2 q + 1`` of those rows of
``sums`` (PTX ISA, Matrix Fragments for mma.m16n8k16). Which four K it has is the caller's choice:
the sum is over all lanes, so that any order does that is the same on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tvm import tirx
from tvm.script import tirx as T

from ...values.elements import element
from ..ir.nodes import Expr

ROWS: Final = 16
"""Rows of ``left``, and K of one instruction."""

COLUMNS: Final = 8

_MMA: Final = "mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"


def word(values: Any, at: Sequence[Any]) -> Expr:
    """The two neighbouring values of a buffer that begin at ``at``, as a word."""
    *outer, last = at
    pair = [tirx.BufferLoad(values, [*outer, last + one]) for one in range(2)]
    return tirx.reinterpret("uint32", tirx.Shuffle(pair, [0, 1]))


def multiply(kind: str, sums: Sequence[Expr], left: Sequence[Expr], right: Sequence[Expr]) -> Expr:
    """Return what adds the product of four words and two to the four ``sums`` of a lane.

    ``sums``: loads of a buffer. ``left``: K 0 and 1 of rows ``g`` and ``g + 8``, then K 2 and 3 of
    both. ``right``: K 0 and 1, then 2 and 3. ``kind``: a 16-bit float.
    """
    call = T.ptx[_MMA.format(kind=element(kind).operand)]
    return call(*sums, *left, *right, *sums)
