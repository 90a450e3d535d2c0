"""The suites: workloads by the names that their figures are known by."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from ..errors import WorkloadError
from .kinds import kinds
from .products import batched, few_rows
from .workloads import ATTENTION_DTYPES, Attention, Gemm, Spec, conv2d
from .workloads.base.dtypes import resolve

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

OTHER_GEMMS: Final[Mapping[str, tuple[int, int, int]]] = {
    "gpt2_qkv": (1024, 2304, 768),
    "gpt2_mlp": (4096, 3072, 768),
    "llama70_qkv": (2048, 10240, 8192),
    "vit_proj": (6304, 1024, 1024),
    "mixtral_up": (512, 14336, 4096),
    "decode64": (64, 11008, 4096),
    "moe_down": (256, 2048, 7168),
}

OTHER_CONVS: Final[Mapping[str, tuple[int, int, int, int, int, int, int]]] = {
    "rn50_1x1_14": (32, 14, 1024, 256, 1, 1, 0),
    "rn50_1x1_7": (32, 7, 512, 2048, 1, 1, 0),
    "unet_3x3_32": (8, 32, 640, 640, 3, 1, 1),
    "vgg_3x3_56": (32, 56, 256, 256, 3, 1, 1),
    "convnext_2x2": (32, 56, 96, 192, 2, 2, 0),
    "yolo_3x3_s2": (16, 80, 128, 256, 3, 2, 1),
}

COLUMNS: Final = 2048
"""Of all heads of a token."""

ATTENTIONS: Final[Mapping[str, tuple[int, int, int, bool]]] = {
    f"d{dim}_{thousands}k{'_causal' if causal else ''}": (
        16 // thousands,
        COLUMNS // dim,
        thousands * 1024,
        causal,
    )
    for dim in (64, 128, 256)
    for causal in (False, True)
    for thousands in (1, 2, 4, 8, 16)
}
"""Batch, heads, tokens of each and whether it is causal; 16k tokens of 2048 columns in all.

The sizes that FlashAttention is measured on.
"""

DECODES: Final[Mapping[str, tuple[int, int, int]]] = {
    f"b{batch}_kv{heads}_{thousands}k": (batch, heads, thousands * 1024)
    for batch, heads in ((1, 8), (8, 8), (16, 8), (32, 1))
    for thousands in (8, 16, 32, 64)
}
"""Batch, heads of keys and values, and keys; of each such head, ``GROUP`` heads of one query."""

GROUP: Final = 4
"""Heads that share keys, as in Llama 3 8B."""

HEAD: Final = 128
"""Columns of a head."""

OTHER: Final = "other"
"""Products and layers that the cost model is judged by and was not made with."""

ATTENTION: Final = "attention"

DECODE: Final = "decode"

KINDS: Final = "kinds"
"""Every kind of convolution."""

FEW_ROWS: Final = "few_rows"
"""Products of at most 64 rows."""

BATCHED: Final = "batched"
"""Products of many pairs of matrices."""

NAMES: Final = ("gemm", "conv", ATTENTION, DECODE, KINDS, FEW_ROWS, BATCHED, OTHER)

OF_ATTENTION: Final = (ATTENTION, DECODE)
"""Those of which there is only what attention has a type for."""


def suite(name: str, dtype: str = "float16") -> dict[str, Spec]:
    """The workloads of a suite of ``NAMES`` in one type, by name.

    WorkloadError: there is no such suite, or none of this type.
    """
    if name == "gemm":
        return _gemms(GEMMS, dtype)
    if name == "conv":
        return _convs(CONVS, dtype)
    if name == ATTENTION:
        return _attentions(dtype)
    if name == DECODE:
        return _decodes(dtype)
    if name == KINDS:
        return {**kinds(dtype)}
    if name == FEW_ROWS:
        return {**few_rows(dtype)}
    if name == BATCHED:
        return {**batched(dtype)}
    if name == OTHER:
        return {**_gemms(OTHER_GEMMS, dtype), **_convs(OTHER_CONVS, dtype)}
    raise WorkloadError("bench.suite", choices=NAMES, value=name)


def named(label: str, dtype: str) -> Spec:
    """The workload that ``label`` names in one type; WorkloadError: no suite has one."""
    specs = _all(dtype)
    if label in specs:
        return specs[label]
    raise WorkloadError("log.workload", suites=NAMES, value=label)


def label_of(spec: Spec) -> str | None:
    """The name of a workload in its suite; None: no suite has it."""
    return _labels(spec.types.dtype).get(spec)


@functools.cache
def _labels(dtype: str) -> dict[Spec, str]:
    return {spec: label for label, spec in _all(dtype).items()}


@functools.cache
def _all(dtype: str) -> Mapping[str, Spec]:
    """The workloads of all suites that there are in one type."""
    found: dict[str, Spec] = {}
    for name in NAMES:
        if name not in OF_ATTENTION or resolve(dtype, "", "").dtype in ATTENTION_DTYPES:
            found |= suite(name, dtype)
    return found


def _attentions(dtype: str) -> dict[str, Spec]:
    return {
        label: Attention(batch, heads, tokens, tokens, COLUMNS // heads, None, causal, dtype)
        for label, (batch, heads, tokens, causal) in ATTENTIONS.items()
    }


def _decodes(dtype: str) -> dict[str, Spec]:
    return {
        label: Attention(batch, GROUP * heads, 1, keys, HEAD, heads, dtype=dtype)
        for label, (batch, heads, keys) in DECODES.items()
    }


def _gemms(sizes: Mapping[str, tuple[int, int, int]], dtype: str) -> dict[str, Spec]:
    return {label: Gemm(*mnk, dtype=dtype) for label, mnk in sizes.items()}


def _convs(layers: Mapping[str, tuple[int, ...]], dtype: str) -> dict[str, Spec]:
    return {
        label: conv2d(n, size, size, c, k, rs, rs, stride=stride, pad=pad, dtype=dtype)
        for label, (n, size, c, k, rs, stride, pad) in layers.items()
    }
