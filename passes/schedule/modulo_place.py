"""Place the ops of one loop for given slots of its rings: cycles, stages, and order of a step.

    slots: A_shared 3     =>   II, a start cycle and a stage for each op, and the order of a step

The rules are those of ``modulo``, which decides how many slots each ring may have.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import InternalError
from ...plan import LoopPlan, OpPlan
from ...values.op import Op
from .modulo_search import Arc, ModuloProblem, rec_mii, res_mii, schedule
from .modulo_verify import versions_needed


@dataclass(slots=True)
class Task:
    """The loop as numbers: ops by index in program order, and arcs between them.

    ``in_flight``: steps of matrix operations that each wait for them leaves in flight.
    """

    graph: Any
    costs: list[OpPlan]
    depths: Mapping[str, int]
    in_flight: int = 0
    names: list[Op] = field(init=False)
    index: dict[Op, int] = field(init=False)
    nodes: dict[Op, Mapping[str, Any]] = field(init=False)
    arcs: list[Arc] = field(init=False)
    _users: dict[str, tuple[list[int], list[int]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.names = [op.name for op in self.costs]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.nodes = dict(self.graph.nodes(data=True))
        found = {
            (self.index[u], self.index[v], edge["distance"], self._delay(u, v, edge))
            for u, v, edge in self.graph.edges(data=True)
        }
        self.arcs = [Arc(src, dst, delay, far) for src, dst, far, delay in sorted(found)]

    def _delay(self, src: Op, dst: Op, edge: Mapping[str, Any]) -> int:
        """Return the cycles between the starts of two ops.

        Only RAW waits for results. An accumulator is passed on element by element: the next op on
        it starts when the previous one has issued. A wait for what is in flight may begin at once.
        """
        if self.nodes[dst]["kind"] == "mma_wait":
            return 0
        op, buffer = self.costs[self.index[src]], edge["buffer"]
        nodes = (self.nodes[src], self.nodes[dst])
        accumulates = all(buffer in n["reads"] and buffer in n["writes"] for n in nodes)
        same_pipe = op.pipe == self.costs[self.index[dst]].pipe
        if edge["kind"] != "RAW" or (accumulates and same_pipe):
            return op.occupancy
        return op.latency

    def users(self, ring: str) -> tuple[list[int], list[int]]:
        """Return the indices of the ops that touch a ring, and of those that write it."""
        if ring not in self._users:
            nodes = [self.nodes[name] for name in self.names]
            writers = [i for i, node in enumerate(nodes) if ring in node["writes"]]
            readers = [i for i, node in enumerate(nodes) if ring in node["reads"]]
            self._users[ring] = sorted({*writers, *readers}), writers
        return self._users[ring]

    def running(self) -> dict[int, list[int]]:
        """Return what is in flight after its issue, by the op that waits for it."""
        found: dict[int, list[int]] = {}
        for src, dst, edge in self.graph.edges(data=True):
            waits = self.nodes[dst]["kind"] == "mma_wait" and self.nodes[src]["kind"] == "mma"
            if waits and edge["kind"] == "RAW" and edge["distance"] == 0:
                found.setdefault(self.index[dst], []).append(self.index[src])
        return found

    def is_producer(self, op: int) -> bool:
        """Whether the op fills a ring from outside; such ops are retimed ahead."""
        node = self.nodes[self.names[op]]
        return node["kind"] in ("copy", "store") or (
            node["kind"] == "load" and node["is_global_load"]
        )

    def problem(self, caps: Mapping[str, int]) -> ModuloProblem:
        """Return the scheduling problem with each ring of ``caps`` limited to that many slots."""
        arcs = list(self.arcs)
        for ring, depth in caps.items():
            users, writers = self.users(ring)
            for user in users:
                for writer in writers:
                    arcs.append(Arc(user, writer, self.costs[user].occupancy, depth))
        pipes = tuple(op.pipe for op in self.costs)
        return ModuloProblem(pipes, tuple(op.occupancy for op in self.costs), tuple(arcs))


@dataclass(slots=True)
class Placed:
    """A schedule by op index, but ``order`` lists the ops of a step, ``versions`` is by ring."""

    interval: int
    cycles: list[int]
    stages: list[int]
    order: list[int]
    versions: dict[str, int]


def place(task: Task, caps: Mapping[str, int]) -> Placed:
    """Return cycles, stages and order with each ring of ``caps`` limited to that many slots."""
    problem = task.problem(caps)
    bound = rec_mii(problem, res_mii(problem)[0])
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


def _stretched(placed: Placed, bound: int) -> Placed:
    """Return the same steps at a longer interval."""
    if bound <= placed.interval:
        return placed
    cycles = [
        stage * bound + cycle % placed.interval
        for stage, cycle in zip(placed.stages, placed.cycles, strict=True)
    ]
    return dataclasses.replace(placed, interval=bound, cycles=cycles)


def _finish(
    task: Task, problem: ModuloProblem, interval: int, cycles: list[int], early: set[int]
) -> Placed:
    first = min(cycle // interval for cycle in cycles)
    cycles = [cycle - first * interval for cycle in cycles]
    stages = [cycle // interval for cycle in cycles]
    order = _order(problem, stages, _places(task, interval, cycles, stages, early))
    ops = numbered(task, cycles, stages, order)
    draft = LoopPlan("", "", True, ops=tuple(ops))
    rings = task.graph.graph["rings"]
    versions = {name: versions_needed(task.graph, draft, name) for name in rings}
    return Placed(interval, cycles, stages, order, versions)


def numbered(
    task: Task, cycles: Sequence[int], stages: Sequence[int], order: Sequence[int]
) -> list[OpPlan]:
    """Return the ops in the order of a step, with their cycles and stages."""
    return [
        dataclasses.replace(task.costs[i], cycle=cycles[i], stage=stages[i], order=position)
        for position, i in enumerate(order)
    ]


def _heavy(task: Task) -> list[int]:
    """Return the matrix operations, or without any the longest computations."""
    mmas = [i for i, op in enumerate(task.costs) if op.kind == "mma"]
    if mmas:
        return mmas
    work = [i for i in range(len(task.costs)) if not task.is_producer(i)]
    work = work or list(range(len(task.costs)))
    longest = max(task.costs[i].occupancy for i in work)
    return [i for i in work if 2 * task.costs[i].occupancy > longest]


def _framed(task: Task, interval: int, starts: Sequence[int]) -> list[int]:
    """Return cycles counted from a heavy op, chosen so that heavy ops share few stages."""
    heavy = _heavy(task)
    others = [i for i in range(len(starts)) if not task.is_producer(i)] or heavy

    def spread(anchor: int) -> tuple[int, int, int]:
        stages = {(starts[i] - starts[anchor]) // interval for i in heavy}
        every = {(starts[i] - starts[anchor]) // interval for i in others}
        return len(stages), max(every) - min(every), starts[anchor]

    origin = starts[min(heavy, key=spread)]
    return _ended(task, interval, [start - origin for start in starts])


def _ended(task: Task, interval: int, cycles: list[int]) -> list[int]:
    """Return ``cycles`` with waits for matrix operations in flight at the end of a step."""
    for done, mmas in task.running().items():
        stage = max(cycles[mma] // interval for mma in mmas) + task.in_flight
        cycles[done] = (stage + 1) * interval - 1
    return cycles


def _deep_rings(task: Task) -> list[tuple[int, list[int], list[int]]]:
    """Return (depth, readers, writers) of the planned rings that are filled ahead."""
    found: list[tuple[int, list[int], list[int]]] = []
    for ring, depth in task.depths.items():
        users, writers = task.users(ring)
        readers = [i for i in users if i not in writers]
        if depth >= 2 and readers and all(task.is_producer(i) for i in writers):
            found.append((depth, readers, writers))
    return found


def _early(task: Task) -> set[int]:
    """Return the ops that start a step: those that fill a deep ring, except stores."""
    writers = {i for _, _, writers in _deep_rings(task) for i in writers}
    return {i for i in writers if task.nodes[task.names[i]]["kind"] != "store"}


def _retime(task: Task, interval: int, cycles: list[int], early: set[int]) -> bool:
    """Move producers ahead until their rings are full; False if dependences do not allow it.

    What a producer needs moves ahead with it. Where that reads another ring, such as the first of
    two matmuls, the producers of that ring follow, unless they wait for it themselves.
    """
    _move(interval, cycles, early, _full(task, interval, cycles))
    if not _pull(task, interval, cycles, early):
        return False
    once = list(cycles)
    for _ in cycles:
        full = _full(task, interval, cycles)
        late = {op: stage for op, stage in full.items() if cycles[op] // interval > stage}
        if not late:
            return True
        _move(interval, cycles, early, late)
        if not _pull(task, interval, cycles, early):
            break
    cycles[:] = once
    return True


def _full(task: Task, interval: int, cycles: Sequence[int]) -> dict[int, int]:
    """Return the stage of each producer in which all slots of its rings are used."""
    found: dict[int, int] = {}
    for depth, readers, writers in _deep_rings(task):
        stage = max(cycles[i] // interval for i in readers) + 1 - depth
        for writer in writers:
            found[writer] = min(stage, found.get(writer, stage))
    return found


def _move(interval: int, cycles: list[int], early: set[int], stages: Mapping[int, int]) -> None:
    """Move ops to ``stages``: early ones to the start of a step, others keep their place in it."""
    for op, stage in stages.items():
        cycles[op] = stage * interval + (0 if op in early else cycles[op] % interval)


def _pull(task: Task, interval: int, cycles: list[int], early: set[int]) -> bool:
    """Move by whole steps what the retimed producers need; False if that does not end."""
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
    problem: ModuloProblem, stages: Sequence[int], places: Sequence[tuple[int, int, int]]
) -> list[int]:
    """Return the ops of one step in the order of ``places``, unless one waits for another."""
    after: dict[int, set[int]] = {op: set() for op in range(problem.size)}
    waiting = [0] * problem.size
    for arc in problem.arcs:
        same_step = stages[arc.dst] + arc.distance == stages[arc.src]
        if same_step and arc.src != arc.dst and arc.dst not in after[arc.src]:
            after[arc.src].add(arc.dst)
            waiting[arc.dst] += 1
    ready = [(places[op], op) for op in range(problem.size) if waiting[op] == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, op = heapq.heappop(ready)
        order.append(op)
        for other in after[op]:
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, (places[other], other))
    if len(order) != problem.size:
        raise InternalError("ops of one step wait for each other")
    return order


def _places(
    task: Task, interval: int, cycles: Sequence[int], stages: Sequence[int], early: set[int]
) -> list[tuple[int, int, int]]:
    """Return sort keys for the ops of one step: by cycle, loads before the mma that covers them.

    If such loads begin a step, the early copies are spread over the mmas. On tensor cores they go
    behind the loads that an mma covers, so that their addresses are computed under it. On the FMA
    pipe they go before those loads, where they disturb the stream of FMAs less. Behind mmas in
    flight they are issued while tensor cores work, unless they are due in the next step. In all
    other cases they come first.

    Register-staged tiles are stored before later ones are loaded if some are masked: ptxas waits by
    six counters, so a store behind a load waits for that too, and code that branches stays where it
    is. Measured on an H100: 1.07x on average over 63 masked tiles, 1.48x at most and 0.82x at least
    (fp32, where ptxas then makes more bank conflicts); 0.98x over 68 tiles that are not masked.
    """
    windows = sorted(
        (cycles[i] % interval, cycles[i] % interval + task.costs[i].occupancy) for i in _heavy(task)
    )

    def window(op: int) -> int:
        """When the mma starts that a load runs under; else its own cycle."""
        at = cycles[op] % interval
        for begin, end in windows:
            if begin < at < end:
                return begin
            if begin < at + interval < end:
                return begin - interval
        return at

    ops = range(len(task.names))
    kinds = [task.nodes[name]["kind"] for name in task.names]
    loads = {op for op in ops if kinds[op] == "load" and op not in early}
    begins = [begin for begin, _ in windows][:-2]  # some load must follow: it needs the last slot
    if not begins or all(window(op) != begins[0] for op in loads):
        begins = [-1]
    running = {mma for mmas in task.running().values() for mma in mmas}
    under = bool(running) and not _are_due_next(stages, running, early)
    if under:
        begins = sorted(cycles[mma] % interval for mma in running)
    each = max(1, len(early) / len(begins))  # copies behind the loads of one mma
    # What is due first comes first, as copies land in the order in which they were committed.
    due = sorted(early, key=lambda op: (-stages[op], op))
    ranks = {op: rank for rank, op in enumerate(due)}
    behind = 1 if any(task.costs[i].pipe == "tensor" for i in _heavy(task)) else -1
    stores = {op for op in ops if kinds[op] == "store"}
    last_store = max((cycles[op] % interval for op in stores), default=0)
    ahead = (
        arc.src for arc in task.arcs if arc.dst in stores and stages[arc.src] < stages[arc.dst]
    )
    fetches = set(ahead) - stores
    masked = any(kinds[op] != "load" for op in fetches)

    def place(op: int) -> tuple[int, int, int]:
        if op in fetches and masked:
            return last_store, 3, op
        if op in early:
            return begins[int(ranks[op] / each)], 3 if under else behind, ranks[op]
        if op in loads:
            return window(op), 0, op
        return cycles[op] % interval, 2, op

    return [place(op) for op in ops]


def _are_due_next(stages: Sequence[int], users: Collection[int], early: Collection[int]) -> bool:
    """Whether some early copy is for the next step, so that issuing it later delays that step.

    On an H100 copies behind wgmma instead of before it cost 3 to 9 % with one slot ahead (4000 x
    4104 x 4040 by 256 x 128, 3x3 convolutions by 256 x 64 and 128 x 128), and gain up to 4 % with
    two.
    """
    last = max(stages[op] for op in users)
    return any(last - stages[op] < 2 for op in early)
