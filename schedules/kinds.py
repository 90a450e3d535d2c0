"""The suite of every kind of convolution: each large enough to take cuDNN 20 us on an H200."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .workloads import Conv, ConvInputGrad, ConvWeightGrad, conv1d, conv2d, conv3d

DEPTHWISE: Final[Mapping[str, tuple[int, int, int, int, int]]] = {
    "dw3_56": (64, 56, 128, 3, 1),
    "dw3_112": (32, 112, 96, 3, 1),
    "dw3_14": (256, 14, 768, 3, 1),
    "dw5_28": (64, 28, 512, 5, 1),
    "dw7_56": (64, 56, 128, 7, 1),
    "dw7_14": (128, 14, 768, 7, 1),
    "dw9_28": (64, 28, 384, 9, 1),
    "dw11_28": (64, 28, 384, 11, 1),
    "dw3_s2": (64, 112, 96, 3, 2),
    "dw5_s2": (64, 56, 192, 5, 2),
    "dw7_s2": (64, 56, 192, 7, 2),
}
"""N, H = W, C, R = S and stride; as many outputs as inputs at stride 1."""

GROUPED: Final[Mapping[str, tuple[int, int, int, int]]] = {
    f"g{each}_{size}": (64, size, channels, channels // each)
    for each, size, channels in (
        (4, 56, 128),
        (8, 28, 256),
        (16, 28, 512),
        (32, 28, 512),
        (64, 28, 512),
    )
}
"""N, H = W, C = K and groups of a layer of 3 x 3, by channels a group (ResNeXt's are 4 to 32)."""


def kinds(dtype: str) -> dict[str, Conv | ConvInputGrad | ConvWeightGrad]:
    """Each kind of convolution in one type, by name."""
    return {**_depthwise(dtype), **_grouped(dtype), **_others(dtype), **_gradients(dtype)}


def _depthwise(dtype: str) -> dict[str, Conv]:
    return {
        label: conv2d(n, hw, hw, c, c, rs, rs, stride=s, pad=rs // 2, groups=c, dtype=dtype)
        for label, (n, hw, c, rs, s) in DEPTHWISE.items()
    }


def _grouped(dtype: str) -> dict[str, Conv]:
    return {
        label: conv2d(n, size, size, c, c, 3, 3, pad=1, groups=groups, dtype=dtype)
        for label, (n, size, c, groups) in GROUPED.items()
    }


def _others(dtype: str) -> dict[str, Conv]:
    """Channels outside of the image; one dimension and three; holes."""
    first = "NCHW"
    return {
        "nchw_3x3": conv2d(32, 56, 56, 128, 128, 3, 3, pad=1, layout=first, dtype=dtype),
        "nchw_1x1": conv2d(32, 56, 56, 256, 64, 1, 1, layout=first, dtype=dtype),
        "nchw_dw3": conv2d(
            64, 56, 56, 128, 128, 3, 3, pad=1, groups=128, layout=first, dtype=dtype
        ),
        "audio_1d": conv1d(32, 8192, 128, 128, 3, pad=1, dtype=dtype),
        "wave_1d_d8": conv1d(16, 16384, 128, 128, 3, pad=8, dilation=8, dtype=dtype),
        "video_3d": conv3d(4, 16, 56, 56, 64, 64, 3, 3, 3, pad=1, dtype=dtype),
        "video_1x3x3": conv3d(4, 16, 56, 56, 64, 128, 1, 3, 3, pad=(0, 1, 1), dtype=dtype),
        "aspp_d2": conv2d(16, 64, 64, 256, 256, 3, 3, pad=2, dilation=2, dtype=dtype),
        "aspp_d12": conv2d(8, 64, 64, 512, 256, 3, 3, pad=12, dilation=12, dtype=dtype),
    }


def _gradients(dtype: str) -> dict[str, ConvInputGrad | ConvWeightGrad]:
    """Of the input, as a transposed convolution is, too; and of the weights."""
    plain = conv2d(32, 56, 56, 128, 128, 3, 3, pad=1, dtype=dtype)
    halved = conv2d(32, 56, 56, 128, 256, 3, 3, stride=2, pad=1, dtype=dtype)
    point = conv2d(32, 56, 56, 256, 128, 1, 1, dtype=dtype)
    point_halved = conv2d(32, 56, 56, 256, 512, 1, 1, stride=2, dtype=dtype)
    depthwise = conv2d(64, 56, 56, 128, 128, 3, 3, pad=1, groups=128, dtype=dtype)
    return {
        "dinput_3x3": ConvInputGrad(plain),
        "dinput_3x3_s2": ConvInputGrad(halved),
        "dinput_1x1": ConvInputGrad(point),
        "dinput_1x1_s2": ConvInputGrad(point_halved),
        "dinput_dw3": ConvInputGrad(depthwise),
        "transposed_2x2": ConvInputGrad(conv2d(16, 128, 128, 64, 128, 2, 2, stride=2, dtype=dtype)),
        "transposed_4x4": ConvInputGrad(
            conv2d(32, 64, 64, 128, 256, 4, 4, stride=2, pad=1, dtype=dtype)
        ),
        "dweights_3x3": ConvWeightGrad(plain),
        "dweights_3x3_s2": ConvWeightGrad(halved),
        "dweights_1x1": ConvWeightGrad(point),
        "dweights_1x1_s2": ConvWeightGrad(point_halved),
        "dweights_7x7_s2": ConvWeightGrad(
            conv2d(32, 224, 224, 3, 64, 7, 7, stride=2, pad=3, dtype=dtype)
        ),
        "dweights_dw3": ConvWeightGrad(depthwise),
    }
