"""Small convolutions of every kind, with a tile each."""

from __future__ import annotations

from pipeliner.schedules import ConvTile
from pipeliner.schedules.workloads import ConvInputGrad, ConvWeightGrad, conv1d, conv2d, conv3d

TILE = ConvTile(32, 16, 16)
FOLDED = ConvTile(32, 16, 16, fold=True)
SIMT = ConvTile(32, 32, 8)

SAME = conv2d(2, 6, 7, 16, 24, 3, 3, pad=1)
STRIDED = conv2d(1, 9, 9, 16, 24, 3, 3, stride=2, pad=(1, 0, 2, 1))
GROUPED = conv2d(1, 6, 6, 32, 32, 3, 3, groups=2, pad=1)
FIRST = conv2d(1, 6, 6, 16, 24, 3, 3, pad=1, layout="NCHW")

CASES = {
    "same": (SAME, TILE),
    "strided and asymmetric": (STRIDED, TILE),
    "dilated": (conv2d(1, 9, 9, 24, 16, 3, 3, dilation=2, pad=2), TILE),
    "oblong": (conv2d(1, 5, 12, 16, 16, 1, 5, stride=(1, 3), pad=(0, 2)), TILE),
    "no padding": (conv2d(1, 8, 8, 16, 16, 3, 3), TILE),
    "grouped": (GROUPED, TILE),
    "1x1": (conv2d(1, 6, 6, 32, 16, 1, 1), TILE),
    "1x1 strided": (conv2d(1, 7, 7, 32, 16, 1, 1, stride=2), TILE),
    "one pixel": (conv2d(1, 3, 3, 16, 16, 3, 3), TILE),
    "stem": (conv2d(2, 10, 12, 3, 16, 7, 7, stride=2, pad=3), ConvTile(32, 16, 32, fold=True)),
    "stem in phases": (
        conv2d(2, 10, 16, 3, 16, 7, 7, stride=2, pad=3),
        ConvTile(32, 16, 32, fold=True, phases=4),
    ),
    "5 channels in phases": (
        conv2d(1, 7, 8, 5, 16, 3, 3, pad=1),
        ConvTile(32, 16, 16, fold=True, phases=8),
    ),
    "int8 in phases": (
        conv2d(1, 5, 16, 3, 16, 3, 3, pad=(1, 0, 0, 2), dtype="int8"),
        ConvTile(16, 16, 32, fold=True, phases=2),
    ),
    "conv1d in phases": (conv1d(2, 20, 6, 16, 5, pad=2), ConvTile(16, 16, 16, fold=True, phases=2)),
    "stem unfolded": (conv2d(1, 10, 12, 3, 16, 3, 3, stride=2, pad=1), TILE),
    "4 channels": (conv2d(1, 10, 12, 4, 16, 7, 7, stride=2, pad=3), FOLDED),
    "20 channels": (conv2d(1, 7, 8, 20, 16, 3, 3, pad=1), FOLDED),
    "5 channels": (conv2d(1, 7, 8, 5, 16, 3, 3, pad=1), FOLDED),
    "fp32": (conv2d(2, 6, 7, 16, 16, 3, 3, pad=1, dtype="fp32"), SIMT),
    "fp32 stem": (
        conv2d(1, 10, 12, 3, 16, 7, 7, stride=2, pad=3, dtype="fp32"),
        ConvTile(32, 32, 8, fold=True),
    ),
    "tf32": (conv2d(2, 6, 7, 16, 16, 3, 3, pad=1, dtype="tf32"), TILE),
    "tf32 stem": (conv2d(1, 10, 12, 3, 16, 7, 7, stride=2, pad=3, dtype="tf32"), FOLDED),
    "bf16": (conv2d(2, 6, 7, 16, 16, 3, 3, pad=1, dtype="bf16"), TILE),
    "int8": (conv2d(2, 6, 7, 32, 16, 3, 3, pad=1, dtype="int8"), ConvTile(32, 16, 32)),
    "int8 stem": (
        conv2d(2, 6, 7, 3, 16, 3, 3, pad=1, dtype="int8"),
        ConvTile(32, 16, 32, fold=True),
    ),
    "channels first": (FIRST, ConvTile(16, 32, 16)),
    "channels first fp32": (
        conv2d(1, 6, 7, 16, 24, 3, 3, pad=1, dtype="fp32", layout="NCHW"),
        SIMT,
    ),
    "channels first 1x1": (conv2d(1, 4, 4, 32, 24, 1, 1, layout="NCHW"), ConvTile(16, 16, 16)),
    "channels first by image": (
        conv2d(3, 4, 6, 32, 24, 1, 1, layout="NCHW", epilogue=("bias", "residual")),
        ConvTile(16, 16, 16, by_image=True),
    ),
    "channels first grouped by image": (
        conv2d(2, 7, 5, 32, 32, 3, 3, stride=2, pad=1, groups=2, layout="NCHW"),
        ConvTile(16, 16, 16, by_image=True),
    ),
    "channels first reordered": (
        conv2d(2, 6, 8, 16, 24, 3, 3, pad=1, layout="NCHW"),
        ConvTile(16, 32, 16, reordered=True),
    ),
    "channels first reordered by image": (
        conv2d(
            3, 7, 7, 32, 32, 3, 3, stride=2, pad=1, layout="NCHW", epilogue=("bias", "residual")
        ),
        ConvTile(16, 16, 16, by_image=True, reordered=True),
    ),
    "channels first reordered, split": (
        conv2d(1, 4, 6, 48, 16, 2, 1, groups=1, layout="NCHW"),
        ConvTile(16, 16, 16, reordered=True, splits=2),
    ),
    "channels first reordered stem": (
        conv2d(2, 10, 16, 3, 16, 7, 7, stride=2, pad=3, layout="NCHW"),
        ConvTile(16, 32, 32, fold=True, phases=4, reordered=True),
    ),
    "channels first reordered 1x1": (
        conv2d(2, 4, 4, 32, 32, 1, 1, groups=2, layout="NCHW"),
        ConvTile(16, 16, 16, reordered=True),
    ),
    "conv1d channels first reordered": (
        conv1d(2, 20, 16, 16, 3, pad=1, dtype="bf16", layout="NCW"),
        ConvTile(16, 16, 16, by_image=True, reordered=True),
    ),
    "conv1d": (conv1d(2, 20, 16, 16, 5, pad=2), TILE),
    "conv1d folded": (conv1d(2, 20, 6, 16, 5, pad=2), FOLDED),
    "conv1d channels first": (conv1d(1, 20, 16, 16, 3, layout="NCW"), ConvTile(16, 16, 16)),
    "conv3d": (conv3d(1, 4, 5, 6, 16, 16, 3, 3, 3, pad=1), TILE),
    "conv3d folded": (conv3d(1, 4, 5, 6, 4, 16, 3, 3, 3, pad=1, stride=(1, 2, 2)), FOLDED),
    "scale bias": (conv2d(1, 6, 7, 16, 24, 3, 3, pad=1, epilogue=("scale", "bias")), TILE),
    "bias relu": (conv2d(1, 6, 7, 16, 24, 3, 3, pad=1, epilogue=("bias", "relu")), TILE),
    "residual gelu": (
        conv2d(1, 6, 7, 16, 24, 3, 3, pad=1, dtype="bf16", epilogue=("residual", "gelu")),
        TILE,
    ),
    "bias residual silu": (
        conv2d(1, 6, 6, 32, 32, 1, 1, groups=2, epilogue=("bias", "residual", "silu")),
        TILE,
    ),
    "channels first bias": (
        conv2d(1, 6, 7, 16, 24, 3, 3, pad=1, layout="NCHW", epilogue=("bias", "residual")),
        ConvTile(16, 32, 16),
    ),
    "int8 bias relu": (
        conv2d(1, 5, 5, 32, 16, 3, 3, dtype="int8", epilogue=("bias", "relu")),
        ConvTile(16, 16, 32),
    ),
    "input gradient": (ConvInputGrad(SAME), TILE),
    "input gradient strided": (ConvInputGrad(STRIDED), TILE),
    "input gradient of thirds": (
        ConvInputGrad(conv2d(1, 9, 9, 16, 16, 3, 3, pad=1, stride=3, dilation=2)),
        TILE,
    ),
    "input gradient by phases": (
        ConvInputGrad(conv2d(1, 8, 8, 16, 24, 3, 3, stride=2, pad=1)),
        ConvTile(16, 16, 16, fold=True),
    ),
    "input gradient by phases without positions": (
        ConvInputGrad(conv2d(1, 6, 8, 16, 16, 1, 2, stride=2)),
        ConvTile(16, 16, 16, fold=True),
    ),
    "input gradient by thirds, grouped": (
        ConvInputGrad(conv2d(1, 9, 8, 32, 32, 4, 3, stride=(3, 1), dilation=2, pad=2, groups=2)),
        ConvTile(16, 16, 16, fold=True),
    ),
    "input gradient grouped": (ConvInputGrad(GROUPED), TILE),
    "input gradient channels first": (ConvInputGrad(FIRST), ConvTile(16, 32, 16)),
    "input gradient channels first 1x1": (
        ConvInputGrad(conv2d(1, 6, 6, 16, 16, 1, 1, layout="NCHW")),
        ConvTile(16, 16, 16),
    ),
    "weight gradient": (ConvWeightGrad(SAME), ConvTile(16, 16, 16)),
    "weight gradient by rows": (ConvWeightGrad(SAME), ConvTile(16, 16, 16, fold=True)),
    "weight gradient strided": (ConvWeightGrad(STRIDED), ConvTile(16, 16, 16, fold=True)),
    "weight gradient grouped": (ConvWeightGrad(GROUPED), ConvTile(16, 16, 16)),
    "weight gradient channels first": (ConvWeightGrad(FIRST), ConvTile(16, 16, 16)),
    "weight gradient fp32": (
        ConvWeightGrad(conv2d(1, 6, 6, 16, 16, 3, 3, pad=1, dtype="fp32")),
        SIMT,
    ),
    "weight gradient of a stem": (
        ConvWeightGrad(conv2d(2, 10, 12, 3, 16, 7, 7, stride=2, pad=3)),
        ConvTile(16, 32, 16),
    ),
    "weight gradient of a stem by rows, split": (
        ConvWeightGrad(conv2d(2, 9, 11, 5, 16, 3, 4, stride=(1, 2), pad=(1, 0, 2, 0))),
        ConvTile(16, 16, 16, fold=True, splits=3),
    ),
    "weight gradient of one channel": (
        ConvWeightGrad(conv1d(3, 20, 1, 16, 5, stride=3, pad=(0, 4), dtype="fp32")),
        ConvTile(16, 16, 8),
    ),
    "stationary": (SAME, ConvTile(32, 24, 16, stationary=True)),
    "stationary, phases": (
        conv2d(2, 10, 16, 3, 16, 7, 7, stride=2, pad=3),
        ConvTile(32, 16, 32, fold=True, phases=4, stationary=True),
    ),
    "stationary fp32": (
        conv2d(1, 6, 7, 16, 16, 3, 3, pad=1, dtype="fp32"),
        ConvTile(32, 32, 8, stationary=True),
    ),
    "split": (SAME, ConvTile(32, 16, 16, splits=3)),
    "split ragged": (
        conv2d(1, 5, 6, 24, 20, 3, 3, pad=1, epilogue=("bias", "residual", "gelu")),
        ConvTile(32, 16, 16, splits=4),
    ),
    "split runs": (
        conv2d(2, 10, 16, 3, 16, 7, 7, stride=2, pad=3),
        ConvTile(32, 16, 16, fold=True, phases=4, splits=4),
    ),
    "split grouped int8": (
        conv2d(1, 6, 6, 64, 32, 3, 3, groups=2, pad=1, dtype="int8"),
        ConvTile(32, 16, 32, splits=2),
    ),
    "split fp32": (
        conv2d(2, 6, 7, 16, 16, 3, 3, pad=1, dtype="fp32"),
        ConvTile(32, 32, 8, splits=6),
    ),
    "split channels first": (FIRST, ConvTile(16, 32, 16, splits=3)),
    "split input gradient": (ConvInputGrad(SAME), ConvTile(32, 16, 16, splits=5)),
    "split weight gradient": (ConvWeightGrad(SAME), ConvTile(16, 16, 16, splits=3)),
    "split weight gradient by rows": (
        ConvWeightGrad(SAME),
        ConvTile(16, 16, 16, fold=True, splits=6),
    ),
}
