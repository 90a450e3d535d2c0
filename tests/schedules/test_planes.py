"""Depthwise convolutions with channels outside the image: regions of planes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pipeliner
from pipeliner.errors import WorkloadError
from pipeliner.machine import H100
from pipeliner.schedules import DepthwiseTile, default_tile, schedule_conv
from pipeliner.schedules.channelwise import depthwise_tiles, schedule_planes, threads_alike
from pipeliner.schedules.workloads import ConvInputGrad, conv2d
from pipeliner.verification.accuracy import worst_error
from tests.refusals import refused

PLAIN = conv2d(2, 8, 16, 3, 3, 3, 3, pad=1, groups=3, layout="NCHW")

CASES = {
    "whole rows": PLAIN,
    "ragged": replace(PLAIN, size=(9, 13)),
    "strided": replace(PLAIN, stride=(2, 2)),
    "dilated": replace(PLAIN, dilation=(2, 2), pad=((2, 2), (2, 2))),
    "no padding": replace(PLAIN, pad=((0, 0), (0, 0))),
    "asymmetric": replace(PLAIN, pad=((0, 2), (2, 0)), stride=(1, 2)),
    "5 x 5 bf16": conv2d(2, 8, 16, 3, 3, 5, 5, pad=2, groups=3, dtype="bf16", layout="NCHW"),
    "fp32": conv2d(2, 8, 16, 3, 3, 3, 3, pad=1, groups=3, dtype="fp32", layout="NCHW"),
}


def kernel_of(spec, tile=None):
    tile = tile or default_tile(spec, H100)
    assert isinstance(tile, DepthwiseTile)
    return pipeliner.build(schedule_conv(spec, tile), "h100", prove=False)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_regions_of_planes_compute_it(case, gradient):
    spec = CASES[case]
    spec = ConvInputGrad(spec) if gradient else spec
    inputs = spec.inputs()
    out = np.full(spec.shapes()[-1], np.nan, inputs[0].dtype)
    kernel = kernel_of(spec)
    assert "__global__" in kernel.cuda
    done = kernel.emulate(*inputs, out)
    assert not done.hazards
    (made,) = [done.outputs[name] for name in ("Y", "dX") if name in done.outputs]
    assert worst_error(spec, made, spec.reference(*inputs), spec.magnitude(*inputs)) <= 1


def test_rows_are_read_and_written_in_vectors():
    cuda = kernel_of(conv2d(4, 56, 56, 8, 8, 3, 3, pad=1, groups=8, layout="NCHW")).cuda
    assert "*(uint4*)(X_ptr" in cuda
    assert "(Y_ptr" in cuda
    assert "*(uint4*)(Y_ptr" in cuda or "uint4* __restrict__ Y_ptr" in cuda


def test_every_tile_of_a_search_is_a_schedule():
    for spec in (PLAIN, ConvInputGrad(replace(PLAIN, stride=(2, 2)))):
        tiles = list(depthwise_tiles(spec))
        assert default_tile(spec, H100) in tiles
        for tile in tiles:
            schedule_conv(spec, tile)


def test_smaller_planes_have_the_same_edges():
    tile = default_tile(PLAIN, H100)
    large = replace(PLAIN, n=64, c=32, k=32, groups=32)
    assert threads_alike(replace(large, n=32), large, tile, 2)
    assert not threads_alike(replace(large, size=(9, 16)), large, tile, 2)
    assert not threads_alike(PLAIN, large, tile, 2)


@pytest.mark.parametrize(
    "spec",
    [
        replace(PLAIN, layout="NHWC"),
        replace(PLAIN, epilogue=("relu",)),
        replace(PLAIN, k=6),
        conv2d(1, 6, 6, 8, 8, 3, 3, groups=8, layout="NCHW", dtype="int8"),
    ],
)
def test_what_is_no_plane_is_refused(spec):
    with refused("tile.planes", WorkloadError):
        schedule_planes(spec, DepthwiseTile(8, 1, rows=4))
