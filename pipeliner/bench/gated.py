"""Gated GEMMs beside torch.compile, and beside our own plain GEMM of the same work.

    C = silu(A B1) * (A B2)   against   torch.compile of the same; C = A B of twice the columns

One kernel loads A once and keeps two accumulators. It should be about as fast as one product of as
many multiplications, and faster than two products and a kernel that combines them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..plan.request import Request
from ..records.record import OURS
from ..schedules import GatedGemm
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
    """Each gated GEMM with its peers, and behind it the plain GEMM of the same work by ours."""
    found: list[Problem] = []
    for label, (m, n, k) in GATED_GEMMS.items():
        spec = GatedGemm(m, n, k, dtype=dtype or GATED_DTYPE)
        one = _PLAIN.format(label=label)
        found.append(contenders(spec, target, request, plain=plain, peers=peers, label=label))
        found.append(contenders(spec.plain(), target, request, plain=False, peers=(), label=one))
    return found


def gated_claims(report: Report) -> list[Claim]:
    """Our rate over that of our plain GEMM, and over torch.compile's, as far as measured."""
    claims: list[Claim] = []
    for label in GATED_GEMMS:
        ours, one = report.find(label, OURS), report.find(_PLAIN.format(label=label), OURS)
        claims += faster(f"{label} over our GEMM of the same work", ours, one, *_TO_PLAIN)
        claims += faster(f"{label} over {TORCH}", ours, report.find(label, TORCH), *_TO_TORCH)
    return claims
