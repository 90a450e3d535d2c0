"""Compute the dependence graph of a loop in op form.

    copy: S = A[k]       =>   copy -> use (RAW, S, distance 0)
    use:  C += S              use -> copy (WAR, S, distance 1) unless S is a ring
                              use -> use  (RAW, C, distance 1)

An edge ``u -> v`` with distance ``d`` says that ``v`` of iteration ``i + d`` must come after ``u``
of iteration ``i``. RAW, WAR and WAW edges are found for each pair of ops that touch one buffer.
Distances come from indices linear in the loop variable (``C[k]`` written, ``C[k - 2]`` read: 2); an
unknown index means every distance. A buffer that the body allocates, and writes before it reads, is
a *ring candidate*: its contents never cross iterations, so it has only edges inside one iteration.
How many slots it needs follows from the schedule.

Matrix instructions may be in flight after the op that issues them. The op that waits for them then
counts as using their operands too. Before that wait only the issuing op itself may add to the same
accumulators, in a later iteration, because tensor cores run in order.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tvm.ir import Var

from ...diagnostics import Reason
from ..analysis.effects import BOTH, READ, WRITE, Effect, Effects, effects
from ..analysis.memory import Memories, byte_span
from ..analysis.op_kinds import classify, is_global_load
from ..ir.nodes import Buffer, is_global, is_private
from ..ir.op_form import OpLoop, op_loop
from .distances import ANY, Form, Interval, intersect, linear, overlap, upto
from .privatisation import why_carried

if TYPE_CHECKING:
    import networkx as nx

_WAITS: Final = Reason("fence.in_flight")

FENCE: Final = "<fence>"
"""The ``buffer`` of edges that a barrier or an unknown call adds to everything."""

_KINDS: Final = (("RAW", WRITE, READ), ("WAR", READ, WRITE), ("WAW", WRITE, WRITE))
"""Each kind of dependence, with what its first and its second op do to the buffer."""

_MAX_PAIRS: Final = 1024
"""Most pairs of accesses compared for two ops; beyond, a buffer counts as one location."""

_Box: TypeAlias = "tuple[Form | None, ...] | None"
_Form: TypeAlias = "tuple[Effect, _Box]"


def dependence(loop: Any, threads: Mapping[Var, int] | None = None) -> nx.MultiDiGraph:
    """Return the dependence graph of ``loop``, a ``For`` in op form.

    ``threads``: the threadIdx variables around the loop with their extents (see
    ``op_form.thread_extents``). Without it any outer variable may differ between threads, which
    only adds edges.

    Nodes are ops with ``index`` (program order), ``kind``, ``reads`` and ``writes`` (buffer
    names), ``is_async`` and ``is_global_load``. Edges have ``kind``, ``buffer`` and ``distance``.
    The graph has ``rings`` (name -> buffer), ``carried`` (reasons by name, for buffers of the body
    that may carry values), ``outer`` (names of other buffers written) and ``trip``. Raises
    ValueError if the loop is not in op form.
    """
    import networkx as nx

    form = op_loop(loop)
    if form is None:
        raise ValueError(f"expected loop '{loop.loop_var.name}' in op form")
    issued = [effects(stmt) for _, stmt in form.ops]
    in_flight = _awaited(issued)
    found = _with_awaited(issued, in_flight)
    own = frozenset(form.allocs)
    reads, writes = ([op.buffers(mode) for op in found] for mode in (READ, WRITE))
    carried = {buf: why_carried(buf, form, found, threads) for buf in form.allocs}
    rings = [buf for buf, why in carried.items() if why is None]
    names = _names(form, found)
    graph = nx.MultiDiGraph()
    graph.graph.update(
        trip=form.trip,
        rings={names[buf]: buf for buf in rings},
        carried={names[buf]: why for buf, why in carried.items() if why is not None},
        outer=tuple(sorted({names[buf] for bufs in writes for buf in bufs - own})),
        threads=math.prod(threads.values()) if threads else 1,
    )
    for index, ((name, _), op) in enumerate(zip(form.ops, found, strict=True)):
        graph.add_node(
            name,
            index=index,
            kind=classify(op, own),
            reads=tuple(sorted(names[buf] for buf in reads[index])),
            writes=tuple(sorted(names[buf] for buf in writes[index])),
            is_async=op.is_async,
            is_global_load=is_global_load(op, own),
        )
    in_order = {
        (wait, op): _accumulators(issued[op]) for wait, ops in in_flight.items() for op in ops
    }
    _add_memory_edges(graph, form, found, names, rings, threads, in_order)
    _add_fences(graph, form, found)
    return graph


def _awaited(found: Sequence[Effects]) -> dict[int, list[int]]:
    """Return for each wait (by index) the ops before it in the iteration that it may end."""
    waits: dict[int, list[int]] = {}
    in_flight: list[int] = []
    for index, op in enumerate(found):
        if op.is_mma_wait and in_flight:
            waits[index] = in_flight
        in_flight = [*([] if op.is_mma_wait else in_flight), *([index] if op.in_flight else [])]
    return waits


def _with_awaited(
    found: Sequence[Effects], in_flight: Mapping[int, Sequence[int]]
) -> list[Effects]:
    """Return ``found`` with what matrix instructions in flight use added to their wait.

    A wait keeps its place if no op before it in the iteration has issued what it waits for.
    """
    return [
        _joined(op, [found[other] for other in in_flight[index]])
        if index in in_flight
        else replace(op, fence=op.fence or (_WAITS if op.is_mma_wait and not op.is_mma else None))
        for index, op in enumerate(found)
    ]


def _accumulators(op: Effects) -> set[Buffer]:
    """Return the registers that only the matrix instructions of ``op`` touch, adding to them."""
    touched = {access.buffer for access in op.accesses if is_private(access.buffer)}
    return touched - {access.buffer for access in op.accesses if access.mode != BOTH}


def _joined(wait: Effects, in_flight: Sequence[Effects]) -> Effects:
    used = [access for op in in_flight for access in op.accesses if not is_global(access.buffer)]
    known = {var: bounds for op in in_flight for var, bounds in op.locals.items()}
    return replace(wait, accesses=[*used, *wait.accesses], locals={**known, **wait.locals})


def _names(form: OpLoop, found: list[Effects]) -> dict[Buffer, str]:
    """Return a name for each buffer touched: those of the body first; namesakes get a suffix."""
    names = form.buffer_names()
    for op in found:
        for access in op.accesses:
            buf = access.buffer
            if buf in names:
                continue
            name, count = str(buf.name), 0
            while name in names.values():
                count += 1
                name = f"{buf.name}_{count}"
            names[buf] = name
    return names


def _add_memory_edges(
    graph: nx.MultiDiGraph,
    form: OpLoop,
    found: list[Effects],
    names: Mapping[Buffer, str],
    rings: list[Buffer],
    threads: Mapping[Var, int] | None,
    in_order: Mapping[tuple[int, int], Collection[Buffer]],
) -> None:
    touched: dict[Buffer, list[int]] = {}
    written: set[Buffer] = set()
    for index, op in enumerate(found):
        writes = op.buffers(WRITE)
        written |= writes
        for buf in op.buffers(READ) | writes:
            touched.setdefault(buf, []).append(index)
    fresh, ops = set(rings), form.names
    views = {buf for op in found for buf in op.viewed}
    for buf, users in touched.items():
        if buf not in written:
            continue
        if buf in fresh:  # no index of it moves with the loop
            forms = {index: _places(found[index], buf) for index in users}
        else:
            forms = {
                index: _forms(found[index], buf, form, threads, viewed=buf in views)
                for index in users
            }
        moves = any(_moves(access, form.var) for access in forms.values())
        having = {
            mode: {at: [pair for pair in forms[at] if mode in pair[0].mode] for at in users}
            for mode in (READ, WRITE)
        }
        for src in users:
            for dst in users:
                for kind, one, other in _KINDS:
                    a, b = having[one][src], having[other][dst]
                    if not a or not b or buf in in_order.get((src, dst), ()):
                        continue
                    if kind == "WAW" and ops[src].is_chunk_beside(ops[dst]):
                        continue  # of one copy, which stores every element once
                    for distance in _distances(
                        a, b, src < dst, moves, form, carried=buf not in fresh
                    ):
                        graph.add_edge(
                            ops[src],
                            ops[dst],
                            kind=kind,
                            buffer=names[buf],
                            distance=distance,
                        )


def _places(op: Effects, buf: Buffer) -> list[_Form]:
    """Return the accesses of ``buf``, each taken as one to any place in it."""
    return [(access, None) for access in op.accesses if access.buffer.same_as(buf)]


def _forms(
    op: Effects, buf: Buffer, form: OpLoop, threads: Mapping[Var, int] | None, *, viewed: bool
) -> list[_Form]:
    """Return the accesses of ``buf`` with each index as a linear form.

    Registers belong to one thread. If the buffer is ``viewed`` with another shape or type, accesses
    are compared by bytes.
    """
    private = is_private(buf) and str(buf.scope()) != "warp"
    bounds: dict[Var, tuple[int, int] | None] = dict(op.locals)
    if not private and threads is not None:
        bounds.update({var: (0, extent - 1) for var, extent in threads.items()})
    closed = private or threads is not None
    known: dict[Any, Form | None] = {}
    memory = Memories()

    def dimension(expr: Any, extent: int) -> Form | None:
        if expr not in known:
            known[expr] = linear(expr, form.var, bounds, closed)
        start = known[expr]
        return start if start is None or extent == 1 else start.plus(upto(extent - 1))

    forms: list[_Form] = []
    for access in op.accesses:
        if access.buffer.same_as(buf):
            box = access.box
            if viewed:
                span = access.bytes or byte_span(memory, buf, box)
                box = None if span is None else (span,)
            forms.append((access, None if box is None else tuple(dimension(*dim) for dim in box)))
    return forms


def _moves(forms: list[_Form], loop_var: Var) -> bool:
    """Whether some index moves with the loop; else every iteration touches the same places."""
    return any(
        dim is not None and loop_var in dim.coefficients
        for _, box in forms
        if box is not None
        for dim in box
    )


def _distances(
    first: list[_Form],
    second: list[_Form],
    in_order: bool,
    moves: bool,
    form: OpLoop,
    carried: bool,
) -> list[int]:
    """Return the distances of the edges needed: 0 if they meet in one iteration, and the least."""
    if moves and len(first) * len(second) <= _MAX_PAIRS:
        meetings = [_meeting(a, b, form.var) for _, a in first for _, b in second]
    else:
        meetings = [ANY]
    result: list[int] = []
    if in_order and any(low <= 0 <= high for low, high in meetings):
        result.append(0)
    if carried:
        later = [max(1, low) for low, high in meetings if max(1, low) <= high]
        if later and (form.trip is None or min(later) < form.trip):
            result.append(int(min(later)))
    return result


def _meeting(a: _Box, b: _Box, loop_var: Var) -> Interval:
    if a is None or b is None or len(a) != len(b):
        return ANY
    result = ANY
    for one, other in zip(a, b, strict=True):
        if one is not None and other is not None:
            result = intersect(result, overlap(one, other, loop_var))
    return result


def _add_fences(graph: nx.MultiDiGraph, form: OpLoop, found: list[Effects]) -> None:
    """Add edges that keep a fence in its place among the ops of its and neighbouring iterations."""
    for index, op in enumerate(found):
        if not op.why_fence(form.allocs):
            continue
        for other in range(len(found)):
            src, dst = sorted((index, other))
            if src != dst:
                graph.add_edge(
                    form.names[src], form.names[dst], kind="RAW", buffer=FENCE, distance=0
                )
            graph.add_edge(form.names[dst], form.names[src], kind="RAW", buffer=FENCE, distance=1)
