"""What happens to the sums of a matmul before they are stored: bias, residual, activation.

Each step is a block of its own behind the matmul, in the accumulator's type; the schedule folds
them into the store. ``bias`` adds a value for each output channel (column of C), ``residual`` a
tensor of the output's shape, ``scale`` multiplies by a value for each channel, as weights that were
quantised want it; all are inputs of the output's type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from tvm import tirx
from tvm.ir import Var

from ....errors import WorkloadError
from ....passes.ir.arithmetic import Computed, computed
from .dtypes import Types

BIAS: Final = "bias"
RESIDUAL: Final = "residual"
SCALE: Final = "scale"

READING: Final = (BIAS, RESIDUAL, SCALE)
"""Steps with an input of their own."""

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _half(value: Any, dtype: str) -> Any:
    return value * tirx.const(0.5, dtype)


_ERFC: Final = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_ERFC_SLOPE: Final = 0.3275911
"""``erfc(z) = polynomial(t) * exp(-z * z)``, ``t = 1 / (1 + slope * z)``, off by 1.5e-7 at most.

Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26; the highest power of t first.
"""


def _gelu(x: Any, dtype: str) -> Any:
    """``x`` times the normal distribution's integral up to it.

    In float32 by a polynomial: 14 instructions an element, where CUDA's erff takes 30 and registers
    that a tile of sums does not leave.
    """
    if dtype != "float32":
        root = tirx.const(math.sqrt(0.5), dtype)
        return _half(x, dtype) * (tirx.const(1, dtype) + tirx.erf(x * root))

    def number(value: float) -> Any:
        return tirx.const(value, dtype)

    slope = tirx.abs(x) * number(_ERFC_SLOPE * math.sqrt(0.5))
    t = number(1) / (slope + number(1))
    powers = number(0)
    for factor in _ERFC:
        powers = (powers + number(factor / 2)) * t
    beyond = powers * tirx.exp2(x * x * number(-0.5 * math.log2(math.e)))
    return x * tirx.Select(x > number(0), number(1) - beyond, beyond)


_ACTIVATIONS: Final[dict[str, Callable[[Any, str], Any]]] = {
    "relu": lambda x, dtype: tirx.max(x, tirx.const(0, dtype)),
    "gelu": _gelu,
    "silu": lambda x, dtype: x * tirx.sigmoid(x),
}

_REFERENCES: Final[dict[str, Callable[[Any], Any]]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x * math.sqrt(0.5))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}

ACTIVATIONS: Final = tuple(_ACTIVATIONS)
"""Steps that are a function of each sum alone."""

STEPS: Final = (*READING, *ACTIVATIONS)

LIPSCHITZ: Final = 1.13
"""The most that an error of the sum grows in one activation: gelu's largest slope."""


def check_epilogue(steps: Sequence[str], types: Types) -> None:
    """WorkloadError where a step is unknown, comes twice or makes no sense for the types."""
    for step in steps:
        if step not in STEPS:
            raise WorkloadError("epilogue.step", choices=STEPS, value=step)
        if step in ("gelu", "silu") and types.accumulator.startswith("int"):
            raise WorkloadError("epilogue.integers", step=step, accumulator=types.accumulator)
    if len(set(steps)) < len(steps):
        raise WorkloadError("epilogue.twice", steps=tuple(steps))


def extra_shapes(
    steps: Sequence[str], channels: int, out: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    """Shapes of the inputs that the steps add, in their order."""
    shapes = {BIAS: (channels,), RESIDUAL: out, SCALE: (channels,)}
    return tuple(shapes[step] for step in steps if step in shapes)


def apply(step: str, value: Any, operand: Any) -> Any:
    """TensorIR: ``value`` after ``step``; ``operand``: the step's input, already of its type."""
    activation = _ACTIVATIONS.get(step)
    if activation is not None:
        return activation(value, str(value.ty.dtype))
    return value * operand if step == SCALE else value + operand


@lru_cache
def computed_by(steps: tuple[str, ...], accumulator: str) -> Computed:
    """What all ``steps`` compute of a sum of type ``accumulator``."""
    value: Any = Var("sum", accumulator)
    for step in steps:
        value = apply(step, value, Var(step, accumulator) if step in READING else None)
    return computed(value)


def reference(steps: Sequence[str], sums: Any, extras: Sequence[Any]) -> Any:
    """numpy: the sums after all steps; biases and residuals broadcast against the sums."""
    operands = iter(extras)
    for step in steps:
        if step in _REFERENCES:
            sums = _REFERENCES[step](sums)
        else:
            sums = sums * next(operands) if step == SCALE else sums + next(operands)
    return sums


def magnitude(steps: Sequence[str], sums: Any, extras: Sequence[Any]) -> Any:
    """``sums`` of absolute products made a bound of what the steps add and how errors grow."""
    operands = iter(extras)
    for step in steps:
        if step in _REFERENCES:
            sums = sums * LIPSCHITZ
        else:
            size = abs(next(operands))
            sums = sums * size if step == SCALE else sums + size
    return sums
