"""mma.sync that a producer warp copies for by TMA: right, each mutant caught, compiled by nvcc."""

from __future__ import annotations

import re
from typing import Any

import pytest

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.errors import PlanError
from pipeliner.kernel.compiled import Kernel
from pipeliner.plan import KernelPlan
from pipeliner.schedules import ConvTile, Gemm, GemmTile, conv2d, schedule_conv, schedule_gemm
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused, says
from tests.verify.mutation_kernels import killer

ASKED: Any = {"instruction": "mma", "mechanism": "tma"}
TILE = GemmTile(32, 32, 16)


def product(gemm: Gemm, tile: GemmTile = TILE, target: str = "h100", **options: Any) -> Kernel:
    return pipeliner.build(schedule_gemm(gemm, tile), target, **{**ASKED, **options})


@pytest.mark.parametrize("trips", [1, 2, 3, 7])
@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.part(8)
def test_trips_and_depths(trips: int, depth: int) -> None:
    gemm = Gemm(40, 72, 16 * trips)  # of which the last rows and columns lie outside
    kernel = product(gemm, depth=depth)
    assert {ring.depth for ring in kernel.plan.loops[0].rings if ring.scope == "shared"} == {depth}
    assert verify_workload(kernel, gemm).ok


@pytest.mark.parametrize(
    ("gemm", "tile"),
    [
        (Gemm(64, 72, 104, dtype="bfloat16", layout="NN"), GemmTile(32, 64, 64)),
        (Gemm(72, 64, 104, layout="TN"), GemmTile(64, 64, 64)),
        (Gemm(64, 40, 208, dtype="int8"), GemmTile(32, 32, 64)),
        (Gemm(40, 32, 100, dtype="tfloat32"), GemmTile(32, 32, 32)),
        (Gemm(64, 72, 40, batch=2, accumulator="float16"), TILE),
        (Gemm(64, 128, 96), GemmTile(32, 32, 16, persistent=3)),
    ],
    ids=str,
)
@pytest.mark.part(3)
def test_types_layouts_and_tiles(gemm: Gemm, tile: GemmTile) -> None:
    assert verify_workload(product(gemm, tile), gemm).ok


@pytest.mark.parametrize("depths", [{"A_shared": 2, "B_shared": 4}, {"A_shared": 3, "B_shared": 1}])
def test_rings_of_different_depths(depths: dict[str, int]) -> None:
    gemm = Gemm(32, 32, 112)
    kernel = product(gemm, depth=depths)
    assert {pair.depth for pair in kernel.plan.mbarriers} == set(depths.values())
    assert verify_workload(kernel, gemm).ok


@pytest.mark.parametrize("target", ["h100", "rtx5090"])
@pytest.mark.part(2)
def test_pixels(target: str) -> None:
    conv = conv2d(1, 9, 9, 32, 32, 3, 3, pad=1, epilogue=("bias",))
    kernel = pipeliner.build(schedule_conv(conv, ConvTile(32, 32, 32)), target, **ASKED)
    assert {copy.view for copy in kernel.plan.copies} == {"im2col", "tensor"}
    assert verify_workload(kernel, conv).ok


def test_consumers_are_warps_beside_a_producer_of_one() -> None:
    plan = product(Gemm(64, 64, 96), warps=(1, 2), depth=3).plan
    assert [(role.name, role.threads, role.registers) for role in plan.roles] == [
        ("consumer", 64, 0),
        ("producer", 32, 0),
    ]
    (pair,) = plan.mbarriers
    assert pair.arrivals == 2
    assert says("release.fragments", [pair.reason])
    assert plan.sync.barriers_in_steady == 0
    assert plan.target == "sm_90"  # no instruction is of sm_90a alone


def test_fragments_of_the_iteration_ahead_are_read_under_the_arithmetic() -> None:
    kernel = product(Gemm(32, 32, 96), depth=3)
    stages = {op.name.part: op.stage for op in kernel.plan.loops[0].ops if op.kind != "copy"}
    assert stages["multiply"] == stages["a"] + 1
    loop = kernel.cuda.index("for (int k_0 = 0; k_0 < 5;")  # the sixth iteration lies behind it
    assert kernel.cuda.index("ldmatrix_sync", kernel.cuda.index("__syncthreads")) < loop


@pytest.mark.parametrize(("depth", "trips"), [(1, 3), (2, 5), (3, 6)])
@pytest.mark.parametrize("target", ["h100", "rtx5090"])
@pytest.mark.part(3)
def test_no_mutant_survives(target: str, depth: int, trips: int) -> None:
    report = pipeliner.mutate(product(Gemm(32, 32, 16 * trips), target=target, depth=depth))
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.survivors)
    dead = {(fate.mutant.what.split(" ")[0], killer(fate)) for fate in report.fates}
    assert ("fence_proxy", "missing-proxy-fence") in dead
    assert ("cuda.warp_sync", "write-while-read") in dead


def test_the_plan_is_obeyed_again() -> None:
    gemm = Gemm(64, 64, 96)
    kernel = product(gemm)
    plan = KernelPlan.from_json(kernel.plan.to_json())
    again = pipeliner.build(schedule_gemm(gemm, TILE), "h100", plan=plan)
    assert again.cuda == kernel.cuda


@pytest.mark.parametrize(
    ("options", "code", "args"),
    [
        ({"instruction": "simt"}, "mechanism.by_vectors", {}),
        ({"roles": 0}, "mechanism.no_producer", {}),
        ({"consumers": "ping-pong"}, "ping_pong.by_warp", {"warps": 4}),
        ({"roles": 2}, "mapping.roles", {"groups": 2, "why": Reason("mapping.ask")}),
        ({"store": "tma"}, "store.by_warp", {"instruction": "mma.m16n8k16.f16.f32"}),
        ({"epilogue": "peeled"}, "producer.epilogue", {"epilogue": "peeled"}),
    ],
    ids=str,
)
def test_what_cannot_be_had_is_refused_in_a_line(
    options: dict[str, Any], code: str, args: dict[str, Any]
) -> None:
    with refused(code, PlanError, **args) as caught:
        product(Gemm(64, 64, 96), **options)
    assert "\n" not in str(caught.value)


def test_registers_that_a_producer_warp_leaves_no_room_for_are_refused() -> None:
    with refused("depth.no_fit", PlanError, threads=288, registers=200):
        product(Gemm(4096, 4096, 4096), GemmTile(128, 256, 64))


def test_hopper_takes_it_only_where_it_is_asked_for() -> None:
    func = schedule_gemm(Gemm(4096, 4096, 4096), GemmTile(128, 128, 64))
    for asked, mechanism in (({"instruction": "mma"}, "cp_async"), (ASKED, "tma")):
        plan = pipeliner.plan_of(pipeliner.pipeline(func, "h100", **asked))
        assert {copy.mechanism for copy in plan.copies} == {mechanism}


@pytest.mark.nvcc
@pytest.mark.parametrize("target", ["h100", "b200", "rtx5090"])
@pytest.mark.deep("tests/verify/test_blackwell.py::test_nvcc_compiles_a_product_for_it")
def test_nvcc_compiles_it_without_spills(target: str) -> None:
    kernel = product(Gemm(1024, 1024, 1024), GemmTile(64, 64, 64), target)
    assert kernel.arch == {"h100": "sm_90", "b200": "sm_100", "rtx5090": "sm_120"}[target]
    assert kernel.resources.spills == 0
    for found in ("UTMALDG", "LDSM", "HMMA"):
        assert re.search(rf"\b{found}\b", kernel.sass)
    assert not re.search(r"\b(LDGSTS|STL|CALL)\b", kernel.sass)
