"""Compute two 16-bit floats that share a register at once, with instructions on both halves.

    low  = T.Cast("float16", W[i] & 15) - 8       word = W[i] | W[i] << 16 & 0x00F0000F | 0x64006400
    high = T.Cast("float16", W[i] >> 4) - 8   =>  fma.rn.f16x2  d, word, (1, 1/16), (-1032, -72)
    low * S[r], high * S[r]                       mul.rn.f16x2  d, d, (S[r], S[r])

Bits in a float's mantissa below the first of a power of two are that power plus a multiple of what
the lowest of them is worth. So a field of a word becomes a float by two logical operations and a
fused multiply-add, which is exact, instead of by a conversion that runs at a quarter of the rate.
Fields of a word of 32 bits that lie 16 bits apart are where both halves need them: one logical
operation, behind a shift that several pairs have in common.

Does not handle: fields that are wider than a mantissa, or lie in a word of 32 bits otherwise; other
arithmetic than sums, differences and products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import prim
from tvm.script import tirx as T

from ..ir.nodes import Buffer, Expr, Stmt, block, buffer, const_int, dtype_bytes, i32, seq

_HALF: Final = 16
"""Bits of each of the two floats."""

_WORD: Final = 2 * _HALF
"""Bits of a register."""

_BYTE: Final = 8
"""A word of 32 bits is moved by multiples of so many, so that several pairs share what is moved."""


_AND_OR: Final = 0xEA
"""``a & b | c`` for lop3: two operations with a constant each would be two instructions."""


@dataclass(frozen=True)
class _Kind:
    """Bits of the mantissa of a type, and the type's name in PTX.

    ``unit``: the bits of the float whose lowest bit of the mantissa is worth 1.
    """

    mantissa: int
    unit: int
    ptx: str


_KINDS: Final = {"float16": _Kind(10, 0x6400, "f16x2"), "bfloat16": _Kind(7, 0x4300, "bf16x2")}

_ARITHMETIC: Final = ((tirx.Add, "add"), (tirx.Sub, "sub"), (tirx.Mul, "mul"))


@dataclass(frozen=True)
class _Field:
    """Bits ``shift`` to ``shift + width - 1`` of ``word``, an unsigned integer.

    ``shift`` of the upper half of a word of 32 bits: from its middle.
    """

    word: Expr
    shift: int
    width: int


def computed_pair(word: Expr, low: Expr, high: Expr, analyzer: Any) -> Stmt | None:
    """Return the store of ``low`` and ``high`` to the halves of the register ``word``.

    None if no field of a word is converted in both, or if something else is done to it.
    """
    kind = _KINDS.get(str(low.ty.dtype))
    if kind is None:
        return None
    low, high = analyzer.simplify(low), analyzer.simplify(high)
    pair = _Pair(kind, str(low.ty.dtype))
    if pair.fields_in(low, high) == 0 or pair.emit(low, high, word) is None:
        return None
    return block("pair", seq(*pair.stmts), pair.temporaries)


@dataclass
class _Pair:
    """The statements that compute two values at once."""

    kind: _Kind
    dtype: str
    stmts: list[Stmt] = field(default_factory=list)
    temporaries: list[Buffer] = field(default_factory=list)

    def fields_in(self, low: Any, high: Any) -> int:
        """Return how many fields are converted in both at the same place."""
        if self._fields(low, high) is not None:
            return 1
        if type(low) is not type(high) or _operation(low) is None:
            return 0
        return self.fields_in(low.a, high.a) + self.fields_in(low.b, high.b)

    def emit(self, low: Any, high: Any, to: Expr | None = None) -> Expr | None:
        """Return the register with both values, ``to`` if that is given; None: not handled."""
        fields = self._fields(low, high)
        if fields is not None:
            return self._converted(fields, (0.0, 0.0), to)
        moved = self._moved(low, high)
        if moved is not None:
            return self._converted(*moved, to)
        if tvm_ffi.structural_equal(low, high):
            both = tirx.Cast("uint32", tirx.reinterpret("uint16", low))
            return self._kept(
                both | tirx.shift_left(both, _word(_HALF)), self._new() if to is None else to
            )
        low_value, high_value = _constant(low), _constant(high)
        if low_value is not None and high_value is not None:
            return self._kept(self._constants((low_value, high_value)), to)
        name = _operation(low)
        if name is None or type(low) is not type(high):
            return None
        left, right = self.emit(low.a, high.a), self.emit(low.b, high.b)
        if left is None or right is None:
            return None
        return self._done(f"{name}.rn.{self.kind.ptx}", [left, right], to)

    def _fields(self, low: Any, high: Any) -> tuple[_Field, _Field] | None:
        """Return what is converted to both, two fields of one word."""
        one, other = _field(low), _field(high)
        if one is None or other is None or one.width != other.width:
            return None
        fits = one.width <= self.kind.mantissa
        if _bits_of(one.word) == _WORD:
            fits = fits and one.shift + one.width <= _HALF and other.shift == one.shift + _HALF
            other = replace(other, shift=other.shift - _HALF)
        return (one, other) if fits and tvm_ffi.structural_equal(one.word, other.word) else None

    def _moved(
        self, low: Any, high: Any
    ) -> tuple[tuple[_Field, _Field], tuple[float, float]] | None:
        """Return fields and what is subtracted from them, if one instruction does so exactly."""
        if not (isinstance(low, tirx.Sub) and isinstance(high, tirx.Sub)):
            return None
        fields, low_by, high_by = self._fields(low.a, high.a), _constant(low.b), _constant(high.b)
        if fields is None or low_by is None or high_by is None:
            return None
        most = 1 << self.kind.mantissa
        whole = all(value.is_integer() and abs(value) <= most for value in (low_by, high_by))
        offsets = self._offsets(fields, (low_by, high_by))
        if not whole or not all(self._is_exact(value) for value in offsets):
            return None
        return fields, (low_by, high_by)

    def _converted(
        self, fields: tuple[_Field, _Field], by: tuple[float, float], to: Expr | None
    ) -> Expr:
        """Return the fields as floats less ``by``."""
        down = [self._down(one) for one in fields]
        mask = [((1 << one.width) - 1) << (one.shift - by_) for one, by_ in zip(fields, down)]
        word = self._in_mantissas(fields[0].word, down, mask[0] | mask[1] << _HALF)
        units = [2.0 ** (by_ - one.shift) for one, by_ in zip(fields, down)]
        operands = [word, self._constants(units)]
        operands.append(self._constants(self._offsets(fields, by)))
        return self._done(f"fma.rn.{self.kind.ptx}", operands, to)

    def _in_mantissas(self, word: Expr, down: Sequence[int], mask: int) -> Expr:
        """Return ``word`` moved ``down`` in each half, what ``mask`` leaves of it in a mantissa."""
        source = word if _bits_of(word) == _WORD else tirx.Cast("uint32", word)
        unit = self.kind.unit | self.kind.unit << _HALF
        lowest = self.kind.unit & -self.kind.unit
        if not any(down) and 1 << _bits_of(word) <= lowest:
            # A multiplication and a logical operation with a constant each, on two pipes.
            return tirx.bitwise_and(
                source * _word(1 | 1 << _HALF) + _word(unit), _word(mask | unit)
            )
        lower = tirx.shift_right(source, _word(down[0])) if down[0] else source
        if _bits_of(word) == _WORD:
            return self._done("lop3.b32", [lower, _word(mask), _word(unit), i32(_AND_OR)], None)
        both = tirx.bitwise_or(lower, tirx.shift_left(source, _word(_HALF - down[1])))
        return tirx.bitwise_or(tirx.bitwise_and(both, _word(mask)), _word(unit))

    def _down(self, one: _Field) -> int:
        """Return by how many bits a field is moved to fit the mantissa."""
        if _bits_of(one.word) == _WORD:
            least = one.shift + one.width - self.kind.mantissa
            by = max(0, -(-least // _BYTE) * _BYTE)
            return by if by <= one.shift else one.shift
        return 0 if one.shift + one.width <= self.kind.mantissa else one.shift

    def _offsets(
        self, fields: tuple[_Field, _Field], by: tuple[float, float]
    ) -> tuple[float, float]:
        """Return what is added to fields in a mantissa, in their own units, to have them less."""
        first, second = (
            -(2.0 ** (self.kind.mantissa - one.shift + self._down(one))) - less
            for one, less in zip(fields, by)
        )
        return first, second

    def _is_exact(self, value: float) -> bool:
        return float(np.float32(value)) == value == _value(_bits(value, self.dtype), self.dtype)

    def _constants(self, values: Sequence[float]) -> Expr:
        low, high = (_bits(value, self.dtype) for value in values)
        return _word(low | high << _HALF)

    def _kept(self, value: Expr, to: Expr | None = None) -> Expr:
        """Return a register that has ``value``."""
        if to is None:
            return value
        self.stmts.append(tirx.BufferStore(to.source, value, to.indices))
        return to

    def _new(self) -> Expr:
        """Return a new register."""
        self.temporaries.append(buffer([1], "uint32", "pair", "local"))
        return tirx.BufferLoad(self.temporaries[-1], [i32(0)])

    def _done(self, name: str, operands: Sequence[Expr], to: Expr | None) -> Expr:
        """Return the register that an instruction writes."""
        to = self._new() if to is None else to
        self.stmts.append(tirx.Evaluate(T.ptx[name](to, *operands)))
        return to


def _operation(value: Any) -> str | None:
    """Return the instruction of a sum, a difference or a product."""
    return next((name for kind, name in _ARITHMETIC if isinstance(value, kind)), None)


def _field(value: Any) -> _Field | None:
    """Return the field that is converted to a float, and nothing else; None: none."""
    if not isinstance(value, tirx.Cast):
        return None
    word, shift, width = value.value, 0, None
    if isinstance(word, prim.BitwiseAnd):
        mask = const_int(word.b)
        if mask is None or mask <= 0 or mask & (mask + 1):
            return None
        word, width = word.a, mask.bit_length()
    if isinstance(word, prim.RShift):
        by = const_int(word.b)
        if by is None:
            return None
        word, shift = word.a, by
    bits = _bits_of(word)
    if not str(word.ty.dtype).startswith("uint") or bits > _WORD or shift >= bits:
        return None
    return _Field(word, shift, min(width or bits, bits - shift))


def _bits_of(word: Any) -> int:
    return 8 * dtype_bytes(word.ty.dtype)


def _constant(value: Any) -> float | None:
    return float(value.value) if isinstance(value, tirx.FloatImm) else None


def _bits(value: float, dtype: str) -> int:
    """Return the bits of ``value`` in a type of 16 bits, which holds it."""
    if dtype == "float16":
        return int(np.float16(value).view(np.uint16))
    return int(np.float32(value).view(np.uint32)) >> _HALF


def _value(bits: int, dtype: str) -> float:
    if dtype == "float16":
        return float(np.uint16(bits).view(np.float16))
    return float(np.uint32(bits << _HALF).view(np.float32))


def _word(value: int) -> Expr:
    return tirx.const(value, "uint32")
