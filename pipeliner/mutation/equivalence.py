"""Proofs that a mutant is equivalent: no execution can tell it from the kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

from tvm import ir, tirx
from tvm.ir import TensorLoad

from ..diagnostics import Reason, Why
from ..emulator.translate.operation import op_name
from ..passes.ir.calls import ACCESS_PTR
from ..passes.ir.kernels import bodies
from ..passes.ir.nodes import has
from ..passes.sync.async_groups import GroupEvent, InFlight
from .mutants import Mutant, device_functions
from .operations import group_count, is_synchronising, name_of

_CTA_BARRIERS: Final = ("tvm_storage_sync", "cuda.cta_sync")
"""Barriers of a whole CTA."""


def equivalent(mod: Any, mutant: Mutant) -> Why:
    """Why no execution tells ``mutant`` from the kernel; '' where that is not shown.

    A barrier of the CTA orders what is before it and what is after it. Where no access to shared or
    global memory can run after it, neither in program order nor in another iteration of a loop
    around it, there is nothing to order. A wait that leaves n groups in flight does nothing where
    no more than n can be. A commit less joins two groups, which is the same to a wait that
    completes both, and where no wait follows.
    """
    kernels, _ = device_functions(mod)
    body = kernels[mutant.kernel].body
    if mutant.what in _CTA_BARRIERS:
        after = _after(body, mutant.number)
        return "" if any(map(_uses_memory, after)) else Reason("mutation.nothing_follows")
    if mutant.what.endswith("_wait_group"):
        return _never_waits(body, mutant)
    return _joined(body, mutant) if mutant.what.endswith("_commit_group") else ""


def _never_waits(body: Any, mutant: Mutant) -> Why:
    """That no more groups can be in flight at a wait than it leaves; '' where more can."""
    family = mutant.what.removesuffix("_wait_group")
    bounds = InFlight(lambda stmt: _group_event(stmt, family))
    bounds.run(body, 0)
    most, left = bounds.before[mutant.number]
    if most > left:
        return ""
    return Reason("mutation.never_waits", most=most)


def _group_event(stmt: Any, family: str) -> GroupEvent | None:
    """What a synchronising operation is to the groups of ``family``."""
    if not is_synchronising(stmt):
        return None
    name = name_of(stmt)
    if name == f"{family}_commit_group":
        return "commit", 0
    if name == f"{family}_wait_group":
        return "wait", group_count(stmt)
    return ("wait", 0) if name == f"{family}_wait_all" else ("other", 0)


def _joined(body: Any, mutant: Mutant) -> Why:
    """That no wait is behind a commit, or the first one completes the next group too.

    The second in straight code only.
    """
    family = mutant.what.removesuffix("_commit_group")
    if not any(_waits(stmt, family) for stmt in _after(body, mutant.number)):
        return Reason("mutation.no_wait")
    later = [
        (name_of(stmt), nested, stmt)
        for number, (stmt, nested) in enumerate(_in_order(body, nested=False))
        if number >= mutant.number and name_of(stmt).startswith(family)
    ]
    commits = list(itertools.takewhile(lambda item: item[0] == mutant.what, later))
    if len(commits) == len(later) or any(nested for _, nested, _ in later[: len(commits) + 1]):
        return ""
    name, _, wait = later[len(commits)]
    left = group_count(wait) if name.endswith("_wait_group") else 0
    return Reason("mutation.joined") if len(commits) - 2 >= left else ""


def _waits(stmt: Any, family: str) -> bool:
    """Whether a wait for groups of ``family`` is in ``stmt``."""
    inside = (inner for inner, _ in _in_order(stmt, nested=False))
    return any(name_of(inner).startswith(f"{family}_wait") for inner in inside)


def _in_order(stmt: Any, *, nested: bool) -> Iterator[tuple[Any, bool]]:
    """The synchronising statements, and whether each is in a loop or a branch."""
    if is_synchronising(stmt):
        yield stmt, nested
    inner = nested or isinstance(stmt, tirx.For | tirx.While | tirx.IfThenElse)
    for part in bodies(stmt):
        yield from _in_order(part, nested=inner)


def _uses_memory(stmt: Any) -> bool:
    """Whether ``stmt`` reads, writes or addresses memory that threads share."""
    return (
        has(stmt, TensorLoad, lambda load: _is_common(load.source))
        or has(stmt, tirx.BufferStore, lambda store: _is_common(store.buffer))
        or has(stmt, ir.Call, lambda call: op_name(call) == ACCESS_PTR)
    )


def _is_common(buffer: Any) -> bool:
    return not str(buffer.scope()).startswith("local")


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
