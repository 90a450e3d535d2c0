"""Weights of 4 bits beside their peers: who computes what, and what is stated of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeliner.bench import packed_claims, packed_problems
from pipeliner.bench.libraries import packed_by_torch, unpacked
from pipeliner.bench.results import CUBLAS, TORCH_PACKED, Report, Result
from pipeliner.bench.roofs import moved
from pipeliner.errors import WorkloadError
from pipeliner.measuring.truth import random_inputs, truths
from pipeliner.plan.request import Request
from pipeliner.records.record import OURS
from pipeliner.schedules import Gemm, PackedGemm
from tests import fake_torch
from tests.refusals import refused


@pytest.mark.parametrize(
    ("dtype", "peers"), [("", [OURS, CUBLAS]), ("bf16", [OURS, CUBLAS, TORCH_PACKED])]
)
def test_each_stands_beside_cublas_and_what_torch_has(dtype: str, peers: list[str]) -> None:
    problems = packed_problems("h200", Request(), dtype, ("cublas", "torch"), plain=False)
    assert [problem.spec.m for problem in problems] == [1, 16, 4096]
    for problem in problems:
        assert [one.name for one in problem.contenders] == peers


def test_claims_are_ratios_of_rates() -> None:
    report = Report("made up")
    for problem in packed_problems("h200", Request(), "", (), plain=False):
        report.results.append(Result(problem.name, OURS, us=2.0, tflops=50.0))
        report.results.append(Result(problem.name, CUBLAS, us=4.0, tflops=25.0))
    claims = packed_claims(report)
    assert [claim.value for claim in claims] == [2.0] * 3
    assert [claim.floor for claim in claims] == [1.6, 1.6, 0.85]


def test_its_truth_is_the_reference(torch: Any) -> None:
    what = PackedGemm(3, 6, 160)
    inputs = random_inputs(fake_torch, what)
    arrays = [tensor.data for tensor in inputs]
    assert arrays[1].dtype == np.uint32
    (found,) = truths(fake_torch, what, inputs)
    np.testing.assert_allclose(found.exact.data, what.reference(*arrays), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.magnitude.data, what.magnitude(*arrays), rtol=1e-12)


def test_cublas_is_given_dequantised_weights(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    what, asked = PackedGemm(3, 6, 160), []

    def product(a: Any, b: Any, *, out: Any) -> Any:
        asked.append(b.data.T)
        return out

    monkeypatch.setattr(fake_torch, "matmul", product, raising=False)
    inputs = [fake_torch.Tensor(array) for array in what.inputs(1)]
    run, c = unpacked(what), fake_torch.Tensor(np.empty((3, 6), "float16"))
    run(*inputs, c)
    run(*inputs, c)
    assert asked[0] is not None
    assert asked[0].base is asked[1].base  # made once
    np.testing.assert_array_equal(asked[0], what.dequantised(*what.inputs(1)[1:]))


def test_torch_is_given_bytes_of_two_and_scales_without_zeros(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    what, asked = PackedGemm(2, 4, 128, "bfloat16"), []
    tensor = fake_torch.Tensor

    def packed(words: Any, tiles: int) -> Any:
        asked.append((words.data, tiles))
        return words

    def product(a: Any, words: Any, group: int, factors: Any) -> Any:
        asked.append((group, factors.data))
        return a

    for name, made in {
        "_convert_weight_to_int4pack": packed,
        "_weight_int4pack_mm": product,
        "zeros_like": lambda one: tensor(np.zeros_like(one.data)),
        "stack": lambda all_of, dim: tensor(np.stack([one.data for one in all_of], dim)),
    }.items():
        monkeypatch.setattr(fake_torch, name, made, raising=False)
    inputs = [tensor(array) for array in what.inputs(1)]
    packed_by_torch(what)(*inputs, tensor(np.empty((2, 4), "float32")))
    (pairs, tiles), (group, factors) = asked
    weights = what.weights(inputs[1].data)
    assert (tiles, group, factors.shape) == (8, 128, (1, 4, 2))
    assert (pairs >> 4 == weights[:, ::2]).all()
    assert (pairs & 15 == weights[:, 1::2]).all()
    assert not factors[..., 1].any()


def test_others_are_refused() -> None:
    with refused("peer.torch_packed", WorkloadError, peer=CUBLAS):
        unpacked(Gemm(64, 64, 64))
    with refused("peer.torch_packed", WorkloadError, peer=TORCH_PACKED):
        packed_by_torch(PackedGemm(1, 64, 128))


def test_it_moves_half_a_byte_a_weight() -> None:
    what = PackedGemm(1, 256, 512)
    assert moved(what) == 256 * 512 / 2 + 2 * (512 + 4 * 256 + 256)
