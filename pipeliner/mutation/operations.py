"""The synchronising operations of a lowered kernel, and each of them deleted or weakened.

An operation synchronises when it orders memory or threads and computes nothing: a barrier, a wait,
the commit of a group, a fence, an arrival at an mbarrier. They are enumerated in program order, so
that a number names one of them.

How each is weakened (PTX ISA, "Asynchronous copy operations" and "mbarrier"): a wait for groups
lets one group more stay in flight; an mbarrier expects 16 bytes, or one arrival, fewer; a wait for
a phase waits for the other one; everything else is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import tvm_ffi
from tvm import ir, tirx

from ..emulator.translate.operation import decode, op_name
from ..errors import EmulatorError
from ..passes.ir.kernels import bodies
from ..passes.ir.nodes import collect, i32, origin_of
from ..values.origin import Origin

OperationKind: TypeAlias = Literal["barrier", "wait", "commit", "fence", "arrival"]
"""How an operation synchronises."""

_KINDS: Final[tuple[tuple[OperationKind, re.Pattern[str]], ...]] = (
    (
        "barrier",
        re.compile(
            r"tvm_storage_sync|cuda\.((cta|warp|warpgroup|cluster|grid)_sync|syncthreads_\w+)"
            r"|ptx\.(bar|barrier)_\w+"
        ),
    ),
    (
        "commit",
        re.compile(r"ptx\.(cp_async|cp_async_bulk|wgmma)_commit_group|ptx\.tcgen05_commit\w*"),
    ),
    (
        "wait",
        re.compile(
            r"ptx\.(cp_async|cp_async_bulk|wgmma)_wait_\w+|ptx\.mbarrier_(test|try)_wait\w*"
            r"|ptx\.griddepcontrol|ptx\.tcgen05_wait|cuda\.(mbarrier_wait\w*|wait_until)"
        ),
    ),
    ("fence", re.compile(r"ptx\.\w*fence\w*|cuda\.thread_fence")),
    (
        "arrival",
        re.compile(
            r"ptx\.mbarrier_(init|inval|arrive|expect_tx|complete_tx)\w*"
            r"|ptx\.cp_async_mbarrier_arrive\w*"
        ),
    ),
)
"""Names of the operations of each kind, without the prefix of TVM."""

_QUEUE_KINDS: Final[dict[str, OperationKind]] = {
    "async_commit_queue_scope": "commit",
    "async_wait_queue_scope": "wait",
}
"""The same as attributes around a statement, as TVM's older passes write them."""

_RELEASE: Final = "launch_dependents"
"""Action of griddepcontrol that only makes the next kernel start sooner."""

_COPY_BYTES: Final = 16
"""Of the smallest bulk copy: the least by which a count of bytes can be wrong."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A synchronising operation of a kernel.

    ``name``: without TVM's prefix. ``weakening``: what a mutant does to it. ``origin``: of its
    statement, where the passes say. ``statement``: its number in the kernel, in preorder, sequences
    and attributes not counted; that of the next one for an attribute.
    """

    name: str
    kind: OperationKind
    weakening: str
    origin: Origin | None
    statement: int


def kind_of(name: str) -> OperationKind | None:
    """Return the kind of a synchronising operation of TVM, None for another one."""
    short = name.removeprefix("tirx.")
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(short)), None)


def operations(func: Any) -> tuple[Operation, ...]:
    """The synchronising operations of a lowered device function, in program order.

    EmulatorError: one stands inside an expression, where it cannot be taken out.
    """
    found = tuple(
        Operation(name_of(stmt), _kind(stmt), _weakened(stmt)[1], origin, number)
        for stmt, origin, number in numbered(func.body)
        if is_synchronising(stmt)
    )
    calls = collect(func.body, ir.Call, _orders)
    inside = len(calls) - sum(operation.name not in _QUEUE_KINDS for operation in found)
    if inside:
        raise EmulatorError("mutation.in_expressions", count=inside)
    return found


def numbered(body: Any) -> Iterator[tuple[Any, Origin | None, int]]:
    """Every statement in preorder, where it comes from, and its number as ``Operation`` has it."""
    number = 0

    def visit(stmt: Any, origin: Origin | None) -> Iterator[tuple[Any, Origin | None, int]]:
        nonlocal number
        yield stmt, origin, number
        number += not isinstance(stmt, tirx.SeqStmt | tirx.AttrStmt)
        for inner in bodies(stmt):
            yield from visit(inner, origin_of(stmt) or origin)

    return visit(body, None)


