"""Describe a tile matmul that is mapped to an instruction: its ops, layouts and registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm import tirx

from ..copy.layouts import ColumnBlocks, Swizzle
from ..fragments.fragment import Fragment
from ..ir.nodes import Buffer, Expr, Stmt


@dataclass(frozen=True)
class Mapped:
    """A matmul mapped to an instruction.

    ``layouts``: of the operands' shared tiles. ``ops``: the op statements that replace the matmul.
    ``buffers``: register buffers of one iteration, to be allocated beside the operands.
    ``computed``: where the first operand is, if it is read from the registers it is computed in.
    """

    fragment: Fragment
    layouts: Mapping[Buffer, Swizzle | ColumnBlocks]
    ops: tuple[Stmt, ...]
    buffers: tuple[Buffer, ...]
    computed: Fragment | None = None


def power_of_two(count: int, most: int) -> int:
    """Return the largest power of two up to ``most`` (itself one) that divides ``count``."""
    while count % most:
        most //= 2
    return most


def back_and_forth(inner: Expr, outer: Expr, count: int) -> Expr:
    """Return ``inner`` of ``count`` if ``outer`` is even, counted down if it is odd."""
    return inner + tirx.floormod(outer, 2) * (count - 1 - inner * 2)
