"""Say the types of a workload from its ``dtype`` and ``out``, and name them in its title."""

from __future__ import annotations

from typing import Protocol

from .dtypes import Types, resolve


class _Asked(Protocol):
    """What a workload is asked for: the type of its operands, and that of its result."""

    @property
    def dtype(self) -> str: ...

    @property
    def out(self) -> str: ...


class Typed:
    """A workload whose operands have one type, and whose sums have the usual one of that."""

    __slots__ = ()

    @property
    def types(self: _Asked) -> Types:
        """Everything about its types."""
        return resolve(self.dtype, "", self.out)

    @property
    def storage(self: _Asked) -> str:
        """Type of its operands in memory."""
        return resolve(self.dtype, "", self.out).storage

    @property
    def accumulator(self: _Asked) -> str:
        """Type of its sums, and of what is computed of them."""
        return resolve(self.dtype, "", self.out).accumulator

    def titled(self: _Asked, kind: str, *extents: int | str) -> str:
        """In words: ``float16 GEMM 4096 x 4096 x 4096 to float32``; without its usual result."""
        usual = resolve(self.dtype, "", "").out
        size = " x ".join(map(str, extents))
        return f"{self.dtype} {kind} {size}" + ("" if self.out == usual else f" to {self.out}")
