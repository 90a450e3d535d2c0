"""Gradients of the input of depthwise convolutions: the convolution's regions, read the other way."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tvm import sym

from pipeliner.api import build
from pipeliner.errors import WorkloadError
from pipeliner.machine import H100
from pipeliner.schedules import DepthwiseTile, conv1d, conv2d, conv3d, default_tile, schedule_conv
from pipeliner.schedules.channelwise import channelwise, depthwise_tiles, fits
from pipeliner.schedules.workloads import Conv, ConvInputGrad, numpy_dtype
from pipeliner.verification.accuracy import worst_error
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused

from .test_conv import check

CASES = {
    "same": (conv2d(2, 9, 11, 16, 16, 3, 3, pad=1, groups=16), DepthwiseTile(4, 4, 32, rows=2)),
    "halved": (
        conv2d(1, 8, 10, 8, 8, 3, 3, stride=2, pad=1, groups=8),
        DepthwiseTile(4, 2, 32, rows=2),
    ),
    "ragged": (  # 9 rows in regions of 4, 11 pixels in regions of 6; filters of five in phases
        conv2d(1, 9, 11, 8, 8, 5, 4, stride=(2, 3), pad=(2, 1, 0, 3), groups=8, dtype="bf16"),
        DepthwiseTile(6, 2, 64, rows=4),
    ),
    "leaping": (  # pixels that no output reads, and rows of which one region is all
        conv2d(2, 5, 9, 6, 6, 1, 2, stride=3, groups=6, dtype="fp32"),
        DepthwiseTile(3, 1, 32, rows=5),
    ),
    "common": (  # stride and holes have a common factor: only even pixels have positions
        conv2d(1, 9, 8, 8, 8, 3, 3, stride=2, pad=(2, 3), dilation=(2, 1), groups=8),
        DepthwiseTile(4, 2, 32, rows=2),
    ),
    "holes": (
        conv2d(1, 7, 8, 8, 8, 3, 2, pad=(0, 3), dilation=(1, 3), groups=8, out="fp32"),
        DepthwiseTile(8, 4, 32, rows=3),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.part(2)
def test_the_gradient_is_right_and_without_hazards(case: str) -> None:
    conv, tile = CASES[case]
    spec = ConvInputGrad(conv)
    kernel = build(schedule_conv(spec, tile), "h100")
    inputs = spec.inputs()
    out = np.full(spec.shapes()[-1], np.nan, numpy_dtype(spec.out))
    outcome = kernel.emulate(*inputs, out)
    assert not outcome.hazards
    got = outcome.outputs["dX"].astype("float64")
    assert worst_error(spec, got, spec.reference(*inputs), spec.magnitude(*inputs)) <= 1
    assert kernel.cuda.count("__syncthreads()") == 1
    said = kernel.plan.explain()
    assert ("kernel flipped" in said) == (set(conv.stride) == {1})
    assert ("phase of the stride" in said) == (set(conv.stride) != {1})


@pytest.mark.parametrize(("pixels", "vector"), [(1, 1), (1, 2), (2, 1)])
def test_a_thread_may_have_one_output(pixels: int, vector: int) -> None:
    spec = ConvInputGrad(conv2d(1, 5, 7, 6, 6, 3, 3, stride=(1, 3), pad=1, groups=6))
    tile = DepthwiseTile(pixels, vector, 32, rows=0)
    assert verify_workload(build(schedule_conv(spec, tile), "h100"), spec).ok


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_outputs_read_what_the_definition_says(kernel: int, stride: int) -> None:
    """Of every region, each input and position, and no more inputs than its reach."""
    for dilation, low, size in itertools.product((1, 2, 3), (0, 1, 4), (7, 12)):
        if size + low + 2 < dilation * (kernel - 1) + 1:
            continue
        options = {"stride": stride, "dilation": dilation, "pad": (low, 2), "groups": 2}
        conv = Conv(1, (size,), 2, 2, (kernel,), (stride,), ((low, 2),), (dilation,), 2)
        assert conv == conv1d(1, size, 2, 2, kernel, **options)
        for spec in (conv, ConvInputGrad(conv)):
            (axis,) = channelwise(spec).reads
            count = 2 * axis.unit
            for start in range(0, axis.out_size, count):
                first = number(axis.first(start))
                found = {
                    (first + number(axis.place(q, t)), start + q, t)
                    for q, t in itertools.product(range(count), range(kernel))
                    if all(number(one) for one in axis.meets(q, t))
                }
                walked = {
                    (first + j, start + q, number(axis.position(j, q)))
                    for j, q in itertools.product(range(axis.reach(count)), range(count))
                    if all(number(one) for one in axis.reads(j, q))
                }
                assert walked == found
                pairs = {
                    (place, output, t)
                    for place in range(first, first + axis.reach(count))
                    for output, t in itertools.product(range(start, start + count), range(kernel))
                    if _reads(spec, place, output, t)
                }
                assert pairs == found


def number(expr: Any) -> int:
    """The value of an expression without variables."""
    return expr if isinstance(expr, int) else int(sym.Analyzer().simplify(expr))


def _reads(spec: Conv | ConvInputGrad, place: int, output: int, position: int) -> bool:
    conv = spec if isinstance(spec, Conv) else spec.forward
    x, y = (place, output) if isinstance(spec, Conv) else (output, place)
    return x == y * conv.stride[0] + position * conv.dilation[0] - conv.pad[0][0]


SINGLE = {
    "multiplied": conv2d(1, 4, 3, 4, 8, 3, 2, stride=2, pad=1, groups=4),
    "int8": conv2d(1, 6, 8, 16, 16, 5, 5, pad=2, groups=16, dtype="int8"),
    "one dimension": conv1d(2, 9, 6, 6, 3, groups=6, stride=2, dtype="fp32"),
    "three": conv3d(1, 4, 3, 5, 4, 4, 3, 1, 2, pad=(1, 0, 1), groups=4, dilation=(1, 1, 2)),
}


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.part(2)
def test_what_has_no_regions_is_summed_pixel_by_pixel(name: str) -> None:
    spec = ConvInputGrad(SINGLE[name])
    tile = default_tile(spec, H100)
    assert isinstance(tile, DepthwiseTile)
    assert not tile.rows
    check(spec, schedule_conv(spec, tile))


@pytest.mark.parametrize(
    ("conv", "tile"),
    [
        (conv2d(64, 56, 56, 128, 128, 3, 3, pad=1, groups=128), DepthwiseTile(8, 2, 256, rows=2)),
        (
            conv2d(64, 112, 112, 96, 96, 3, 3, stride=2, pad=1, groups=96),
            DepthwiseTile(8, 2, rows=2),
        ),
        (
            conv2d(64, 56, 56, 192, 192, 7, 7, stride=2, pad=3, groups=192),
            DepthwiseTile(14, 1, rows=4),
        ),
        (conv2d(8, 56, 56, 64, 64, 3, 3, stride=16, pad=1, groups=64), DepthwiseTile(4, 4)),
    ],
    ids=["same", "halved", "seven", "far"],
)
def test_tiles_of_gradients(conv: Conv, tile: DepthwiseTile) -> None:
    """As a convolution's; with a stride, of as few positions as a pixel has, in whole phases."""
    spec = ConvInputGrad(conv)
    assert default_tile(spec, H100) == tile
    tried = list(depthwise_tiles(spec))
    assert any(one.rows for one in tried) == bool(tile.rows)
    assert not [one for one in tried if one.rows and one.pixels % conv.stride[1]]


def test_regions_that_start_within_a_phase_are_refused() -> None:
    spec = ConvInputGrad(CASES["halved"][0])
    tile = DepthwiseTile(4, 2, rows=3)
    assert not fits(spec, tile)
    with refused("tile.regions", WorkloadError):
        schedule_conv(spec, tile)
    assert fits(spec, DepthwiseTile(4, 2, rows=9))  # one region is all rows
