"""The figures that this library states of itself: their problems, and the ratios that must hold."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ..kernel.building import pipeline_with
from ..machine import machine_for
from ..plan.request import Request
from ..records.record import OURS
from ..schedules import Gemm, GemmTile, default_tile, schedule_gemm
from ..targets import cuda_target
from .problems import USUAL_PEERS, Problem, contenders
from .results import CUBLAS, OURS_PLAIN, STOCK_PREFIX, Claim, Report, faster


@contextmanager
def stopwatch(took: list[float]) -> Iterator[None]:
    """Append the milliseconds that the body takes to ``took``."""
    started = time.perf_counter()
    yield
    took.append((time.perf_counter() - started) * 1e3)


def transformation_ms(gemm: Gemm, target: Any, tile: GemmTile, repeats: int = 7) -> float:
    """Median milliseconds of all passes on one schedule: from scheduled to pipelined TensorIR.

    Once more before, untimed: what Python and TVM load on first use is no part of a pass.
    """
    took: list[float] = []
    for _ in range(repeats + 1):
        schedule = schedule_gemm(gemm, tile)
        with stopwatch(took):
            pipeline_with(schedule, target, Request())
    return statistics.median(took[1:])


SQUARE: Final = 4096
SIMT_SIZES: Final = (2048, 4096, 8192)
RAGGED: Final = (4000, 4104, 4040)
HALVES: Final = ("float16", "bfloat16")
LAYOUTS: Final = ("NN", "NT")


def spine(target: Any = None, peers: Sequence[str] = USUAL_PEERS) -> list[Problem]:
    """The problems on which this library states its figures; TVM's stock pipeline for layout NN.

    Tensor cores by mma.sync and cp.async, which every GPU from Ampere on has and TVM's pipeline
    uses; ``bench gemm`` times what is chosen.
    """
    where = cuda_target(target)
    others = [peer for peer in peers if peer != "tvm"]

    def problem(gemm: Gemm) -> Problem:
        half, even = gemm.dtype in HALVES, gemm.m == gemm.n
        asked = Request(instruction="mma") if half else Request()
        stock = even and gemm.layout == "NN" and gemm.dtype != "bfloat16"
        allowed = peers if stock else others
        return contenders(gemm, where, asked, plain=half and even, peers=allowed)

    return list(map(problem, spine_gemms()))


def spine_gemms() -> list[Gemm]:
    """The products of ``spine``."""
    return [
        *(square(SQUARE, dtype, layout) for dtype in HALVES for layout in LAYOUTS),
        *(Gemm(*RAGGED, layout=layout) for layout in LAYOUTS),
        *(square(size, "float32", layout) for layout in LAYOUTS for size in SIMT_SIZES),
    ]


def square(size: int, dtype: str, layout: str) -> Gemm:
    """The GEMM of three equal extents."""
    return Gemm(size, size, size, dtype=dtype, layout=layout)


def spine_claims(report: Report, target: Any = None) -> list[Claim]:
    """The figures of ``spine`` as ratios, as far as they could be measured.

    TVM has one tensor core schedule, for fp16 and layout NN: both types and layouts are compared
    against it.
    """
    where = cuda_target(target)
    stock = report.best(square(SQUARE, "float16", "NN").name, STOCK_PREFIX)
    claims: list[Claim] = []
    for dtype in HALVES:
        for layout in LAYOUTS:
            name = square(SQUARE, dtype, layout).name
            ours, plain = report.find(name, OURS), report.find(name, OURS_PLAIN)
            label = f"{dtype} {layout} {SQUARE}^3 by mma.sync"
            claims += faster(f"{label} over TVM's stock fp16 NN", ours, stock, 1.6, 1.9)
            claims += faster(f"{label}: chosen depth over depth 1", ours, plain, 1.25, 1.25)
    for layout in LAYOUTS:
        for size in SIMT_SIZES:
            name = square(size, "float32", layout).name
            pair = report.find(name, OURS), report.find(name, CUBLAS)
            claims += faster(f"float32 {layout} {size}^3 over cuBLAS", *pair, 0.92, 1.0)
    for layout in LAYOUTS:
        ragged, even = Gemm(*RAGGED, layout=layout), square(SQUARE, "float16", layout)
        rates = report.find(ragged.name, OURS), report.find(even.name, OURS)
        shape = "x".join(map(str, RAGGED))
        label = f"ragged {layout} {shape} by mma.sync: rate over {SQUARE}^3's"
        claims += faster(label, *rates, 0.92, 0.96)
    tiles = [(gemm, default_tile(gemm, machine_for(where))) for gemm in spine_gemms()]
    slowest = max(transformation_ms(gemm, where, tile) for gemm, tile in tiles)
    return [*claims, Claim("slowest transformation, ms", slowest, 150.0, 150.0, at_most=True)]
