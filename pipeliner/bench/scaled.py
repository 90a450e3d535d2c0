"""Block-scaled GEMMs of fp8 beside cuBLASLt and plain ones; weights of 4 bits beside cuBLAS.

    C = sum over blocks of K of SA * SB * (A B)   against   torch._scaled_mm with the same scales;
                                                            C = A B with one scale, by it and ours

What has one scale for all of K computes less and rounds more: it is no peer but a bound.

    C = A ((W - 8) S)   against   torch.matmul on dequantised weights of 16 bits, and torch's own
                                  kernel on weights of 4 bits, where it has one (bfloat16)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..plan.request import Request
from ..records.record import OURS
from ..schedules import Gemm, PackedGemm, ScaledGemm
from .problems import Problem, contenders
from .results import CUBLAS, Claim, Report, faster

SCALED_GEMMS: Final[Mapping[str, tuple[int, int, int]]] = {
    "up_4096": (4096, 7168, 16384),
    "down_4096": (4096, 4096, 7168),
    "down_64": (64, 7168, 2048),
}
"""M, N and K of layers of DeepSeek-V3, of those that DeepGEMM states figures of."""

SCALED_DTYPE: Final = "float8_e4m3fn"

_PLAIN: Final = "{label}, one scale"
_RATES: Final = {"up_4096": (1100.0, 1350.0), "down_4096": (1000.0, 1265.0), "down_64": (150, 190)}


def scaled_problems(
    target: Any, request: Request, dtype: str, peers: Sequence[str], *, plain: bool
) -> list[Problem]:
    """Each block-scaled GEMM with its peer, and beside it the same with one scale."""
    return list(_problems(target, request, dtype or SCALED_DTYPE, peers, plain))


def _problems(
    target: Any, request: Request, dtype: str, peers: Sequence[str], plain: bool
) -> Iterator[Problem]:
    for label, (m, n, k) in SCALED_GEMMS.items():
        spec = ScaledGemm(m, n, k, dtype)
        yield contenders(spec, target, request, plain=plain, peers=peers, label=label)
        one = Gemm(m, n, k, dtype=spec.dtype, out=spec.out)
        name = _PLAIN.format(label=label)
        theirs = [peer for peer in peers if peer == "cublas"]
        yield contenders(one, target, request, plain=False, peers=theirs, label=name, beside=True)


def scaled_claims(report: Report) -> list[Claim]:
    """Our rates in TFLOP/s, and over what one scale for all takes, as far as measured."""
    claims: list[Claim] = []
    for label, (floor, goal) in _RATES.items():
        ours = report.find(label, OURS)
        if ours is None:
            continue
        claims.append(Claim(f"{label}, TFLOP/s", ours.tflops, floor, goal))
        other = report.find(_PLAIN.format(label=label), CUBLAS)
        if other is not None:
            ratio = ours.tflops / other.tflops
            claims.append(Claim(f"{label} over {CUBLAS} with one scale", ratio, 0.0, 1.0))
    return claims


PACKED_GEMMS: Final[Mapping[str, tuple[int, int, int]]] = {
    "rows_1": (1, 8192, 8192),
    "rows_16": (16, 8192, 8192),
    "rows_4096": (4096, 8192, 8192),
}
"""M, N and K of a layer of a large language model: decoding, a few sequences, a prompt."""

PACKED_DTYPE: Final = "float16"

_TO_CUBLAS: Final = {"rows_1": (1.6, 2.1), "rows_16": (1.6, 2.1), "rows_4096": (0.85, 0.95)}


def packed_problems(
    target: Any, request: Request, dtype: str, peers: Sequence[str], *, plain: bool
) -> list[Problem]:
    """Each product with weights of 4 bits, with its peers."""
    return [
        contenders(
            PackedGemm(*extents, dtype or PACKED_DTYPE),
            target,
            request,
            plain=plain,
            peers=peers,
            label=label,
        )
        for label, extents in PACKED_GEMMS.items()
    ]


def packed_claims(report: Report) -> list[Claim]:
    """Our rate over that of cuBLAS on weights of 16 bits, as far as measured."""
    claims: list[Claim] = []
    for label, wanted in _TO_CUBLAS.items():
        ours, theirs = report.find(label, OURS), report.find(label, CUBLAS)
        claims += faster(f"{label} over {CUBLAS}", ours, theirs, *wanted)
    return claims
