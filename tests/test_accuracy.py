"""How far sums of fp8 may be off, against a model of how Hopper's tensor cores add them."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pipeliner.schedules import Gemm, conv2d
from pipeliner.verification.accuracy import allowed, worst_error

INSTRUCTION = 32
"""Products that one instruction adds up (PTX ISA, wgmma of fp8: k32)."""

FRACTION = 13
"""Bits that are kept below the largest term's first."""


def exponent(values: Any) -> Any:
    """Of the first bit of each; of 0 a very small one."""
    return np.where(values == 0, -500, np.frexp(values)[1] - 1)


def as_tensor_cores_add(a: Any, b: Any) -> Any:
    """``A B^T``: products and the sum so far cut to the same unit, toward zero, in each step.

    The operands' exponents say how large a product may be. (MMA-Sim, arXiv 2511.10909; DeepSeek-V3
    Technical Report, section 3.3.2.)
    """
    total = np.zeros((len(a), len(b)))
    for k in range(0, a.shape[1], INSTRUCTION):
        left, right = a[:, None, k : k + INSTRUCTION], b[None, :, k : k + INSTRUCTION]
        largest = (exponent(left) + exponent(right)).max(-1)
        unit = np.ldexp(1.0, np.maximum(largest, exponent(total)) - FRACTION)
        terms = np.trunc(left * right / unit[..., None]).sum(-1) + np.trunc(total / unit)
        total = terms * unit
        unit = np.ldexp(1.0, exponent(total) - FRACTION)
        total = np.trunc(total / unit) * unit
    return total


def normal(dtype: str, rows: int, k: int, seed: int) -> Any:
    values = np.random.default_rng(seed).standard_normal((rows, k))
    return values.astype(getattr(ml_dtypes, dtype)).astype(np.float64)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("k", [32, 512, 4096])
@pytest.mark.part(2)
def test_what_tensor_cores_cut_off_is_allowed_and_a_step_too_few_is_not(dtype: str, k: int) -> None:
    gemm = Gemm(96, 96, k, dtype=dtype, out="float32")
    a, b = normal(dtype, 96, k, 0), normal(dtype, 96, k, 1)
    exact, magnitude = a @ b.T, abs(a) @ abs(b).T
    got = as_tensor_cores_add(a, b)
    assert 0.02 < worst_error(gemm, got, exact, magnitude) < 1
    short = got - a[:, -INSTRUCTION:] @ b[:, -INSTRUCTION:].T
    assert worst_error(gemm, short, exact, magnitude) > 2


def test_sums_of_short_runs_are_allowed_less() -> None:
    k, run = 4096, 128
    gemm = Gemm(96, 96, k, dtype="e4m3", out="float32")
    a, b = normal(gemm.dtype, 96, k, 0), normal(gemm.dtype, 96, k, 1)
    exact, magnitude = a @ b.T, abs(a) @ abs(b).T
    runs = [slice(start, start + run) for start in range(0, k, run)]
    promoted = sum(as_tensor_cores_add(a[:, part], b[:, part]) for part in runs)
    assert 0.02 < worst_error(gemm, promoted, exact, magnitude, run=run) < 1
    assert worst_error(gemm, as_tensor_cores_add(a, b), exact, magnitude, run=run) > 1


def test_what_is_relative_to_a_value_grows_with_the_walk() -> None:
    short, long = (Gemm(8, 8, k, dtype="e4m3", out="float32") for k in (1024, 4096))
    rounding = 2 * 2.0**-24
    grown = (allowed(long)[0] - rounding) / (allowed(short)[0] - rounding)
    assert math.isclose(grown, 2)
    assert math.isclose(allowed(long)[1], allowed(short)[1])


def test_a_convolution_sums_over_its_kernel_too() -> None:
    conv = conv2d(1, 8, 8, 64, 64, 3, 3, pad=1, dtype="e4m3")
    assert allowed(conv) == allowed(Gemm(64, 64, 64 * 9, dtype="e4m3"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_rounds_to_few_bits_next_to_zero_is_right(dtype: str) -> None:
    gemm = Gemm(1, 4, 1, dtype=dtype)
    least = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    exact = np.array([[0.5, 1.5, 2.5, 1000.5]]) * least
    got = exact.astype(getattr(ml_dtypes, dtype, dtype)).astype(np.float64)
    assert 0 < worst_error(gemm, got, exact, abs(exact)) <= 1
    assert worst_error(gemm, got + 2 * least, exact, abs(exact)) > 1
