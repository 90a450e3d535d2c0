"""Contenders on numpy whose duration is known, reports of them, convolutions to compare."""

from __future__ import annotations

from typing import Any

from pipeliner import bench
from pipeliner.bench import Contender, Problem, Report
from pipeliner.schedules import Gemm, conv1d, conv2d, conv3d

from .. import fake_torch

GEMM = Gemm(32, 16, 24, dtype="fp16", layout="NN")

CONVS = [
    conv2d(2, 6, 5, 3, 8, 3, 3, stride=2, pad=1),
    conv2d(2, 6, 5, 8, 4, 3, 2, pad=(1, 0), dilation=(1, 2), groups=2),
    conv2d(2, 6, 5, 4, 8, 3, 3, pad=1, layout="NCHW", dtype="fp32"),
    conv2d(1, 6, 5, 4, 8, 1, 1, dtype="tf32"),
    conv1d(2, 9, 4, 6, 3, pad=1),
    conv3d(1, 4, 5, 3, 2, 4, 2, 3, 1, pad=(0, 1, 0)),
]


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
