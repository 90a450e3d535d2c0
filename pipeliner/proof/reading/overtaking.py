"""Whether a kernel that may start early touches global memory while the one before it runs.

It does not if every thread waits for that one ahead of all else, outside of branches and loops:

    mbarriers = ..
    griddepcontrol.wait
    for k in range(n): ..        =>        as if it started behind the end of the one before

So what it does with global memory needs no judgement, as of a kernel that starts in its turn.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import ir, tirx
from tvm.ir import TensorLoad

from ...emulator.translate.operation import decode, op_name
from ...passes.ir.kernels import PDL, bodies, launch_tags
from ...passes.ir.nodes import Var, has, is_global

_RUN_BY_ALL: Final = (tirx.AttrStmt, tirx.SeqStmt)


def may_overtake(func: Any) -> bool:
    """Whether a device function may touch global memory before the kernel before has ended."""
    if PDL not in launch_tags(func):
        return False
    outside = [param for param in func.params if isinstance(param.ty, ir.PointerType)]
    return _waits_first(func.body, outside) is not True


def _waits_first(stmt: Any, outside: list[Var]) -> bool | None:
    """Whether a statement waits before it touches what is ``outside``; None: it does neither."""
    if isinstance(stmt, tirx.DeclBuffer):
        return None
    if isinstance(stmt, _RUN_BY_ALL):
        found = (_waits_first(body, outside) for body in bodies(stmt))
        return next((one for one in found if one is not None), None)
    if isinstance(stmt, tirx.Evaluate) and _waits(stmt.value):
        return True
    return False if _touches(stmt, outside) else None


def _waits(call: Any) -> bool:
    is_control = isinstance(call, ir.Call) and op_name(call) == "tirx.ptx.griddepcontrol"
    return is_control and bool(decode(call).modifiers["action"] == "wait")


def _touches(stmt: Any, outside: list[Var]) -> bool:
    """Whether a statement loads from or stores to global memory, or names a pointer to it."""
    return (
        has(stmt, TensorLoad, lambda load: is_global(load.source))
        or has(stmt, tirx.BufferStore, lambda store: is_global(store.buffer))
        or has(stmt, Var, lambda var: any(var.same_as(one) for one in outside))
    )
