"""The model's numbers from a schedule's parameters alone, against those from the scheduled code.

Tiles are compared without any IR; what is then planned is the PrimFunc. Both must come to the same
descriptor, or the choice was made for another kernel.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeliner.cost.mapped import map_kernel
from pipeliner.errors import PipelinerError
from pipeliner.machine import A100, H100
from pipeliner.passes.recognise import recognise, with_sharing
from pipeliner.request import Request
from pipeliner.schedules import ConvTile, Gemm, GemmTile, schedule_conv, schedule_gemm
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.workloads import (
    DTYPES,
    LAYOUTS,
    ConvInputGrad,
    ConvWeightGrad,
    can_fold,
    conv2d,
)

from .conv_cases import CASES as CONVOLUTIONS
from .test_gemm import CASES as GEMMS
from .test_gemm import prefix

WAYS = [
    ("wgmma", "tma"),
    ("wgmma", "cp_async"),
    ("mma", "cp_async"),
    ("mma", "register"),
    ("mma", "direct"),
    ("simt", "cp_async"),
    ("simt", "register"),
    ("simt", "direct"),
]
"""Every instruction with every mechanism that feeds it."""


def works(info, machine, request):
    """The descriptors of all loops, or the error that there are none."""
    try:
        return [one.work for one in map_kernel(info, machine, request).loops]
    except PipelinerError as err:
        return type(err)


def check(spec, tile, machine=H100):
    """Compare every way; the set of those that are possible."""
    schedule = schedule_gemm if isinstance(spec, Gemm) else schedule_conv
    found = with_sharing(*recognise(prefix(schedule(spec, tile).mod)), (2,)).info
    closed = kernel_info(spec, tile)
    possible = set()
    for way in WAYS:
        request = Request(instruction=way[0], mechanism=way[1])
        expected = works(found, machine, request)
        assert works(closed, machine, request) == expected, way
        if isinstance(expected, list):
            possible.add(way)
    return possible


@pytest.mark.parametrize("machine", [A100, H100], ids=lambda machine: machine.name)
@pytest.mark.parametrize(
    "case", [case for case in GEMMS if "symbolic" not in case and case != "one"]
)
def test_of_products(case, machine):
    assert check(*GEMMS[case], machine)


@pytest.mark.parametrize("case", [case for case in CONVOLUTIONS if case != "one pixel"])
def test_of_convolutions(case):
    assert check(*CONVOLUTIONS[case])


@pytest.mark.parametrize(
    ("spec", "tile"),
    [
        (Gemm(256, 256, 256), GemmTile(64, 64, 64)),
        (conv2d(4, 8, 8, 64, 64, 3, 3, pad=1), ConvTile(64, 64, 64)),
    ],
    ids=["product", "convolution"],
)
def test_every_way_is_possible_somewhere(spec, tile):
    assert check(spec, tile) == set(WAYS)


def repeats(spec, tile):
    """Whether there are several CTAs and steps.

    The code of a lone tile has a dimension less where it is stored, and a lone step is no loop.
    """
    info = kernel_info(spec, tile)
    return math.prod(info.grid) > 1 and info.loops[0].trip > 1


rows = st.integers(1, 6).map(lambda count: 16 * count)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    extents=st.tuples(*[st.integers(1, 300)] * 2, st.integers(65, 300)),
    aligned=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS),
    batch=st.sampled_from([None, 3]),
    tile=st.builds(
        GemmTile,
        m=rows,
        n=rows,
        k=st.sampled_from([16, 32, 64]),
        group=st.sampled_from([1, 8]),
        ctas=st.sampled_from([None, 4]),
        splits=st.sampled_from([1, 2]),
    ),
)
def test_of_any_product(extents, aligned, dtype, layout, batch, tile):
    m, n, k = (-(-extent // 16) * 16 if aligned else extent for extent in extents)
    spec = Gemm(m, n, k, batch=batch, dtype=dtype, layout=layout)
    tile = replace(tile, ctas=None) if tile.splits > 1 or batch else tile
    assume(repeats(spec, tile))
    check(spec, tile)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_of_any_convolution(data):
    draw = data.draw
    kernel, stride = draw(st.sampled_from([1, 2, 3, 5])), draw(st.sampled_from([1, 2]))
    layout = draw(st.sampled_from(["NHWC", "NHWC", "NCHW"]))
    forward = conv2d(
        draw(st.integers(1, 3)),
        draw(st.integers(6, 12)),
        draw(st.integers(6, 12)),
        draw(st.sampled_from([3, 16, 32, 64, 80])),
        draw(st.sampled_from([16, 48, 64])),
        kernel,
        kernel,
        stride=stride,
        pad=draw(st.integers(0, kernel // 2)),
        dtype=draw(st.sampled_from(["float16", "float32", "int8"])),
        layout=layout,
    )
    kind = draw(st.sampled_from(["forward", "input", "weight"]))
    if kind != "forward" and forward.types.dtype != "int8":
        forward = {"input": ConvInputGrad, "weight": ConvWeightGrad}[kind](forward)
    # There recognition sees no vectors, and the closed form does: v // 4 % 5 and v % 4 make no run.
    assume(not (isinstance(forward, ConvWeightGrad) and layout == "NCHW"))
    fold = isinstance(forward, ConvWeightGrad) or (
        not isinstance(forward, ConvInputGrad) and can_fold(forward)
    )
    tile = ConvTile(
        draw(rows),
        draw(rows),
        draw(st.sampled_from([16, 32, 64])),
        fold=fold and draw(st.booleans()),
    )
    assume(repeats(forward, tile))
    check(forward, tile)
