"""Parts of a reduction that TMA adds in the output: right in any order, and only when asked for."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tvm

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.passes.ir.kernels import kernels_of
from pipeliner.passes.prepare.partial_sums import add_partial_sums
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.schedules import ConvTile, Gemm, GemmTile, conv2d, schedule_conv, schedule_gemm
from pipeliner.schedules.workloads import Spec
from pipeliner.verification.verdict import verify, verify_workload
from tests.refusals import gives, refused, says
from tests.verify.modes import modes_of

from .test_gemm import prefix

ADDED = "cp_reduce_async_bulk_tensor"


def schedule(spec: Spec, tile: Any) -> Any:
    return (schedule_gemm if isinstance(spec, Gemm) else schedule_conv)(spec, tile)


def added(spec: Spec, tile: Any, **options: Any) -> Any:
    return pipeliner.build(schedule(spec, tile), "h100", reduction="atomic", **options)


@pytest.mark.parametrize(
    ("spec", "tile"),
    [
        (Gemm(128, 128, 512), GemmTile(128, 64, 64, splits=4)),
        (Gemm(16, 256, 512, dtype="bfloat16"), GemmTile(16, 128, 64, splits=2)),  # swap A/B
        (Gemm(32, 256, 512, out="float32"), GemmTile(32, 128, 64, splits=2)),  # and two boxes
        (Gemm(128, 96, 512, out="float32"), GemmTile(128, 96, 64, splits=4)),
        (Gemm(200, 136, 512, epilogue=("bias", "residual")), GemmTile(128, 64, 64, splits=3)),
        (Gemm(64, 128, 512, dtype="int8"), GemmTile(64, 64, 64, splits=2)),
        (Gemm(16, 128, 512, dtype="int8"), GemmTile(16, 64, 64, splits=2)),
        (Gemm(64, 128, 512, batch=2, layout="NN"), GemmTile(64, 64, 64, splits=2)),
        (Gemm(256, 256, 256, layout="TN"), GemmTile(128, 128, 64, splits=2, persistent=2)),
        (Gemm(130, 136, 256, out="float32"), GemmTile(128, 128, 64, splits=2)),
        (conv2d(1, 8, 8, 64, 64, 3, 3, pad=1), ConvTile(64, 64, 64, splits=3)),
        (conv2d(2, 7, 7, 64, 64, 3, 3, pad=1), ConvTile(64, 64, 64, splits=3)),
    ],
    ids=str,
)
@pytest.mark.part(12)
def test_parts_are_added_right(spec: Spec, tile: Any) -> None:
    kernel = added(spec, tile)
    (store,) = kernel.plan.stores
    assert (store.mechanism, store.partial_sums) == ("tma", tile.splits)
    assert kernel.cuda.count(ADDED) >= 2  # defined and called
    verdict = verify_workload(kernel, spec, seed=4, **modes_of(spec))
    assert verdict.ok, (verdict.worst, verdict.hazards)


def test_every_order_of_additions_gives_the_sum_of_integers() -> None:
    gemm = Gemm(64, 128, 256, dtype="int8")
    kernel = added(gemm, GemmTile(64, 64, 64, splits=4))
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, shape).astype("int8") for shape in gemm.shapes()[:2])
    want = a.astype("int32") @ b.astype("int32").T
    for timing, order in (("late", "reversed"), ("early", "round-robin"), ("random", "random")):
        out = np.full((64, 128), -85, "int32")
        result = kernel.emulate(a, b, out, timing=timing, order=order)
        assert not result.hazards
        np.testing.assert_array_equal(result.outputs["C"], want)
    (store,) = kernel.plan.stores
    assert says("partial_sums.integers", [store.reason])


def test_the_output_starts_as_the_epilogue_of_nothing_in_a_kernel_before() -> None:
    gemm = Gemm(64, 64, 256, epilogue=("bias",))
    func = add_partial_sums(
        next(iter(schedule(gemm, GemmTile(32, 32, 32, splits=2)).mod.functions.values()))
    )
    first, second = kernels_of(prefix(tvm.IRModule({"main": func})).body)
    assert "bias" in str(first)
    assert "parts[" not in str(first) + str(second)
    assert "bias" not in str(second)


def test_the_plan_says_that_it_is_not_the_same_every_time_and_is_obeyed_again() -> None:
    gemm, tile = Gemm(128, 128, 512), GemmTile(128, 64, 64, splits=4)
    kernel = added(gemm, tile)
    text = " ".join(kernel.plan.explain().split())
    assert "tma, added" in text
    assert (
        "4 partial sums are rounded to float16 and added as they come: the last bits differ" in text
    )
    assert "kernels before it" in text
    plan = KernelPlan.from_json(kernel.plan.to_json())
    again = pipeliner.build(schedule(gemm, tile), "h100", plan=plan)
    assert again.plan == kernel.plan
    assert again.cuda == kernel.cuda


@pytest.mark.parametrize("reduction", ["auto", "workspace"])
@pytest.mark.part(2)
def test_parts_are_not_added_so_unless_that_is_asked_for(reduction: Any) -> None:
    schedule_ = schedule(Gemm(128, 128, 512), GemmTile(128, 64, 64, splits=4))
    kernel = pipeliner.build(schedule_, "h100", reduction=reduction)
    assert [store.partial_sums for store in kernel.plan.stores] == [0]
    assert ADDED not in kernel.cuda
    assert "kernels behind it" in kernel.plan.explain()


def test_partial_sums_are_compared_with_what_is_not_pipelined() -> None:
    kernel = added(Gemm(64, 64, 256), GemmTile(64, 64, 64, splits=2))
    verdict = verify(kernel)
    assert verdict.ok, verdict.worst


def test_no_mutant_of_parts_that_are_added_survives() -> None:
    kernel = added(Gemm(128, 128, 768), GemmTile(128, 64, 64, splits=2, persistent=1), depth=3)
    report = pipeliner.mutate(kernel)
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.survivors)
    assert {"commit", "fence", "wait", "barrier"} <= {fate.mutant.kind for fate in report.fates}


@pytest.mark.parametrize(
    ("gemm", "tile", "options", "why"),
    [
        (
            Gemm(128, 128, 512),
            GemmTile(128, 64, 64),
            {},
            "partial_sums.none",
        ),
        (
            Gemm(128, 128, 512, epilogue=("relu",)),
            GemmTile(128, 64, 64, splits=2),
            {},
            "partial_sums.no_sum",
        ),
        (
            Gemm(128, 128, 512, dtype="int8", out="int8"),
            GemmTile(128, 64, 64, splits=2),
            {},
            "partial_sums.dtype",
        ),
        (
            Gemm(128, 128, 512),
            GemmTile(128, 64, 64, splits=2),
            {"store": "direct"},
            "partial_sums.direct",
        ),
        (
            Gemm(128, 128, 512),
            GemmTile(128, 64, 64, splits=2),
            {"mechanism": "cp_async"},
            "store.no_producer",
        ),
        (
            Gemm(128, 100, 512),
            GemmTile(128, 64, 64, splits=2),
            {},
            "box.stride",
        ),
        (
            Gemm(128, 128, 512, accumulator="float16"),
            GemmTile(128, 64, 64, splits=2),
            {},
            "store.halves",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_added_is_refused(
    gemm: Gemm, tile: GemmTile, options: Any, why: str
) -> None:
    with refused(why) as error:
        added(gemm, tile, **options)
    assert gives(error.value.reason, "partial_sums.refused", kernel=gemm.name)


def test_a_gpu_without_the_accelerator_adds_nothing() -> None:
    with refused("store.no_producer", PlanError):
        pipeliner.pipeline(
            schedule(Gemm(128, 128, 512), GemmTile(64, 64, 32, splits=2)),
            "a100",
            reduction="atomic",
        )


def test_a_plan_that_would_lose_what_others_add_is_refused() -> None:
    gemm, tile = Gemm(128, 128, 512), GemmTile(128, 64, 64, splits=4)
    plan = added(gemm, tile).plan
    (store,) = plan.stores
    edited = dataclasses.replace(plan, stores=(dataclasses.replace(store, mechanism="direct"),))
    with refused("partial_sums.direct_store", PlanError):
        pipeliner.pipeline(schedule(gemm, tile), "h100", plan=edited)


def test_a_wrong_word_is_refused() -> None:
    with refused("request.choice", PlanError, option="reduction", value="'add'"):
        Request(reduction="add")
