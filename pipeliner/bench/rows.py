"""GEMMs with statistics of rows beside our own plain GEMM, those of rows in groups beside torch.

    C = A B / rms of A's rows; C, and of its rows sum and maximum, or log-sum-exp   against   A B

A statistic should cost next to nothing: in the loop it runs under wgmma, behind it on registers.
Exponentials are the exception: 2048 cycles of the special function units for a tile of 128 x 256,
in which no matmul of its CTA runs.

    C[r] = A[r] B[e] of the rows r of each expert e   against   torch._grouped_mm

Offsets are random: a group in eight is empty, and few are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..plan.request import Request
from ..records.record import OURS
from ..schedules import Gemm, GroupedGemm, RowGemm
from ..schedules.workloads import STATISTICS
from .problems import Problem, contenders
from .results import TORCH_GROUPED, Claim, Report, faster

ROW_GEMMS: Final[Mapping[str, tuple[int, int, int]]] = {
    "sq4096": (4096, 4096, 4096),
    "logits": (4096, 32000, 4096),
}
"""M, N and K: a square, and the last layer of a language model, whose rows have 32000 logits."""

ROW_DTYPE: Final = "float16"

_PLAIN: Final = "{label}, plain"
_WITH: Final = "{label}, {statistic}"
_TO_PLAIN: Final = (0.93, 0.97)


def row_problems(
    target: Any, request: Request, dtype: str, peers: Sequence[str], *, plain: bool
) -> list[Problem]:
    """Each GEMM with each statistic, and beside them the plain GEMM."""
    return list(_problems(target, request, dtype or ROW_DTYPE, peers, plain))


def _problems(
    target: Any, request: Request, dtype: str, peers: Sequence[str], plain: bool
) -> Iterator[Problem]:
    for label, (m, n, k) in ROW_GEMMS.items():
        theirs = [peer for peer in peers if peer == "cublas"]
        one, name = Gemm(m, n, k, dtype=dtype), _PLAIN.format(label=label)
        yield contenders(one, target, request, plain=False, peers=theirs, label=name)
        for statistic in STATISTICS:
            spec = RowGemm(m, n, k, statistic, dtype)
            name = _WITH.format(label=label, statistic=statistic)
            yield contenders(spec, target, request, plain=plain, peers=(), label=name, beside=True)


def row_claims(report: Report) -> list[Claim]:
    """Our rate with a statistic over that of our plain GEMM, as far as measured."""
    claims: list[Claim] = []
    for label in ROW_GEMMS:
        one = report.find(_PLAIN.format(label=label), OURS)
        for statistic in STATISTICS:
            ours = report.find(_WITH.format(label=label, statistic=statistic), OURS)
            name = f"{label}, {statistic}: rate over our GEMM's"
            claims += faster(name, ours, one, *_TO_PLAIN)
    return claims


GROUPED_GEMMS: Final[Mapping[str, tuple[int, int, int, int]]] = {
    "experts_128": (128, 65536, 1536, 2048),
    "experts_8": (8, 16384, 14336, 4096),
    "experts_64": (64, 8192, 2048, 2048),
}
"""Experts, rows of all, N and K of layers of mixtures of experts."""

GROUPED_DTYPE: Final = "bfloat16"

_TO_GROUPED: Final = (1.0, 1.2)


def grouped_problems(
    target: Any, request: Request, dtype: str, peers: Sequence[str], *, plain: bool
) -> list[Problem]:
    """Each grouped GEMM with its peer."""
    return [
        contenders(
            GroupedGemm(*extents, dtype or GROUPED_DTYPE),
            target,
            request,
            plain=plain,
            peers=peers,
            label=label,
        )
        for label, extents in GROUPED_GEMMS.items()
    ]


def grouped_claims(report: Report) -> list[Claim]:
    """Our rate over that of torch's grouped product, as far as measured."""
    claims: list[Claim] = []
    for label in GROUPED_GEMMS:
        ours, theirs = report.find(label, OURS), report.find(label, TORCH_GROUPED)
        claims += faster(f"{label} over {TORCH_GROUPED}", ours, theirs, *_TO_GROUPED)
    return claims
