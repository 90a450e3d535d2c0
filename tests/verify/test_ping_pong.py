"""Ping-pong: two groups of consumers alternate on whole tiles; right in every timing, none idle."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.kernel.compiled import Kernel
from pipeliner.proof.prove import prove
from pipeliner.schedules.gemm import schedule_gemm
from pipeliner.schedules.scheduled import schedule_conv
from pipeliner.schedules.tiles import ConvTile, GemmTile
from pipeliner.schedules.workloads import Gemm, conv2d
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused

from .hopper_loops import COLUMNS, ROWS, STEPS, counted_tiles
from .modes import modes_of, runs_of
from .test_hopper import ORDERS, TIMINGS, assert_right

TILE = (64, 64, 64)


def kernel_of(gemm: Gemm, ctas: int = 1, tile: Any = TILE, **options: Any) -> Kernel:
    schedule = schedule_gemm(gemm, GemmTile(*tile, persistent=ctas))
    return pipeliner.build(schedule, "h100", instruction="wgmma", consumers="ping-pong", **options)


def in_some_mode(number: int) -> dict[str, Any]:
    return {"timing": TIMINGS[number % 3], "order": ORDERS[number % 4], "seed": number}


@pytest.mark.part(24)
@pytest.mark.parametrize(
    ("tiles", "steps", "depth"), list(itertools.product((2, 3, 5), (1, 2, 3, 5), (1, 2, 3, 4)))
)
def test_every_trip_count_and_depth(tiles: int, steps: int, depth: int) -> None:
    gemm = Gemm(64 * tiles, 64, 64 * steps, dtype="bfloat16")
    kernel = kernel_of(gemm, depth=depth)
    assert [role.ping_pong_groups for role in kernel.plan.roles] == [2, 1]
    assert [channel.depth for channel in kernel.plan.mbarriers] == [depth]
    assert_right(gemm, kernel, **in_some_mode(tiles * 16 + steps * 4 + depth))


@pytest.mark.parametrize(("tiles", "ctas"), [(2, 1), (3, 2), (3, 1)])
def test_it_is_proved_also_where_each_group_has_one_tile(tiles: int, ctas: int) -> None:
    """Read for other trip counts than its own it is no ping-pong, and one order decides nothing."""
    kernel = kernel_of(Gemm(64 * tiles, 64, 192), ctas, depth=2, prove=False)
    (found,) = prove(kernel.lowered).kernels
    assert found.ok, found.statement


@pytest.mark.parametrize(
    ("gemm", "ctas", "tile", "options"),
    [
        (Gemm(200, 136, 136, dtype="bfloat16"), 2, TILE, {}),  # ragged, 6 tiles each
        (Gemm(200, 200, 200, layout="TN"), 3, TILE, {"depth": 2}),
        (Gemm(130, 72, 136, batch=2, layout="NN"), 1, TILE, {"depth": 3}),
        (Gemm(128, 256, 128), 1, (64, 128, 64), {"store": "direct"}),
        (Gemm(128, 256, 128, out="float32"), 1, (64, 128, 64), {}),
        (Gemm(256, 128, 192), 1, (128, 64, 64), {}),  # two blocks of 64 rows
        (Gemm(200, 136, 128, epilogue=("bias", "relu")), 2, TILE, {}),
        (Gemm(48, 128, 192), 1, (16, 64, 64), {}),  # swap A/B
        (Gemm(128, 128, 320), 1, TILE, {"depth": {"A_shared": 2, "B_shared": 3}}),
        (Gemm(128, 128, 256, dtype="int8"), 1, (64, 64, 128), {}),
    ],
    ids=str,
)
@pytest.mark.part(12)
def test_every_form(gemm: Gemm, ctas: int, tile: Any, options: dict[str, Any]) -> None:
    kernel = kernel_of(gemm, ctas, tile, **options)
    assert verify_workload(kernel, gemm, **modes_of(gemm)).ok


@pytest.mark.part(4)
@pytest.mark.parametrize(
    ("gemm", "ctas", "cluster"),
    [
        (Gemm(256, 64, 128), 2, 2),
        (Gemm(256, 192, 192), 2, 2),
        (Gemm(512, 192, 128), 4, 4),
        (Gemm(500, 136, 128), 4, 2),
    ],
    ids=str,
)
def test_clusters_share_what_ping_pong_groups_of_both_use(
    gemm: Gemm, ctas: int, cluster: int
) -> None:
    kernel = kernel_of(gemm, ctas, cluster=cluster, depth=2)
    assert kernel.cuda.count("multicast__cluster(") == 2  # defined and called, for B
    assert [channel.arrivals for channel in kernel.plan.mbarriers] == [cluster]
    for timing, order in runs_of(gemm):
        assert_right(gemm, kernel, timing=timing, order=order)


@pytest.mark.parametrize("m", [1, 300, 513])
@pytest.mark.part(3)
def test_a_symbolic_number_of_rows(m: int) -> None:
    gemm = Gemm(None, 136, 128, dtype="bfloat16")
    assert_right(gemm, kernel_of(gemm, 4), m)


def test_a_convolution_with_ping_pong() -> None:
    conv = conv2d(1, 8, 16, 64, 64, 3, 3, pad=1)
    kernel = pipeliner.build(
        schedule_conv(conv, ConvTile(64, 64, 64, persistent=1)),
        "h100",
        instruction="wgmma",
        consumers="ping-pong",
    )
    assert kernel.plan.ping_pong_groups == 2
    assert verify_workload(kernel, conv, timings=("random",), orders=("random",)).ok


@pytest.fixture(scope="module")
def counted_kernel() -> Kernel:
    return pipeliner.build(
        counted_tiles(), "h100", instruction="wgmma", consumers="ping-pong", depth=3
    )


@pytest.mark.parametrize("steps", range(STEPS + 1))
@pytest.mark.part(9)
def test_a_trip_count_known_at_run_time(counted_kernel: Kernel, steps: int) -> None:
    """Also of no steps at all, where a group runs all the same."""
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (3 * ROWS, STEPS * 64)).astype("float16")
    b = rng.integers(-3, 4, (COLUMNS, STEPS * 64)).astype("float16")
    want = a[:, : 64 * steps].astype("float32") @ b[:, : 64 * steps].astype("float32").T
    for number, timing in enumerate(TIMINGS):
        c = np.full((3 * ROWS, COLUMNS), np.nan, np.float32)
        result = counted_kernel.emulate(a, b, c, steps, timing=timing, order=ORDERS[number])
        assert not result.hazards, "\n".join(map(str, result.hazards))
        np.testing.assert_array_equal(result.outputs["C"], want)


@pytest.mark.part(4)
@pytest.mark.parametrize(
    ("gemm", "ctas", "cluster"),
    [(Gemm(192, 64, 384), 1, 1), (Gemm(192, 128, 256), 1, 1), (Gemm(256, 128, 384), 2, 2)],
    ids=str,
)
def test_no_mutant_survives(gemm: Gemm, ctas: int, cluster: int) -> None:
    report = pipeliner.mutate(kernel_of(gemm, ctas, depth=3, cluster=cluster))
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.survivors)
    handovers = [fate for fate in report.fates if "turn" in str(fate.mutant.origin)]
    assert {(fate.mutant.kind, fate.killed) for fate in handovers} == {
        ("wait", True),
        ("arrival", True),
    }


def test_what_cannot_ping_pong_is_refused() -> None:
    with refused("ping_pong.one_tile", PlanError):
        kernel_of(Gemm(64, 64, 128))
    with refused("ping_pong.no_producer", PlanError):
        kernel_of(Gemm(256, 64, 128), mechanism="cp_async")
    with refused("wgmma.split_ping_pong", PlanError, tile=(128, 256), registers=232):
        kernel_of(Gemm(256, 256, 128, out="float32"), tile=(128, 256, 64))
    with refused("mapping.asked_warpgroups", PlanError, groups=3):
        kernel_of(Gemm(256, 64, 128), roles=3)
    with refused("ping_pong.loops", PlanError, loops=("step",)):
        pipeliner.build(
            counted_tiles(guarded=True), "h100", instruction="wgmma", consumers="ping-pong"
        )
