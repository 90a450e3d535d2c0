"""Schedule one loop modulo its initiation interval: cycles, stages and order for chosen depths.

    ops and dependences, depth 3   =>   copy: stage 0; wait, compute: stage 2; II = 480 cycles

1. Iterative modulo scheduling (``modulo_search``) on latencies and pipes finds the initiation
   interval II. A ring of depth D is an arc of distance D from each user to each writer. Rings whose
   depth is free start without such arcs and are then narrowed while II allows.
2. The frame is rotated so that the matrix operations share the last stage if they can.
3. Producers of rings of depth D >= 2 are retimed ahead, until exactly D slots are in use. Their
   copies stand early in a step, so that D - 1 tiles are in flight. What they depend on moves along.
4. Ops of one step are ordered by cycle. A load from shared memory goes before the matrix operation
   during which it is due (a warp issues in order), a wait directly before the first consumer of
   what it waits for. If matrix operations are in flight after their issue, early copies with more
   than a step to land come next, and the wait for the matrix operations ends the step: it frees the
   slots that they read. If the plan leaves matrix operations of some steps in flight, the wait is
   for those of as many steps before; copies then run that much less ahead, because slots are free
   later.

Steps of the result, for tiles with and without fragments (k-steps 0..n of tile k), and for wgmma::

    wait(k), copies(k + D - 1), compute(k)
    ld_1(k), copies(k + D - 1), mma_0(k), ..., wait(k + 1), ld_0(k + 1), mma_n(k)
    wait(k), mma(k), copies(k + D - 1), mma_wait(k)
    wait(k), mma(k), copies(k + D - 2), mma_wait(k - 1)                one in flight across steps
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ...diagnostics import Reason, Why
from ...errors import InternalError, ScheduleRefused
from ...machine import Machine
from ...plan import EdgePlan, LoopPlan, OpPlan, RingPlan
from ..ir.nodes import buffer_bytes, is_shared
from ..sync.waits import insert_waits, wait_edges
from .modulo_place import Placed, Task, numbered, place
from .modulo_search import rec_mii, res_mii
from .modulo_verify import no_ring, verify, versions_needed, why_one_version
from .op_costs import op_costs

if TYPE_CHECKING:
    import networkx as nx

_NARROWING_COST: Final = 1.125
"""Factor by which II may grow if a free ring loses a slot.

Registers and shared memory are worth a few cycles of latency, which other warps hide anyway.
"""


_REGISTER_VERSIONS: Final = 2
"""Most slots of a register ring that no plan asks for: one in use, one being filled."""


def schedule_loop(
    graph: nx.MultiDiGraph, plan: LoopPlan, machine: Machine, *, in_flight: int = 0
) -> LoopPlan:
    """Return ``plan`` of a loop in op form with ops, edges, rings, II and reasons filled in.

    ``graph``: the loop's dependence graph. ``plan``: depths of the rings and costs of the
    statements. ``in_flight``: steps whose matrix operations may be in flight when a step ends; if
    that is illegal none are, and a reason says why. Raises ScheduleRefused for a requested depth
    that the dependences do not allow.
    """
    reasons = list(plan.reasons)
    depths = planned_depths(graph, plan, reasons)
    costs = op_costs(graph, plan, machine)
    nothing = plan.source == "request" and not plan.rings  # one slot was asked for
    if nothing or (depths and max(depths.values()) == 1):
        done = sequential(graph, plan, costs)
        verify(graph, done)
        return done
    task = Task(graph, costs, depths, in_flight)
    caps = _narrow(task, machine, reasons)
    placed = place(task, caps)
    _explain_interval(task, caps, placed, reasons)
    _explain_running(task, placed, reasons)
    result = _plan(task, plan, placed, caps, reasons)
    try:
        verify(graph, result)
    except ScheduleRefused as err:
        if in_flight:
            why = Reason("schedule.none_in_flight", why=err.reason)
            again = dataclasses.replace(plan, reasons=(*plan.reasons, why))
            return schedule_loop(graph, again, machine)
        if err.reason.code == "schedule.left_in_flight":
            raise  # matmuls that wait for one another at the end of several stages
        raise InternalError(f"modulo schedule is illegal: {err}") from err
    _check_requests(graph, result, plan)
    if result.stages == 1 and not any(node["is_async"] for _, node in graph.nodes(data=True)):
        why = Reason("schedule.nothing_overlaps", limiter=result.limiter, ii=result.ii)
        return dataclasses.replace(result, pipelined=False, reasons=(*result.reasons, why))
    return result


def sequential(graph: nx.MultiDiGraph, plan: LoopPlan, costs: Sequence[OpPlan]) -> LoopPlan:
    """Return ``plan`` in program order with one stage: nothing overlaps."""
    ops = [dataclasses.replace(op, stage=0, order=i) for i, op in enumerate(costs)]
    ordered = insert_waits(graph, ops)
    rings = tuple(ring_plan(graph, name, 1, plan) for name in graph.graph["rings"])
    total = sum(op.latency for op in costs)
    return dataclasses.replace(
        plan,
        pipelined=True,
        ops=tuple(ordered),
        edges=edge_plans(graph, ordered),
        rings=rings,
        ii=total,
        res_mii=total,
        rec_mii=total,
        limiter="depth 1",
        unroll=1,
    )


def planned_depths(graph: nx.MultiDiGraph, plan: LoopPlan, reasons: list[Why]) -> dict[str, int]:
    """Return the plan's depth of each ring; an impossible ring is refused or dropped."""
    depths: dict[str, int] = {}
    for ring in plan.rings:
        if ring.buffer in graph.graph["rings"]:
            depths[ring.buffer] = ring.depth
            continue
        if ring.requested and ring.depth > 1:
            raise no_ring(graph, plan, ring.buffer, ring.depth)
        why = why_one_version(graph, ring.buffer)
        reasons.append(Reason("version.kept", buffer=ring.buffer, why=why))
    return depths


