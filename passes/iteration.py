"""Iterations of a pipelined loop: the expression, its slot in a ring, and how they read."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from .ir import Expr


@dataclass(frozen=True, slots=True)
class Iteration:
    """``base + offset``, from 0. ``base``: None for a constant, else a multiple of ``unit``."""

    base: Expr | None
    offset: int
    unit: int = 1
    text: str = ""

    def value(self, dtype: str) -> Expr:
        """The iteration as an expression."""
        if self.base is None:
            return tirx.const(self.offset, dtype)
        return self.base + tirx.const(self.offset, dtype) if self.offset else self.base

    def slot(self, depth: int, dtype: str) -> Expr:
        """Its slot in a ring: a constant where ``base`` is a multiple of the depth."""
        if self.base is None or self.unit % depth == 0:
            return tirx.const(self.offset % depth, dtype)
        return tirx.floormod(self.value(dtype), tirx.const(depth, dtype))

    def slot_text(self, depth: int) -> str:
        """The slot in words."""
        if self.base is None or self.unit % depth == 0:
            return str(self.offset % depth)
        return f"({self}) % {depth}" if self.offset else f"{self.text} % {depth}"

    def __str__(self) -> str:
        if self.base is None:
            return str(self.offset)
        sign = "+" if self.offset > 0 else "-"
        return f"{self.text} {sign} {abs(self.offset)}" if self.offset else self.text
