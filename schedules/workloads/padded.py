"""Products of operands whose rows begin nowhere aligned, which are first written with longer rows.

    A_reordered[i, k] = A[i, k] if k < 2509 else 0    # rows of 2560
    C[i, j] = sum over k of A_reordered[i, k] * ..

Rows of 2509 halves are copied two bytes at a time. Written so once, at memory's pace, they are
boxes, or vectors of 16 bytes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ...diagnostics import Reason
from ...errors import WorkloadError
from ...instructions.dtypes import LINE_BYTES, element_bytes
from ...machine import VECTOR_BYTES
from ...passes.ir.nodes import i32
from .base.operand import Coordinates, Operand, Reordered
from .contraction import Contraction


def padded(what: Contraction) -> Contraction:
    """``what`` with rows of its operands whole lines of memory, where they are no whole vectors.

    WorkloadError: all of them are.
    """
    if not begins_inside_vectors(what):
        raise WorkloadError("gemm.reordered", workload=what.name, nbytes=VECTOR_BYTES)
    sides = [_padded(side, what.storage(which)) for which, side in enumerate(what.operands)]
    return replace(what, a=sides[0], b=sides[1], second=None if len(sides) == 2 else sides[2])


def begins_inside_vectors(what: Contraction) -> bool:
    """Whether rows of an operand begin inside 16 bytes."""
    return any(_is_off(side, what.storage(which)) for which, side in enumerate(what.operands))


def _is_off(side: Operand, dtype: str) -> bool:
    """Whether rows of ``side``, of known extents, are no whole vectors."""
    known = None not in side.shape
    return known and (side.shape[-1] or 0) * element_bytes(dtype) % VECTOR_BYTES != 0


def _padded(side: Operand, dtype: str) -> Operand:
    """``side``, which a kernel of its own first writes with rows of whole lines, where need be."""
    if not _is_off(side, dtype):
        return side
    shape = tuple(extent or 1 for extent in side.shape)
    *outer, columns = shape
    line = LINE_BYTES // element_bytes(dtype)
    pitch = math.ceil(columns / line) * line
    names = [f"at{dimension}" for dimension in range(len(shape))]
    axes = tuple(zip(names, (*outer, pitch), strict=True))

    def place(at: Coordinates) -> list[Any]:
        return [at[name] for name in names]

    def inside(at: Coordinates) -> list[Any]:
        return [at[names[-1]] < i32(columns)]

    why = Reason("gemm.rows_padded", elements=columns, pitch=pitch)
    made = Reordered(shape, axes, place, place, why, inside)
    return replace(side, shape=(*outer, pitch), unit=pitch, reordered=made)
