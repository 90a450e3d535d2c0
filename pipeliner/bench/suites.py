"""The suites: workloads by the names that their figures are known by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..errors import WorkloadError
from ..schedules import Gemm, conv2d
from ..schedules.workloads import Spec

GEMMS: Final[Mapping[str, tuple[int, int, int]]] = {
    "sq1024": (1024, 1024, 1024),
    "sq2048": (2048, 2048, 2048),
    "sq4096": (4096, 4096, 4096),
    "sq8192": (8192, 8192, 8192),
    "llama_up": (4096, 14336, 4096),
    "llama_down": (4096, 4096, 14336),
    "bert_fc1": (512, 3072, 768),
    "bert_fc2": (512, 768, 3072),
    "rn50_fc": (1024, 1000, 2048),
    "decode16": (16, 4096, 4096),
    "decode128": (128, 8192, 8192),
    "longk": (256, 256, 65536),
    "ragged": (4000, 4104, 4040),
}
"""M, N and K; both operands are K-major (layout NT), as the weights of a linear layer are."""

CONVS: Final[Mapping[str, tuple[int, int, int, int, int, int, int]]] = {
    "rn50_stem": (32, 224, 3, 64, 7, 2, 3),
    "rn50_3x3_56": (32, 56, 64, 64, 3, 1, 1),
    "rn50_3x3_28": (32, 28, 128, 128, 3, 1, 1),
    "rn50_3x3_14": (32, 14, 256, 256, 3, 1, 1),
    "rn50_3x3_7": (32, 7, 512, 512, 3, 1, 1),
    "rn50_3x3_s2": (32, 56, 128, 128, 3, 2, 1),
    "rn50_1x1_56": (32, 56, 256, 64, 1, 1, 0),
    "rn50_1x1_s2": (32, 56, 256, 512, 1, 2, 0),
    "vgg_3x3_224": (32, 224, 64, 64, 3, 1, 1),
    "vgg_3x3_28": (32, 28, 512, 512, 3, 1, 1),
    "unet_3x3_64": (8, 64, 320, 320, 3, 1, 1),
}
"""N, H = W, C, K, R = S, stride and padding; NHWC images and OHWI filters."""

NAMES: Final = ("gemm", "conv")


def suite(name: str, dtype: str = "float16") -> dict[str, Spec]:
    """The workloads of suite ``gemm`` or ``conv`` in one type, by name; WorkloadError: no such."""
    if name == "gemm":
        return {label: Gemm(*sizes, dtype=dtype) for label, sizes in GEMMS.items()}
    if name == "conv":
        return {
            label: conv2d(n, size, size, c, k, rs, rs, stride=stride, pad=pad, dtype=dtype)
            for label, (n, size, c, k, rs, stride, pad) in CONVS.items()
        }
    raise WorkloadError(f"expected a suite of {', '.join(NAMES)}, not {name!r}")
