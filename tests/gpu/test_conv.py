"""Convolutions of every kind on a GPU: against float64, against cuDNN, and under memcheck."""

from __future__ import annotations

from typing import Any

import pytest

from pipeliner.api import build
from pipeliner.kernel.building import pipeline_with
from pipeliner.machine import machine_for
from pipeliner.plan.request import Request
from pipeliner.schedules import Conv, conv2d, default_tile, schedule_conv
from pipeliner.targets import cuda_target
from pipeliner.verification.accuracy import poisoned, worst_error

from ..schedules.conv_cases import CASES
from .sanitizer import assert_accepted

pytestmark = pytest.mark.gpu

LAYERS = {
    "stem": conv2d(2, 56, 56, 3, 64, 7, 7, stride=2, pad=3),
    "3x3": conv2d(2, 28, 28, 128, 128, 3, 3, pad=1),
    "3x3 strided": conv2d(2, 28, 28, 64, 128, 3, 3, stride=2, pad=1),
    "1x1": conv2d(2, 28, 28, 256, 64, 1, 1),
    "dilated": conv2d(2, 28, 28, 64, 64, 3, 3, pad=2, dilation=2),
    "grouped": conv2d(2, 14, 14, 128, 128, 3, 3, pad=1, groups=4),
    "depthwise": conv2d(2, 28, 28, 64, 64, 3, 3, pad=1, groups=64),
    "bfloat16": conv2d(2, 14, 14, 64, 64, 3, 3, pad=1, dtype="bf16"),
    "float32": conv2d(2, 14, 14, 64, 64, 3, 3, pad=1, dtype="fp32"),
}


def run(spec: Any, tile: Any, **request: Any) -> tuple[list[Any], Any]:
    """Operands and the result of one convolution."""
    kernel = build(pipeline_with(schedule_conv(spec, tile), None, Request(**request)))
    inputs = spec.inputs(3)
    out = poisoned(spec.shapes()[-1], spec.out)
    kernel(*inputs, out)
    return inputs, out


@pytest.mark.parametrize("depth", ["auto", 2])
@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_convolution_is_right(case: str, depth: Any) -> None:
    spec, tile = CASES[case]
    inputs, out = run(spec, tile, depth=depth)
    assert worst_error(spec, out, spec.reference(*inputs), spec.magnitude(*inputs)) <= 1


@pytest.mark.parametrize("name", LAYERS)
def test_layers_agree_with_cudnn(name: str) -> None:
    """Both stand within rounding of the exact sums, so within twice that of each other."""
    torch = pytest.importorskip("torch")
    conv = LAYERS[name]
    (x, w), out = run(conv, default_tile(conv, machine_for(cuda_target())))
    theirs = torch_conv(torch, conv, x, w)
    assert worst_error(conv, out, theirs, conv.magnitude(x, w)) <= 2


def torch_conv(torch: Any, conv: Conv, x: Any, w: Any) -> Any:
    """What cuDNN makes of an NHWC convolution, in the order of ours, float64."""
    torch.backends.cudnn.allow_tf32 = False
    pixels, filters = (
        torch.from_numpy(a.astype("float32")).cuda().to(getattr(torch, conv.storage))
        for a in (x, w)
    )
    done = torch.nn.functional.conv2d(
        pixels.permute(0, 3, 1, 2),
        filters.permute(0, 3, 1, 2),
        stride=conv.stride,
        padding=tuple(first for first, _ in conv.pad),
        dilation=conv.dilation,
        groups=conv.groups,
    )
    return done.permute(0, 2, 3, 1).double().cpu().numpy()


UNDER_MEMCHECK = """
from tests.gpu.test_conv import CASES, run
for case in ("strided and asymmetric", "stem in phases", "20 channels", "channels first", "split ragged"):
    run(*CASES[case])
"""


def test_memcheck_objects_to_nothing() -> None:
    """Where a mask says that nothing is read, an address outside the tensor is not touched."""
    assert_accepted("memcheck", "-c", UNDER_MEMCHECK)
