"""Suites of products beside the published one: few rows, batches, and shapes drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from .workloads import Gemm

ROWS: Final = (1, 4, 8, 16, 32, 64)
"""Tokens that a model generates at a time."""

WEIGHTS: Final[Mapping[str, tuple[int, int]]] = {
    "qkv": (6144, 4096),
    "up": (28672, 4096),
    "down": (4096, 14336),
}
"""N and K of Llama 3 8B's linear layers: of attention, and of the MLP, gate and up in one."""

BATCHES: Final[Mapping[str, tuple[int, int, int, int, str]]] = {
    "b64_512": (64, 512, 512, 512, "NT"),
    "b16_1024": (16, 1024, 1024, 1024, "NT"),
    "b8_2048": (8, 2048, 2048, 1024, "NN"),
    "scores": (256, 1024, 1024, 64, "NT"),
    "values": (256, 1024, 64, 1024, "NN"),
    "experts": (8, 512, 4096, 2048, "NT"),
    "experts_64": (64, 64, 2048, 1024, "NT"),
    "transposed": (16, 1024, 1024, 1024, "TN"),
}
"""Matrices of a batch, M, N, K and layout: attention's two products, experts of a mixture."""

RANDOM: Final = 40
"""Shapes of ``random_gemms``."""

_DTYPES: Final = ("float16", "bfloat16")
_LAYOUTS: Final = ("NT", "NT", "NT", "NN", "TN", "TT")
_MOST_FLOPS: Final = 2 * 8192**3
_STEP: Final = 8
"""Of extents: 16 bytes of 16-bit elements, as whoever pads for tensor cores does."""


def few_rows(dtype: str) -> dict[str, Gemm]:
    """Linear layers of few rows, K-major (layout NT), by name."""
    return {
        f"{label}_{rows}": Gemm(rows, n, k, dtype=dtype)
        for label, (n, k) in WEIGHTS.items()
        for rows in ROWS
    }


def batched(dtype: str) -> dict[str, Gemm]:
    """Products of many pairs of matrices, by name."""
    return {
        label: Gemm(m, n, k, batch, dtype, layout)
        for label, (batch, m, n, k, layout) in BATCHES.items()
    }


def random_gemms(seed: int) -> dict[str, Gemm]:
    """Products that ``seed`` draws, by name: extents by their logarithm, fp16 and bf16 in turn.

    M is 1 to 8192, a multiple of 8 where A lies transposed; N and K are multiples of 8, 256 to
    16384.
    None has more multiplications than 8192 cubed.
    """
    draw = random.Random(seed)
    found: dict[str, Gemm] = {}
    while len(found) < RANDOM:
        layout = draw.choice(_LAYOUTS)
        m, n, k = (round(2 ** draw.uniform(low, high)) for low, high in ((0, 13), (8, 14), (8, 14)))
        m = _rounded(m) if layout[0] == "T" else m
        dtype = _DTYPES[len(found) % len(_DTYPES)]
        gemm = Gemm(m, _rounded(n), _rounded(k), dtype=dtype, layout=layout)
        if gemm.flops() <= _MOST_FLOPS:
            found[gemm.name.removeprefix("gemm_")] = gemm
    return found


def _rounded(extent: int) -> int:
    return max(_STEP, extent // _STEP * _STEP)
