"""Types of elements, one row each: their size, PTX's name, and what instructions take them.

The emulator has a table of its own (``emulator/base/dtypes.py``): it shares nothing with what it
judges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ElementType:
    """A type of elements in memory, by TensorIR's ``name``.

    ``nbytes``: of one element. ``ptx``: PTX's name; ``operand``: its name as an operand of tensor
    cores, empty: it is none. ``sums``: types that products are added up in, the default first.
    ``multiplied_by``: the instructions of tensor cores that multiply it. ``tensor_map``: its
    CUtensorMapDataType, to which bytes are bytes; None: TMA does not copy it. ``added_by_tma``:
    whether TMA adds it to what is in memory. ``k_outermost``: whether it may lie so in shared
    memory where wgmma reads it (PTX ISA, imm-trans). ``converts_to``: types that weights of it are
    dequantised to in registers. ``low_precision_sums``: tensor cores add up its products in some 14
    bits (DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.3.2).
    """

    name: str
    nbytes: int
    ptx: str = ""
    operand: str = ""
    sums: tuple[str, ...] = ()
    multiplied_by: tuple[str, ...] = ()
    tensor_map: int | None = None
    added_by_tma: bool = False
    k_outermost: bool = False
    converts_to: tuple[str, ...] = ()
    low_precision_sums: bool = False

    @property
    def integer(self) -> bool:
        """Whether its sums are exact; truth values are no integers."""
        return self.name.startswith(("int", "uint"))

    def is_operand_of(self, instruction: str) -> bool:
        """Whether ``instruction``, mma or wgmma, multiplies it."""
        return instruction in self.multiplied_by


_BOTH: Final = ("mma", "wgmma")
_HALF: Final = ("float16", "bfloat16")


def _fp8(name: str, ptx: str) -> ElementType:
    sums = ("float32",)
    return ElementType(name, 1, ptx, ptx, sums, ("wgmma",), tensor_map=0, low_precision_sums=True)


def _half(name: str, ptx: str, sums: tuple[str, ...], tensor_map: int) -> ElementType:
    return ElementType(name, 2, ptx, ptx, sums, _BOTH, tensor_map, True, k_outermost=True)


ELEMENT_TYPES: Final = (
    ElementType("int8", 1, "s8", "s8", ("int32",), _BOTH, tensor_map=0, converts_to=_HALF),
    ElementType("uint8", 1, "u8", "u8", ("int32",), _BOTH, tensor_map=0),
    ElementType("bool", 1),
    _fp8("float8_e4m3fn", "e4m3"),
    _fp8("float8_e5m2", "e5m2"),
    _half("float16", "f16", ("float32", "float16"), tensor_map=6),
    _half("bfloat16", "bf16", ("float32",), tensor_map=9),
    ElementType("int16", 2),
    ElementType("uint16", 2),
    ElementType("float32", 4, "f32", "tf32", ("float32",), _BOTH, tensor_map=7, added_by_tma=True),
    ElementType("int32", 4, "s32", added_by_tma=True),
    ElementType("uint32", 4, "u32", tensor_map=2),
    ElementType("float64", 8),
    ElementType("int64", 8),
    ElementType("uint64", 8),
)

_BY_NAME: Final = {one.name: one for one in ELEMENT_TYPES}
_OTHER_BYTES: Final = 4


def element(dtype: str) -> ElementType:
    """The row of ``dtype``; a type that is not listed has 4 bytes, and no instruction takes it."""
    return _BY_NAME.get(dtype) or ElementType(dtype, _OTHER_BYTES)


def multiplied_as(element_type: ElementType) -> str:
    """The name by which a GPU has a rate for it: tensor cores multiply float32 as tf32."""
    return "tfloat32" if element_type.name == "float32" else element_type.name


def operand(multiplied: str) -> ElementType:
    """The row of what tensor cores multiply as ``multiplied``, the name of a GPU's rate."""
    return element("float32" if multiplied == "tfloat32" else multiplied)


def operands_of(instruction: str) -> tuple[ElementType, ...]:
    """The types that ``instruction``, mma or wgmma, multiplies."""
    return tuple(one for one in ELEMENT_TYPES if one.is_operand_of(instruction))
