"""Split-K: which partial sums, who adds them, when it is chosen and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeliner
from pipeliner.diagnostics import Reason, each_of
from pipeliner.errors import WorkloadError
from pipeliner.machine import A100, H100
from pipeliner.passes.ir.kernels import kernels_of
from pipeliner.passes.recognise.elementwise import elementwise_info
from pipeliner.schedules import ConvTile, Gemm, GemmTile, conv2d, schedule_conv, schedule_gemm
from pipeliner.schedules.choice import default_tile
from pipeliner.schedules.suites import suite
from pipeliner.schedules.workloads import MAX_SPLITS, reduction_tiles
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused, the
from tests.verify.modes import modes_of

from .test_conv import check as check_conv
from .test_gemm import check, prefix

GEMM = Gemm(64, 64, 256)


@settings(max_examples=8, deadline=None)
@given(data=st.data(), k=st.integers(9, 100), layout=st.sampled_from(["NN", "NT", "TN", "TT"]))
def test_any_number_of_parts_computes_the_product(data, k, layout):
    splits = data.draw(st.integers(2, -(-k // 8)))
    check(Gemm(9, 12, k, dtype="fp32", layout=layout), GemmTile(16, 16, 8, splits=splits))


@settings(max_examples=8, deadline=None)
@given(data=st.data(), c=st.integers(1, 20), r=st.integers(1, 3), s=st.integers(1, 3))
def test_any_number_of_parts_computes_the_convolution(data, c, r, s):
    """Also where parts end within a kernel row, and the last one beyond the last tile."""
    conv = conv2d(1, 5, 6, c, 9, r, s, pad=1, dtype="int8")
    tiles = r * s * -(-c // 4)
    splits = data.draw(st.integers(1, tiles))
    check_conv(conv, schedule_conv(conv, ConvTile(8, 8, 4, splits=splits)))


@pytest.mark.parametrize("splits", [2, 4])
def test_every_part_has_ctas_of_its_own_and_a_second_kernel_adds_them(splits):
    func = prefix(schedule_gemm(GEMM, GemmTile(32, 32, 16, splits=splits)).mod)
    first, second = kernels_of(func.body)
    plan = pipeliner.plan_of(pipeliner.pipeline(_schedule(splits), "a100"))
    assert elementwise_info(first) is None
    info = elementwise_info(second)
    assert info.ctas * info.elements == 64 * 64
    # Each output reads a float32 of every part and stores a float16.
    assert info.global_bytes == info.elements * (4 * splits + 2)
    assert info.vector == 4
    assert plan.loops[0].trip == str(16 // splits)
    (kernel,) = plan.elementwise
    assert (kernel.threads, kernel.vector) == (128, 4)
    assert Reason("split.sum", splits=splits) in each_of(kernel.reason)
    assert "kernels behind it" in plan.explain()


def test_parts_are_added_in_their_order():
    """In float32, 2^24 + 1 is 2^24: only the order of the parts says what the sum is."""
    a = np.zeros((1, 48), "float32")
    a[0, [0, 16, 32]] = 2.0**24, 1, -(2.0**24)
    b, c = np.ones((1, 48), "float32"), np.zeros((1, 1), "float32")
    schedule = schedule_gemm(Gemm(1, 1, 48, dtype="fp32"), GemmTile(16, 16, 8, splits=3))
    kernel = pipeliner.build(schedule, "a100")
    for order in ("lockstep", "reversed", "random"):
        done = kernel.emulate(a, b, c, order=order)
        assert not done.hazards
        assert done.outputs["C"][0, 0] == 0


@pytest.mark.parametrize("target", ["t4", "a100", "h100"])
@pytest.mark.part(3)
def test_split_products_are_right_on_every_gpu(target):
    gemm = Gemm(40, 36, 104, epilogue=("bias", "residual", "silu"))
    kernel = pipeliner.build(schedule_gemm(gemm, GemmTile(32, 32, 16, splits=3)), target)
    verdict = verify_workload(kernel, gemm, seed=2, **modes_of(target))
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.parametrize(
    ("spec", "tile"),
    [
        (Gemm(128, 128, 512), GemmTile(128, 64, 64, splits=4)),
        (Gemm(128, 128, 500, layout="NN"), GemmTile(64, 128, 64, splits=3)),
        (conv2d(1, 8, 8, 64, 64, 3, 3, pad=1), ConvTile(64, 64, 32, splits=3)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@pytest.mark.part(3)
def test_warpgroups_multiply_parts_too(spec, tile):
    schedule = schedule_gemm if isinstance(spec, Gemm) else schedule_conv
    kernel = pipeliner.build(schedule(spec, tile), "h100", instruction="wgmma")
    assert kernel.plan.matmuls[0].instruction.startswith("wgmma")
    verdict = verify_workload(kernel, spec, seed=4, **modes_of(spec))
    assert verdict.ok, (verdict.worst, verdict.hazards)


def test_a_persistent_grid_computes_the_tiles_of_each_partial_sum():
    conv = conv2d(2, 6, 7, 16, 24, 3, 3, pad=1)
    kernel = pipeliner.build(
        schedule_conv(conv, ConvTile(32, 16, 16, splits=3, persistent=2)), "a100"
    )
    verdict = verify_workload(kernel, conv, seed=4)
    assert verdict.ok, (verdict.worst, verdict.hazards)


def test_a_box_of_a_matrix_stays_one_in_parts():
    """Where all parts are whole, a tile of a part is as good for the tensor memory accelerator."""
    schedule = schedule_gemm(Gemm(128, 128, 512), GemmTile(128, 64, 64, splits=4))
    kernel = pipeliner.pipeline(schedule, "h100", instruction="wgmma")
    assert {copy.mechanism for copy in pipeliner.plan_of(kernel).copies} == {"tma"}


@pytest.mark.parametrize("machine", [A100, H100], ids=lambda machine: machine.name)
@pytest.mark.part(2)
def test_a_long_reduction_of_a_small_output_is_split_until_the_gpu_is_full(machine):
    gemm = Gemm(256, 256, 65536)
    tile = default_tile(gemm, machine)
    ctas = tile.splits * -(-256 // tile.m) * -(-256 // tile.n)
    assert 0.9 * machine.sms <= ctas <= 2 * machine.sms
    assert the("split.faster", [tile.why])["sms"] == machine.sms
    whole = default_tile(gemm, machine, splits=1)
    assert (whole.splits, whole.why) == (1, "")


def test_what_fills_the_gpu_is_not_split():
    for name, gemm in suite("gemm").items():
        if name in ("sq2048", "sq4096", "sq8192", "llama_up", "llama_down", "ragged"):
            assert default_tile(gemm, H100).splits == 1, name


def test_a_number_of_parts_can_be_asked_for():
    assert default_tile(GEMM, H100, splits=3).splits == 3


def test_a_part_without_a_step_is_refused():
    with refused("split.few_tiles", WorkloadError, splits=5, tiles=4, size=64):
        schedule_gemm(GEMM, GemmTile(32, 32, 64, splits=5))


def test_more_terms_than_a_sum_has_are_refused():
    what = Gemm(16, 16, 4096)
    assert reduction_tiles(what.contraction(), 16) == 256
    with refused("split.many_terms", WorkloadError, most=MAX_SPLITS):
        schedule_gemm(what, GemmTile(16, 16, 16, splits=MAX_SPLITS + 1))


def test_no_parts_at_all_are_refused():
    with refused("tile.least", WorkloadError, name="splits", value=0):
        GemmTile(16, 16, 16, splits=0)


def test_a_function_of_the_users_own_is_not_split():
    with refused("split.given", WorkloadError):
        schedule_gemm(GEMM, GemmTile(32, 32, 64, splits=2), GEMM.function())


def test_a_depthwise_convolution_is_not_split():
    conv = conv2d(1, 8, 8, 16, 16, 3, 3, pad=1, groups=16)
    with refused("split.no_matmul", WorkloadError):
        default_tile(conv, H100, splits=2)


def _schedule(splits):
    return schedule_gemm(GEMM, GemmTile(32, 32, 16, splits=splits))
