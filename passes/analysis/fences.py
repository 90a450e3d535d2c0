"""Say what nothing may move across: calls that order memory, and loops that poll.

    while FL[t] == 0:                  a loop that ends when others write
        pass
    ld.acquire(v, FL[t])               what is read after it was written before the flag was
    if atomic_add(N[0], 1) == last:    an outcome that depends on when others arrive

A load that moved above one of these would read an older value. A value that no statement uses is no
outcome: an atomic that only adds orders nothing, because CUDA's and PTX's atomics are relaxed.

Sources: PTX ISA, memory consistency model; CUDA C++ Programming Guide, atomic functions.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import tirx
from tvm.ir import TensorLoad

from ...diagnostics import Reason
from ..ir.calls import called
from ..ir.nodes import Buffer, Stmt, collect, const_int, is_buffer_var, is_private, variables, walk
from .operands import ptx_entry

_ORDERING: Final = frozenset({"acquire", "release", "acq_rel", "sc", "volatile", "mmio"})
"""Modifiers of PTX instructions that order other accesses, or forbid to omit or repeat one."""

_ORDERED_FAMILIES: Final = ("mbarrier", "fence")
"""Instructions that order the accesses of others, whatever they point to."""

_SETS_UP: Final = ("mbarrier_init", "mbarrier_inval", "mbarrier_expect_tx", "mbarrier_complete_tx")
"""Instructions of those families that neither wait nor signal."""

_OUTCOMES: Final = ("atom",)
"""Instructions that return the old value; those that do not end in ``_bitbucket``."""

_ATOMICS: Final = ("atomic_add", "atomic_cas")
_LEAVES: Final = ("break_loop", "continue_loop", "thread_return")


def fence_of(call: Any, *, unused: bool) -> Reason | None:
    """Return why nothing may move across ``call``; None if it only touches memory.

    ``unused``: no statement uses its value.
    """
    name = called(call)
    last = name.rpartition(".")[2]
    if last in _LEAVES:
        return Reason("fence.leaves", by=last)
    entry = ptx_entry(name)
    if entry is not None:
        return _fence_of_ptx(entry, call)
    if last in _ATOMICS and not unused:
        return Reason("fence.takes", by=last)
    if last.startswith("mbarrier_wait") or last == "wait_until":
        return Reason("fence.waits", by=last)
    return None


def callee(call: Any) -> str:
    """Return the name that a person knows for what ``call`` calls."""
    name = called(call)
    extern = name.endswith(("call_extern", "func_call"))
    return str(call.args[0].value) if extern else name.removeprefix("tirx.")


def _fence_of_ptx(entry: Any, call: Any) -> Reason | None:
    name = str(entry.name)
    tokens = {str(getattr(arg, "value", "")) for arg in call.args[-len(entry.slots) - 1 : -1]}
    ordering = sorted(tokens & _ORDERING)
    if ordering and entry.family not in _ORDERED_FAMILIES:
        return Reason("fence.orders", by=f"{entry.family}.{ordering[0]}")
    if entry.family in _ORDERED_FAMILIES and not name.startswith(_SETS_UP):
        return Reason("fence.orders", by=name)
    if entry.family in _OUTCOMES and not name.endswith("_bitbucket"):
        return Reason("fence.takes", by=str(entry.family))
    return None


def polled_by(loop: Any) -> set[Buffer]:
    """Return the buffers, other than a thread's registers, that decide when a While ends."""
    decides = _loaded(loop.condition)
    stores = collect(loop.body, tirx.BufferStore)
    conditions = _conditions(loop.body)
    before = -1
    while before != len(decides):
        before = len(decides)
        for store in stores:
            if store.buffer in decides:
                decides |= _loaded(store) | conditions
        decides |= _passed_with(loop.body, decides)
    return {buf for buf in decides if not is_private(buf)}


def _loaded(node: Any) -> set[Buffer]:
    found: set[Buffer] = set()
    walk(node, TensorLoad, lambda load: found.add(load.source))
    return found


def _conditions(body: Stmt) -> set[Buffer]:
    """Return the buffers that conditions and bounds in ``body`` are loaded from."""
    found: set[Buffer] = set()
    walk(body, tirx.IfThenElse, lambda stmt: found.update(_loaded(stmt.condition)))
    walk(body, tirx.While, lambda stmt: found.update(_loaded(stmt.condition)))
    walk(body, tirx.For, lambda stmt: found.update(_loaded([stmt.min, stmt.extent])))
    return found


def _passed_with(body: Stmt, decides: set[Buffer]) -> set[Buffer]:
    """Return the buffers passed to calls that may write one of ``decides``."""
    found: set[Buffer] = set()

    def visit(stmt: Any) -> None:
        buffers = {var for var in variables(stmt.value) if is_buffer_var(var)}
        if const_int(stmt.value) is None and not buffers.isdisjoint(decides):
            found.update(buffers)

    walk(body, tirx.Evaluate, visit)
    return found
