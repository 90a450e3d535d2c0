"""Convolutions with channels outside the image: what is written in another order first, and why."""

from __future__ import annotations

import numpy as np
import pytest

import pipeliner
from pipeliner.errors import WorkloadError
from pipeliner.machine import H100
from pipeliner.schedules import ConvTile, default_tile, schedule_conv
from pipeliner.schedules.workloads import ConvInputGrad, conv2d
from tests.refusals import refused

FIRST = conv2d(2, 16, 16, 64, 64, 3, 3, pad=1, layout="NCHW")
POINT = conv2d(2, 8, 16, 64, 64, 1, 1, layout="NCHW")
BY_IMAGE = ConvTile(64, 64, 64, by_image=True)


def built(conv, tile, target="h100", **asked):
    return pipeliner.build(schedule_conv(conv, tile), target, prove=False, **asked)


def error(kernel, conv):
    """The greatest error of an emulated run, which meets no hazard."""
    inputs = conv.inputs()
    done = kernel.emulate(*inputs, np.full(conv.shapes()[-1], np.nan, conv.storage))
    assert not done.hazards
    return np.abs(done.outputs["Y"].astype(np.float64) - conv.reference(*inputs)).max()


def test_operands_are_written_first_where_windows_are_no_boxes():
    large = conv2d(32, 56, 56, 128, 128, 3, 3, pad=1, layout="NCHW")
    assert default_tile(large, H100).reordered
    assert not default_tile(conv2d(32, 56, 56, 256, 64, 1, 1, layout="NCHW"), H100).reordered


@pytest.mark.parametrize("by_image", [False, True])
def test_reordered_operands_are_copied_in_boxes(by_image):
    kernel = built(FIRST, ConvTile(64, 128, 64, by_image=by_image, reordered=True))
    plan = kernel.plan
    assert [copy.src for copy in plan.copies] == ["W_reordered", "X_reordered"]
    assert {copy.mechanism for copy in plan.copies} == {"tma"}
    assert [one.op for one in plan.elementwise] == ["W_reordered", "X_reordered"]
    assert "kernels before it" in plan.explain()
    assert "kernels behind it" not in plan.explain()
    assert error(kernel, FIRST) < 0.1


def test_what_is_added_up_stands_behind_and_what_is_reordered_before():
    tile = ConvTile(64, 128, 64, splits=2, reordered=True)
    kernel = built(FIRST, tile, reduction="workspace")
    before, behind = kernel.plan.explain().split("kernels before it")[1].split("kernels behind it")
    assert "X_reordered: " in before
    assert "store: " in behind


def test_what_reorders_moves_squares_in_registers():
    """Both its loads and its stores are of 16 bytes, though they run along different loops."""
    kernel = built(FIRST, ConvTile(64, 128, 64, reordered=True))
    (moved,) = [one for one in kernel.plan.elementwise if one.op == "X_reordered"]
    assert moved.vector == 8 * 8
    assert "*(uint4*)(X_ptr" in kernel.cuda
    assert "uint4* __restrict__ X_reordered_ptr" in kernel.cuda


def test_pixels_of_an_image_are_one_dimension_to_boxes():
    kernel = built(POINT, BY_IMAGE, mechanism="tma")
    assert {copy.mechanism for copy in kernel.plan.copies} == {"tma"}
    assert [store.mechanism for store in kernel.plan.stores] == ["tma"]
    assert error(kernel, POINT) < 0.1


def test_tiles_within_images_are_boxes_though_pixels_are_counted_over_all():
    kernel = built(POINT, ConvTile(64, 64, 64), mechanism="tma")
    assert {copy.mechanism for copy in kernel.plan.copies} == {"tma"}
    assert [store.mechanism for store in kernel.plan.stores] == ["tma"]
    assert error(kernel, POINT) < 0.1


def test_pixels_over_all_images_are_stored_in_vectors():
    """Eight of them lie in one row where rows are multiples of eight."""
    conv = conv2d(3, 7, 8, 64, 64, 3, 3, pad=1, layout="NCHW")
    kernel = built(conv, ConvTile(64, 128, 64, reordered=True, persistent=2))
    assert [store.mechanism for store in kernel.plan.stores] == ["direct"]
    assert "*(uint4*)(Y_ptr" in kernel.cuda
    assert error(kernel, conv) < 0.1


def test_a_kernel_beside_the_loops_may_write_what_they_copy_by_tma():
    """It has ended before they start; the kernel with the loops may not."""
    tile = ConvTile(64, 128, 64, reordered=True, splits=2)
    plan = built(FIRST, tile, mechanism="tma", reduction="workspace").plan
    assert {copy.mechanism for copy in plan.copies} == {"tma"}
    assert len(plan.elementwise) == 3


def test_only_channels_outside_are_reordered():
    with refused("conv.reordered", WorkloadError):
        ConvTile(16, 16, 16, reordered=True).contraction(conv2d(1, 6, 6, 16, 16, 3, 3))
    with refused("conv.reordered", WorkloadError):
        ConvTile(16, 16, 16, reordered=True).contraction(ConvInputGrad(FIRST))
