"""What is verified is the kernel that is planned: smaller extents leave its plan as it was."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import pytest

import pipeliner
from pipeliner import cli
from pipeliner.errors import PlanError
from pipeliner.kernel.compiled import Kernel
from pipeliner.machine import machine_for
from pipeliner.plan import KernelPlan
from pipeliner.plan.comparing import difference
from pipeliner.schedules import (
    Conv,
    ConvTile,
    ConvWeightGrad,
    Gemm,
    GemmTile,
    NaiveTile,
    conv2d,
    default_tile,
)
from pipeliner.schedules.scheduled import scheduled
from pipeliner.schedules.tiles import Tile
from pipeliner.schedules.workloads import Spec
from pipeliner.targets import cuda_target
from pipeliner.verification.shrunk import SMALL, Shrunk, differences, needs_of, shrunk

LAYER = conv2d(32, 56, 56, 64, 64, 3, 3, pad=1)

WORKLOADS: dict[str, tuple[Spec, str]] = {
    "cooperative, persistent": (Gemm(4096, 4096, 4096), "h100"),
    "ping-pong": (Gemm(8192, 8192, 8192, dtype="e4m3"), "h100"),
    "ragged, clusters": (Gemm(4000, 4104, 4040), "h100"),
    "parts": (Gemm(256, 256, 65536), "h100"),
    "a deep ring, evict-first": (Gemm(64, 4096, 16384), "h100"),
    "batch": (Gemm(1024, 1024, 1024, batch=16), "h100"),
    "cp.async": (Gemm(4096, 4096, 4096), "a100"),
    "FMA": (Gemm(4096, 4096, 4096, dtype="float32"), "a100"),
    "im2col": (LAYER, "h100"),
    "gathered": (LAYER, "a100"),
    "stride": (conv2d(32, 224, 224, 3, 64, 7, 7, pad=3, stride=2), "h100"),
    "weight gradient": (ConvWeightGrad(conv2d(32, 28, 28, 128, 128, 3, 3, pad=1)), "h100"),
    "depthwise": (conv2d(8, 56, 56, 128, 128, 3, 3, pad=1, groups=128), "a100"),
    "groups, channels first": (
        conv2d(8, 56, 56, 64, 128, 3, 3, pad=1, groups=2, layout="NCHW"),
        "a100",
    ),
}


@functools.cache
def made(spec: Spec, target: str, tile: Tile | None = None) -> tuple[Kernel, Shrunk]:
    given = cuda_target(target)
    cut = tile or default_tile(spec, machine_for(given))
    kernel = pipeliner.build(scheduled(spec, cut), given)
    return kernel, shrunk(spec, cut, kernel)


@pytest.mark.part(2)
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_plan_stays_and_extents_shrink(name: str) -> None:
    spec, target = WORKLOADS[name]
    kernel, small = made(spec, target)
    assert small.spec.flops() < spec.flops() / 2
    assert small.differences == differences(kernel.plan, small.kernel.plan) == ()
    assert small.title.startswith(f"{spec.title} verified on ")
    assert small.title.count("the same") == 1
    assert (small.kernel.plan.kernel, small.kernel.name) == (small.spec.name,) * 2
    for old, new in zip(kernel.plan.loops, small.kernel.plan.loops, strict=True):
        assert difference(replace(new, trip=old.trip), old, "loop") is None


@pytest.mark.parametrize("name", ["cooperative, persistent", "ping-pong", "ragged, clusters"])
def test_a_persistent_grid_still_goes_on_and_ends_as_it_did(name: str) -> None:
    spec, target = WORKLOADS[name]
    kernel, small = made(spec, target)
    tile, plan = small.tile, kernel.plan
    assert isinstance(spec, Gemm)
    assert isinstance(small.spec, Gemm)
    assert isinstance(tile, GemmTile)
    assert tile.persistent is not None
    rows, columns = -(-(small.spec.m or 0) // tile.m), -(-small.spec.n // tile.n)
    assert rows * columns > tile.persistent * plan.ping_pong_groups
    assert tile.persistent % plan.cluster == 0
    assert small.spec.k > tile.k * (needs_of(plan).steps - 1)
    for side in "mnk":
        size, extents = getattr(tile, side), [getattr(one, side) for one in (small.spec, spec)]
        assert extents[0] % size == extents[1] % size


def test_what_is_small_stays() -> None:
    gemm = Gemm(256, 256, SMALL >> 16)
    kernel, small = made(gemm, "a100", GemmTile(64, 64, 32))
    assert (small.kernel, small.spec, small.title) == (kernel, gemm, "")
    larger = Gemm(512, 256, SMALL >> 16)
    assert made(larger, "a100", GemmTile(64, 64, 32))[1].spec != larger


def test_a_stationary_operand_keeps_its_reduction() -> None:
    conv = replace(LAYER, n=8)
    assert isinstance(conv, Conv)
    tile = ConvTile(128, 64, 64, persistent=132, stationary=True)
    _, small = made(conv, "h100", tile)
    assert small.differences == ()
    assert small.spec.flops() < conv.flops() / 8


def test_the_naive_schedule() -> None:
    _, small = made(Gemm(512, 520, 512, dtype="float32"), "a100", NaiveTile())
    assert small.differences == ()
    assert isinstance(small.spec, Gemm)
    assert (small.spec.m, small.spec.n % 16) == (32, 8)


def test_what_differs_is_named() -> None:
    plan = KernelPlan("k", "sm_80", "a100", threads=128)
    assert differences(plan, replace(plan, kernel="other", predicted_us=3.0)) == ()
    found = differences(plan, replace(plan, threads=64, cluster=2))
    assert found == ("threads is 64, not 128", "cluster is 2, not 1")


def test_the_command_says_what_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["gemm", "--m", "16", "--target", "h100"]
    assert cli.main(["plan", *asked, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    (matmul,) = plan["matmuls"]
    tile = "x".join(str(matmul[side]) for side in "mnk")
    depth = plan["mbarriers"][0]["depth"]
    once = ("--timing", "late", "--order", "lockstep")
    assert cli.main(["verify", *asked, *once]) == 0
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("float16 GEMM 16 x 4096 x 4096 NT verified on 16x")
    assert f": the same tile {tile}, {matmul['instruction']}, tma, " in first
    assert first.endswith(f", depth {depth}")
    assert second.startswith("right: gemm_16x")
    assert cli.main(["verify", *asked, *once, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified_on"] == first


def test_a_plan_of_too_few_steps_is_run_on_its_own_extents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings of more slots than there are steps have nothing smaller, nor need they."""
    spec, tile = Gemm(128, 256, 256, layout="NN"), GemmTile(64, 128, 64)
    kernel = pipeliner.build(scheduled(spec, tile), "h100", instruction="wgmma", prove=False)
    assert spec.flops() > 2 * SMALL
    found = shrunk(spec, tile, kernel)
    assert (found.spec, found.tile, found.title) == (spec, tile, "")
    monkeypatch.setattr("pipeliner.verification.shrunk.LARGE", 1 << 20)
    with pytest.raises(PlanError, match="it has 16,777,216 operations, more than 2,097,152"):
        shrunk(spec, tile, kernel)
