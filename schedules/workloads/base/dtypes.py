"""Types of a workload: what is stored, what it is summed in, what is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from ....errors import WorkloadError
from ....values.elements import element

INT_RANGE: Final = (-8, 8)
"""Random integer operands lie in this half-open range: sums of thousands of products are exact."""

UINT_RANGE: Final = (0, 16)
"""The same of operands without a sign."""


@dataclass(frozen=True, slots=True)
class _Type:
    storage: str
    outputs: tuple[str, ...]
    instruction: str = "auto"

    @property
    def accumulators(self) -> tuple[str, ...]:
        """What products may be added up in, the default first."""
        return element(self.storage).sums


_FP8_OUTPUTS: Final = ("bfloat16", "float16", "float32")

# The first output is the default. tf32 is a way to multiply, not to store: its operands are float32
# in memory, so only the annotation tells it from fp32.
_TYPES: Final = {
    "float32": _Type("float32", ("float32",)),
    "tfloat32": _Type("float32", ("float32",), instruction="tensor"),
    "float16": _Type("float16", ("float16", "float32")),
    "bfloat16": _Type("bfloat16", ("bfloat16", "float32")),
    "int8": _Type("int8", ("int32", "int8")),
    "uint8": _Type("uint8", ("int32", "uint8")),
    "float8_e4m3fn": _Type("float8_e4m3fn", _FP8_OUTPUTS, "tensor"),
    "float8_e5m2": _Type("float8_e5m2", _FP8_OUTPUTS, "tensor"),
}

_ALIASES: Final = {
    "fp32": "float32",
    "tf32": "tfloat32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}

DTYPES: Final = tuple(_TYPES)


@dataclass(frozen=True, slots=True)
class Types:
    """The types of one workload, complete.

    ``dtype``: how operands multiply. ``storage``: how they lie in memory. ``instruction``: the
    ``pipeliner.mma`` annotation of the matmul block.
    """

    dtype: str
    storage: str
    accumulator: str
    out: str
    instruction: str

    @property
    def suffix(self) -> str:
        """What tells these types apart in a kernel's name: ``float16_out_float32``."""
        kind = _TYPES[self.dtype]
        parts = [self.dtype]
        if self.accumulator != kind.accumulators[0]:
            parts.append(f"acc_{self.accumulator}")
        if self.out != kind.outputs[0]:
            parts.append(f"out_{self.out}")
        return "_".join(parts)


def resolve(dtype: str, accumulator: str, out: str) -> Types:
    """The types that these names (empty: the default) stand for; WorkloadError where none do."""
    name = _ALIASES.get(dtype, dtype)
    if name not in _TYPES:
        raise WorkloadError("workload.dtype", choices=DTYPES, value=dtype)
    kind = _TYPES[name]
    accumulator = _ALIASES.get(accumulator, accumulator) or kind.accumulators[0]
    out = _ALIASES.get(out, out) or kind.outputs[0]
    if accumulator not in kind.accumulators:
        raise WorkloadError(
            "workload.accumulator", dtype=name, choices=kind.accumulators, value=accumulator
        )
    if out not in (accumulator, *kind.outputs):
        choices = tuple(dict.fromkeys((accumulator, *kind.outputs)))
        raise WorkloadError("workload.out", dtype=name, choices=choices, value=out)
    return Types(name, kind.storage, accumulator, out, kind.instruction)


def numpy_dtype(name: str) -> Any:
    """The numpy type of a TVM type; those numpy lacks are ml_dtypes', which TVM depends on."""
    return np.dtype(getattr(ml_dtypes, name, name))


def integer_range(dtype: str) -> tuple[int, int] | None:
    """The half-open range of random operands of ``dtype``; None: they are no integers."""
    if not element(dtype).integer:
        return None
    return UINT_RANGE if dtype.startswith("u") else INT_RANGE


def random_array(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Standard normal values, or integers uniform over -8..7, without a sign over 0..15."""
    bounds = integer_range(dtype)
    if bounds is not None:
        return rng.integers(*bounds, shape, dtype=np.dtype(dtype))
    return rng.standard_normal(shape).astype(numpy_dtype(dtype))


def exact(array: Any) -> Any:
    """``array`` in float64, or in int64 where it holds integers."""
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)


MAX_EXTENT: Final = (1 << 31) - 1
"""Elements of a dimension: loops over it count in 32 bits."""


def check_extent(name: str, value: object, *, optional: bool = False, least: int = 1) -> None:
    """WorkloadError unless ``value`` is an integer of at least ``least`` (or an allowed None)."""
    if value is None and optional:
        return
    if type(value) is not int or value < least:
        raise WorkloadError("workload.extent", name=name, least=least, value=repr(value))
    if value > MAX_EXTENT:
        raise WorkloadError("workload.large_extent", name=name, most=MAX_EXTENT, value=value)
