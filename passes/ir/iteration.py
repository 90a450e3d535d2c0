"""Describe an iteration of a pipelined loop: its expression, its slot in a ring, and its text.

    k + 2 in a ring of 3 slots    =>   slot (k + 2) % 3
    4 in a ring of 3 slots        =>   slot 1

Expansion makes one for each instance of an op.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from .nodes import Expr


@dataclass(frozen=True, slots=True)
class Iteration:
    """The iteration ``base + offset``, from 0; ``base`` is None or a multiple of ``unit``."""

    base: Expr | None
    offset: int
    unit: int = 1
    text: str = ""

    def value(self, dtype: str) -> Expr:
        """Return the iteration as an expression."""
        if self.base is None:
            return tirx.const(self.offset, dtype)
        return self.base + tirx.const(self.offset, dtype) if self.offset else self.base

    def slot(self, depth: int, dtype: str) -> Expr:
        """Return its slot in a ring: a constant if ``base`` is a multiple of the depth."""
        if self.base is None or self.unit % depth == 0:
            return tirx.const(self.offset % depth, dtype)
        return tirx.floormod(self.value(dtype), tirx.const(depth, dtype))

    def slot_text(self, depth: int) -> str:
        """Return the slot in words."""
        if self.base is None or self.unit % depth == 0:
            return str(self.offset % depth)
        return f"({self}) % {depth}" if self.offset else f"{self.text} % {depth}"

    def __str__(self) -> str:
        if self.base is None:
            return str(self.offset)
        sign = "+" if self.offset > 0 else "-"
        return f"{self.text} {sign} {abs(self.offset)}" if self.offset else self.text