def weaken(func: Any, number: int) -> Any:
    """The device function with its ``number``-th synchronising operation deleted or weakened."""
    return replace_nth(
        func,
        (tirx.Evaluate, tirx.AttrStmt),
        is_synchronising,
        number,
        lambda stmt: _weakened(stmt)[0],
    )


def replace_nth(
    func: Any,
    types: tuple[type, ...],
    wanted: Callable[[Any], bool],
    number: int,
    change: Callable[[Any], Any],
) -> Any:
    """``func`` with the ``number``-th node of ``types`` that is ``wanted`` changed, in preorder.

    ``number`` counts from 0; EmulatorError: there are not as many.
    """
    seen = 0

    def visit(node: Any, mutator: Any) -> Any:
        nonlocal seen
        if not wanted(node):
            return mutator.default_mutate(node)
        seen += 1
        return change(node) if seen == number + 1 else mutator.default_mutate(node)

    body = tvm_ffi.structural_mutate(func.body, [(kind, visit) for kind in types])
    if seen <= number:
        raise EmulatorError("mutation.no_operation", number=number, count=seen)
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def is_synchronising(stmt: Any) -> bool:
    """Whether a statement is a synchronising operation."""
    if isinstance(stmt, tirx.AttrStmt):
        return str(stmt.attr_key) in _QUEUE_KINDS
    if not isinstance(stmt, tirx.Evaluate):
        return False
    return isinstance(stmt.value, ir.Call) and _orders(stmt.value)


def _orders(call: Any) -> bool:
    """Whether a call is a synchronising operation."""
    name = op_name(call)
    if name == "tirx.ptx.griddepcontrol" and decode(call).modifiers["action"] == _RELEASE:
        return False
    return kind_of(name) is not None


def name_of(stmt: Any) -> str:
    """Name of the operation of a synchronising statement, without TVM's prefix."""
    if isinstance(stmt, tirx.AttrStmt):
        return str(stmt.attr_key)
    return op_name(stmt.value).removeprefix("tirx.").removeprefix("ptx.")


def group_count(stmt: Any) -> int:
    """How many groups a wait for groups leaves in flight."""
    return int(decode(stmt.value).one("group").value)


def _kind(stmt: Any) -> OperationKind:
    if isinstance(stmt, tirx.AttrStmt):
        return _QUEUE_KINDS[str(stmt.attr_key)]
    kind = kind_of(op_name(stmt.value))
    assert kind is not None
    return kind


def _weakened(stmt: Any) -> tuple[Any, str]:
    """Return the statement deleted or weakened, and that in words."""
    if isinstance(stmt, tirx.AttrStmt):
        return _weakened_queue(stmt)
    name = op_name(stmt.value)
    short = name_of(stmt)
    if not name.startswith("tirx.ptx."):
        return tirx.Evaluate(i32(0)), "deleted"
    if short.endswith("wait_group"):
        return _changed(stmt, "group", lambda n: n + 1, "in flight")
    if short == "mbarrier_init" and int(getattr(decode(stmt.value).one("count"), "value", 2)) > 1:
        return _changed(stmt, "count", lambda n: n - 1, "arrivals")
    if "expect_tx" in short:
        return _changed(stmt, "tx_count", lambda n: n - _COPY_BYTES, "bytes")
    if "wait_parity" in short:
        return _changed(stmt, "phase", lambda phase: phase ^ 1, "of the phases")
    return tirx.Evaluate(i32(0)), "deleted"


def _weakened_queue(stmt: Any) -> tuple[Any, str]:
    if stmt.attr_key == "async_commit_queue_scope":
        return stmt.body, "deleted"
    count = stmt.body
    more = count.value + 1
    inner = tirx.AttrStmt(count.node, count.attr_key, more, count.body)
    return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, inner), "one group more in flight"


def _changed(stmt: Any, operand: str, change: Callable[[Any], Any], unit: str) -> tuple[Any, str]:
    """Return the call with one operand changed, and both of its values in words."""
    call = stmt.value
    old = decode(call).one(operand)
    value = getattr(old, "value", None)
    new = change(old) if value is None else tirx.const(change(int(value)), str(old.ty))
    args = [new if arg.same_as(old) else arg for arg in call.args]
    text = f"{unit}: {old} -> {new}" if value is None else f"{int(value)} -> {new.value} {unit}"
    return tirx.Evaluate(ir.Call(call.op, args, call.attrs, ret_ty=call.ty)), text
