"""Ring indices and phases of kernels without a plan, and each of them one further.

A kernel written by hand says nothing of its rings. There a ring index is a remainder of loop
variables, ``(i * n + k) % depth``, in an address of shared memory or in a value with a name; its
mutant is the next remainder. The phase that a wait for an mbarrier names is the other one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import TensorLoad, prim

from ..emulator.translate.operation import op_name
from ..passes.ir.nodes import collect, const_int, has, is_shared
from ..values.origin import Origin
from .operations import numbered, replace_nth

_LEAVES: Final = (tirx.Bind, tirx.Evaluate, tirx.BufferStore)
"""Statements without others inside."""

_WAIT: Final = "tirx.cuda.mbarrier_wait"


@dataclass(frozen=True, slots=True)
class RingIndex:
    """One remainder, or one phase, in one statement.

    ``leaf``: number of the statement among those without others inside. ``place``: the remainder's
    number in it, -1 for a phase. ``statement``: as ``Operation`` has it. ``text``: the expression,
    and what it is in.
    """

    leaf: int
    place: int
    statement: int
    origin: Origin | None
    text: str

    @property
    def is_phase(self) -> bool:
        """Whether it is the phase of a wait."""
        return self.place < 0


def indices(func: Any) -> tuple[RingIndex, ...]:
    """The ring indices and the phases of a lowered device function, in program order."""
    known = _loop_values(func.body)
    found: list[RingIndex] = []
    leaves = (item for item in numbered(func.body) if isinstance(item[0], _LEAVES))
    for leaf, (stmt, origin, number) in enumerate(leaves):
        for at, node in enumerate(_ring_indices(stmt, known)):
            found.append(RingIndex(leaf, at, number, origin, f"{node} in {_name(stmt)}"))
        if _waits(stmt):
            text = f"{stmt.value.args[1]} in {_name(stmt)}"
            found.append(RingIndex(leaf, -1, number, origin, text))
    return tuple(found)


def advance(func: Any, index: RingIndex) -> Any:
    """Return ``func`` with one ring index one slot further, or one phase flipped."""
    known = _loop_values(func.body)

    def changed(stmt: Any) -> Any:
        if index.is_phase:
            call = stmt.value
            barrier, phase, *rest = call.args
            flipped = [barrier, phase ^ tirx.const(1, str(phase.ty.dtype)), *rest]
            return tirx.Evaluate(ir.Call(call.op, flipped, call.attrs, ret_ty=call.ty))
        left = index.place

        def next_slot(node: Any) -> Any:
            nonlocal left
            left -= 1
            return _next(node) if left == -1 else node

        return _advanced(stmt, known, next_slot)

    return replace_nth(func, _LEAVES, lambda stmt: True, index.leaf, changed)


def _loop_values(body: Any) -> frozenset[Any]:
    """Variables that loops alone determine: their own, and named values of nothing else."""
    known: set[Any] = set()
    for stmt, _, _ in numbered(body):
        if isinstance(stmt, tirx.For) and stmt.thread_binding is None:
            known.add(stmt.loop_var)
        elif isinstance(stmt, tirx.Bind) and _determined(stmt.value, known):
            known.add(stmt.var)
    return frozenset(known)


def _determined(expr: Any, known: Any) -> bool:
    """Whether loop variables occur in ``expr`` and nothing else that varies."""
    used = collect(expr, ir.Var)
    return bool(used) and not has(expr, (TensorLoad, ir.Call)) and all(var in known for var in used)


def _ring_indices(stmt: Any, known: Any) -> list[Any]:
    found: list[Any] = []

    def keep(node: Any) -> Any:
        found.append(node)
        return node

    _advanced(stmt, known, keep)
    return found


def _advanced(stmt: Any, known: Any, change: Callable[[Any], Any]) -> Any:
    """The statement with ``change`` applied to every ring index in it."""
    inside = isinstance(stmt, tirx.Bind)

    def address(node: Any, mutator: Any) -> Any:
        nonlocal inside
        outer, inside = inside, inside or is_shared(_buffer(node))
        node = mutator.default_mutate(node)
        inside = outer
        return node

    def modulo(node: Any, mutator: Any) -> Any:
        if inside and _modulus(node) > 1 and _determined(node, known):
            return change(node)
        return mutator.default_mutate(node)

    rules = [
        *((kind, address) for kind in (TensorLoad, tirx.BufferStore)),
        *((kind, modulo) for kind in (prim.FloorMod, prim.Mod, prim.BitwiseAnd)),
    ]
    return tvm_ffi.structural_mutate(stmt, rules)


def _buffer(node: Any) -> Any:
    return node.buffer if isinstance(node, tirx.BufferStore) else node.source


def _modulus(node: Any) -> int:
    """Return the modulus of a remainder; 0 for a mask that is none."""
    value = const_int(node.b)
    if value is None:
        return 0
    if not isinstance(node, prim.BitwiseAnd):
        return value
    return value + 1 if value & (value + 1) == 0 else 0


def _next(node: Any) -> Any:
    dtype = str(node.ty.dtype)
    last = tirx.const(_modulus(node) - 1, dtype)
    return tirx.Select(node == last, tirx.const(0, dtype), node + tirx.const(1, dtype))


def _name(stmt: Any) -> str:
    """Return what a statement names, stores to or calls."""
    if isinstance(stmt, tirx.Bind):
        return str(stmt.var.name)
    if isinstance(stmt, tirx.BufferStore):
        return str(stmt.buffer.name)
    return op_name(stmt.value).removeprefix("tirx.")


def _waits(stmt: Any) -> bool:
    if not isinstance(stmt, tirx.Evaluate) or not isinstance(stmt.value, ir.Call):
        return False
    return op_name(stmt.value).startswith(_WAIT)
