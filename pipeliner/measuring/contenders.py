"""What is checked and timed, as calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Runner: TypeAlias = Callable[..., Any]
"""``run(*inputs, out)``: leaves the result in ``out``, or returns the tensor that holds it."""

Inputs: TypeAlias = "tuple[Any, ...]"

Say: TypeAlias = "Callable[[str], None]"
"""Told line by line what is going on."""
