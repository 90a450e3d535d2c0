"""The model judged by workloads that a seed draws anew, so that nothing can be fitted to them.

Of each workload the best predicted points of the tuner's space are measured, and others drawn at
random from all of it. A seed names a list: the same one goes on where it stopped.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..errors import PipelinerError, WorkloadError
from ..machine import Machine
from ..records import Record
from ..records.candidate import workload_key
from ..schedules.workloads import Gemm, Spec, conv1d, conv2d, conv3d
from ..tuning.space import space
from .cases import Case, cases
from .recorder import Job
from .regret import TOP, regret, spearman

SHAPES: Final = 16
"""Workloads of a seed by default, of each kind in turn."""

PREDICTED: Final = 32
"""Points of a workload that are measured because they are predicted to be the fastest."""

DRAWN: Final = 16
"""Points that are measured because they were drawn."""

MOST_FLOPS: Final = 2 * 6144**3
"""Of a workload: a larger one says no more and takes its time."""

TRIES: Final = 1000
"""Draws for a workload, most of which are of one too large."""

_Draw = Callable[[random.Random], Spec]


@dataclass(frozen=True, slots=True)
class FreshScores:
    """The model on one workload: ratios to the best measured, and how far its times are off.

    ``first``: of the best predicted; ``top``: of the best of the first ``TOP``. ``error``: the mean
    of |predicted / measured - 1|. ``bias``: the mean of predicted / measured - 1.
    """

    workload: str
    dtype: str
    measured: int
    us: float
    first: float
    top: float
    correlation: float
    error: float
    bias: float


def fresh_specs(seed: int, count: int = SHAPES) -> list[Spec]:
    """``count`` workloads that ``seed`` draws, of each kind in turn; fewer begin as more do."""
    draw = random.Random(seed)
    kinds = list(KINDS.values())
    found: list[Spec] = []
    for at in range(count):
        found.append(_small_enough(kinds[at % len(kinds)], draw))
    return found


def fresh_jobs(
    seed: int, machine: Machine, count: int = SHAPES, known: Iterable[Record] = ()
) -> Iterator[Job]:
    """What is to be measured of each workload of ``seed``, but for what ``known`` has.

    Each is planned, which takes seconds, when it is asked for.
    """
    workloads = {record.workload for record in known}
    for at, spec in enumerate(fresh_specs(seed, count)):
        key = workload_key(spec)
        if key in workloads:  # a workload is recorded as a whole
            continue
        try:
            points = [point.candidate for point in space(spec, machine)]
        except PipelinerError:
            continue
        rest = points[PREDICTED:]
        drawn = random.Random(f"{seed} {at}").sample(rest, min(DRAWN, len(rest)))
        yield Job(spec.name, spec, machine, (*points[:PREDICTED], *drawn))


def judge(
    seed: int, records: Iterable[Record], machine: Machine, count: int = SHAPES
) -> list[FreshScores]:
    """How the model does on those workloads of ``seed`` that ``records`` have.

    WorkloadError: they have none.
    """
    keys = {workload_key(spec) for spec in fresh_specs(seed, count)}
    found = cases([one for one in records if one.workload in keys], machine)
    if not found:
        raise WorkloadError("command.log_without_time", log=f"--fresh {seed}")
    return [fresh_scores(*group, timed) for group, timed in found.items()]


def fresh_scores(workload: str, dtype: str, found: Sequence[Case]) -> FreshScores:
    """The model on the candidates of one workload."""
    ranked = sorted(found, key=lambda case: case.plan.predicted_us)
    predicted, us = [case.plan.predicted_us for case in found], [case.us for case in found]
    off = [one / two - 1 for one, two in zip(predicted, us, strict=True)]
    return FreshScores(
        workload,
        dtype,
        len(found),
        min(case.best_us for case in found),
        regret(ranked[0], found),
        regret(min(ranked[:TOP], key=lambda case: case.best_us), found),
        spearman(predicted, us),
        sum(map(abs, off)) / len(off),
        sum(off) / len(off),
    )


def _small_enough(kind: _Draw, draw: random.Random) -> Spec:
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
    return Gemm(m, n, k, dtype=draw.choice(("int8", "float8_e4m3fn")), layout="NT")


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


def _filters(draw: random.Random) -> Spec:
    side, c, k = round(2 ** draw.uniform(2.8, 6.3)), _extent(draw, 4, 9), _extent(draw, 5, 9)
    size = draw.choice((1, 3, 3, 5))
    images = _extent(draw, 0, 6, 1)
    stride = draw.choice((1, 1, 2))
    return conv2d(images, side, side, c, k, size, size, stride=stride, pad=size // 2)


def _rows(draw: random.Random) -> Spec:
    width, c, k = _extent(draw, 8, 12), _extent(draw, 5, 9), _extent(draw, 5, 9)
    return conv1d(_extent(draw, 0, 4, 1), width, c, k, 3, pad=1, dilation=draw.choice((1, 2)))


def _volumes(draw: random.Random) -> Spec:
    side, c, k = round(2 ** draw.uniform(2.8, 4.5)), _extent(draw, 5, 8), _extent(draw, 5, 8)
    return conv3d(_extent(draw, 0, 2, 1), side, side, side, c, k, 3, 3, 3, pad=1)


KINDS: Final[Mapping[str, _Draw]] = {
    "product": _product,
    "filters": _filters,
    "batched": _batched,
    "bytes": _bytes,
    "ragged": _ragged,
    "rows": _rows,
    "single": _single,
    "volumes": _volumes,
}
"""By name: what is drawn in turn. Depthwise layers and attention are not: no time is predicted of
the one, and the other has no tile of a matmul."""
