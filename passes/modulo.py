"""Modulo scheduling of one loop: cycles, stages and order for the depths that were chosen.

1. Iterative modulo scheduling (``modulo_search``) on latencies and pipes finds the initiation
interval
   II. A ring of depth D is an arc of distance D from each user to each writer; rings whose depth is
   free start without such arcs and are then narrowed while II allows.
2. The frame is rotated so that the matrix operations share the last stage where they can.
3. Producers of rings of depth D >= 2 are retimed ahead: exactly D slots are in use, and copies
start
   at the beginning of a step, so that D - 1 tiles are in flight. What they depend on moves along.
4. Ops of one step are ordered by their cycle. A load from shared memory goes before the matrix
   operation during which it is due (a warp issues in order); a wait directly before the first
   consumer of what it waits for.

Steps of the result, for tiles with and without fragments (k-steps 0..n of tile k)::

    wait(k), copies(k + D - 1), compute(k)
    copies(k + D - 1), ld_1(k), mma_0(k), ..., wait(k + 1), ld_0(k + 1), mma_n(k)
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..errors import InternalError, ScheduleRefused
from ..machine import Machine
from ..plan import EdgePlan, LoopPlan, OpPlan, RingPlan
from .ir import buffer_bytes, is_shared
from .modulo_search import Arc, Problem, rec_mii, res_mii, schedule
from .modulo_verify import verify, versions_needed
from .op_costs import op_costs
from .waits import insert_waits, wait_edges

if TYPE_CHECKING:
    import networkx as nx

_NARROWING_COST: Final = 1.125
"""A free ring loses a version if II grows by less than this factor: registers and shared memory are
worth a few cycles of latency that other warps hide anyway."""


def schedule_loop(graph: nx.MultiDiGraph, loop: Any, plan: LoopPlan, machine: Machine) -> LoopPlan:
    """``plan`` with ops, edges, rings, II and reasons filled in for ``loop`` (a For in op form).

    ``graph``: the loop's dependence graph. ``plan``: depths of the rings and costs of the
    statements. ScheduleRefused: a requested depth that the dependences do not allow.
    """
    reasons = list(plan.reasons)
    depths = _planned_depths(graph, plan, reasons)
    costs = op_costs(graph, plan, machine)
    if depths and max(depths.values()) == 1:
        done = sequential(graph, plan, costs)
        verify(graph, done)
        return done
    task = _Task(graph, costs, depths)
    caps = _narrow(task, machine, reasons)
    placed = _place(task, caps)
    _explain_interval(task, caps, placed, reasons)
    result = _plan(task, plan, placed, caps, reasons)
    try:
        verify(graph, result)
    except ScheduleRefused as err:
        raise InternalError(f"modulo schedule is illegal: {err}") from err
    _check_requests(graph, result, plan)
    if result.stages == 1 and not any(node["is_async"] for _, node in graph.nodes(data=True)):
        why = f"nothing overlaps: {result.limiter} sets an interval of {result.ii} cycles"
        return dataclasses.replace(result, pipelined=False, reasons=(*result.reasons, why))
    return result


def sequential(graph: nx.MultiDiGraph, plan: LoopPlan, costs: Sequence[OpPlan]) -> LoopPlan:
    """``plan`` in program order, one stage: nothing overlaps."""
    ops = [dataclasses.replace(op, stage=0, order=i) for i, op in enumerate(costs)]
    ordered = insert_waits(graph, ops)
    rings = tuple(_ring(graph, name, 1, plan) for name in graph.graph["rings"])
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


@dataclass(slots=True)
class _Task:
    """The loop as numbers: ops by index in program order, and arcs between them."""

    graph: Any
    costs: list[OpPlan]
    depths: Mapping[str, int]
    names: list[str] = field(init=False)
    index: dict[str, int] = field(init=False)
    arcs: list[Arc] = field(init=False)

    def __post_init__(self) -> None:
        self.names = [op.name for op in self.costs]
        self.index = {name: i for i, name in enumerate(self.names)}
        found = {
            Arc(self.index[u], self.index[v], self._delay(u, v, edge), edge["distance"])
            for u, v, edge in self.graph.edges(data=True)
        }
        self.arcs = sorted(found, key=lambda a: (a.src, a.dst, a.distance, a.delay))

    def _delay(self, src: str, dst: str, edge: Mapping[str, Any]) -> int:
        """Cycles between the starts of two ops.

        Only RAW waits for results. An accumulator is passed on element by element: the next op on
        it starts when the previous one has issued.
        """
        op, buffer = self.costs[self.index[src]], edge["buffer"]
        nodes = (self.graph.nodes[src], self.graph.nodes[dst])
        accumulates = all(buffer in n["reads"] and buffer in n["writes"] for n in nodes)
        same_pipe = op.pipe == self.costs[self.index[dst]].pipe
        if edge["kind"] != "RAW" or (accumulates and same_pipe):
            return op.occupancy
        return op.latency

    def users(self, ring: str) -> tuple[list[int], list[int]]:
        """Indices of the ops that touch a ring, and of those that write it."""
        nodes = self.graph.nodes
        writers = [i for i, name in enumerate(self.names) if ring in nodes[name]["writes"]]
        readers = [i for i, name in enumerate(self.names) if ring in nodes[name]["reads"]]
        return sorted({*writers, *readers}), writers

    def is_producer(self, op: int) -> bool:
        """Whether the op fills a ring from outside: such ops are retimed ahead."""
        node = self.graph.nodes[self.names[op]]
        return node["kind"] in ("copy", "store") or (
            node["kind"] == "load" and node["is_global_load"]
        )

    def problem(self, caps: Mapping[str, int]) -> Problem:
        """The scheduling problem with each ring of ``caps`` limited to that many versions."""
        arcs = list(self.arcs)
        for ring, depth in caps.items():
            users, writers = self.users(ring)
            for user in users:
                for writer in writers:
                    arcs.append(Arc(user, writer, self.costs[user].occupancy, depth))
        pipes = tuple(op.pipe for op in self.costs)
        return Problem(pipes, tuple(op.occupancy for op in self.costs), tuple(arcs))


@dataclass(slots=True)
class _Placed:
    interval: int
    cycles: list[int]
    stages: list[int]
    order: list[int]
    versions: dict[str, int]


def _planned_depths(graph: nx.MultiDiGraph, plan: LoopPlan, reasons: list[str]) -> dict[str, int]:
    """Depth by ring of the plan; a ring that the loop does not allow is refused or dropped."""
    depths: dict[str, int] = {}
    for ring in plan.rings:
        if ring.buffer in graph.graph["rings"]:
            depths[ring.buffer] = ring.depth
            continue
        carried = ring.buffer in graph.graph["carried"]
        why = (
            "it is read before it is written" if carried else "the loop's body does not allocate it"
        )
        if ring.requested and ring.depth > 1:
            raise ScheduleRefused(
                f"cannot give '{ring.buffer}' {ring.depth} slots in loop '{plan.name}': {why}"
            )
        reasons.append(f"'{ring.buffer}' keeps one version: {why}")
    return depths


def _narrow(task: _Task, machine: Machine, reasons: list[str]) -> dict[str, int]:
    """Versions allowed to each ring: planned depths, and for free rings as few as II permits."""
    caps = dict(task.depths)
    free = [name for name in task.graph.graph["rings"] if name not in caps]
    placed = _place(task, caps)
    interval = placed.interval
    sizes = {name: buffer_bytes(task.graph.graph["rings"][name]) or 0 for name in free}
    wide = sorted((n for n in free if placed.versions[n] > 1), key=lambda n: -sizes[n])
    if not wide:
        return caps
    # One version each if that is nearly free, else fewer versions only where they cost nothing.
    together = {**caps, **dict.fromkeys(wide, 1)}
    tried = _place(task, together)
    if tried.interval <= interval * _NARROWING_COST:
        if tried.interval > interval:
            reasons.append(
                f"{_listed(wide)} keep one version: more would make the interval {interval} "
                f"instead of {tried.interval} cycles"
            )
        return together
    for name in wide:
        for depth in range(1, placed.versions[name]):
            tried = _place(task, {**caps, name: depth})
            fits = _fits(task, name, depth + 1, machine)
            if tried.interval > interval and fits:
                continue
            caps[name] = depth
            if not fits:
                reasons.append(
                    f"'{name}' keeps {depth} version{'s' * (depth > 1)}: one more does not fit in "
                    f"{machine.smem_per_cta} bytes of shared memory"
                )
                interval = max(interval, tried.interval)
            break
    return caps


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _fits(task: _Task, name: str, depth: int, machine: Machine) -> bool:
    """Whether ``depth`` versions of a shared ring fit beside one version of all others."""
    rings = task.graph.graph["rings"]
    if not is_shared(rings[name]):
        return True
    total = 0
    for other, buf in rings.items():
        if is_shared(buf):
            count = depth if other == name else task.depths.get(other, 1)
            total += count * (buffer_bytes(buf) or 0)
    return total <= machine.smem_per_cta


def _place(task: _Task, caps: Mapping[str, int]) -> _Placed:
    """Cycles, stages and order with each ring of ``caps`` limited to that many versions."""
    problem = task.problem(caps)
    bound = max(res_mii(problem)[0], rec_mii(problem))
    early = _early(task)
    if early:
        # Early copies are placed by the depth of their rings: their latency counts in the bound,
        # and does not disturb the rest, which keeps its order also when memory sets the pace.
        core = tuple(arc for arc in problem.arcs if not {arc.src, arc.dst} & early)
        interval, starts = schedule(dataclasses.replace(problem, arcs=core))
        cycles = _framed(task, interval, starts)
        if _retime(task, interval, cycles, early):
            return _stretched(_finish(task, problem, interval, cycles, early), bound)
    interval, starts = schedule(problem)
    return _finish(task, problem, interval, _framed(task, interval, starts), set())


def _stretched(placed: _Placed, bound: int) -> _Placed:
    """The same steps at a longer interval."""
    if bound <= placed.interval:
        return placed
    cycles = [
        stage * bound + cycle % placed.interval
        for stage, cycle in zip(placed.stages, placed.cycles, strict=True)
    ]
    return dataclasses.replace(placed, interval=bound, cycles=cycles)


def _finish(
    task: _Task, problem: Problem, interval: int, cycles: list[int], early: set[int]
) -> _Placed:
    first = min(cycle // interval for cycle in cycles)
    cycles = [cycle - first * interval for cycle in cycles]
    stages = [cycle // interval for cycle in cycles]
    order = _order(task, problem, interval, cycles, stages, early)
    ops = _numbered(task, cycles, stages, order)
    draft = LoopPlan("", "", True, ops=tuple(ops))
    rings = task.graph.graph["rings"]
    versions = {name: versions_needed(task.graph, draft, name) for name in rings}
    return _Placed(interval, cycles, stages, order, versions)


def _numbered(
    task: _Task, cycles: Sequence[int], stages: Sequence[int], order: Sequence[int]
) -> list[OpPlan]:
    return [
        dataclasses.replace(task.costs[i], cycle=cycles[i], stage=stages[i], order=position)
        for position, i in enumerate(order)
    ]


def _heavy(task: _Task) -> list[int]:
    """The ops that the loop is about: matrix operations, else the longest computation."""
    mmas = [i for i, op in enumerate(task.costs) if op.kind == "mma"]
    if mmas:
        return mmas
    work = [i for i in range(len(task.costs)) if not task.is_producer(i)]
    return [max(work or range(len(task.costs)), key=lambda i: (task.costs[i].occupancy, i))]


def _framed(task: _Task, interval: int, starts: Sequence[int]) -> list[int]:
    """Cycles from the start of a step: a heavy op's, chosen for heavy ops to share few stages."""
    heavy = _heavy(task)
    others = [i for i in range(len(starts)) if not task.is_producer(i)] or heavy

    def spread(anchor: int) -> tuple[int, int, int]:
        stages = {(starts[i] - starts[anchor]) // interval for i in heavy}
        every = {(starts[i] - starts[anchor]) // interval for i in others}
        return len(stages), max(every) - min(every), starts[anchor]

    origin = starts[min(heavy, key=spread)]
    return [start - origin for start in starts]


def _deep_rings(task: _Task) -> list[tuple[int, list[int], list[int]]]:
    """(depth, readers, writers) of the planned rings that are filled ahead."""
    found: list[tuple[int, list[int], list[int]]] = []
    for ring, depth in task.depths.items():
        users, writers = task.users(ring)
        readers = [i for i in users if i not in writers]
        if depth >= 2 and readers and all(task.is_producer(i) for i in writers):
            found.append((depth, readers, writers))
    return found


def _early(task: _Task) -> set[int]:
    """The ops that start a step: what fills a deep ring, stores excepted, which come late."""
    nodes = task.graph.nodes
    writers = {i for _, _, writers in _deep_rings(task) for i in writers}
    return {i for i in writers if nodes[task.names[i]]["kind"] != "store"}


def _retime(task: _Task, interval: int, cycles: list[int], early: set[int]) -> bool:
    """Move producers ahead until their rings are full; False if dependences do not let them."""
    pinned: dict[int, int] = {}
    for depth, readers, writers in _deep_rings(task):
        stage = max(cycles[i] // interval for i in readers) + 1 - depth
        for writer in writers:
            pinned[writer] = min(stage, pinned.get(writer, stage))
    for op, stage in pinned.items():
        cycles[op] = stage * interval + (0 if op in early else cycles[op] % interval)
    return _pull(task, interval, cycles, early)


def _pull(task: _Task, interval: int, cycles: list[int], early: set[int]) -> bool:
    """Move by whole steps what the retimed producers need; False if that has no end."""
    for _ in range(len(cycles) + 1):
        moved = False
        for arc in task.arcs:
            # An early copy starts its step: its consumer only has to come later than that.
            delay = 0 if arc.src in early else arc.delay
            late = cycles[arc.src] + delay - interval * arc.distance - cycles[arc.dst]
            if late > 0:
                cycles[arc.src] -= math.ceil(late / interval) * interval
                moved = True
        if not moved:
            return True
    return False


def _order(
    task: _Task,
    problem: Problem,
    interval: int,
    cycles: Sequence[int],
    stages: Sequence[int],
    early: set[int],
) -> list[int]:
    """Ops of one step: early copies, then by cycle, loads before the mma that they run under."""
    windows = sorted(
        (cycles[i] % interval, cycles[i] % interval + task.costs[i].occupancy) for i in _heavy(task)
    )

    def key(op: int) -> tuple[int, int, int]:
        if op in early:
            return -1, 0, op
        at = cycles[op] % interval
        node = task.graph.nodes[task.names[op]]
        if node["kind"] != "load":
            return at, 1, op
        for begin, end in windows:
            if begin < at < end:
                return begin, 0, op
            if begin < at + interval < end:
                return begin - interval, 0, op
        return at, 0, op

    after: dict[int, set[int]] = {i: set() for i in range(problem.size)}
    waiting = [0] * problem.size
    for arc in problem.arcs:
        same_step = stages[arc.dst] + arc.distance == stages[arc.src]
        if same_step and arc.src != arc.dst and arc.dst not in after[arc.src]:
            after[arc.src].add(arc.dst)
            waiting[arc.dst] += 1
    ready = [key(op) for op in range(problem.size) if waiting[op] == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        op = heapq.heappop(ready)[2]
        order.append(op)
        for other in after[op]:
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, key(other))
    if len(order) != problem.size:
        raise InternalError("ops of one step wait for each other")
    return order


def _plan(
    task: _Task, plan: LoopPlan, placed: _Placed, caps: Mapping[str, int], reasons: list[str]
) -> LoopPlan:
    ops = _numbered(task, placed.cycles, placed.stages, placed.order)
    ordered = insert_waits(task.graph, ops)
    problem = task.problem(caps)
    resource, pipe = res_mii(problem)
    recurrence = rec_mii(problem)
    rings = []
    for name in task.graph.graph["rings"]:
        depth = max(placed.versions[name], task.depths.get(name, 1) if name in caps else 1)
        rings.append(_ring(task.graph, name, depth, plan, placed, task))
    return dataclasses.replace(
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
        reasons=tuple(reasons),
    )


def _limiter(task: _Task, pipe: str, resource: int, recurrence: int) -> str:
    """What sets the interval: a pipe, a recurrence of the program, or the depth of its rings."""
    if resource >= recurrence:
        return f"pipe {pipe}"
    return "recurrence" if rec_mii(task.problem({})) >= recurrence else "depth of the rings"


def _ring(
    graph: nx.MultiDiGraph,
    name: str,
    depth: int,
    plan: LoopPlan,
    placed: _Placed | None = None,
    task: _Task | None = None,
) -> RingPlan:
    buf = graph.graph["rings"][name]
    known = next((ring for ring in plan.rings if ring.buffer == name), None)
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
        slot_bytes=buffer_bytes(buf) or 0,
        producers=tuple(n for n, node in graph.nodes(data=True) if name in node["writes"]),
        consumers=tuple(n for n, node in graph.nodes(data=True) if name in node["reads"]),
        live_cycles=live,
        requested=known.requested if known is not None else False,
        reason=known.reason if known is not None else "",
    )


def register_unroll(rings: Sequence[RingPlan]) -> int:
    """Steady iterations unrolled, for register rings to be indexed by constants."""
    shared = ("shared", "global")
    return math.lcm(1, *(ring.depth for ring in rings if not ring.scope.startswith(shared)))


def edge_plans(graph: nx.MultiDiGraph, ops: Sequence[OpPlan]) -> tuple[EdgePlan, ...]:
    """The edges of the graph and those of the waits among ``ops``, as values."""
    found = {
        EdgePlan(src, dst, edge["kind"], edge["buffer"], edge["distance"])
        for src, dst, edge in graph.edges(data=True)
    }
    listed = sorted(found, key=lambda e: (e.distance, e.src, e.dst, e.kind, e.buffer))
    return (*listed, *wait_edges(graph, ops))


def _explain_interval(
    task: _Task, caps: Mapping[str, int], placed: _Placed, reasons: list[str]
) -> None:
    problem = task.problem(caps)
    resource, recurrence = res_mii(problem)[0], rec_mii(problem)
    if placed.interval > max(resource, recurrence):
        reasons.append(
            f"interval {placed.interval} instead of {max(resource, recurrence)} cycles: no "
            f"placement of {problem.size} ops on their pipes was found for less"
        )


def _check_requests(graph: nx.MultiDiGraph, result: LoopPlan, plan: LoopPlan) -> None:
    """A requested depth of a copied ring must put that many slots to use."""
    for ring in plan.rings:
        if not ring.requested or ring.depth == 1 or ring.buffer not in graph.graph["rings"]:
            continue
        copied = any(
            graph.nodes[name]["kind"] == "copy"
            for name in graph.nodes
            if ring.buffer in graph.nodes[name]["writes"]
        )
        needed = versions_needed(graph, result, ring.buffer)
        if copied and needed < ring.depth:
            raise ScheduleRefused(
                f"cannot give '{ring.buffer}' {ring.depth} slots in loop '{plan.name}': its "
                f"dependences let at most {needed} be in use"
            )
