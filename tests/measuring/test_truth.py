"""What results are compared with: the workloads' own references, found another way."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from pipeliner.measuring.truth import random_inputs, truth
from pipeliner.schedules import (
    Attention,
    ConvInputGrad,
    ConvWeightGrad,
    Gemm,
    conv1d,
    conv2d,
    conv3d,
)

from .. import fake_torch

module = importlib.import_module("pipeliner.measuring.truth")

SPECS = [
    Gemm(32, 16, 24, layout="TN"),
    Gemm(8, 16, 24, batch=3, dtype="bf16"),
    Gemm(32, 16, 24, dtype="int8", layout="TT"),
    Gemm(32, 16, 24, epilogue=("bias", "gelu", "residual")),
    conv2d(5, 6, 5, 3, 8, 3, 3, stride=2, pad=1),
    conv2d(2, 6, 5, 4, 8, 3, 2, stride=(1, 2), pad=(0, 1, 2, 0), dilation=2, dtype="bf16"),
    conv2d(2, 6, 5, 8, 4, 3, 3, pad=1, groups=2, layout="NCHW", dtype="fp32"),
    conv2d(2, 6, 5, 8, 16, 3, 3, pad=1, groups=8, dtype="int8"),
    conv2d(2, 6, 5, 4, 8, 3, 3, pad=1, epilogue=("bias", "silu"), dtype="bf16"),
    conv1d(2, 9, 4, 6, 3, pad=1, layout="NCW"),
    conv3d(1, 4, 5, 3, 2, 4, 2, 3, 1, pad=(0, 1, 0), groups=2),
    Attention(2, 4, 5, 9, 8, kv_heads=2),
    Attention(1, 2, 9, 5, 8, causal=True, dtype="bf16"),
    ConvInputGrad(conv2d(2, 6, 5, 4, 8, 3, 3, stride=2, pad=1)),
    ConvWeightGrad(conv2d(2, 6, 5, 4, 8, 3, 3, pad=1, dtype="bf16")),
]


@pytest.mark.parametrize("chunk", [8, module.CHUNK_BYTES])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_it_is_the_reference(torch, monkeypatch: pytest.MonkeyPatch, spec, chunk: int) -> None:
    """``chunk`` of 8 bytes: one image, or one row, at a time."""
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    inputs = random_inputs(fake_torch, spec)
    assert [tensor.shape for tensor in inputs] == list(spec.shapes()[:-1])
    arrays = [tensor.data for tensor in inputs]
    found = truth(fake_torch, spec, inputs)
    exact, magnitude = spec.reference(*arrays), spec.magnitude(*arrays)
    assert found.exact.shape == spec.shapes()[-1]
    np.testing.assert_allclose(found.exact.data, exact, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.magnitude.data, magnitude, rtol=1e-12)
    right = fake_torch.Tensor(exact).to(getattr(fake_torch, spec.out))
    assert found.error(right) <= 1
    gap = right.data.copy()
    gap[-1, ..., 0] = np.nan if gap.dtype.kind != "i" else -85
    assert not found.error(fake_torch.Tensor(gap)) <= 1


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "tf32"])
def test_inputs_are_standard_normal(torch, dtype: str) -> None:
    a, _ = random_inputs(fake_torch, Gemm(256, 256, 256, dtype=dtype))
    values = a.data.astype("float64")
    assert (abs(values.mean()) < 0.02, 0.98 < values.std() < 1.02) == (True, True)


def test_integers_are_small_and_of_both_signs(torch) -> None:
    a, _ = random_inputs(fake_torch, Gemm(256, 256, 256, dtype="int8"))
    assert (a.data.min(), a.data.max()) == (-8, 7)
