"""Lower a small kernel as it is written, run it, and say what the emulator objects to."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeliner.emulator import Emulation, emulate

from .raw import lower

WARP, THREADS = 32, 64
ORDERS = ("lockstep", "round-robin", "reversed", "random")
TIMINGS = ("late", "early", "random")


def run(func: Any, *args: Any, **options: Any) -> Emulation:
    return emulate(lower(func), list(args), **options)


def kinds(func: Any, *args: Any, **options: Any) -> set[str]:
    return {h.kind for h in run(func, *args, **options).hazards}


def blank(*shape: int, dtype: str = "int32") -> np.ndarray:
    return np.zeros(shape, dtype)
