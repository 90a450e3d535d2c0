"""Who computes a workload: what is checked and timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Runner: TypeAlias = Callable[..., Any]
"""``run(*inputs, out)``: leaves the result in ``out``, or returns the tensor that holds it."""

Inputs: TypeAlias = "tuple[Any, ...]"

Say: TypeAlias = "Callable[[str], None]"
"""Told line by line what is going on."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to compute a problem.

    ``make`` compiles it and says in a few words what it is. ``out``: the type that it writes.
    ``arrange``: how it wants the inputs to lie, which is not timed. ``slack``: the largest error
    that is accepted: error / bound, where rounding gives the bound.
    """

    name: str
    make: Callable[[], tuple[Runner, str]]
    out: str
    arrange: Callable[[Inputs], Inputs] = tuple
    slack: float = 1.0
