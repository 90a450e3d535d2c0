"""Launch kernels early: each starts while the one before it in the stream still runs (PDL).

``pipeliner/mechanisms/launch.py`` says whether.

    kernel 0:                              kernel 0:
        for k in range(n): ..                  griddepcontrol.wait
        parts = acc                            for k in range(n): ..
                                    =>         griddepcontrol.launch_dependents
    kernel 1:                                  parts = acc
        C = sum(parts)                     kernel 1:
                                               griddepcontrol.wait
                                               C = sum(parts)

Every thread of every kernel waits before it touches global memory, which another kernel may still
write or read. When a kernel has issued its last loads, it releases the next one's CTAs. That is
always safe, because the wait ends only when the kernel before has ended and its writes are visible.

Sources: PTX ISA, griddepcontrol; CUDA C++ Programming Guide, programmatic dependent launch.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from tvm import tirx
from tvm.script import tirx as T

from ...plan import PRODUCER, LaunchPlan
from ..analysis.effects import READ, effects
from ..ir.kernels import (
    LAUNCH_PARAMS,
    PDL,
    bodies,
    launch_tags,
    map_kernels,
    thread_tag,
    with_bodies,
)
from ..ir.named_pass import named_pass
from ..ir.nodes import SBlockRealize, Stmt, Var, const_int, has, is_buffer_var, is_global, seq
from .async_groups import issues_copies
from .mbarriers import ROLE_ATTR, ROLES_ATTR

_TENSOR_MAP: Final = T.tvm_stack_alloca("tensormap", 1).ty


@named_pass("Launch")
def dependent_launches(func: Any, plan: LaunchPlan) -> Any:
    """Return ``func`` with its kernels launched as ``plan`` says; itself if none is early."""
    if not plan.pdl:
        return func
    numbers = itertools.count()

    def launched(kernel: Any) -> Any:
        return _waiting(_releasing(kernel) if next(numbers) in plan.triggers else kernel)

    tags = [tag for tag in launch_tags(func) if tag != PDL]
    return map_kernels(func, launched).with_attr(LAUNCH_PARAMS, [*tags, PDL])


def _waiting(stmt: Stmt) -> Stmt:
    """Return ``stmt`` with a wait before its first access to global memory, for all threads."""
    if not _touches(stmt):
        return stmt
    if _is_wrapper(stmt):
        return with_bodies(stmt, [_waiting(body) for body in bodies(stmt)])
    if isinstance(stmt, tirx.SeqStmt):
        parts = list(stmt.seq)
        first = next(at for at, part in enumerate(parts) if _touches(part))
        return seq(*parts[:first], _waiting(parts[first]), *parts[first + 1 :])
    return seq(tirx.Evaluate(T.ptx.griddepcontrol.wait()), stmt)


def _touches(stmt: Stmt) -> bool:
    """Whether ``stmt`` names global memory, or a tensor map of it."""
    return has(stmt, Var, _is_outside)


def _is_outside(var: Var) -> bool:
    return is_global(var) if is_buffer_var(var) else bool(var.ty == _TENSOR_MAP)


def _is_wrapper(stmt: Stmt) -> bool:
    """Whether every thread runs what is inside ``stmt``, once."""
    if isinstance(stmt, SBlockRealize):
        return const_int(stmt.predicate) == 1
    if isinstance(stmt, tirx.AttrStmt):
        return str(stmt.attr_key) != ROLES_ATTR
    return thread_tag(stmt) is not None


def _releasing(kernel: Stmt) -> Stmt:
    """Return ``kernel`` with a release of the next one behind the last loads.

    Those are the producer's, if there is one.
    """
    released = _by_producer(kernel)
    return _behind_loads(kernel) if released.same_as(kernel) else released


def _by_producer(stmt: Stmt) -> Stmt:
    """Return ``stmt`` with a release by the producer's copying thread, once that has copied."""
    if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == ROLE_ATTR:
        return _at_end_of_branch(stmt) if str(stmt.node.value) == PRODUCER else stmt
    return with_bodies(stmt, [_by_producer(body) for body in bodies(stmt)])


def _at_end_of_branch(stmt: Stmt) -> Stmt:
    if isinstance(stmt, tirx.IfThenElse):
        inner = stmt.then_case
        nested = isinstance(inner, tirx.IfThenElse)
        return with_bodies(stmt, [_at_end_of_branch(inner) if nested else seq(inner, _release())])
    return with_bodies(stmt, [_at_end_of_branch(body) for body in bodies(stmt)])


def _behind_loads(stmt: Stmt) -> Stmt:
    """Return ``stmt`` with a release behind its last statement that loads from global memory."""
    if _is_wrapper(stmt):
        return with_bodies(stmt, [_behind_loads(body) for body in bodies(stmt)])
    if not isinstance(stmt, tirx.SeqStmt):
        return seq(stmt, _release())
    parts = list(stmt.seq)
    loading = (at for at in reversed(range(len(parts))) if _loads(parts[at]))
    last = next(loading, len(parts) - 1)
    return seq(*parts[:last], _behind_loads(parts[last]), *parts[last + 1 :])


def _loads(stmt: Stmt) -> bool:
    if issues_copies(stmt):
        return True  # cp.async reads global memory
    return any(is_global(buf) for buf in effects(stmt).buffers(READ))


def _release() -> Stmt:
    return tirx.Evaluate(T.ptx.griddepcontrol.launch_dependents())
