"""Loads of a lone image's pixels that start behind its last one: zeros of an image that is not there.

A CTA of a cluster copies a part of its tile's pixels, and a grid of whole clusters has tiles beyond
the end. An H200 ends a load that starts outside of the bounding box with an illegal instruction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import pipeliner
from pipeliner.kernel.compiled import Kernel
from pipeliner.schedules import ConvTile, schedule_conv
from pipeliner.verification.verdict import verify_workload

from ..schedules.im2col_cases import HALVES, LONE
from .proved import assert_right_and_proved

WHOLE = replace(HALVES, grid_multiple=(4, 1))
"""In a grid of whole clusters."""


def kernel_of(name: str, tile: ConvTile) -> Kernel:
    options: dict[str, Any] = {"instruction": "wgmma", "cluster": 2, "prove": False}
    kernel = pipeliner.build(schedule_conv(LONE[name], tile), "h100", **options)
    pixels = kernel.plan.copies[0]
    assert (pixels.mechanism, pixels.multicast) == ("tma", 2)
    return kernel


@pytest.mark.part(2)
@pytest.mark.parametrize("tile", [HALVES, WHOLE, replace(WHOLE, persistent=4)], ids=str)
@pytest.mark.parametrize("name", LONE)
def test_each_starts_in_an_image(name: str, tile: ConvTile) -> None:
    found = verify_workload(kernel_of(name, tile), LONE[name], 3, ("late",), ("random",))
    assert found.ok, found


def test_no_interleaving_meets_a_hazard() -> None:
    assert_right_and_proved(kernel_of("image", HALVES), LONE["image"])
