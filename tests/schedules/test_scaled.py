"""Block-scaled GEMMs: what they compute, their schedule, which tiles are compared and taken."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tvm

from pipeliner.api import pipeline
from pipeliner.errors import PlanError, WorkloadError
from pipeliner.machine import H100, H200, V100
from pipeliner.passes.recognise.facts import recognise
from pipeliner.plan.request import Request
from pipeliner.records.candidate import Candidate, workload_key, workload_of
from pipeliner.schedules import GemmTile, RowTile, ScaledGemm, default_tile, schedule_scaled
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.compared import compare_loops
from pipeliner.schedules.scheduled import scheduled
from pipeliner.schedules.smaller import Needs, smaller
from pipeliner.schedules.workloads import numpy_dtype
from pipeliner.tuning.space import point_of
from pipeliner.verification.accuracy import worst_error
from tests.refusals import refused

from .test_attention_tiles import comparable
from .test_gemm import on_cpu, prefix

ON_CPU = 2
"""Of the bound: for a CPU, TVM rounds products of fp8 to 16 bits."""

UP = ScaledGemm(4096, 7168, 16384)

CASES = {
    "even": (ScaledGemm(64, 128, 256), RowTile(32, 64)),
    "ragged": (ScaledGemm(70, 150, 200), RowTile(32, 64)),
    "several-blocks-a-tile": (ScaledGemm(20, 300, 130, out="float32"), RowTile(16, 256)),
    "short": (ScaledGemm(5, 9, 16, dtype="e5m2"), RowTile(16, 16)),
}


def run(what: ScaledGemm, function: Any, inputs: Any) -> Any:
    out = tvm.runtime.tensor(np.full(what.shapes()[-1], np.nan, numpy_dtype(what.out)))
    function(*map(tvm.runtime.tensor, inputs), out)
    return out.numpy()


def off(what: ScaledGemm, got: Any, inputs: Any) -> float:
    return worst_error(what, got, what.reference(*inputs), what.magnitude(*inputs))


def test_the_reference_is_the_definition() -> None:
    what = ScaledGemm(3, 130, 200)
    a, b, of_a, of_b = (x.astype("float64") for x in what.inputs(seed=1))
    assert (of_a.shape, of_b.shape) == ((2, 3), (2, 2))
    made = what.reference(*what.inputs(seed=1))
    for i, j in ((0, 0), (2, 127), (1, 128), (2, 129)):
        blocks = (
            of_a[s, i] * of_b[j // 128, s] * math.fsum(a[i, k] * b[j, k] for k in columns)
            for s, columns in enumerate((range(128), range(128, 200)))
        )
        assert made[i, j] == pytest.approx(math.fsum(blocks))


@pytest.mark.parametrize("case", CASES)
def test_tiles_compute_what_they_should(case: str) -> None:
    what, tile = CASES[case]
    inputs = what.inputs(seed=3)
    tiled = on_cpu(schedule_scaled(what, tile).mod["main"])
    assert off(what, run(what, tiled, inputs), inputs) < ON_CPU


def test_the_plain_function_computes_it_too() -> None:
    what, _ = CASES["ragged"]
    inputs = what.inputs(seed=4)
    plain = tvm.compile(what.function(), target="llvm")
    assert off(what, run(what, plain, inputs), inputs) < ON_CPU


def test_a_scale_of_another_block_is_beyond_the_bound() -> None:
    what = ScaledGemm(20, 256, 512)
    a, b, of_a, of_b = what.inputs()
    exact, magnitude = what.reference(a, b, of_a, of_b), what.magnitude(a, b, of_a, of_b)
    for wrong in ((of_a[::-1], of_b), (np.roll(of_a, 1, 1), of_b), (of_a, of_b[::-1])):
        assert worst_error(what, what.reference(a, b, *wrong), exact, magnitude) > 10


@pytest.mark.parametrize("case", ["up", *CASES])
def test_the_closed_form_is_what_recognition_finds(case: str) -> None:
    what, tile = CASES.get(case, (UP, RowTile(128, 128)))
    _, facts = recognise(prefix(schedule_scaled(what, tile).mod))
    assert comparable(facts.info) == comparable(kernel_info(what, tile))


def test_the_tile_of_the_least_predicted_time_is_taken() -> None:
    times = compare_loops(UP, H200)
    assert len(times) >= 6
    best = default_tile(UP, H200)
    assert times[best] == min(times.values())
    few = default_tile(ScaledGemm(64, 7168, 2048), H200)
    assert (few.m, -(-7168 // few.n)) == (64, 112)
    assert set(compare_loops(ScaledGemm(64, 32, 2048), H200)) == {RowTile(64, 32)}


def test_records_know_it() -> None:
    assert workload_of(workload_key(UP)) == UP
    candidate = Candidate(RowTile(128, 64), Request(depth=2))
    assert Candidate.from_json(candidate.to_json()) == candidate
    assert point_of(UP, H100, candidate).predicted_us > 0


def test_a_smaller_one_has_every_kind_of_tile() -> None:
    small, cut = next(smaller(ScaledGemm(4000, 7168, 16384), RowTile(128, 128), Needs(steps=9)))
    assert small == ScaledGemm(160, 256, 1152)
    assert cut == RowTile(128, 128)


def test_what_makes_no_sense() -> None:
    with refused("scaled.dtype", WorkloadError, value="float16"):
        ScaledGemm(64, 64, 64, dtype="fp16")
    with refused("scaled.columns", WorkloadError, columns=96):
        schedule_scaled(UP, RowTile(64, 96))
    with refused("option.persistent", WorkloadError, count=132):
        schedule_scaled(UP, RowTile(64, 128, persistent=132))
    with refused("split.no_matmul", WorkloadError):
        default_tile(UP, H100, splits=2)
    with refused("tile.kind", WorkloadError):
        scheduled(UP, GemmTile(64, 64, 64))
    with refused("tile.kind", WorkloadError):
        kernel_info(UP, GemmTile(64, 64, 64))


def test_a_gpu_without_fp8_is_named() -> None:
    """TVM would widen 16 elements at once, to a type that CUDA does not have."""
    schedule = schedule_scaled(ScaledGemm(128, 256, 512), RowTile(64, 128))
    with refused("mapping.no_fp8", PlanError, machine=V100.name, dtype="float8_e4m3fn"):
        pipeline(schedule, "v100", instruction="simt")
