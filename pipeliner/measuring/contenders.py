"""What is checked and timed, as calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

Runner: TypeAlias = Callable[..., Any]
"""``run(*inputs, out)``: leaves the result in ``out``, or returns the tensor that holds it."""

Inputs: TypeAlias = "tuple[Any, ...]"

Say: TypeAlias = "Callable[[str], None]"
"""Told line by line what is going on."""


class ChoosingRunner(ABC):
    """A ``Runner`` that finds out at its first call what it runs from then on."""

    @abstractmethod
    def __call__(self, *arguments: Any) -> Any:
        """Run it; the first time, choose."""

    @property
    @abstractmethod
    def chosen(self) -> str:
        """What it runs, in a few words, once it was called."""

    @property
    def back_to_back(self) -> Runner:
        """What it runs where calls follow each other, the caches as the one before left them."""
        return self
