"""The CTAs of a cluster put the parts of a tile together, in place of a second kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.machine import H200
from pipeliner.passes.ir.kernels import thread_tag
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.proof.prove import prove
from pipeliner.schedules import Gemm, GemmTile, conv2d, default_tile, schedule_conv, schedule_gemm
from pipeliner.schedules.tiles import ConvTile
from tests.refusals import refused, says, the

IN_CLUSTER: dict[str, Any] = {"instruction": "wgmma", "store": "cluster", "prove": False}

CASES = {
    "rows of 64": (Gemm(64, 128, 1024), GemmTile(64, 64, 64, splits=4)),
    "A and B swapped, ragged": (Gemm(5, 136, 1000, dtype="bf16"), GemmTile(8, 64, 64, splits=8)),
    "several row blocks": (Gemm(100, 72, 768), GemmTile(40, 64, 64, splits=2)),
    "two warpgroups": (Gemm(130, 64, 512), GemmTile(128, 64, 64, splits=4)),
    "neither K innermost": (Gemm(16, 128, 640, layout="TT"), GemmTile(64, 64, 64, splits=2)),
    "integers": (Gemm(64, 64, 512, dtype="int8"), GemmTile(64, 64, 64, splits=2)),
    "tf32": (Gemm(17, 64, 256, dtype="tf32"), GemmTile(24, 64, 32, splits=4)),
    "epilogue": (
        Gemm(64, 72, 512, epilogue=("bias", "residual", "relu")),
        GemmTile(64, 64, 64, splits=2),
    ),
    "three CTAs": (Gemm(40, 64, 640), GemmTile(48, 64, 64, splits=3)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_outputs_are_those_of_the_second_kernel_to_the_bit(case: str) -> None:
    gemm, tile = CASES[case]
    kernel = pipeliner.build(schedule_gemm(gemm, tile), "h200", **IN_CLUSTER)
    plan = KernelPlan.from_json(kernel.plan.to_json())
    (store,) = plan.stores
    assert (store.mechanism, store.parts, plan.elementwise) == ("cluster", tile.splits, ())
    assert plan.ctas_that_meet == tile.splits
    assert kernel.cuda.count("__global__") == 2  # one, which is declared first
    verdict = pipeliner.verify(kernel, timings=("late", "early"), orders=("random", "reversed"))
    assert verdict.ok, str(verdict)


@given(st.data())
@settings(max_examples=2, deadline=None)
def test_drawn_products(data: st.DataObject) -> None:
    splits = data.draw(st.sampled_from([2, 4, 8]))
    rows = data.draw(st.sampled_from([8, 24, 64, 72]))
    columns = data.draw(st.sampled_from([64, 128]))
    gemm = Gemm(
        data.draw(st.integers(1, 2 * rows)),
        8 * data.draw(st.integers(1, 20)),
        data.draw(st.integers(splits * 8, 80)) * 8,
    )
    tile = GemmTile(rows, columns, 64, splits=min(splits, -(-gemm.k // 64)))
    if tile.splits < 2 or rows % tile.splits:
        return
    kernel = pipeliner.build(schedule_gemm(gemm, tile), "h200", **IN_CLUSTER)
    assert pipeliner.verify(kernel).ok


def test_every_synchronisation_is_needed_and_proved() -> None:
    schedule = schedule_gemm(Gemm(40, 128, 2048), GemmTile(40, 64, 64, splits=4))
    kernel = pipeliner.build(schedule, "h200", **IN_CLUSTER, depth=3)
    proof = prove(kernel)
    assert proof.ok, str(proof)
    report = pipeliner.mutate(kernel)
    assert len(report.fates) >= 20
    assert [fate.mutant for fate in report.fates if not fate.killed_by] == []


def of_two(change: Any, *kinds: Any) -> Any:
    """A product in two parts with something changed in its function."""
    func = schedule_gemm(Gemm(64, 64, 512), GemmTile(64, 64, 64, splits=2)).mod["main"]
    return func.with_body(
        tvm_ffi.structural_map(func.body, [(kind, change) for kind in kinds], order="post")
    )


def test_parts_need_not_be_added() -> None:
    def larger(node: Any) -> Any:
        if str(node.buffer.name) != "C":
            return node
        value = node.value.value
        most = tirx.Cast("float16", tirx.Max(value.a, value.b) * 2)
        return tirx.BufferStore(node.buffer, most, node.indices)

    kernel = pipeliner.build(of_two(larger, tirx.BufferStore), "h200", **IN_CLUSTER)
    assert kernel.plan.stores[0].parts == 2
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-3, 4, (64, 512)).astype("float16") for _ in range(2))
    halves = [
        a[:, at : at + 256].astype("float64") @ b[:, at : at + 256].astype("float64").T
        for at in (0, 256)
    ]
    inputs = {"A": a, "B": b, "C": np.zeros((64, 64), "float16")}
    verdict = pipeliner.verify(
        kernel, inputs=inputs, reference=lambda *_: {"C": 2 * np.maximum(*halves)}
    )
    assert verdict.ok, str(verdict)


def half_of_the_outputs(node: Any) -> Any:
    if thread_tag(node) != "blockIdx.x" or int(node.extent) == 1:
        return node
    bound = node.thread_binding
    return tirx.For(node.loop_var, node.min, tirx.const(int(node.extent) // 2), node.kind,
                    node.body, bound, node.annotations)  # fmt: skip


def each_part_elsewhere(node: Any) -> Any:
    at = list(node.indices)
    if str(node.source.name) != "parts" or int(at[0]) == 0:
        return node
    return tirx.BufferLoad(node.source, [at[0], at[2], at[1]])


@pytest.mark.parametrize(
    ("change", "kind"),
    [(half_of_the_outputs, tirx.For), (each_part_elsewhere, tvm_ffi.core.Object)],
)
def test_what_is_no_output_of_one_element_of_each_part_is_left_to_its_kernel(
    change: Any, kind: Any
) -> None:
    from tvm.ir import TensorLoad

    func = of_two(change, TensorLoad if change is each_part_elsewhere else kind)
    with refused("parts.not_each", PlanError, buffer="parts"):
        pipeliner.build(func, "h200", **IN_CLUSTER)
    plan = pipeliner.plan_of(pipeliner.pipeline(func, "h200"))
    assert plan.stores[0].mechanism == "direct"


REFUSED = {
    "nothing split": (Gemm(64, 64, 512), GemmTile(64, 64, 64), {}, "parts.none"),
    "rows": (Gemm(64, 64, 512), GemmTile(64, 64, 64, splits=3), {}, "parts.rows"),
    "parts": (Gemm(64, 64, 1024), GemmTile(64, 64, 64, splits=16), {}, "parts.grid"),
    "batch": (Gemm(64, 64, 512, batch=2), GemmTile(64, 64, 64, splits=2), {}, "parts.none"),
    "multicast": (
        Gemm(64, 128, 512),
        GemmTile(64, 64, 64, splits=2),
        {"cluster": 2},
        "parts.multicast",
    ),
    "room": (Gemm(256, 256, 512), GemmTile(256, 128, 64, splits=2), {}, "parts.no_room"),
    "workspace": (
        Gemm(64, 64, 512),
        GemmTile(64, 64, 64, splits=2),
        {"reduction": "workspace"},
        "parts.workspace",
    ),
    "no producer": (
        Gemm(64, 64, 512),
        GemmTile(64, 64, 64, splits=2),
        {"mechanism": "cp_async"},
        "store.no_producer",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_cluster_can_put_together_is_refused_in_one_line(case: str) -> None:
    gemm, tile, asked, code = REFUSED[case]
    with refused(code, PlanError) as caught:
        pipeliner.build(schedule_gemm(gemm, tile), "h200", **{**IN_CLUSTER, **asked})
    assert "\n" not in str(caught.value)


def test_outputs_of_more_dimensions_keep_their_kernel() -> None:
    conv = conv2d(1, 8, 8, 64, 64, 3, 3, pad=1)
    schedule = schedule_conv(conv, ConvTile(64, 64, 64, splits=4))
    plan = pipeliner.plan_of(pipeliner.pipeline(schedule.mod["main"], "h200"))
    assert plan.stores[0].mechanism in ("direct", "cluster")
    assert pipeliner.verify(pipeliner.build(schedule, "h200", prove=False)).ok


def test_few_rows_of_a_long_reduction_are_put_together_by_default() -> None:
    gemm = Gemm(2, 384, 2240)
    tile = default_tile(gemm, H200)
    assert tile.splits == 8
    plan = pipeliner.build(schedule_gemm(gemm, tile), "h200", prove=False).plan
    (store,) = plan.stores
    assert store.mechanism == "cluster"
    assert says("parts.taken", [store.reason])
    assert the("choice.taken", plan.reasons)["what"] == "a sum by clusters"


def test_ctas_that_fill_the_gpu_have_a_second_kernel() -> None:
    schedule = schedule_gemm(Gemm(8, 4096, 4096), GemmTile(8, 128, 64, splits=4))
    plan = pipeliner.plan_of(pipeliner.pipeline(schedule.mod["main"], "h200"))
    assert plan.stores[0].mechanism == "direct"
    assert len(plan.elementwise) == 1


def test_a_plan_that_says_so_is_obeyed_and_checked() -> None:
    schedule = schedule_gemm(Gemm(64, 64, 512), GemmTile(64, 64, 64, splits=2))
    kernel = pipeliner.build(schedule, "h200", **IN_CLUSTER)
    again = pipeliner.build(schedule, "h200", plan=kernel.plan, prove=False)
    assert again.cuda == kernel.cuda
    (store,) = kernel.plan.stores
    edited = replace(kernel.plan, stores=(replace(store, parts=4),))
    with pytest.raises(PlanError):
        pipeliner.build(schedule, "h200", plan=edited, prove=False)


@pytest.mark.parametrize(("columns", "triggers"), [(4096, (0,)), (8192, ())])
def test_a_kernel_that_leaves_half_of_the_gpu_releases_the_next_one(
    columns: int, triggers: tuple[int, ...]
) -> None:
    schedule = schedule_gemm(Gemm(16, columns, 512), GemmTile(16, 64, 64))
    plan = pipeliner.plan_of(pipeliner.pipeline(schedule.mod["main"], "h200"))
    assert plan.launch.triggers == triggers
    asked = Request(pdl=False)
    assert not pipeliner.plan_of(
        pipeliner.pipeline(schedule.mod["main"], "h200", pdl=asked.pdl)
    ).launch.pdl
