"""The model's numbers from a schedule's parameters alone, against those from the scheduled code.

Tiles are compared without any IR; what is then planned is the PrimFunc. Both must come to the same
descriptor, or the choice was made for another kernel.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeliner.choice.mapped import map_kernel
from pipeliner.errors import PipelinerError
from pipeliner.machine import A100, H100
from pipeliner.passes.recognise.facts import recognise, with_sharing
from pipeliner.plan.request import Request
from pipeliner.schedules import ConvTile, Gemm, GemmTile, schedule_conv, schedule_gemm
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.workloads import (
    DTYPES,
    LAYOUTS,
    ConvInputGrad,
    ConvWeightGrad,
    begins_inside_vectors,
    can_fold,
    conv2d,
    has_phases,
)
from pipeliner.values.facts import CopyInfo

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


def read(spec, tile):
    """What recognition finds in the scheduled code."""
    schedule = schedule_gemm if isinstance(spec, Gemm) else schedule_conv
    return with_sharing(*recognise(prefix(schedule(spec, tile).mod)), (2,)).info


def written_first(info):
    """The kernels before the loops: what is behind them is described but for its vectors."""
    return [one for one in info.elementwise if one.op.endswith("_reordered")]


def shared_by_pairs(info):
    """The ranks of clusters of two that share a copy, by copy."""
    ops = [op for loop in info.loops for op in loop.ops if isinstance(op, CopyInfo)]
    return {op.op: op.shared_in(2) for op in ops}


def check(spec, tile, machine=H100, found=None):
    """Compare every way; the set of those that are possible."""
    found = read(spec, tile) if found is None else found
    closed = kernel_info(spec, tile)
    assert written_first(closed) == written_first(found)
    assert shared_by_pairs(closed) == shared_by_pairs(found)
    possible = set()
    for way in WAYS:
        request = Request(instruction=way[0], mechanism=way[1])
        expected = works(found, machine, request)
        assert works(closed, machine, request) == expected, way
        if isinstance(expected, list):
            possible.add(way)
    return possible


@pytest.mark.parametrize("machine", [A100, H100], ids=lambda machine: machine.name)
@pytest.mark.parametrize("case", [case for case in GEMMS if "symbolic" not in case])
@pytest.mark.part(2)
def test_of_products(case, machine):
    assert check(*GEMMS[case], machine)


@pytest.mark.parametrize("case", [case for case in GEMMS if "symbolic" in case])
def test_of_products_whose_rows_are_counted_at_run_time(case):
    """The grid cannot be equal: tiles are compared as for ``TYPICAL_M``, code knows of no number."""
    spec, tile = GEMMS[case]
    found = read(spec, tile)
    assert None in found.grid
    assert check(spec, tile, found=replace(found, grid=kernel_info(spec, tile).grid))


@pytest.mark.part(6)
@pytest.mark.parametrize("case", CONVOLUTIONS)
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


rows = st.integers(1, 6).map(lambda count: 16 * count)

sizes = st.one_of(st.integers(6, 12), st.sampled_from([16, 18, 32]))
"""Of images; tiles divide some of them."""


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    extents=st.tuples(*[st.integers(1, 300)] * 3),
    aligned=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS),
    batch=st.sampled_from([None, 3]),
    tile=st.builds(
        GemmTile,
        m=rows,
        n=rows,
        k=st.sampled_from([16, 32, 64]),
        raster_group=st.sampled_from([1, 8]),
        persistent=st.sampled_from([None, 4]),
        splits=st.sampled_from([1, 2]),
        reordered=st.booleans(),
    ),
)
def test_of_any_product(extents, aligned, dtype, layout, batch, tile):
    m, n, k = (-(-extent // 16) * 16 if aligned else extent for extent in extents)
    spec = Gemm(m, n, k, batch=batch, dtype=dtype, layout=layout)
    tile = replace(tile, splits=1) if k <= tile.k else tile  # a lone step has no parts
    tile = replace(tile, persistent=None) if tile.splits > 1 or batch else tile
    tile = tile if begins_inside_vectors(spec.contraction()) else replace(tile, reordered=False)
    check(spec, tile)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_of_any_convolution(data):
    draw = data.draw
    kernel, stride = draw(st.sampled_from([1, 2, 3, 5])), draw(st.sampled_from([1, 2]))
    layout = draw(st.sampled_from(["NHWC", "NHWC", "NCHW"]))
    forward = conv2d(
        draw(st.integers(1, 3)),
        draw(sizes),
        draw(sizes),
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
    fold = isinstance(forward, ConvWeightGrad) or (
        has_phases(forward.forward) if isinstance(forward, ConvInputGrad) else can_fold(forward)
    )
    tile = ConvTile(
        draw(rows),
        draw(rows),
        draw(st.sampled_from([16, 32, 64])),
        fold=fold and draw(st.booleans()),
    )
    if kind == "forward" and layout == "NCHW":
        tile = replace(tile, by_image=draw(st.booleans()), reordered=draw(st.booleans()))
    check(forward, tile)


@pytest.mark.parametrize(
    ("kernel", "pixels", "view"),
    [
        (3, 128, "window"),  # boxes overlap
        (1, 128, "tensor"),
        (3, 64, "window"),
        (3, 512, "window"),  # four rows
        (3, 96, "im2col"),
    ],
)
def test_of_pixels_of_a_row(kernel, pixels, view):
    """Part of a row is a box of the tensor; it costs as pixels do where windows overlap."""
    spec = conv2d(2, 8, 128, 64, 64, kernel, kernel, pad=kernel // 2)
    tile = ConvTile(pixels, 64, 64)
    assert kernel_info(spec, tile).loops[0].ops[0].view == view
    assert ("wgmma", "tma") in check(spec, tile)
