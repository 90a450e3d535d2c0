"""Whether a kernel computes what it should: run on the CPU by the emulator, held against numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .compiled import Kernel
from .emulator import Emulation
from .errors import WorkloadError
from .passes.ir import const_int

if TYPE_CHECKING:
    from .schedules.workloads import Gemm

ROUNDOFF: Final = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
"""Unit roundoff: the largest relative error of rounding to nearest."""

TF32_TRUNCATION: Final = 2.0**-10
"""The tensor core reads 10 mantissa bits of a tf32 operand and ignores the rest."""

SUM_FACTOR: Final = 16
"""Allowed error of a sum, in roundoffs of ``sum(|a| |b|)``.

The error of a sum of K products of normal variates is about one such unit (standard deviation);
over all elements of a matrix of 8192^2 the largest is about six, and tensor cores truncate.
"""

POISON: Final = {"f": np.nan, "V": np.nan, "i": -85, "u": 85}
"""What outputs hold before a run, by numpy's kind of type: an element not written shows."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one comparison.

    ``worst``: the largest error in units of what is allowed, so right means at most 1; NaN where
    an element was not written. ``hazards``: what the emulator objects to.
    """

    title: str
    worst: float
    hazards: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every element is right and nothing was objected to."""
        return self.worst <= 1 and not self.hazards


def verify_gemm(kernel: Kernel, gemm: Gemm, seed: int = 0) -> Verdict:
    """``kernel`` emulated on standard normal operands, held against the product in float64."""
    a, b = gemm.inputs(seed)
    c = poisoned(gemm.shapes()[2], gemm.out)
    outcome = kernel.emulate(a, b, c)
    exact = gemm.reference(a, b)
    magnitude = gemm.reference(abs(a.astype(np.float64)), abs(b.astype(np.float64)))
    worst = worst_error(gemm, _last(kernel, outcome), exact, magnitude)
    return Verdict(gemm.name, worst, _objections(outcome))


def verify_function(
    kernel: Kernel, plain: Kernel, reference: Callable[..., Any] | None = None, seed: int = 0
) -> Verdict:
    """``kernel`` emulated on random arrays, held against ``reference`` or the kernel ``plain``.

    ``reference``: given the arrays, returns what the last one must become. Without it ``plain``,
    the same function not pipelined, is emulated on the same arrays and every array must agree.
    """
    arrays = random_arguments(kernel.function, seed)
    outcome = kernel.emulate(*arrays)
    if reference is not None:
        pairs = [(_last(kernel, outcome), np.asarray(reference(*arrays)))]
    else:
        expected = plain.emulate(*arrays).outputs
        pairs = [(outcome.outputs[name], want) for name, want in expected.items()]
    worst = max(_relative_error(got, want) for got, want in pairs)
    return Verdict(kernel.name, worst, _objections(outcome))


def worst_error(gemm: Gemm, got: Any, exact: Any, magnitude: Any) -> float:
    """The largest error over what is allowed; arrays of numpy or tensors of torch, in float64.

    ``magnitude``: the product of the operands' absolute values, ``sum(|a| |b|)``.
    """
    if gemm.storage == "int8":
        return 0.0 if bool((got == exact).all()) else float("inf")
    rounding, summing = allowed(gemm)
    got = got.astype(np.float64) if isinstance(got, np.ndarray) else got.double()
    error = abs(got - exact) / (rounding * abs(exact) + summing * magnitude + 1e-300)
    return float(error.max())


def allowed(gemm: Gemm) -> tuple[float, float]:
    """Allowed error of an element, relative to its value and to ``sum(|a| |b|)``."""
    operands = 2 * TF32_TRUNCATION if gemm.dtype == "tfloat32" else 0.0
    return 2 * ROUNDOFF[gemm.out], SUM_FACTOR * ROUNDOFF[gemm.accumulator] + operands


def poisoned(shape: tuple[int, ...], dtype: str) -> Any:
    """An output in which no element is right yet."""
    from .schedules.workloads import numpy_dtype

    kind = numpy_dtype(dtype)
    return np.full(shape, POISON[kind.kind], kind)


def random_arguments(func: Any, seed: int = 0) -> list[Any]:
    """Random arrays for the parameters of a PrimFunc; WorkloadError: a shape is not static."""
    from .schedules.workloads import numpy_dtype

    rng = np.random.default_rng(seed)
    arrays = []
    for param in func.params:
        extents = [const_int(extent) for extent in getattr(param, "shape", ())]
        shape = [extent for extent in extents if extent is not None]
        if not extents or len(shape) < len(extents):
            raise WorkloadError(
                f"cannot make an argument for '{param.name}': its shape is not static"
            )
        kind = numpy_dtype(str(param.dtype))
        if kind.kind in "iu":
            arrays.append(rng.integers(0, 8, shape).astype(kind))
        else:
            arrays.append(rng.standard_normal(shape).astype(kind))
    return arrays


def _last(kernel: Kernel, outcome: Emulation) -> Any:
    """What the kernel's last parameter holds afterwards."""
    return outcome.outputs[str(kernel.function.params[-1].name)]


def _objections(outcome: Emulation) -> tuple[str, ...]:
    return tuple(str(hazard) for hazard in outcome.hazards)


def _relative_error(got: Any, want: Any) -> float:
    """The largest error over what another order of the same sums may make of it."""
    if got.dtype.kind in "iub":
        return 0.0 if bool((got == want).all()) else float("inf")
    scale = float(np.abs(want.astype(np.float64)).max()) or 1.0
    unit = 4 * ROUNDOFF[str(got.dtype)] * scale
    return float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max()) / unit
