from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeliner.errors import PlanError, TargetError
from pipeliner.instructions.mapping import map_matmul
from pipeliner.instructions.warps import Mapping
from pipeliner.machine import A100, H100, T4, WARP
from pipeliner.plan.request import Request
from tests.refusals import refused, says, the

from .kernels import matmul

FREE = Request()


@pytest.mark.parametrize(
    ("dtype", "acc", "k", "instruction"),
    [
        ("float16", "float32", 32, "mma.m16n8k16.f16.f32"),
        ("float16", "float16", 32, "mma.m16n8k16.f16.f16"),
        ("bfloat16", "float32", 32, "mma.m16n8k16.bf16.f32"),
        ("int8", "int32", 64, "mma.m16n8k32.s8.s32"),
        ("float32", "float32", 16, "simt"),
    ],
)
def test_the_type_decides_the_instruction(dtype, acc, k, instruction):
    mapped = map_matmul(matmul(dtype=dtype, acc=acc, k=k), A100, FREE)
    assert mapped.plan.instruction == instruction


def test_fp32_becomes_tf32_only_when_asked():
    info = matmul(dtype="float32", k=16, instruction="mma")
    assert map_matmul(info, A100, FREE).plan.instruction == "mma.m16n8k8.tf32.f32"
    exact = map_matmul(matmul(dtype="float32", k=16), A100, FREE)
    assert says("mapping.exact", [exact.plan.reason])


def test_the_request_outweighs_the_schedule():
    info = matmul(instruction="mma")
    assert map_matmul(info, A100, Request(instruction="simt")).plan.instruction == "simt"


@pytest.mark.parametrize(
    ("tile", "warps", "warp_tile"),
    [
        ((128, 256, 64), (2, 4), (64, 64)),
        ((128, 128, 32), (2, 2), (64, 64)),
        ((64, 64, 32), (2, 2), (32, 32)),
        ((16, 128, 32), (1, 4), (16, 32)),
    ],
)
def test_warps_own_square_tiles_and_fill_the_schedulers(tile, warps, warp_tile):
    plan = map_matmul(matmul(*tile), H100, FREE).plan
    assert (plan.warps, plan.warp_tile) == (warps, warp_tile)


def test_the_fp32_tile_of_the_fastest_known_kernel_is_found():
    info = matmul(128, 256, 8, "float32", a_k_major=False, b_k_major=False)
    plan = map_matmul(info, H100, FREE).plan
    assert (plan.warps, plan.warp_tile, plan.thread_tile) == ((2, 4), (64, 64), (8, 16))
    assert (plan.k_step, plan.steps) == (1, 8)


def test_hints_of_the_schedule_are_used():
    plan = map_matmul(matmul(warps=(4, 1)), A100, FREE).plan
    assert (plan.warps, plan.warp_tile) == ((4, 1), (32, 128))
    plan = map_matmul(matmul(dtype="float32", thread_tile=(4, 4)), A100, FREE).plan
    assert plan.thread_tile == (4, 4)


def test_a_fixed_number_of_threads_is_met():
    mapped = map_matmul(matmul(), A100, FREE, threads=256)
    assert mapped.threads == 256


@pytest.mark.parametrize(
    ("info", "machine", "request_", "error", "code", "args"),
    [
        (
            matmul(),
            T4,
            Request(instruction="mma"),
            TargetError,
            "mapping.no_mma",
            {"arch": "sm_75", "dtype": "float16"},
        ),
        (
            matmul(k=24),
            A100,
            Request(instruction="mma"),
            TargetError,
            "mapping.multiple",
            {"tile": (128, 128, 24), "m": 16, "n": 8, "k": 16},
        ),
        (
            matmul(),
            A100,
            Request(warps=(3, 1)),
            PlanError,
            "mapping.asked_warps",
            {"warps": (3, 1)},
        ),
        (
            matmul(256, 256),
            A100,
            Request(instruction="mma", warps=(1, 1)),
            PlanError,
            "mapping.mma_split",
            {"tile": (256, 256, 32), "m": 16, "n": 8, "k": 16, "registers": 255},
        ),
        (
            matmul(dtype="float32"),
            A100,
            Request(thread_tile=(5, 8)),
            PlanError,
            "mapping.asked_thread_tile",
            {"tile": (5, 8)},
        ),
    ],
)
def test_a_request_that_does_not_fit_is_refused(info, machine, request_, error, code, args):
    with refused(code, error, **args) as found:
        map_matmul(info, machine, request_)
    assert found.value.reason["op"] == "C_update"


def test_a_tile_that_nothing_fits_gets_a_reason():
    reason = map_matmul(matmul(100, 72), A100, FREE)
    assert the("mapping.simt_split", [reason])["tile"] == (100, 72)


sizes = st.sampled_from([16, 32, 48, 64, 96, 128, 192, 256])


@given(
    m=sizes,
    n=sizes,
    k=st.sampled_from([8, 16, 32, 64]),
    dtype=st.sampled_from(["float16", "bfloat16", "float32", "int8"]),
    machine=st.sampled_from([A100, H100, T4]),
    k_major=st.booleans(),
)
def test_every_mapping_covers_the_tile_once_within_the_registers(m, n, k, dtype, machine, k_major):
    acc = "int32" if dtype == "int8" else "float32"
    info = matmul(m, n, k, dtype, acc, a_k_major=k_major, b_k_major=k_major)
    mapped = map_matmul(info, machine, FREE)
    if isinstance(mapped, str):
        return
    assert isinstance(mapped, Mapping)
    plan = mapped.plan
    assert plan.warps[0] * plan.warp_tile[0] == m
    assert plan.warps[1] * plan.warp_tile[1] == n
    assert plan.k_step * plan.steps == k
    assert mapped.threads == plan.warps[0] * plan.warps[1] * WARP <= machine.max_threads_per_cta
    assert mapped.registers <= machine.max_registers_per_thread
    if plan.instruction == "simt":
        assert plan.thread_tile[0] * plan.thread_tile[1] * mapped.threads == m * n
    else:
        assert plan.warp_tile[0] % 16 == 0
        assert plan.warp_tile[1] % 8 == 0


def test_accumulators_beside_leave_fewer_registers() -> None:
    alone, beside = (
        map_matmul(matmul(128, 128), A100, FREE, beside=words) for words in (0, 128 * 128)
    )
    assert beside.plan.warps[0] * beside.plan.warps[1] > alone.plan.warps[0] * alone.plan.warps[1]
    assert beside.registers <= A100.max_registers_per_thread


def test_warpgroups_share_a_tile_that_one_has_no_registers_for() -> None:
    one, two = (
        map_matmul(matmul(64, 256), H100, Request(instruction="wgmma"), beside=words)
        for words in (0, 64 * 256)
    )
    assert (one.plan.warps, two.plan.warps) == ((4, 1), (4, 2))
    with refused("wgmma.split"):
        map_matmul(matmul(128, 256), H100, Request(instruction="wgmma", roles=2), beside=128 * 256)
