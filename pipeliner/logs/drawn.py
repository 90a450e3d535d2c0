"""Workloads of all kinds that a seed draws, none larger than takes its time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ..schedules.workloads import (
    CHAINED_COLUMNS,
    Attention,
    BackToBackGemm,
    Conv,
    ConvInputGrad,
    ConvWeightGrad,
    GatedGemm,
    Gemm,
    Spec,
    conv1d,
    conv2d,
    conv3d,
)

SHAPES: Final = 16
"""Workloads of a seed by default, of each kind in turn."""

MOST_FLOPS: Final = 2 * 6144**3
"""Of a workload: a larger one says no more and takes its time."""

TRIES: Final = 1000
"""Draws for a workload, most of which are of one too large."""

Draw: TypeAlias = Callable[[random.Random], Spec]


def fresh_specs(seed: int, count: int = SHAPES) -> list[Spec]:
    """``count`` workloads that ``seed`` draws, of each kind in turn; fewer begin as more do."""
    draw = random.Random(seed)
    kinds = list(KINDS.values())
    found: list[Spec] = []
    for at in range(count):
        found.append(_small_enough(kinds[at % len(kinds)], draw))
    return found


def _small_enough(kind: Draw, draw: random.Random) -> Spec:
    for _ in range(TRIES):
        spec = kind(draw)
        if spec.flops() <= MOST_FLOPS:
            return spec
    raise AssertionError("each kind has workloads that are small enough")


def _extent(draw: random.Random, low: float, high: float, step: int = 8) -> int:
    """A multiple of ``step`` between powers of two, by its logarithm."""
    return max(step, round(2 ** draw.uniform(low, high)) // step * step)


def _product(draw: random.Random) -> Gemm:
    layout = draw.choice(("NT", "NT", "NN", "TN", "TT"))
    m = _extent(draw, 0, 13, 8 if layout[0] == "T" else 1)
    n, k = _extent(draw, 8, 14), _extent(draw, 8, 14)
    return Gemm(m, n, k, dtype=draw.choice(("float16", "bfloat16")), layout=layout)


def _bytes(draw: random.Random) -> Gemm:
    m, n, k = (_extent(draw, *of, 16) for of in ((4, 13), (8, 13), (8, 13)))
    return Gemm(m, n, k, dtype=draw.choice(("int8", "float8_e4m3fn", "float8_e5m2")), layout="NT")


def _single(draw: random.Random) -> Gemm:
    m, n, k = (_extent(draw, 6, 11) for _ in "mnk")
    return Gemm(m, n, k, dtype=draw.choice(("float32", "tfloat32")), layout="NT")


def _batched(draw: random.Random) -> Gemm:
    m, n, k = _extent(draw, 5, 11), _extent(draw, 6, 11), _extent(draw, 6, 11)
    return Gemm(m, n, k, _extent(draw, 1, 6, 1), layout=draw.choice(("NT", "NN")))


def _ragged(draw: random.Random) -> Gemm:
    """Whose rows begin anywhere."""
    m, n, k = (_extent(draw, 7, 12, 1) for _ in "mnk")
    return Gemm(m, n, k, layout="NT")


def _filters(draw: random.Random) -> Conv:
    side, c, k = round(2 ** draw.uniform(2.8, 6.3)), _extent(draw, 4, 9), _extent(draw, 5, 9)
    size = draw.choice((1, 3, 3, 5))
    images = _extent(draw, 0, 6, 1)
    stride = draw.choice((1, 1, 2))
    return conv2d(images, side, side, c, k, size, size, stride=stride, pad=size // 2)


def _gradients(draw: random.Random) -> Spec:
    """Of the input of a layer, or of its weights."""
    return draw.choice((ConvInputGrad, ConvWeightGrad))(_filters(draw))


def _groups(draw: random.Random) -> Conv:
    """Of as many channels each as a tile of a matmul may have."""
    side, groups = round(2 ** draw.uniform(2.8, 5.8)), 2 ** draw.randint(1, 4)
    c, k = groups * draw.choice((32, 64)), groups * draw.choice((32, 64))
    return conv2d(_extent(draw, 0, 5, 1), side, side, c, k, 3, 3, pad=1, groups=groups)


def _gated(draw: random.Random) -> GatedGemm:
    m, n, k = _extent(draw, 0, 13, 1), _extent(draw, 8, 14), _extent(draw, 8, 13)
    activation = draw.choice(("silu", "gelu"))
    return GatedGemm(m, n, k, dtype=draw.choice(("float16", "bfloat16")), activation=activation)


def _back_to_back(draw: random.Random) -> BackToBackGemm:
    m, n = _extent(draw, 8, 14), _extent(draw, 8, 13)
    k, p = (CHAINED_COLUMNS * draw.randint(1, 256 // CHAINED_COLUMNS) for _ in "kp")
    return BackToBackGemm(m, n, k, p)


def _attention(draw: random.Random) -> Attention:
    tokens, dim = _extent(draw, 7, 13, 64), draw.choice((64, 128))
    return Attention(
        _extent(draw, 0, 3, 1),
        2 ** draw.randint(2, 5),
        tokens,
        tokens,
        dim,
        causal=draw.random() < 0.5,
    )


def _rows(draw: random.Random) -> Spec:
    width, c, k = _extent(draw, 8, 12), _extent(draw, 5, 9), _extent(draw, 5, 9)
    return conv1d(_extent(draw, 0, 4, 1), width, c, k, 3, pad=1, dilation=draw.choice((1, 2)))


def _volumes(draw: random.Random) -> Spec:
    side, c, k = round(2 ** draw.uniform(2.8, 4.5)), _extent(draw, 5, 8), _extent(draw, 5, 8)
    return conv3d(_extent(draw, 0, 2, 1), side, side, side, c, k, 3, 3, 3, pad=1)


KINDS: Final[Mapping[str, Draw]] = {
    "product": _product,
    "filters": _filters,
    "batched": _batched,
    "bytes": _bytes,
    "ragged": _ragged,
    "gradients": _gradients,
    "gated": _gated,
    "single": _single,
    "rows": _rows,
    "attention": _attention,
    "volumes": _volumes,
    "back to back": _back_to_back,
    "groups": _groups,
}
"""By name: what is drawn in turn. Depthwise layers are not: no time is predicted of them."""