def _narrow(task: Task, machine: Machine, reasons: list[Why]) -> dict[str, int]:
    """Return the slots allowed to each ring: planned depths; else as few as II permits."""
    free = [name for name in task.graph.graph["rings"] if name not in task.depths]
    caps = {**task.depths, **_register_limits(task, free, reasons)}
    placed = place(task, caps)
    interval = placed.interval
    sizes = {name: buffer_bytes(task.graph.graph["rings"][name]) or 0 for name in free}
    wide = sorted((n for n in free if placed.versions[n] > 1), key=lambda n: -sizes[n])
    if not wide:
        return caps
    # One version each if that is nearly free, else fewer versions only where they cost nothing.
    together = {**caps, **dict.fromkeys(wide, 1)}
    tried = place(task, together)
    if tried.interval <= interval * _NARROWING_COST:
        if tried.interval > interval:
            why = {"wide": interval, "interval": tried.interval}
            reasons.append(Reason("schedule.narrowed", buffers=tuple(wide), **why))
        return together
    for name in wide:
        for depth in range(1, placed.versions[name]):
            tried = place(task, {**caps, name: depth})
            fits = _fits(task, name, depth + 1, machine)
            if tried.interval > interval and fits:
                continue
            caps[name] = depth
            if not fits:
                room = machine.smem_per_cta
                reasons.append(Reason("schedule.no_room", buffer=name, versions=depth, nbytes=room))
                interval = max(interval, tried.interval)
            break
    return caps


def _register_limits(task: Task, free: Sequence[str], reasons: list[Why]) -> dict[str, int]:
    """Return the most slots of free register rings, each of which unrolls the loop further.

    A tile that is staged from global to shared memory stays in registers for one step. Going deeper
    is for slots of shared memory, or for a plan that says so.
    """
    limits: dict[str, int] = {}
    for name in free:
        if not is_register(str(task.graph.graph["rings"][name].scope())):
            continue
        staged = any(task.is_producer(writer) for writer in task.users(name)[1])
        limits[name] = 1 if staged else _REGISTER_VERSIONS
    bound, limited = (
        rec_mii(problem, res_mii(problem)[0])
        for problem in (task.problem(task.depths), task.problem({**task.depths, **limits}))
    )
    if limited > bound:
        reasons.append(
            Reason(
                "schedule.registers",
                versions=max(limits.values()),
                buffers=tuple(limits),
                wide=bound,
                interval=limited,
            )
        )
    return limits


def _fits(task: Task, name: str, depth: int, machine: Machine) -> bool:
    """Whether ``depth`` slots of a shared ring fit beside one slot of all others."""
    rings = task.graph.graph["rings"]
    if not is_shared(rings[name]):
        return True
    total = 0
    for other, buf in rings.items():
        if is_shared(buf):
            count = depth if other == name else task.depths.get(other, 1)
            total += count * (buffer_bytes(buf) or 0)
    return total <= machine.smem_per_cta


def _plan(
    task: Task, plan: LoopPlan, placed: Placed, caps: Mapping[str, int], reasons: list[Why]
) -> LoopPlan:
    ops = numbered(task, placed.cycles, placed.stages, placed.order)
    ordered = insert_waits(task.graph, ops)
    problem = task.problem(caps)
    resource, pipe = res_mii(problem)
    recurrence = rec_mii(problem)
    rings = []
    for name in task.graph.graph["rings"]:
        depth = max(placed.versions[name], task.depths.get(name, 1) if name in caps else 1)
        rings.append(ring_plan(task.graph, name, depth, plan, placed, task))
    result = dataclasses.replace(
        plan,
        pipelined=True,
        ops=tuple(ordered),
        edges=edge_plans(task.graph, ordered),
        rings=tuple(rings),
        ii=placed.interval,
        res_mii=resource,
        rec_mii=recurrence,
        limiter=_limiter(task, pipe, resource, recurrence),
        unroll=register_unroll(rings),
    )
    return dataclasses.replace(result, reasons=tuple(reasons))


def _limiter(task: Task, pipe: str, resource: int, recurrence: int) -> str:
    """Return what sets the interval: a pipe, a recurrence of the program, or a ring's depth."""
    if resource >= recurrence:
        return f"pipe {pipe}"
    own = rec_mii(task.problem({}), resource)
    return "recurrence" if own >= recurrence else "depth of the rings"


