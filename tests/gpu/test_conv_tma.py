"""Convolutions by TMA, wgmma and roles on a GPU that has them: right, repeatable, and sanitized."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.schedules import ConvTile, schedule_conv
from pipeliner.schedules.workloads import Convolution, conv2d
from pipeliner.targets import gpu_arch
from pipeliner.verification.accuracy import poisoned, worst_error

from ..schedules.im2col_cases import BOXES, CASES, HALVES, LONE, WINDOWS
from .sanitizer import assert_accepted

pytestmark = pytest.mark.gpu

LARGER: dict[str, tuple[Convolution, ConvTile]] = {
    "oblong and steep": (
        conv2d(2, 33, 31, 64, 64, 5, 7, pad=(2, 1, 3, 2), stride=(3, 2)),
        ConvTile(128, 64, 64),
    ),
    "three warpgroups": (conv2d(2, 140, 30, 64, 64, 3, 3, pad=1), ConvTile(192, 64, 64)),
    "small images": (conv2d(32, 7, 7, 128, 256, 3, 3, pad=1), ConvTile(64, 128, 64)),
    "many tiles an SM": (
        conv2d(2, 112, 112, 64, 64, 3, 3, pad=1),
        ConvTile(256, 64, 64, persistent=8),
    ),
}
FORMS = {
    **CASES,
    **BOXES,
    **LARGER,
    **{f"a window, {name}": case for name, case in WINDOWS.items()},
}


def run(spec: Convolution, tile: ConvTile, **options: Any) -> Any:
    """The kernel, its operands and its result; skips where there is no Hopper GPU."""
    if not str(gpu_arch()).startswith("sm_90"):
        pytest.skip(f"wgmma needs sm_90, this GPU is {gpu_arch()}")
    kernel = pipeliner.build(schedule_conv(spec, tile), "h100", **options)
    inputs = spec.inputs(5)
    out = poisoned(spec.shapes()[-1], spec.types.out)
    kernel(*inputs, out)
    return kernel, inputs, out


def check(spec: Convolution, tile: ConvTile, **options: Any) -> Any:
    """The plan of a kernel that is right, and gives the same bits again."""
    kernel, inputs, out = run(spec, tile, **options)
    exact, magnitude = spec.reference(*inputs), spec.magnitude(*inputs)
    assert worst_error(spec, out, exact, magnitude) <= 1
    again = poisoned(out.shape, spec.types.out)
    kernel(*inputs, again)
    np.testing.assert_array_equal(out.view("uint8"), again.view("uint8"))
    return kernel.plan


@pytest.mark.parametrize("case", FORMS)
def test_every_form(case: str) -> None:
    plan = check(*FORMS[case], instruction="wgmma", mechanism="tma")
    assert {copy.mechanism for copy in plan.copies} == {"tma"}


LAYER = conv2d(4, 28, 28, 128, 128, 3, 3, pad=1)

LADDER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "mma.sync": ({}, {"instruction": "mma"}),
    "wgmma by cp.async": ({}, {"instruction": "wgmma", "mechanism": "cp_async"}),
    "boxes": ({}, {"instruction": "wgmma", "mechanism": "tma", "store": "direct"}),
    "boxes stored": ({}, {"instruction": "wgmma", "mechanism": "tma", "store": "tma"}),
    "persistent": (
        {"persistent": 7},
        {"instruction": "wgmma", "mechanism": "tma", "store": "direct"},
    ),
    "persistent, boxes stored": ({"persistent": 7}, {"instruction": "wgmma", "store": "tma"}),
    "split": ({"splits": 3}, {"instruction": "wgmma", "mechanism": "tma"}),
    "split unevenly": ({"splits": 4}, {"instruction": "wgmma", "mechanism": "tma"}),
    "partial sums of nothing": ({"splits": 16}, {"instruction": "wgmma", "mechanism": "tma"}),
}


@pytest.mark.parametrize("step", LADDER)
def test_every_step_from_a_non_specialised_mainloop_to_a_persistent_kernel(step: str) -> None:
    form, options = LADDER[step]
    check(LAYER, ConvTile(128, 64, 64, **form), **options)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel", [1, 3])
def test_every_depth(kernel: int, depth: int) -> None:
    spec = conv2d(3, 9, 10, 64, 64, kernel, kernel, stride=2, pad=kernel // 2)
    check(spec, ConvTile(64, 64, 64), depth=depth, instruction="wgmma", mechanism="tma")


UNDER_THE_SANITIZER = """
from tests.gpu.test_conv_tma import FORMS, LAYER, ConvTile, run
run(LAYER, ConvTile(128, 64, 64, splits=4), instruction="wgmma", mechanism="tma")
for case in ("rows and images", "strided", "asymmetric, dilated", "persistent", "weight gradient"):
    run(*FORMS[case], instruction="wgmma", mechanism="tma")
"""


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_the_sanitizer_objects_to_nothing(tool: str) -> None:
    assert_accepted(tool, "-c", UNDER_THE_SANITIZER)


@pytest.mark.parametrize("name", LONE)
def test_a_part_of_a_tile_may_start_behind_a_lone_image(name: str) -> None:
    plan = check(LONE[name], HALVES, instruction="wgmma", cluster=2)
    assert plan.copies[0].multicast == 2
