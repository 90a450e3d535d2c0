"""One corpus entry: a scheduled function, its inputs, its truth in numpy and what a person expects.

Every expectation was written before the pass had run on the function. Where one was wrong it
stays visible: ``changed`` says what it was and why it is different now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Pipelined:
    """At least ``loops`` loops overlap iterations, each with ``min_depth`` of them under way at once.

    ``min_depth`` counts stages: a copy that feeds a ring of D slots stands D - 1 stages ahead of its
    consumer, and a value in registers may overlap without a second version.
    """

    min_depth: int = 2
    loops: int = 1


@dataclass(frozen=True)
class Declined:
    """No loop is pipelined, and one reason of the plan has the code ``reason``."""

    reason: str


@dataclass(frozen=True)
class Case:
    """``build`` gives the PrimFunc; ``inputs`` its arguments by parameter name (outputs left out);
    ``reference`` the outputs by parameter name. ``why`` is the person's argument for ``expect``.
    """

    name: str
    build: Callable[[], Any]
    inputs: Callable[[np.random.Generator], Arrays]
    reference: Callable[[Mapping[str, Any]], Arrays]
    expect: Pipelined | Declined
    why: str
    arch: str = "sm_80"
    tolerance: float = 1e-5
    nvcc: bool = False
    changed: str = ""


def uniform(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> np.ndarray:
    """Values in [-1, 1): sums of a few hundred stay well conditioned."""
    return (rng.random(shape) * 2 - 1).astype(dtype)


def one(name: str, rng: np.random.Generator, *shape: int) -> dict[str, np.ndarray]:
    """The only input of a case: such values."""
    return {name: uniform(rng, *shape)}
