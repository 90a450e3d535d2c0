from __future__ import annotations

import pytest

from pipeliner.choice.mapped import map_kernel
from pipeliner.errors import PlanError, TargetError
from pipeliner.instructions.mapping import map_matmul
from pipeliner.machine import A100, H200, T4
from pipeliner.mechanisms.copies import plan_copy
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.values.facts import LoopInfo
from tests.refusals import refused, says, the

from .kernels import copy, matmul

FREE = Request()


def plan(info, machine=A100, request=FREE, consumer=None):
    ops = (info,) if consumer is None else (info, consumer)
    mapped = () if consumer is None else (map_matmul(consumer, machine, request).plan,)
    return plan_copy(info, LoopInfo("ko", 8, "8", ops, ()), mapped, machine, request)


@pytest.mark.parametrize(
    ("info", "mechanism", "vector"),
    [
        (copy(), "cp_async", 16),
        (copy(aligned=4), "cp_async", 8),
        (copy(aligned=2), "cp_async", 4),
        (copy(aligned=1), "register", 2),  # K odd, fp16
        (copy(dtype="float32", aligned=1), "cp_async", 4),
        (copy(shape=(128, 4)), "cp_async", 8),  # a row has 8 bytes
        (copy(dtype="int8", aligned=2), "register", 2),
        (copy(src_strides=(4096, None)), "register", 2),
        (copy(shape=(32, 128), src_dims=(1, 0)), "register", 2),  # transposed
        (copy(shape=(8, 128), dtype="float32", src_dims=(1, 0)), "cp_async", 4),
    ],
)
def test_width_is_what_is_provably_aligned(info, mechanism, vector):
    found = plan(info)
    assert (found.mechanism, found.vector_bytes) == (mechanism, vector)


@pytest.mark.parametrize(
    ("info", "cache"),
    [
        (copy(), "L2"),
        (copy(aligned=16), "L2"),
        (copy(aligned=8), "L1"),
        (copy(aligned=4), "L2"),  # 8 bytes at once: they have no choice
        (copy(aligned=8, dst_scope="local"), "L2"),
    ],
)
def test_rows_that_start_inside_a_sector_come_through_l1(info, cache):
    found = plan(info)
    assert found.cache == cache
    assert says("cache.l1", [found.reason]) == (cache == "L1")
    if cache == "L1":
        assert the("cache.l1", [found.reason]).args == {"aligned": 16, "sector": 32}


def test_before_ampere_copies_go_through_registers():
    found = plan(copy(), T4)
    assert found.mechanism == "register"
    assert the("cp_async.machine", [found.reason])["machine"] == "T4"


def test_a_load_into_registers_is_left_as_it_is():
    assert plan(copy(dst_scope="local")).mechanism == "direct"


@pytest.mark.parametrize("mechanism", ["register", "direct"])
def test_a_slower_mechanism_may_be_asked_for(mechanism):
    assert plan(copy(), request=Request(mechanism=mechanism)).mechanism == mechanism


@pytest.mark.parametrize(
    ("info", "machine", "error", "code", "args"),
    [
        (copy(aligned=1), A100, PlanError, "cp_async.vector", {"nbytes": 2}),
        (copy(), T4, TargetError, "cp_async.machine", {"machine": "T4", "arch": "sm_75"}),
    ],
)
def test_cp_async_that_cannot_be_had_is_refused(info, machine, error, code, args):
    with refused(code, error, **args) as found:
        plan(info, machine, Request(mechanism="cp_async"))
    assert found.value.reason["copy"] == "A_shared"


@pytest.mark.parametrize(
    ("info", "consumer", "layout"),
    [
        (copy(shape=(128, 64)), matmul(k=64), "swizzle-128B"),
        (copy(shape=(128, 32)), matmul(k=32), "swizzle-64B"),
        (copy(shape=(128, 16)), matmul(k=16), "swizzle-32B"),
        (copy(shape=(32, 128)), matmul(a_k_major=False), "swizzle-128B"),
        (
            copy(shape=(8, 128), dtype="float32"),
            matmul(k=8, dtype="float32", a_k_major=False, b_k_major=False),
            "row-major",
        ),
        (
            copy(shape=(8, 128), dtype="float32", src_dims=(1, 0)),
            matmul(k=8, dtype="float32", a_k_major=False, b_k_major=False),
            "padded-16B",
        ),
        (copy(), None, "row-major"),
    ],
)
def test_the_consumer_decides_the_layout(info, consumer, layout):
    assert plan(info, consumer=consumer).layout == layout


def test_rows_of_a_batch_that_begin_inside_sectors_take_lines_of_l1() -> None:
    """4 times 240x1136x232 by 64x144 took 8.7 us on an H200, 7.5 by 64x160 with one slot less."""
    asked = Request(instruction="wgmma", mechanism="cp_async")
    for gemm in (Gemm(240, 1136, 232), Gemm(240, 1136, 232, 4)):
        (loop,) = map_kernel(kernel_info(gemm, GemmTile(64, 144, 64)), H200, asked).loops
        assert loop.work.traffic.l1_lines == pytest.approx((64 + 144) * 1.875)
    aligned = kernel_info(Gemm(240, 1136, 256, 4), GemmTile(64, 144, 64))
    assert map_kernel(aligned, H200, asked).loops[0].work.traffic.l1_lines == 0
