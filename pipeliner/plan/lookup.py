"""Parts of a plan by their names."""

from __future__ import annotations

from typing import TypeVar

from ..diagnostics import Reason
from ..errors import PlanError

_T = TypeVar("_T")


def named(items: tuple[_T, ...], name: str, what: str, where: str, key: str = "name") -> _T:
    """The item called ``name``, by its attribute ``key``; PlanError names what exists."""
    for item in items:
        if getattr(item, key) == name:
            return item
    known = tuple(getattr(item, key) for item in items) or Reason("plan.nothing")
    raise PlanError("plan.not_found", what=what, name=name, where=where, known=known)


def put(items: tuple[_T, ...], new: _T, key: str) -> tuple[_T, ...]:
    """``items`` with the first of ``new``'s ``key`` replaced, or with ``new`` behind them.

    Others may be called alike: loops that are declined have the names of their variables.
    """
    name = getattr(new, key)
    at = next((n for n, item in enumerate(items) if getattr(item, key) == name), len(items))
    return (*items[:at], new, *items[at + 1 :])