def ring_plan(
    graph: nx.MultiDiGraph,
    name: str,
    depth: int,
    plan: LoopPlan,
    placed: Placed | None = None,
    task: Task | None = None,
) -> RingPlan:
    """Return the ring ``name`` with ``depth`` slots, where ``placed`` has put those that use it."""
    buf = graph.graph["rings"][name]
    known = next((ring for ring in plan.rings if ring.buffer == name), None)
    # A register ring is planned by what all threads load; a tile by what it takes on that GPU.
    tile = str(buf.scope()).startswith("shared")
    live = 0
    if placed is not None and task is not None:
        users, writers = task.users(name)
        starts = [placed.cycles[i] for i in writers] or [0]
        ends = [placed.cycles[i] + task.costs[i].occupancy for i in users] or [0]
        live = max(0, max(ends) - min(starts))
    return RingPlan(
        buffer=name,
        scope=str(buf.scope()) or "global",
        depth=depth,
        slot_bytes=known.slot_bytes if known and tile else buffer_bytes(buf) or 0,
        producers=tuple(n for n, node in graph.nodes(data=True) if name in node["writes"]),
        consumers=tuple(n for n, node in graph.nodes(data=True) if name in node["reads"]),
        live_cycles=live,
        requested=known.requested if known is not None else False,
        reason=known.reason if known is not None else "",
    )


def is_register(scope: str) -> bool:
    """Whether buffers of this scope are in registers, where slots must be constants."""
    return not scope.startswith("shared") and scope not in ("", "global")


def register_unroll(rings: Sequence[RingPlan]) -> int:
    """Return how often the steady loop is unrolled so that register rings have constant slots."""
    return math.lcm(1, *(ring.depth for ring in rings if is_register(ring.scope)))


def edge_plans(
    graph: nx.MultiDiGraph, ops: Sequence[OpPlan], *, in_groups: bool = True
) -> tuple[EdgePlan, ...]:
    """Return the edges of the graph and those of the waits among ``ops``, as values.

    ``in_groups``: as for ``insert_waits``.
    """
    found = {
        EdgePlan(src, dst, edge["kind"], edge["buffer"], edge["distance"])
        for src, dst, edge in graph.edges(data=True)
    }
    listed = sorted(found, key=lambda e: (e.distance, e.src, e.dst, e.kind, e.buffer))
    return (*listed, *wait_edges(graph, ops, in_groups=in_groups))


def _explain_interval(
    task: Task, caps: Mapping[str, int], placed: Placed, reasons: list[Why]
) -> None:
    problem = task.problem(caps)
    bound = rec_mii(problem, res_mii(problem)[0])
    if placed.interval > bound:
        found = {"interval": placed.interval, "bound": bound, "ops": problem.size}
        reasons.append(Reason("schedule.interval", **found))


def _explain_running(task: Task, placed: Placed, reasons: list[Why]) -> None:
    """Add the reason for where copies stand in a step that leaves matrix operations in flight."""
    mmas = [mma for running in task.running().values() for mma in running]
    copies = [i for i, op in enumerate(task.costs) if task.is_producer(i) and op.kind != "store"]
    ahead = [placed.stages[mma] - placed.stages[copy] for mma in mmas for copy in copies]
    if not ahead or max(ahead) == 0:
        return
    if all(placed.order.index(copy) < placed.order.index(mmas[0]) for copy in copies):
        reasons.append(Reason("schedule.copies_first"))
    else:
        reasons.append(Reason("schedule.copies_under", steps=min(ahead)))
    if task.in_flight:
        steps = task.in_flight
        reasons.append(Reason("schedule.wgmma_in_flight", steps=steps, refilled=steps + 1))


def slots_used(graph: nx.MultiDiGraph, plan: LoopPlan, buffer: str) -> int | None:
    """Return how many slots of ring ``buffer`` the schedule uses; None if no copy fills it.

    Copies behind the reads of their step could reuse the slot just read. With one more slot they
    need no barrier between the two, so that slot is used, too.
    """
    placed = [(node, plan.op(name).stage) for name, node in graph.nodes(data=True)]
    writers = [(node, stage) for node, stage in placed if buffer in node["writes"]]
    readers = [stage for node, stage in placed if buffer in node["reads"]]
    if not any(node["kind"] == "copy" for node, _ in writers):
        return None
    ahead = max(readers, default=0) - min(stage for _, stage in writers) + 1
    return max(versions_needed(graph, plan, buffer), ahead)


def _check_requests(graph: nx.MultiDiGraph, result: LoopPlan, plan: LoopPlan) -> None:
    """Raise ScheduleRefused if a requested depth of a copied ring leaves slots unused."""
    for ring in plan.rings:
        if not ring.requested or ring.depth == 1 or ring.buffer not in graph.graph["rings"]:
            continue
        needed = slots_used(graph, result, ring.buffer)
        if needed is not None and needed < ring.depth:
            why = Reason("ring.unused", used=needed)
            raise ScheduleRefused(
                "ring.slots", buffer=ring.buffer, slots=ring.depth, loop=plan.name, why=why
            )
