"""Contenders on numpy whose duration is known, and reports of them."""

from __future__ import annotations

from typing import Any

from pipeliner import bench
from pipeliner.bench import Contender, Problem, Report
from pipeliner.schedules import Gemm

from .. import fake_torch

GEMM = Gemm(32, 16, 24, dtype="fp16", layout="NN")


def product(gemm: Gemm, a: Any, b: Any) -> Any:
    left = a.data if gemm.layout[0] == "N" else a.data.swapaxes(-1, -2)
    right = b.data if gemm.layout[1] == "N" else b.data.swapaxes(-1, -2)
    return left.astype("float64") @ right.astype("float64")


def takes(milliseconds: float, wrong: float = 0.0, gemm: Gemm = GEMM):
    """A contender's ``make``: right up to ``wrong``, and of a known duration."""

    def run(a, b, c) -> None:
        fake_torch.Clock.now += milliseconds
        c.data[...] = product(gemm, a, b) + wrong

    return lambda: (run, f"{milliseconds} ms")


def measured(*contenders: Contender, gemm: Gemm = GEMM, rounds: int = 5) -> Report:
    report = Report("a stand-in")
    bench.measure([Problem(gemm, contenders)], report, rounds=rounds, say=lambda text: None)
    return report


def known(label: str, gemm: Gemm = GEMM, **milliseconds: float) -> Problem:
    """A problem whose contenders take this long: ``pipeliner=1.0, cuBLAS=0.9``."""
    made = [
        Contender(name.replace("_", " "), takes(time, gemm=gemm), gemm.out)
        for name, time in milliseconds.items()
    ]
    return Problem(gemm, tuple(made), label)
