"""One point of the option space of pipelined GEMMs: its workload, its request, its verdict."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np
import tvm

from pipeliner.api import build
from pipeliner.kernel.building import pipeline_with
from pipeliner.kernel.compiled import Kernel
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.accuracy import poisoned, worst_error

FACTORS: Final[Mapping[str, Sequence[Any]]] = {
    "dtype": ("fp32", "tf32", "fp16", "fp16 in fp16", "bf16", "int8"),
    "layout": ("NN", "NT", "TN", "TT"),
    "tile": ((16, 16, 16), (16, 8, 32), (32, 8, 32), (16, 64, 8), (64, 32, 16), (48, 24, 16)),
    "warps": (None, (1, 1), (2, 1), (1, 2), (2, 2)),
    "thread_tile": (None, (4, 4), (2, 4), (8, 2)),
    "shape": ("even", "ragged m", "ragged n", "ragged k", "ragged", "primes", "one", "odd k"),
    "trips": (0, 1, 2, 3, 4, 5, 6, 7, 8),
    "dynamic": (False, True),
    "depth": (1, 2, 3, 4, 5, 6, "auto"),
    "mechanism": ("auto", "cp_async", "register", "direct"),
    "epilogue": ("auto", "rolled", "clamped", "peeled"),
    "instruction": ("auto", "simt", "mma"),
    "batch": (None, 1, 2),
    "symbolic": (False, True),
    "out": ("default", "accumulator", "input"),
    "target": ("sm_75", "sm_80", "sm_90"),
}
"""What is varied. ``trips``: iterations of the K loop; ``dynamic``: whether only a run tells."""

AUTO_DEPTH: Final = 4
"""What counts as the depth where it is chosen."""

STATIC_SHAPES: Final = ("ragged k", "ragged", "primes", "one", "odd k")
"""Shapes whose K is no multiple of the tile, which a K known at run time only has to be."""


@dataclass(frozen=True, slots=True)
class Case:
    """One value of each factor."""

    dtype: str = "fp16"
    layout: str = "NT"
    tile: tuple[int, int, int] = (32, 32, 32)
    warps: tuple[int, int] | None = None
    thread_tile: tuple[int, int] | None = None
    shape: str = "even"
    trips: int = 4
    dynamic: bool = False
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
    def is_possible(self) -> bool:
        """Whether there is such a GEMM; trip counts end where the ring has gone round and on."""
        depth = AUTO_DEPTH if self.depth == "auto" else int(self.depth)
        if self.trips > depth + 2 or (self.shape == "one" and self.trips != 1):
            return False
        return self.shape not in STATIC_SHAPES if self.dynamic else self.trips > 0

    @property
    def extents(self) -> tuple[int, int, int]:
        if self.sizes is not None:
            return self.sizes
        m, n, k = self.tile
        full = self.trips * k
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
        """The workload; one step of K where only a run tells how many there are."""
        m, n, k = self.extents
        if self.dynamic:
            k = self.tile[2]
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

    def operands(self, rows: int | None) -> tuple[Any, Any]:
        """A and B with ``rows`` for the M that a run decides."""
        gemm, k = self.gemm(), self.extents[2]
        a, b = replace(gemm, k=max(k, 1)).inputs(seed=7, m=rows)
        a = a[..., :k] if gemm.layout[0] == "N" else a[..., :k, :]
        b = b[..., :k, :] if gemm.layout[1] == "N" else b[..., :k]
        return np.ascontiguousarray(a), np.ascontiguousarray(b)

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
        gemm = self.gemm()
        func = stepped(gemm) if self.dynamic else None
        return schedule_gemm(gemm, GemmTile(*self.tile), func)

    def kernel(self) -> Kernel:
        return build(pipeline_with(self.scheduled(), self.target, self.request()))


def stepped(gemm: Gemm) -> Any:
    """``gemm`` over as many times its K as a parameter ``steps`` says, none included."""
    m, n, k = ("m" if gemm.m is None else gemm.m), gemm.n, f"steps * {gemm.k}"
    batch, axis, vector = ("", "", "") if gemm.batch is None else (f"{gemm.batch}, ", "b, ", "vb, ")
    a, a_at = (f"{m}, {k}", "vi, vk") if gemm.layout[0] == "N" else (f"{k}, {m}", "vk, vi")
    b, b_at = (f"{k}, {n}", "vk, vj") if gemm.layout[1] == "N" else (f"{n}, {k}", "vj, vk")
    parallel = "S" * (2 + bool(batch))
    out = f"{vector}vi, vj"
    source = f"""
