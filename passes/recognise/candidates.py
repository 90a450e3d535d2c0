"""Say which loops cannot be pipelined, and why.

    for k in range(64): B[k] = A[k]            =>  nothing uses what it loads
    for k in range(3): acc += A[k]             =>  too short
    for k in range(64): x = A[x]               =>  each load needs the one of the iteration before

A reason is what the plan says of a loop that it leaves as it is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx

from ...diagnostics import Reason
from ..analysis.effects import READ, WRITE, effects
from ..analysis.uniform import Uniformity
from ..ir.calls import called
from ..ir.nodes import (
    Buffer,
    Call,
    SBlock,
    SBlockRealize,
    Stmt,
    TensorLoad,
    Var,
    collect,
    const_int,
    has,
    is_global,
    is_private,
    is_shared,
    statements,
    uses,
    walk,
)
from ..ir.patterns import is_call

SHORT: Final = 4
"""Trip count that nvcc unrolls anyway; the loop around such a loop has more to overlap."""


@dataclass(frozen=True)
class Context:
    """The loops around a statement, and whether threads disagree on a condition around it.

    ``guarded``: there is a condition between the innermost loop and the statement.
    """

    loops: tuple[Any, ...] = ()
    divergent: bool = False
    guarded: bool = False


def why_not(
    loop: Any, context: Context, threads: Collection[Var], uniformity: Uniformity
) -> Reason | None:
    """Return why ``loop`` is no candidate for pipelining; None if it is one."""
    trip = const_int(loop.extent)
    around = [const_int(other.extent) for other in context.loops]
    if trip is not None and trip <= SHORT and any(n is None or n > SHORT for n in around):
        return Reason("loop.too_short", trip=trip)
    if trip in (0, 1):
        return Reason("loop.trip", trip=trip)
    for bound in (loop.min, loop.extent):
        if uses(bound, threads):
            return Reason("loop.thread_trip")
        if not uniformity.is_uniform(bound):
            return Reason("loop.loaded_trip")
    found = effects(loop.body)
    reads, writes = found.buffers(READ), found.buffers(WRITE)
    if not any(is_global(buf) for buf in reads):
        return Reason("loop.no_load")
    if context.divergent and any(is_shared(buf) for buf in reads | writes):
        return Reason("loop.divergent")
    if found.is_fence and _has_barrier(loop.body):
        return Reason("loop.own_barriers")
    fence = found.why_fence()
    if fence is not None:
        return Reason("loop.fence", fence=fence)
    bounds = [buf for buf in found.bounds if uniformity.is_written(buf)]
    if bounds:
        return Reason("loop.inner_trip", buffer=str(bounds[0].name))
    if _calls(loop.body, "tvm_thread_allreduce"):
        # Lowered after us, by a pass that wants its result and all uses in one scope.
        return Reason("loop.allreduce")
    if not _is_consumed(loop, reads, writes):
        targets = sorted(str(buf.name) for buf in writes)
        return Reason("loop.only_fills", buffers=tuple(targets))
    carried = _carried(loop, writes)
    if carried is not None:
        return carried
    indexed = _indexed_registers(loop)
    if indexed is not None:
        return Reason("loop.indexes_registers", buffer=indexed)
    return None


def _is_consumed(loop: Any, reads: set[Buffer], writes: set[Buffer]) -> bool:
    """Whether something in the loop uses what it loads; otherwise it is one big copy."""
    if any(is_global(buf) for buf in writes) or reads & writes:
        return True
    return _allocates(loop.body) or effects(loop.body).is_opaque


def _allocates(stmt: Stmt) -> bool:
    return has(stmt, SBlock, lambda block: bool(block.alloc_buffers))


def _has_barrier(stmt: Stmt) -> bool:
    return has(stmt, Call, lambda call: is_call(call, "tvm_storage_sync"))


def _carried(loop: Any, writes: set[Buffer]) -> Reason | None:
    """Return why no load of the loop can start before the previous iteration ends, or None."""
    externs = _calls(loop.body, "call_extern")
    if externs:
        return Reason("loop.opaque_call", function=str(externs[0].args[0].value))
    inner: set[Any] = set()
    walk(loop.body, SBlock, lambda block: inner.update(block.alloc_buffers))
    carried = writes - inner
    loads = [load for load in collect(loop.body, TensorLoad) if is_global(load.source)]
    if not loads:  # only instructions that were handed a pointer load
        return None
    if all(load.source in writes for load in loads):
        names = sorted({str(load.source.name) for load in loads})
        return Reason("loop.carried_loads", buffers=tuple(names))
    followed = [load for load in loads if load.source not in writes]
    if all(any(inside.source in carried for inside in _address(load)) for load in followed):
        return Reason("loop.carried_addresses")
    if len(statements(_bare(loop.body))) == 1 and _calls(loop.body, "atomic"):
        return Reason("loop.atomic")
    return None


def _address(load: Any) -> list[Any]:
    """Return the loads in the indices of ``load``."""
    return [inside for index in load.indices for inside in collect(index, TensorLoad)]


def _calls(stmt: Stmt, name: str) -> list[Any]:
    def wanted(call: Any) -> bool:
        callee = called(call).rsplit(".", 1)[-1]
        return name in callee and "pure" not in callee

    return collect(stmt, Call, wanted)


def _bare(stmt: Stmt) -> Stmt:
    """``stmt`` without the block around it."""
    return stmt.block.body if isinstance(stmt, SBlockRealize) else stmt


def _indexed_registers(loop: Any) -> str | None:
    """Return the name of a register buffer from outside that the loop variable indexes, or None."""
    inner: set[Any] = set()
    walk(loop.body, SBlock, lambda block: inner.update(block.alloc_buffers))
    found: list[str] = []

    def visit(access: Any) -> None:
        buf = access.source if isinstance(access, TensorLoad) else access.buffer
        private = is_private(buf)
        if private and buf not in inner and uses(list(access.indices), [loop.loop_var]):
            found.append(str(buf.name))

    walk(loop.body, (TensorLoad, tirx.BufferStore), visit)
    return found[0] if found else None
