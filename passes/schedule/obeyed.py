"""Obey a plan that was handed in, in every field, or refuse it in one line.

    check_given        the plan against the function, before anything is transformed
    scheduled_as       a loop's schedule against its dependence graph; what follows is recomputed
    check_obeyed       the plan that was carried out against the one that was handed in

What a plan decides is taken. Everything else is recomputed from that and from the function, and a
plan that says otherwise is refused. So no field of it can be wrong and pass, whoever wrote it.
Fields that follow from others may be left empty: a loop's edges (it is then scheduled anew),
mbarriers, the arena, the barriers.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ...choice.again import remade, with_prediction
from ...choice.k_tail import check_skips
from ...errors import PlanError
from ...machine import Machine
from ...plan import KernelPlan, LoopPlan, OpPlan, RingPlan, SmemPlan, SyncPlan
from ...plan.comparing import FREE, WORDS, difference
from ...plan.request import Request
from ...values.facts import KernelInfo
from ..ir.nodes import buffer_bytes
from .code_size import check_size, check_slots
from .modulo import edge_plans, register_unroll
from .modulo_verify import verify
from .op_costs import op_costs

if TYPE_CHECKING:
    import networkx as nx

_SCHEDULE: Final = frozenset({"ops", "edges", "rings", "unroll"})
"""Fields of a loop that follow from its schedule."""

_FOLLOWS: Final = ("mbarriers", "smem", "sync")
"""Fields of a plan that may be left empty."""


def check_given(request: Request, info: KernelInfo, machine: Machine) -> KernelPlan:
    """Return the plan of ``request``, recomputed from what it decides, not scheduled yet.

    Raises PlanError with the first field that the function cannot have, or must have otherwise.
    """
    given = request.plan
    assert given is not None
    if replace(request, plan=None) != Request():
        asked = tuple(replace(request, plan=None).as_dict())
        raise PlanError("obeyed.asked", kernel=given.kernel, options=asked)
    for loop in given.loops:
        check_slots(loop)
        check_size(loop)
    base = remade(info, machine, given)
    filled = _filled(given, base)
    _compare(filled, replace(base, smem=filled.smem, sync=filled.sync), FREE | _SCHEDULE)
    check_skips(given, info)
    return base


def is_scheduled(loop: LoopPlan) -> bool:
    """Whether a given plan has a schedule for ``loop``, and not only its depths."""
    return loop.pipelined and (bool(loop.edges) or loop.source == "edited")


def scheduled_as(
    graph: nx.MultiDiGraph,
    given: LoopPlan,
    base: LoopPlan,
    machine: Machine,
    *,
    in_groups: bool = True,
) -> LoopPlan:
    """Return the loop with the stages, order and depths of ``given``, and all that follows.

    ``base``: the loop recomputed without a schedule. ``in_groups``: as for ``insert_waits``.
    Raises ScheduleRefused if the schedule is illegal.
    """
    known = {op.name: op for op in op_costs(graph, base, machine)}
    ops = tuple(_op(op, known.get(op.name)) for op in sorted(given.ops, key=lambda op: op.order))
    depths = {ring.buffer: ring for ring in given.rings}
    sizes = {ring.buffer: ring.slot_bytes for ring in base.rings}
    rings = tuple(
        RingPlan(
            buffer=name,
            scope=str(buf.scope()) or "global",
            depth=depths[name].depth if name in depths else 1,
            slot_bytes=sizes[name]
            if name in sizes and str(buf.scope()).startswith("shared")
            else buffer_bytes(buf) or 0,
            producers=tuple(n for n, node in graph.nodes(data=True) if name in node["writes"]),
            consumers=tuple(n for n, node in graph.nodes(data=True) if name in node["reads"]),
            live_cycles=depths[name].live_cycles if name in depths else 0,
            requested=name in depths and depths[name].requested,
        )
        for name, buf in graph.graph["rings"].items()
    )
    made = replace(given, ops=ops, rings=rings, edges=given.edges, unroll=register_unroll(rings))
    check_size(made)
    verify(graph, replace(made, ii=0, rings=given.rings))
    made = replace(made, edges=edge_plans(graph, ops, in_groups=in_groups))
    return _in_model_time(made)


def check_obeyed(
    given: KernelPlan, made: KernelPlan, info: KernelInfo, machine: Machine
) -> KernelPlan:
    """Return ``made`` with the texts of ``given``; raise PlanError for a field that differs."""
    loops = {loop.name: loop for loop in made.loops}
    anew = [loop for loop in given.loops if loop.pipelined and not is_scheduled(loop)]
    for loop in anew:
        if loop.name in loops:
            _compare_depths(given, loop, loops[loop.name])
    free = {loop.name for loop in anew}
    expected = replace(
        _filled(given, made),
        loops=tuple(loops.get(one.name, one) if one.name in free else one for one in given.loops),
        matmuls=tuple(map(_with_flight, given.matmuls, made.matmuls)) if anew else given.matmuls,
    )
    _compare(expected, made, FREE)
    done = _with_words(made, given)
    return with_prediction(info, machine, done)


def _filled(given: KernelPlan, made: KernelPlan) -> KernelPlan:
    """Return ``given`` with mbarriers, arena and barriers taken from ``made`` if left empty."""
    return replace(
        given,
        mbarriers=given.mbarriers or made.mbarriers,
        smem=given.smem if given.smem != SmemPlan() else made.smem,
        sync=given.sync if given.sync != SyncPlan() else made.sync,
    )


def _compare(given: KernelPlan, made: KernelPlan, skip: frozenset[str]) -> None:
    found = difference(given, made, "plan", skip)
    if found is None:
        return
    part = str(found["where"]).split(".")[1].partition("[")[0]
    if part in _FOLLOWS:
        raise PlanError("obeyed.follows", kernel=given.kernel, difference=found, field=part)
    raise PlanError("obeyed.differs", kernel=given.kernel, difference=found)


def _compare_depths(given: KernelPlan, loop: LoopPlan, made: LoopPlan) -> None:
    """Raise PlanError if a loop scheduled anew is not what ``loop`` of ``given`` asks for."""
    where = {"kernel": given.kernel, "loop": loop.name}
    if not made.pipelined:
        raise PlanError("obeyed.not_pipelined", **where, why=made.reasons[-1:])
    depths = {ring.buffer: ring.depth for ring in made.rings}
    for ring in loop.rings:
        found = depths.get(ring.buffer, 1)
        if found != ring.depth:
            slots = {"slots": found, "planned": ring.depth}
            raise PlanError("obeyed.slots", **where, buffer=ring.buffer, **slots)
    for name in ("name", "trip", "epilogue", "source"):
        one, other = getattr(loop, name), getattr(made, name)
        if one != other:
            raise PlanError("obeyed.field", **where, field=name, planned=one, made=other)


def _with_flight(given: Any, made: Any) -> Any:
    """Return a matmul of a loop scheduled anew with what that leaves in flight."""
    return replace(given, in_flight=made.in_flight)


def _with_words(made: Any, given: Any) -> Any:
    """Return ``made`` with the texts that ``given`` has for the same fields."""
    if dataclasses.is_dataclass(made) and type(made) is type(given):
        value: Any = made
        return replace(
            value,
            **{
                field.name: getattr(given, field.name)
                if field.name in WORDS
                else _with_words(getattr(made, field.name), getattr(given, field.name))
                for field in dataclasses.fields(made)
            },
        )
    if isinstance(made, tuple) and isinstance(given, tuple) and len(made) == len(given):
        return tuple(map(_with_words, made, given))
    return made


def _op(given: OpPlan, cost: OpPlan | None) -> OpPlan:
    """Return ``given`` at its place, with its cost and kind; ``cost`` is None for a wait."""
    awaited = given.name.of
    same = OpPlan(given.name, given.kind, awaited, "sync", 1, 1) if cost is None else cost
    return replace(
        same,
        cycle=given.cycle,
        stage=given.stage,
        order=given.order,
        skips_k_tail=given.skips_k_tail,
    )


def _in_model_time(loop: LoopPlan) -> LoopPlan:
    """Return ``loop``, without cycles if its stages are no longer those of its cycles."""
    load: dict[str, int] = {}
    for op in loop.ops:
        if op.pipe != "sync":
            load[op.pipe] = load.get(op.pipe, 0) + op.occupancy
    holds = loop.ii >= max(load.values(), default=0)
    if loop.ii > 0 and holds and all(op.stage == op.cycle // loop.ii for op in loop.ops):
        return loop
    return replace(
        loop,
        ops=tuple(replace(op, cycle=0) for op in loop.ops),
        rings=tuple(replace(ring, live_cycles=0) for ring in loop.rings),
        ii=0,
        res_mii=0,
        rec_mii=0,
        limiter="",
    )