@T.prim_func(s_tir=True)
def main(A_: T.handle, B_: T.handle, C_: T.handle, steps: T.int32):
    T.func_attr({{"global_symbol": "{gemm.name}_stepped", "tirx.noalias": True}})
    m = T.int32()
    A = T.match_buffer(A_, ({batch}{a}), "{gemm.storage}")
    B = T.match_buffer(B_, ({batch}{b}), "{gemm.storage}")
    C = T.match_buffer(C_, ({batch}{m}, {n}), "{gemm.out}")
    acc = T.sblock_alloc_buffer(({batch}{m}, {n}), "{gemm.accumulator}")
    for {axis}i, j, k in T.grid({batch}{m}, {n}, {k}):
        with T.sblock("matmul"):
            {vector}vi, vj, vk = T.axis.remap("{parallel}R", [{axis}i, j, k])
            T.sblock_attr({{"pipeliner.mma": "{gemm.instruction}"}})
            with T.init():
                acc[{out}] = T.Cast("{gemm.accumulator}", 0)
            acc[{out}] = acc[{out}] + T.Cast("{gemm.accumulator}", A[{vector}{a_at}]) * T.Cast(
                "{gemm.accumulator}", B[{vector}{b_at}]
            )
    for {axis}i, j in T.grid({batch}{m}, {n}):
        with T.sblock("store"):
            {vector}vi, vj = T.axis.remap("{parallel}", [{axis}i, j])
            C[{out}] = T.Cast("{gemm.out}", acc[{out}])
"""
    return tvm.script.from_source(source)


Mode = tuple[str, str]
"""When copies land, and the order of warps."""


def check(case: Case, kernel: Kernel, modes: Sequence[Mode] = (("late", "lockstep"),)) -> None:
    """Run ``kernel`` on every M of the case: right to rounding, and nothing objected to."""
    gemm = case.gemm()
    steps = (case.trips,) if case.dynamic else ()
    for rows, (timing, order) in itertools.product(case.row_counts, modes):
        a, b = case.operands(rows)
        c = poisoned(gemm.shapes(rows)[2], gemm.out)
        outcome = kernel.emulate(a, b, c, *steps, timing=timing, order=order)
        assert outcome.hazards == (), f"{timing}, {order}, m={rows}: {outcome.hazards[0]}"
        if rows == 0:
            continue
        worst = worst_of(judge_of(case, kernel), a, b, outcome.outputs["C"])
        assert worst <= 1, f"{timing}, {order}, m={rows}: error of {worst} times what is allowed"


def judge_of(case: Case, kernel: Kernel) -> Gemm:
    """The workload by which ``kernel`` is judged: fp32 that mma was asked for is tf32."""
    is_tf32 = any(plan.dtype == "tfloat32" for plan in kernel.plan.matmuls)
    return replace(case.gemm(), dtype="tf32") if is_tf32 else case.gemm()


def worst_of(gemm: Gemm, a: Any, b: Any, c: Any) -> float:
    """The largest error of ``c``, over the bound of rounding."""
    exact = gemm.reference(a, b)
    if gemm.out == "int8":
        exact = exact.astype(np.int8)  # as C does: the low bits
    magnitude = gemm.reference(_magnitude(a), _magnitude(b))
    return worst_error(gemm, c, exact, magnitude)


T = TypeVar("T")
Pair = tuple[tuple[str, Any], tuple[str, Any]]


def cover(
    factors: Mapping[str, Sequence[Any]],
    wanted: Callable[[T], bool],
    make: Callable[..., T],
    seed: int = 0,
    tries: int = 50,
) -> list[T]:
    """Cases that are ``wanted`` and together have every pair of values that such a case can have.

    ``make`` builds a case from one value of each factor. Greedy: each case starts from a pair still
    missing and is the best of ``tries`` completions. A pair that ten times as many completions do
    not make a wanted case of counts as impossible.
    """
    draw = random.Random(seed).getrandbits

    def one_of(values: Sequence[Any]) -> Any:  # as random.choice, in half of the time
        count = len(values)
        while (at := draw(count.bit_length())) >= count:
            pass
        return values[at]

    missing = dict.fromkeys(_pairs(factors))
    cases: list[T] = []
    while missing:
        start = next(iter(missing))
        found: list[T] = []
        for _ in range(10 * tries):
            drawn = {factor: one_of(values) for factor, values in factors.items()}
            case = make(**{**drawn, **dict(start)})
            if wanted(case):
                found.append(case)
            if len(found) == tries:
                break
        if not found:
            del missing[start]
            continue
        best = max(found, key=lambda case: len(missing.keys() & _pairs_of(case, factors)))
        for pair in _pairs_of(best, factors):
            missing.pop(pair, None)
        cases.append(best)
    return cases


def _pairs(factors: Mapping[str, Sequence[Any]]) -> Iterator[Pair]:
    for one, other in itertools.combinations(factors, 2):
        for values in itertools.product(factors[one], factors[other]):
            yield (one, values[0]), (other, values[1])


def _pairs_of(case: Any, factors: Mapping[str, Sequence[Any]]) -> Iterator[Pair]:
    return itertools.combinations([(name, getattr(case, name)) for name in factors], 2)


def _magnitude(array: Any) -> Any:
    return abs(array.astype(np.float64))


def _prime_below(limit: int) -> int:
    return next(n for n in range(max(limit, 2), 1, -1) if all(n % d for d in range(2, n)))


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value).replace(" ", "_")
