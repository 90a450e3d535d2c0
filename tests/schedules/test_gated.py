"""Gated GEMMs: what they compute, what they are called, what they are not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.errors import PlanError, WorkloadError
from pipeliner.machine import A100, H100, H200
from pipeliner.records.candidate import workload_key, workload_of
from pipeliner.schedules import GatedGemm, Gemm, GemmTile, NaiveTile, default_tile
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.scheduled import scheduled
from pipeliner.verification.accuracy import worst_error
from tests.refusals import refused

from .test_gemm import check


def silu(x: float) -> float:
    return x / (1 + math.exp(-x))


@pytest.mark.parametrize(
    ("activation", "by_hand"),
    [
        ("silu", silu),
        ("relu", lambda x: max(x, 0.0)),
        ("gelu", lambda x: x / 2 * (1 + math.erf(x / math.sqrt(2)))),
    ],
)
def test_the_first_product_gates_the_second(activation: str, by_hand: Any) -> None:
    gated = GatedGemm(2, 3, 4, activation=activation)
    a, b1, b2 = gated.inputs(seed=1)
    found = gated.reference(a, b1, b2)
    for i, j in np.ndindex(2, 3):
        gate, value = (math.fsum(float(x) * float(y) for x, y in zip(a[i], b[j])) for b in (b1, b2))
        assert found[i, j] == pytest.approx(by_hand(gate) * value)


def test_a_gated_gemm_says_what_it_is() -> None:
    gated = GatedGemm(64, 32, 16, dtype="bf16", activation="gelu")
    assert gated.name == "gated_gemm_64x32x16_bfloat16_nt_gelu"
    assert gated.title == "bfloat16 gated GEMM 64 x 32 x 16 NT, gelu"
    assert gated.shapes() == ((64, 16), (32, 16), (32, 16), (64, 32))
    assert gated.plain() == Gemm(64, 64, 16, dtype="bf16")
    assert gated.flops() == gated.plain().flops()
    assert workload_of(workload_key(gated)) == gated != Gemm(64, 32, 16, dtype="bf16")


@pytest.mark.parametrize(("m", "columns"), [(512, {112}), (4096, {80, 96})])
def test_the_tile_is_among_those_that_were_measured_fastest(m: int, columns: set[int]) -> None:
    """Of 15 and 7 on an H200: 161.9 us and 1285, where tiles of 128x160 took 174.1 and 1337.6.

    Of 4096 rows in one process, 1345 by 80 columns and 1337 by 96.
    """
    tile = default_tile(GatedGemm(m, 14336, 4096, dtype="bf16"), H200)
    assert (tile.m, tile.persistent) == (128, H200.sms)
    assert tile.n in columns


def test_rounding_both_products_is_within_the_bound() -> None:
    gated = GatedGemm(32, 32, 512, dtype="bfloat16")
    inputs = gated.inputs()
    a, b1, b2 = (x.astype("f4") for x in inputs)
    gate, value = a @ b1.T, a @ b2.T
    rounded = (gate / (1 + np.exp(-gate)) * value).astype(inputs[0].dtype)
    exact, magnitude = gated.reference(*inputs), gated.magnitude(*inputs)
    assert worst_error(gated, rounded, exact, magnitude) <= 1
    wrong = gated.reference(inputs[0], inputs[2], inputs[1])
    assert worst_error(gated, wrong, exact, magnitude) > 1


def test_what_a_gated_gemm_is_not() -> None:
    with refused("gated.plain", WorkloadError):
        GatedGemm(16, 16, 16, epilogue=("bias",))
    with refused("gated.plain", WorkloadError):
        GatedGemm(16, 16, 16, weights="int8")
    with refused("epilogue.step", WorkloadError, value="bias"):
        GatedGemm(16, 16, 16, activation="bias")
    with refused("epilogue.integers", WorkloadError):
        GatedGemm(16, 16, 32, dtype="int8")
    with refused("tile.kind", WorkloadError):
        scheduled(GatedGemm(16, 16, 16), NaiveTile())


def test_a_persistent_grid_computes_it_too() -> None:
    check(GatedGemm(64, 64, 64, dtype="bf16"), GemmTile(16, 32, 16, persistent=3))


def test_k_is_split_where_columns_are_few() -> None:
    """As of a gated layer that several GPUs share: 14 tiles of columns leave most SMs idle."""
    tile = default_tile(GatedGemm(16, 896, 8192, dtype="bf16"), H200)
    assert tile.splits > 1
    assert default_tile(GatedGemm(64, 14336, 4096, dtype="bf16"), H200).splits == 1


def test_the_sums_of_both_are_made_before_one_gates_the_other() -> None:
    """``silu`` of parts is no part of ``silu``: a kernel behind adds both, then multiplies."""
    spec, tile = GatedGemm(16, 32, 64), GemmTile(16, 16, 16, splits=2)
    check(spec, tile)
    info = kernel_info(spec, tile)
    assert [store.dst for store in info.stores] == ["parts", "second_parts"]
    (behind,) = info.elementwise
    assert behind.global_bytes == 16 * 32 * (2 * 2 * 4 + 2)  # two parts of two sums, and a result


def test_ctas_of_a_cluster_do_not_put_parts_of_two_sums_together() -> None:
    schedule = scheduled(GatedGemm(16, 32, 64), GemmTile(16, 16, 16, splits=2))
    with refused("parts.read", PlanError, buffer="second_parts"):
        pipeliner.build(schedule, "h100", store="cluster")


def test_memory_does_not_add_parts_of_two_sums() -> None:
    schedule = scheduled(GatedGemm(16, 32, 64), GemmTile(16, 16, 16, splits=2))
    with refused("partial_sums.several", PlanError, names=("parts", "second_parts")):
        pipeliner.build(schedule, "h100", reduction="atomic")


@pytest.mark.parametrize("machine", [A100, H100], ids=lambda machine: machine.name)
def test_the_tile_leaves_registers_for_both_accumulators(machine: Any) -> None:
    one, two = (
        default_tile(spec, machine, splits=1)
        for spec in (Gemm(4096, 4096, 4096), GatedGemm(4096, 4096, 4096))
    )
    assert two.m * two.n < one.m * one.n
    assert two.splits == 1
