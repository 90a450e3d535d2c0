"""Find loops whose copies may not read their last tile once more, because something writes it.

    for t: S[tx] = A[t, tx]; A[t, tx] = S[63 - tx]    the loop itself writes what it copies
    for t: S[tx] = A[t, tx]; C[t, tx] = S[63 - tx]    a call may give one array as A and as C

In a clamped epilogue copies past the end repeat the tile of the last iteration. Their result is not
read, but they race with whoever writes the tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...diagnostics import Reason, Why
from ...values.facts import CopyInfo, LoopInfo
from ..analysis.effects import WRITE, effects
from ..ir.op_form import OpLoop, op_loops, thread_extents
from .graph import dependence
from .overlap import used_in_place


def overwritten(loops: Sequence[LoopInfo], func: Any, body: Any) -> tuple[LoopInfo, ...]:
    """Return ``loops`` of ``body``, in op form, with what is written that their copies read.

    ``func``: the function, whose attributes say which parameters may be one array.
    """
    given = used_in_place(func)
    forms = {str(form.var.name): form for form in op_loops(body)}
    threads = thread_extents(body)

    def told(loop: LoopInfo) -> LoopInfo:
        copies = {op.op: op.src for op in loop.ops if isinstance(op, CopyInfo)}
        read = next((name for name in copies.values() if name in given), None)
        if read is not None:
            why = Reason("clamp.aliased", read=read, written=given[read])
            return replace(loop, overwritten=why)
        return replace(loop, overwritten=_in_loop(forms[loop.name], copies, threads))

    return tuple(map(told, loops))


def _in_loop(form: OpLoop, copies: dict[str, str], threads: Any) -> Why:
    """Return what the loop writes that one of its ``copies``, by name, reads; or nothing."""
    if not copies:
        return ""
    found = {name: effects(stmt) for name, stmt in form.ops}
    fences = {name: op.why_fence(form.allocs) for name, op in found.items()}
    for name, why in fences.items():
        if why is not None:
            return Reason("clamp.fence", op=name, fence=why)
    written = {str(buf.name) for op in found.values() for buf in op.buffers(WRITE)}
    if written.isdisjoint(copies.values()):
        return ""
    for src, dst, edge in dependence(form.node, threads).edges(data=True):
        copy, writer = (src, dst) if edge["kind"] == "WAR" else (dst, src)
        if edge["kind"] != "WAW" and copies.get(copy) == edge["buffer"]:
            return Reason("clamp.written", writer=writer, buffer=edge["buffer"], copy=copy)
    return ""
