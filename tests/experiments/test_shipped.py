"""The experiments that are shipped: every rung can be made, and each step adds what it says."""

from __future__ import annotations

import pytest

import pipeliner
from pipeliner import cli
from pipeliner.experiments import SHIPPED, read_experiment, steps_of
from pipeliner.schedules import Conv, Gemm
from pipeliner.targets import accelerated, cuda_target, gpu
from tests.refusals import told

H100 = accelerated(cuda_target("h100"))


def test_the_ladder_has_every_rung_and_each_can_be_made():
    """Each rung through the passes: it has what its name says."""
    ladder = read_experiment("ladder")
    assert [one.label for one in ladder.workloads] == [
        f"{n}^3" for n in (256, 512, 1024, 2048, 4096, 8192)
    ]
    plans = {}
    for step in steps_of(ladder, H100):
        assert not step.failure
        if step.workload.label == "512^3" and step.candidate is not None:
            kernel = pipeliner.build(
                step.candidate.function(step.spec),
                H100,
                **{name: getattr(step.candidate.request, name) for name in ("depth", "mechanism")},
                instruction=step.candidate.request.instruction,
            )
            plans[step.variant.name] = kernel.plan
    vectors = {name: {copy.vector_bytes for copy in plan.copies} for name, plan in plans.items()}
    assert vectors["naive"] == set()
    assert vectors["2-D thread tile"] == {4}
    assert vectors["vectorised"] == {16}
    tiles = {name: plan.matmuls[0] for name, plan in plans.items() if plan.matmuls}
    assert tiles["shared tiles"].thread_tile == (1, 1)
    assert tiles["1-D thread tile"].thread_tile == (8, 1)
    assert tiles["2-D thread tile"].thread_tile == (8, 8)
    assert (tiles["vectorised"].warps, tiles["warp tiled"].warps) == ((8, 1), (2, 4))
    slots = {
        name: max(
            (r.depth for loop in plan.loops for r in loop.rings if r.scope != "local"), default=1
        )
        for name, plan in plans.items()
    }
    expected = {"naive": 1, "warp tiled": 1, "double buffered": 2, "TMA": 1}
    expected |= {f"async, {depth} slots": depth for depth in (2, 3, 4)}
    assert {name: slots[name] for name in expected} == expected
    assert slots["warp-specialised"] > 1
    kinds = {name: tile.instruction.split(".")[0] for name, tile in tiles.items()}
    assert [kinds[name] for name in ("tensor cores: mma", "mma, cp.async", "TMA")] == [
        "mma",
        "mma",
        "wgmma",
    ]
    moved = {name: {copy.mechanism for copy in plan.copies} for name, plan in plans.items()}
    assert moved["wgmma, cp.async"] == {"cp_async"}
    assert moved["warp-specialised"] == {"tma"}


@pytest.mark.slow
def test_each_step_of_attention_adds_a_mechanism():
    """The plan of each variant: slots, roles, and which matmul runs under that of the next step."""
    steps = [step for step in steps_of(read_experiment("attention"), H100) if step.candidate]
    assert len(steps) == 10
    assert not any(step.failure for step in steps)
    options = ("depth", "mechanism", "instruction", "in_flight")
    found = {}
    for step in steps:
        if not step.spec.causal:
            asked = {one: getattr(step.candidate.request, one) for one in options}
            plan = pipeliner.build(step.candidate.function(step.spec), H100, **asked).plan
            (loop,) = plan.loops
            slots = min(ring.depth for ring in loop.rings if ring.scope == "shared")
            behind = {op.stage for op in loop.ops if op.kind == "mma"}
            found[step.variant.name] = slots, len(plan.roles), max(behind) - min(behind)
    assert found["one slot"] == (1, 0, 0)
    assert found["rings, cp.async"][0] > 1
    assert found["rings, cp.async"][1] == 0
    assert found["warp-specialised, TMA"] == (3, 2, 0)
    assert found["softmax under the next matmul"] == (3, 2, 1)
    assert found["chosen by the model"] == found["softmax under the next matmul"]


def test_depths_go_over_both_suites():
    depths = read_experiment("depths")
    kinds = [type(one.spec) for one in depths.workloads]
    assert (kinds.count(Gemm), kinds.count(Conv)) == (13, 11)
    names = [one.name for one in depths.of(depths.workloads[0])]
    assert names == [f"depth {at}" for at in range(1, 9)] + ["chosen by the model", "cuBLAS"]
    assert depths.of(depths.workloads[-1])[-1].peer == "cuDNN"


@pytest.mark.skipif(gpu() is not None, reason="a GPU is visible")
def test_without_a_gpu_one_line_says_so(capsys):
    for name in SHIPPED:
        assert cli.main(["experiment", name, "--target", "h100"]) == 1
        told(capsys.readouterr().err, "gpu.none")
