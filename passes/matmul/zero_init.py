"""Zero-initialise accumulators by scale-d: the first wgmmas write where the others add.

    acc = 0                                     for k in range(n):
    for k in range(n):                  =>          wgmma(acc, .., scale_d = k != 0)
        wgmma(acc, .., scale_d = 1)                 wgmma(acc, .., scale_d = 1)
        wgmma(acc, .., scale_d = 1)

Does not handle: a loop that is not known to have a first iteration; wgmmas that a condition leaves
out.
"""

from __future__ import annotations

from typing import Any, Final

import tvm_ffi
from tvm import tirx

from ..ir.calls import WGMMA_CALL, called
from ..ir.kernels import bodies
from ..ir.nodes import (
    Buffer,
    Call,
    Expr,
    Stmt,
    TensorLoad,
    buffer_bytes,
    const_int,
    dtype_bytes,
    walk,
)
from ..ir.patterns import is_zero

_MULTIPLY: Final = "mma_async"


def accumulators(stmt: Stmt) -> dict[Buffer, int]:
    """Return the register buffers that the wgmmas of ``stmt`` add to, with their elements."""
    found: dict[Buffer, int] = {}

    def visit(call: Any) -> None:
        if _multiplies(call):
            acc = call.args[0].source
            found[acc] = (buffer_bytes(acc) or 0) // dtype_bytes(acc.dtype)

    walk(stmt, Call, visit)
    return found


def zeroes(stmt: Stmt, wanted: dict[Buffer, int]) -> bool:
    """Whether ``stmt`` sets every element of ``wanted`` to zero once, and does nothing else."""
    stored: dict[Buffer, int] = {}

    def visit(node: Stmt, times: int) -> bool:
        if isinstance(node, tirx.BufferStore):
            stored[node.buffer] = stored.get(node.buffer, 0) + times
            return node.buffer in wanted and is_zero(node.value)
        if isinstance(node, tirx.IfThenElse):
            return False
        if isinstance(node, tirx.For):
            times *= const_int(node.extent) or 0
        inner = bodies(node)
        return bool(inner) and all(visit(part, times) for part in inner)

    return bool(wanted) and visit(stmt, 1) and stored == wanted


def begin_always(stmt: Stmt) -> bool:
    """Whether the first wgmma of ``stmt`` on each accumulator runs under no condition of its own.

    Only such a one may write where the others add: one that is left out writes nothing.
    """
    guarded: list[Any] = []
    walk(stmt, tirx.IfThenElse, lambda branch: walk(branch, Call, guarded.append))
    begun: dict[tuple[Buffer, int], Any] = {}

    def visit(call: Any) -> None:
        if _multiplies(call):
            target = call.args[0]
            begun.setdefault((target.source, const_int(target.indices[0]) or 0), call)

    walk(stmt, Call, visit)
    return not any(one.same_as(call) for one in begun.values() for call in guarded)


def start_from_zero(stmt: Stmt, first: Expr) -> Stmt:
    """Return ``stmt`` with the first wgmma on each accumulator writing it where ``first`` holds."""
    begun: set[tuple[Buffer, int]] = set()

    def visit(call: Any) -> Any:
        if not _multiplies(call):
            return call
        target = call.args[0]
        key = (target.source, const_int(target.indices[0]) or 0)
        if key in begun:
            return call
        begun.add(key)
        registers = sum(
            isinstance(arg, TensorLoad) and arg.source.same_as(target.source) for arg in call.args
        )
        args = list(call.args)
        left = sum(_is_word(arg) for arg in args[registers:])  # of A in registers, or a descriptor
        args[registers + max(left, 1) + 1] = tirx.Cast("uint32", tirx.Not(first))
        return Call(call.op, args, call.attrs, ret_ty=call.ty)

    return tvm_ffi.structural_map(stmt, [(Call, visit)], order="post")


def _is_word(arg: Any) -> bool:
    """Whether an operand is a register of 32 bits; descriptors have 64."""
    return isinstance(arg, TensorLoad) and str(arg.ty.dtype) == "uint32"


def _multiplies(call: Any) -> bool:
    if not called(call).startswith(WGMMA_CALL):
        return False
    return any(getattr(arg, "value", None) == _MULTIPLY for arg in call.args)
