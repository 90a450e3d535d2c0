"""Gradients of the weights of depthwise convolutions: sums by thread, then by a second kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeliner.api import build
from pipeliner.errors import WorkloadError
from pipeliner.machine import H100, H200
from pipeliner.schedules import ConvTile, DepthwiseTile, conv2d, default_tile, schedule_conv
from pipeliner.schedules.channelwise import has_weight_regions, weights_alike, weights_tiles
from pipeliner.schedules.channelwise.weights import MOST_SUMS, SHARED_BYTES, STRIPS, weights_fit
from pipeliner.schedules.workloads import ConvWeightGrad, numpy_dtype
from pipeliner.verification.accuracy import worst_error
from tests.refusals import refused

PLAIN = conv2d(2, 9, 11, 16, 16, 3, 3, pad=1, groups=16)

CASES = {
    "ragged": (PLAIN, DepthwiseTile(4, 2, 32, rows=4)),
    "halved": (
        conv2d(1, 8, 10, 8, 8, 3, 3, stride=2, pad=1, groups=8, dtype="bf16"),
        DepthwiseTile(5, 4, 32, rows=2),
    ),
    "uneven": (  # 75 vectors in two blocks, 23 parts of a weight
        conv2d(1, 23, 4, 150, 150, 2, 3, pad=1, groups=150, out="fp32"),
        DepthwiseTile(6, 2, 32, rows=1),
    ),
    "holes": (
        conv2d(1, 9, 12, 8, 8, 3, 2, stride=(1, 3), pad=(1, 2), dilation=(2, 1), groups=8),
        DepthwiseTile(4, 1, 64, rows=3),
    ),
    "far": (  # most positions read zeros alone
        conv2d(1, 2, 3, 6, 6, 5, 3, pad=(4, 6), groups=6, dtype="fp32"),
        DepthwiseTile(7, 1, 32, rows=2),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.part(2)
def test_the_gradient_is_right_and_without_hazards(case: str) -> None:
    conv, tile = CASES[case]
    spec = ConvWeightGrad(conv)
    kernel = build(schedule_conv(spec, tile), "h100")
    inputs = spec.inputs()
    out = np.full(spec.shapes()[-1], np.nan, numpy_dtype(spec.out))
    outcome = kernel.emulate(*inputs, out)
    assert not outcome.hazards
    got = outcome.outputs["dW"].astype("float64")
    assert worst_error(spec, got, spec.reference(*inputs), spec.magnitude(*inputs)) <= 1
    assert kernel.cuda.count("__syncthreads()") == 2  # one before what a CTA has is added, each
    assert "atomic" not in kernel.cuda
    assert "in a fixed order" in kernel.plan.explain()


def test_tiles_leave_sms_several_ctas() -> None:
    large = conv2d(64, 56, 56, 128, 128, 3, 3, pad=1, groups=128)
    assert default_tile(ConvWeightGrad(large), H200) == DepthwiseTile(8, 2, 256, rows=14)
    seven = replace(large, kernel=(7, 7), pad=((3, 3), (3, 3)))
    assert default_tile(ConvWeightGrad(seven), H200) == DepthwiseTile(8, 1, 128, rows=56)
    few = conv2d(64, 56, 56, 4, 4, 3, 3, pad=1, groups=4)  # two threads side by side
    tile = default_tile(ConvWeightGrad(few), H200)
    assert isinstance(tile, DepthwiseTile)
    assert tile.threads == 2 * STRIPS
    tried = list(weights_tiles(ConvWeightGrad(large)))
    assert tried
    assert all(weights_fit(ConvWeightGrad(large), one) for one in tried)


def test_what_is_no_sum_of_a_thread_is_a_matmul_or_refused() -> None:
    none = (
        replace(PLAIN, dtype="int8", accumulator="", out=""),
        replace(PLAIN, k=32),
        replace(PLAIN, layout="NCHW"),
        conv2d(1, 20, 20, 8, 8, 12, 12, groups=8),  # 144 sums
    )
    for conv in none:
        spec = ConvWeightGrad(conv)
        assert not has_weight_regions(spec)
        assert isinstance(default_tile(spec, H100), ConvTile)
        with refused("tile.weights", WorkloadError, most=MOST_SUMS, most_bytes=SHARED_BYTES):
            schedule_conv(spec, DepthwiseTile(4, 1, rows=2))
    with refused("split.no_matmul", WorkloadError):
        default_tile(ConvWeightGrad(PLAIN), H100, splits=2)


def test_a_small_gradient_has_the_edges_of_a_large_one() -> None:
    tile = DepthwiseTile(4, 2, 32, rows=2)
    large = ConvWeightGrad(conv2d(8, 57, 55, 16, 16, 3, 3, pad=1, groups=16))  # 812 parts
    small = ConvWeightGrad(conv2d(4, 9, 11, 16, 16, 3, 3, pad=1, groups=16))  # 15 parts
    assert not weights_alike(small, large, tile, 2)  # of shares as long as the others
    more = replace(small, forward=replace(small.forward, n=8))  # 30 parts: three in each, and six
    assert weights_alike(more, large, tile, 2)
    assert not weights_alike(replace(more, forward=PLAIN), large, tile, 2)
