"""GEMMs with weights of 4 bits: what they compute, their schedule, which tile is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
import tvm

import pipeliner
from pipeliner.errors import WorkloadError
from pipeliner.machine import H200
from pipeliner.passes.recognise.facts import recognise
from pipeliner.plan.request import Request
from pipeliner.records.candidate import Candidate, workload_key, workload_of
from pipeliner.schedules import PackedGemm, RowTile, default_tile
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.scheduled import scheduled
from pipeliner.schedules.smaller import Needs, smaller
from pipeliner.tuning.space import point_of
from pipeliner.verification.accuracy import poisoned, worst_error
from tests.refusals import refused

from .test_gemm import on_cpu, prefix

SIZES = {
    "one-row": (PackedGemm(1, 64, 512), RowTile(8, 64)),
    "splits": (PackedGemm(2, 128, 512), RowTile(8, 64, splits=2)),
    "ragged": (PackedGemm(19, 72, 160), RowTile(16, 64)),
}

BY_TMA: Final[dict[str, Any]] = {"instruction": "wgmma", "mechanism": "tma"}

KERNELS = {
    "one-row": (*SIZES["one-row"], "h200", BY_TMA),
    "splits": (*SIZES["splits"], "h200", BY_TMA),
    "ragged": (PackedGemm(19, 72, 416), RowTile(16, 64), "h200", BY_TMA),
    "wide": (PackedGemm(32, 128, 256, "bfloat16"), RowTile(32, 128), "h200", BY_TMA),
    "mma": (PackedGemm(16, 64, 256), RowTile(16, 64), "a100", {}),
}


def off(what: PackedGemm, got: Any, inputs: Any) -> float:
    """The largest error over what is allowed."""
    exact, magnitude = what.reference(*inputs), what.magnitude(*inputs)
    return worst_error(what, got.astype("float64"), exact, magnitude)


@pytest.mark.parametrize("size", SIZES)
def test_tiles_compute_what_they_should(size: str) -> None:
    what, tile = SIZES[size]
    what = replace(what, out="float32")
    function = on_cpu(scheduled(what, tile).mod["main"])
    out = tvm.runtime.tensor(poisoned((what.m, what.n), "float32"))
    function(*map(tvm.runtime.tensor, what.inputs(1)), out)
    assert off(what, out.numpy(), what.inputs(1)) <= 1


def test_the_plain_function_computes_it_too() -> None:
    what = PackedGemm(3, 20, 160)
    out = tvm.runtime.tensor(poisoned((3, 20), "float16"))
    tvm.compile(what.function(), target="llvm")(*map(tvm.runtime.tensor, what.inputs(4)), out)
    assert off(what, out.numpy(), what.inputs(4)) <= 1


def test_words_hold_the_weights() -> None:
    what = PackedGemm(1, 4, 96)
    weights = np.random.default_rng(0).integers(0, 16, (4, 96))
    words = what.packed(weights)
    assert (what.weights(words) == weights).all()
    one = np.zeros((4, 96), int)
    one[2, 32 + 4 + 16 + 1] = 15  # word 4 + 2 of the row, the third field of its upper half
    assert what.packed(one).tolist() == [
        [0xF << 24 if (row, at) == (2, 6) else 0 for at in range(12)] for row in range(4)
    ]


def test_the_reference_is_the_definition() -> None:
    what = PackedGemm(2, 3, 256)
    a, words, scales = what.inputs(1)
    made, weights = what.reference(a, words, scales), what.weights(words).astype("float64")
    for row, column in ((0, 0), (1, 2)):
        of_group = (weights[column].reshape(2, 128) - 8) * scales[:, column, None].astype("f8")
        rounded = of_group.reshape(-1).astype("float16").astype("f8")
        np.testing.assert_allclose(made[row, column], (a[row].astype("f8") * rounded).sum())


@pytest.mark.parametrize("case", KERNELS)
def test_a_kernel_is_right(case: str) -> None:
    what, tile, target, options = KERNELS[case]
    kernel = pipeliner.build(scheduled(what, tile), target, **options)
    (matmul,) = kernel.plan.matmuls
    assert matmul.operand == "computed"
    assert any(loop.pipelined for loop in kernel.plan.loops)
    inputs = what.inputs(3)
    done = kernel.emulate(*inputs, poisoned((what.m, what.n), what.out))
    assert not done.hazards
    assert off(what, done.outputs["C"], inputs) <= 1


def test_eight_weights_take_four_logical_operations_and_eight_of_floats() -> None:
    what, tile = PackedGemm(1, 64, 512), RowTile(8, 64)
    kernel = pipeliner.build(scheduled(what, tile), "h200", **BY_TMA)
    text = kernel.cuda[kernel.cuda.index("__launch_bounds__") :]
    calls = [
        text.count(f"{name}(")
        for name in ("lop3_b32_234", "fma_half_rn_f16x2", "mul_half_rn_f16x2")
    ]
    assert calls[0] == calls[1] == calls[2] > 0


@pytest.mark.parametrize("size", ["large", "many", *SIZES])
def test_the_closed_form_is_what_recognition_finds(size: str) -> None:
    large = PackedGemm(4096, 8192, 8192), RowTile(256, 128)
    many = PackedGemm(16, 8192, 8192, "bfloat16"), RowTile(16, 128, splits=4)
    what, tile = {"large": large, "many": many, **SIZES}[size]
    _, facts = recognise(prefix(scheduled(what, tile).mod))
    assert facts.info == kernel_info(what, tile)


def test_wrong_scales_are_beyond_the_bound() -> None:
    what = PackedGemm(8, 32, 512)
    a, words, scales = what.inputs(2)
    wrong = what.reference(a, words, np.roll(scales, 1, axis=0)).astype("float16")
    right = what.reference(a, words, scales).astype("float16")
    assert off(what, right, (a, words, scales)) <= 1 < off(what, wrong, (a, words, scales))


def test_the_tile_of_the_least_predicted_time_is_taken() -> None:
    assert default_tile(PackedGemm(4096, 8192, 8192), H200) == RowTile(256, 128)
    assert default_tile(PackedGemm(1, 8192, 8192), H200).m == 8
    assert default_tile(PackedGemm(16, 8192, 8192), H200).m == 16
    assert default_tile(PackedGemm(1, 1024, 8192), H200).splits > 1
    assert default_tile(PackedGemm(1, 1024, 8192), H200, splits=1).splits == 1


def test_records_know_it() -> None:
    tile = RowTile(16, 64, splits=2)
    what, candidate = PackedGemm(16, 4096, 4096), Candidate(tile, Request(depth=2))
    assert workload_of(workload_key(what)) == what
    assert point_of(what, H200, candidate).predicted_us > 0


def test_a_smaller_one_has_as_many_splits() -> None:
    small, cut = next(smaller(PackedGemm(16, 8192, 8192), RowTile(16, 128, splits=4), Needs(3)))
    assert (small, cut) == (PackedGemm(16, 512, 1536), RowTile(16, 128, splits=4))


def test_what_makes_no_sense_is_refused() -> None:
    with refused("packed.dtype", WorkloadError):
        PackedGemm(1, 64, 128, "float32")
    with refused("packed.run", WorkloadError, k=100):
        PackedGemm(1, 64, 100)
    with refused("packed.splits", WorkloadError, groups=3, splits=2):
        scheduled(PackedGemm(1, 64, 384), RowTile(8, 64, splits=2))
    with refused("option.persistent", WorkloadError):
        scheduled(PackedGemm(1, 64, 384), RowTile(8, 64, persistent=4))
    with refused("split.no_matmul", WorkloadError):
        scheduled(pipeliner.schedules.RowGemm(64, 64, 64, "rms"), RowTile(64, 64, splits=2))
