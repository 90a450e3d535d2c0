"""Proofs that a mutant is equivalent: no execution can tell it from the kernel."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from ..passes.kernels import bodies
from .mutants import Mutant, device_functions
from .operations import is_synchronising
from .slots import touches_shared

_NOTHING_FOLLOWS = (
    "no access to shared memory follows it: it only lets copies land before the kernel ends"
)


def equivalent(mod: Any, mutant: Mutant) -> str:
    """Why no execution tells ``mutant`` from the kernel; '' where that is not shown.

    A wait or a barrier orders what is before it and what is after it. Where no access to shared
    memory can run after it, neither in program order nor in another iteration of a loop around it,
    there is nothing to order.
    """
    if mutant.kind not in ("wait", "barrier"):
        return ""
    kernels, _ = device_functions(mod)
    after = _after(kernels[mutant.kernel].body, mutant.number)
    return "" if any(map(touches_shared, after)) else _NOTHING_FOLLOWS


def _after(body: Any, number: int) -> list[Any]:
    """Statements that may run after the ``number``-th synchronising one."""
    left = number
    after: list[Any] = []

    def visit(stmt: Any) -> bool:
        """Whether the statement is in ``stmt``; collects what follows it there."""
        nonlocal left
        if is_synchronising(stmt):
            left -= 1
            if left < 0:
                after.extend(bodies(stmt))
                return True
        for at, part in enumerate(parts := bodies(stmt)):
            if visit(part):
                if isinstance(stmt, tirx.SeqStmt):
                    after.extend(parts[at + 1 :])
                if isinstance(stmt, tirx.For | tirx.While):
                    after.append(stmt)
                return True
        return False

    visit(body)
    return after
