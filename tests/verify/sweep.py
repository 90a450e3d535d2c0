"""One point of the option space of pipelined GEMMs: its workload, its request, its verdict."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from pipeliner.accuracy import poisoned, worst_error
from pipeliner.api import build, pipeline_with
from pipeliner.compiled import Kernel
from pipeliner.request import Request
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

FACTORS: Final[Mapping[str, Sequence[Any]]] = {
    "dtype": ("fp32", "tf32", "fp16", "fp16 in fp16", "bf16", "int8"),
    "layout": ("NN", "NT", "TN", "TT"),
    "tile": ((16, 16, 16), (16, 8, 32), (32, 8, 32), (16, 64, 8), (64, 32, 16), (48, 24, 16)),
    "warps": (None, (1, 1), (2, 1), (1, 2), (2, 2)),
    "thread_tile": (None, (4, 4), (2, 4), (8, 2)),
    "shape": ("even", "ragged m", "ragged n", "ragged k", "ragged", "primes", "one", "odd k"),
    "trips": ("one", "less", "same", "more", "many"),
    "depth": (1, 2, 3, 4, 5, 6, "auto"),
    "mechanism": ("auto", "cp_async", "register", "direct"),
    "epilogue": ("auto", "rolled", "clamped", "peeled"),
    "instruction": ("auto", "simt", "mma"),
    "batch": (None, 1, 2),
    "symbolic": (False, True),
    "out": ("default", "accumulator", "input"),
    "target": ("sm_75", "sm_80", "sm_90"),
}
"""What is varied. ``trips``: iterations of the loop against the depth (4 where that is chosen)."""

AUTO_DEPTH: Final = 4


@dataclass(frozen=True, slots=True)
class Case:
    """One value of each factor."""

    dtype: str = "fp16"
    layout: str = "NT"
    tile: tuple[int, int, int] = (32, 32, 32)
    warps: tuple[int, int] | None = None
    thread_tile: tuple[int, int] | None = None
    shape: str = "even"
    trips: str = "more"
    depth: int | str = 3
    mechanism: str = "auto"
    epilogue: str = "auto"
    instruction: str = "auto"
    batch: int | None = None
    symbolic: bool = False
    out: str = "default"
    target: str = "sm_80"
    sizes: tuple[int, int, int] | None = None
    """M, N and K where they are given instead of ``shape``."""

    def __str__(self) -> str:
        """What differs from the default, for the name of a test."""
        default = Case()
        named = [
            f"{name}={_text(getattr(self, name))}"
            for name in FACTORS
            if getattr(self, name) != getattr(default, name)
        ]
        return ",".join(named) or "default"

    @property
    def iterations(self) -> int:
        """Trip count of the K loop where ``shape`` leaves K to it."""
        depth = AUTO_DEPTH if self.depth == "auto" else int(self.depth)
        return {
            "one": 1,
            "less": max(1, depth - 1),
            "same": depth,
            "more": depth + 1,
            "many": depth + 2,
        }[self.trips]

    @property
    def extents(self) -> tuple[int, int, int]:
        if self.sizes is not None:
            return self.sizes
        m, n, k = self.tile
        full = self.iterations * k
        return {
            "even": (2 * m, n, full),
            "ragged m": (m + 5, n, full),
            "ragged n": (m, n + 3, full),
            "ragged k": (m, n, full - k // 2),
            "ragged": (m - 4, n + 4, full - 4),
            "primes": (37, 29, _prime_below(full)),
            "one": (1, 1, 1),
            "odd k": (m, n, full - 1),
        }[self.shape]

    @property
    def row_counts(self) -> tuple[int | None, ...]:
        """Values of M to run: at run time any number of rows goes, none included."""
        m, _, _ = self.extents
        return (m, 1, 0) if self.symbolic else (None,)

    def gemm(self) -> Gemm:
        m, n, k = self.extents
        dtype, _, accumulator = self.dtype.partition(" in ")
        plain = Gemm(m, n, k, dtype=dtype, accumulator=accumulator)
        out = {"default": "", "accumulator": plain.accumulator, "input": plain.storage}[self.out]
        return Gemm(
            None if self.symbolic else m,
            n,
            k,
            batch=self.batch,
            dtype=dtype,
            layout=self.layout,
            accumulator=accumulator,
            out=out,
        )

    def request(self) -> Request:
        return Request(
            depth=self.depth,
            mechanism=self.mechanism,
            instruction=self.instruction,
            epilogue=self.epilogue,
            warps=self.warps,
            thread_tile=self.thread_tile,
        )

    def scheduled(self) -> Any:
        return schedule_gemm(self.gemm(), GemmTile(*self.tile))

    def kernel(self) -> Kernel:
        return build(pipeline_with(self.scheduled(), self.target, self.request()))


def check(case: Case, kernel: Kernel, timings: Sequence[str] = ("late",)) -> None:
    """Run ``kernel`` on every M of the case: right to rounding, and nothing objected to."""
    gemm = case.gemm()
    judge = gemm
    if any(plan.dtype == "tfloat32" for plan in kernel.plan.matmuls):
        judge = replace(gemm, dtype="tf32")  # fp32 that mma was asked for
    for rows, timing in itertools.product(case.row_counts, timings):
        a, b = gemm.inputs(seed=7, m=rows)
        c = poisoned(gemm.shapes(rows)[2], gemm.out)
        outcome = kernel.emulate(a, b, c, timing=timing)
        assert outcome.hazards == (), f"{timing}, m={rows}: {outcome.hazards[0]}"
        if rows == 0:
            continue
        exact = gemm.reference(a, b)
        if gemm.out == "int8":
            exact = exact.astype(np.int8)  # as C does: the low bits
        magnitude = gemm.reference(_magnitude(a), _magnitude(b))
        worst = worst_error(judge, outcome.outputs["C"], exact, magnitude)
        assert worst <= 1, f"{timing}, m={rows}: error of {worst} times what is allowed"


def cover(
    factors: Mapping[str, Sequence[Any]],
    wanted: Callable[[Case], bool],
    seed: int = 0,
    tries: int = 200,
) -> list[Case]:
    """Cases that are ``wanted`` and together have every pair of values that such a case can have.

    Greedy: each case starts from a pair still missing and is the best of ``tries`` completions.
    A pair that ten times as many completions do not make a wanted case of counts as impossible.
    """
    rng = random.Random(seed)
    missing = dict.fromkeys(_pairs(factors))
    cases: list[Case] = []
    while missing:
        start = next(iter(missing))
        found: list[Case] = []
        for _ in range(10 * tries):
            case = Case(**{**{f: rng.choice(v) for f, v in factors.items()}, **dict(start)})
            if wanted(case):
                found.append(case)
            if len(found) == tries:
                break
        if not found:
            del missing[start]
            continue
        best = max(found, key=lambda case: sum(pair in missing for pair in _pairs_of(case)))
        for pair in _pairs_of(best):
            missing.pop(pair, None)
        cases.append(best)
    return cases


Pair = tuple[tuple[str, Any], tuple[str, Any]]


def _pairs(factors: Mapping[str, Sequence[Any]]) -> Iterator[Pair]:
    for one, other in itertools.combinations(factors, 2):
        for values in itertools.product(factors[one], factors[other]):
            yield (one, values[0]), (other, values[1])


def _pairs_of(case: Case) -> Iterator[Pair]:
    values = [(name, getattr(case, name)) for name in FACTORS]
    return itertools.combinations(values, 2)


def _magnitude(array: Any) -> Any:
    return abs(array.astype(np.float64))


def _prime_below(limit: int) -> int:
    return next(n for n in range(max(limit, 2), 1, -1) if all(n % d for d in range(2, n)))


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value).replace(" ", "_")
