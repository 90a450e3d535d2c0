"""Kernels whose CTAs synchronise at the scope of the GPU: a class with a condition of its own.

A proof runs one cluster, and what it judges is in shared memory, mbarriers and registers, which no
other cluster reaches. So releases and acquires of several clusters can change what is judged in two
ways alone:

- a thread goes another way by what it has loaded: a poll, a ticket, a flag that is tested;
- a thread waits for another cluster: at a barrier of the grid.

The first is what ``deciding`` looks for: the kernel is not proved. The second never ends where not
every CTA comes to the same barriers, so no condition or trip count around one may depend on the
number of the CTA. What they order in global memory is judged by ``verify``, not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tvm import ir, tirx

from ...diagnostics import Reason, Why
from ...emulator.translate.operation import ADDRESSES, decode, op_name
from ...passes.ir.kernels import bodies
from ...passes.ir.nodes import collect
from .deciding import Deciding
from .reaching import GRID, Reaching

_WIDE: Final = ("gpu", "sys")
_GRID_BARRIER: Final = "tirx.cuda.grid_sync"
_FENCE: Final = "tirx.cuda.thread_fence"
_FENCES: Final = ("__threadfence", "__threadfence_system")
_PTX: Final = "tirx.ptx."


def at_gpu_scope(func: Any) -> tuple[str, ...]:
    """The operations of a device function that synchronise CTAs of different clusters, by name."""
    found = {_named(call) for call in collect(func.body, ir.Call)}
    return tuple(sorted(found - {""}))


def uneven(func: Any, deciding: Deciding) -> Why:
    """Why CTAs may come to different barriers of the grid; '' where they do not."""
    reaching = Reaching(func, deciding)
    for expr in _around(func.body, ()):
        if GRID in reaching.origins(expr, with_conditions=True):
            return Reason("proof.uneven_grid_barrier", condition=str(expr))
    return ""


def _named(call: Any) -> str:
    """What an operation of the class is called; empty: a call is none."""
    name = op_name(call)
    if name in (_GRID_BARRIER, _FENCE):
        return name.removeprefix("tirx.cuda.")
    if name == "tirx.call_extern" and str(call.args[0].value) in _FENCES:
        return str(call.args[0].value)
    if not name.startswith(_PTX) or name in ADDRESSES:
        return ""
    instruction = decode(call)
    short = instruction.name
    if not short.startswith(("ld", "st", "atom", "red", "fence")) or "mbarrier" in short:
        return ""
    modifiers = instruction.modifiers
    return short if modifiers.get("scope", "") in _WIDE else ""


def _around(stmt: Any, outer: tuple[Any, ...]) -> Iterator[Any]:
    """The conditions and trip counts around each barrier of the grid."""
    if isinstance(stmt, tirx.Evaluate) and isinstance(stmt.value, ir.Call):
        if op_name(stmt.value) == _GRID_BARRIER:
            yield from outer
        return
    if isinstance(stmt, tirx.For):
        outer = (*outer, stmt.min, stmt.extent)
    elif isinstance(stmt, tirx.IfThenElse | tirx.While):
        outer = (*outer, stmt.condition)
    for part in bodies(stmt):
        yield from _around(part, outer)
