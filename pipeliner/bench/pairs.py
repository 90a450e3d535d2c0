"""Pairs of products in one kernel beside torch.compile's two, and beside our own plain GEMMs.

    C = silu(A B1) * (A B2)   against   torch.compile of the same; C = A B of twice the columns
    O = relu(A B) C           against   torch.compile of the same; H = relu(A B), then O = H C

A gated kernel loads A once and keeps two accumulators. It should be about as fast as one product of
as many multiplications, and faster than two products and a kernel that combines them. A back to
back one has what stands between its products never in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..plan.request import Request
from ..records.record import OURS
from ..schedules import BackToBackGemm, GatedGemm, Gemm
from .problems import Problem, contenders
from .results import TORCH, Claim, Report, faster

GATED_GEMMS: Final[Mapping[str, tuple[int, int, int]]] = {
    "llama_4096": (4096, 14336, 4096),
    "llama_512": (512, 14336, 4096),
    "llama7_8192": (8192, 11008, 4096),
    "llama_64": (64, 14336, 4096),
}
"""M, N and K of each of the two products, K-major (layout NT), as weights of linear layers are."""

GATED_DTYPE: Final = "bfloat16"

_PLAIN: Final = "{label}, one product"
_TO_PLAIN: Final = (0.93, 0.98)
_TO_TORCH: Final = (1.02, 1.08)


def gated_problems(
    target: Any, request: Request, dtype: str, peers: Sequence[str], *, plain: bool
) -> list[Problem]:
    """Each gated GEMM with its peers, and beside it the plain GEMM of the same work by ours."""
    found: list[Problem] = []
    for label, (m, n, k) in GATED_GEMMS.items():
        spec = GatedGemm(m, n, k, dtype=dtype or GATED_DTYPE)
        one = _PLAIN.format(label=label)
        found.append(contenders(spec, target, request, plain=plain, peers=peers, label=label))
        product = spec.plain()
        found.append(
            contenders(product, target, request, plain=False, peers=(), label=one, beside=True)
        )
    return found


def gated_claims(report: Report) -> list[Claim]:
    """Our rate over that of our plain GEMM, and over torch.compile's, as far as measured."""
    claims: list[Claim] = []
    for label in GATED_GEMMS:
        ours, one = report.find(label, OURS), report.find(_PLAIN.format(label=label), OURS)
        claims += faster(f"{label} over our GEMM of the same work", ours, one, *_TO_PLAIN)
        claims += faster(f"{label} over {TORCH}", ours, report.find(label, TORCH), *_TO_TORCH)
    return claims


BACK_TO_BACK: Final[Mapping[str, tuple[int, int, int, int]]] = {
    "tokens_64": (16384, 4096, 64, 64),
    "tokens_128": (16384, 4096, 128, 128),
    "wide_128": (8192, 16384, 128, 128),
    "few_128": (2048, 4096, 128, 128),
}
"""M, N, K and P: rows, columns between the products, and the extents of a head of attention."""

BACK_TO_BACK_DTYPE: Final = "float16"

_FIRST: Final = "{label}, first product"
_SECOND: Final = "{label}, second product"
_FASTER: Final = (1.0, 2.0)


def back_to_back_problems(
    target: Any, request: Request, dtype: str, peers: Sequence[str], *, plain: bool
) -> list[Problem]:
    """Each pair of products in one loop with its peers, and beside it each of them by ours."""
    return list(_both(target, request, dtype or BACK_TO_BACK_DTYPE, peers, plain))


def _both(
    target: Any, request: Request, dtype: str, peers: Sequence[str], plain: bool
) -> Iterator[Problem]:
    for label, (m, n, k, p) in BACK_TO_BACK.items():
        spec = BackToBackGemm(m, n, k, p, dtype=dtype)
        yield contenders(spec, target, request, plain=plain, peers=peers, label=label)
        first = Gemm(m, n, k, dtype=spec.dtype, epilogue=(spec.activation,))
        second = Gemm(m, p, n, dtype=spec.dtype, layout="NN", out=spec.out)
        for name, one in ((_FIRST, first), (_SECOND, second)):
            told = name.format(label=label)
            yield contenders(one, target, request, plain=False, peers=(), label=told, beside=True)


def back_to_back_claims(report: Report) -> list[Claim]:
    """Our rate over torch.compile's, and over that of our two kernels, as far as measured."""
    claims: list[Claim] = []
    for label in BACK_TO_BACK:
        ours = report.find(label, OURS)
        claims += faster(f"{label} over {TORCH}", ours, report.find(label, TORCH), *_FASTER)
        pair = [report.find(name.format(label=label), OURS) for name in (_FIRST, _SECOND)]
        times = [one.us for one in pair if one is not None]
        if ours is not None and len(times) == len(pair):
            ratio = sum(times) / ours.us
            claims.append(Claim(f"{label} over our two kernels", ratio, *_FASTER))
    return claims
