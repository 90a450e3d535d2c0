"""GEMMs with statistics of rows beside our own plain GEMM of the same extents.

    C = A B / rms of A's rows; C, and of its rows sum and maximum, or log-sum-exp   against   A B

A statistic should cost next to nothing: in the loop it runs under wgmma, behind it on registers.
Exponentials are the exception: 2048 cycles of the special function units for a tile of 128 x 256,
in which no matmul of its CTA runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..plan.request import Request
from ..records.record import OURS
from ..schedules import Gemm, RowGemm
from ..schedules.workloads import STATISTICS
from .problems import Problem, contenders
from .results import Claim, Report, faster

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
    """Each GEMM with each statistic, and behind them the plain GEMM."""
    return list(_problems(target, request, dtype or ROW_DTYPE, peers, plain))


def _problems(
    target: Any, request: Request, dtype: str, peers: Sequence[str], plain: bool
) -> Iterator[Problem]:
    for label, (m, n, k) in ROW_GEMMS.items():
        for statistic in STATISTICS:
            spec = RowGemm(m, n, k, statistic, dtype)
            name = _WITH.format(label=label, statistic=statistic)
            yield contenders(spec, target, request, plain=plain, peers=(), label=name)
        theirs = [peer for peer in peers if peer == "cublas"]
        one, name = Gemm(m, n, k, dtype=dtype), _PLAIN.format(label=label)
        yield contenders(one, target, request, plain=False, peers=theirs, label=name)


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
