"""Kernels that are none: what a GPU's process may be given to run."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeliner.measuring import BuiltCandidate
from pipeliner.measuring.contenders import ChoosingRunner
from pipeliner.schedules import Gemm
from pipeliner.schedules.workloads import Spec
from tests import fake_torch

SPEC = Gemm(32, 16, 24, layout="NN")


@dataclass(frozen=True)
class Takes(BuiltCandidate):
    """A product on numpy, right up to ``wrong``, that takes ``us`` by the made-up clock."""

    spec: Spec = SPEC
    us: float = 100.0
    wrong: float = 0.0
    late: bool = False
    """Wrong from its second run on only."""

    def load(self) -> tuple[Any, str]:
        runs = 0

        def run(a: Any, b: Any, c: Any) -> None:
            nonlocal runs
            fake_torch.Clock.now += self.us * 1e-3
            exact = a.data.astype(np.float64) @ b.data.astype(np.float64)
            c.data[...] = exact + self.wrong * (runs > 0 or not self.late)
            runs += 1

        return run, ""


class Product(ChoosingRunner):
    """A product on numpy that says of itself that it is one of two."""

    ran = 0

    def __call__(self, a: Any, b: Any, c: Any) -> None:
        self.ran += 1
        fake_torch.Clock.now += 0.1
        c.data[...] = a.data.astype(np.float64) @ b.data.astype(np.float64)

    @property
    def chosen(self) -> str:
        return "the second way" if self.ran else ""


@dataclass(frozen=True)
class Chooses(BuiltCandidate):
    """A kernel that is known after its first run."""

    spec: Spec = SPEC

    def load(self) -> tuple[Any, str]:
        return Product(), "not yet known"


@dataclass(frozen=True)
class Hangs(BuiltCandidate):
    """A kernel of an hour, as far as anybody waits."""

    spec: Spec = SPEC

    def load(self) -> tuple[Any, str]:
        import torch

        def run(*tensors: Any) -> None:
            torch.cuda._sleep(10**13)

        return run, ""


@dataclass(frozen=True)
class Crashes(BuiltCandidate):
    """Takes its process with it."""

    spec: Spec = SPEC

    def load(self) -> tuple[Any, str]:
        os.kill(os.getpid(), signal.SIGSEGV)
        raise AssertionError


@dataclass(frozen=True)
class Lost(BuiltCandidate):
    """A kernel that finds its GPU full."""

    spec: Spec = SPEC

    def load(self) -> tuple[Any, str]:
        raise RuntimeError("Traceback\nCUDA error: out of memory")
