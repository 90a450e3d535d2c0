"""What a planned loop issues, in order: ops by step, past the end as the code does, barriers.

The plan alone says it: step ``t`` runs the op of stage ``s`` on iteration ``t - s`` by ``order``.
Where the barriers stand follows from who uses which slot of shared memory, by the rule of the pass
that places them: before the first access that conflicts with one since the barrier before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from ..passes.sync.async_groups import commit_points, empty_behind, wait_counts
from ..plan import LoopPlan, OpPlan, RingPlan
from ..values.op import Op

Phase = Literal["prologue", "steady state", "epilogue"]
PHASES: Final[tuple[Phase, ...]] = ("prologue", "steady state", "epilogue")


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One version of a ring's buffer."""

    ring: str
    index: int

    def __str__(self) -> str:
        return f"{self.ring}[{self.index}]"


@dataclass(frozen=True, slots=True)
class Issue:
    """One execution of an op.

    ``repeats``: it is past the last iteration and works on data that nobody uses. ``barrier``: all
    threads of the CTA meet before it. ``runs``: False where a guard keeps the op out, but not the
    barrier before it.
    """

    op: OpPlan
    iteration: int
    step: int
    part: Phase
    reads: tuple[Slot, ...] = ()
    writes: tuple[Slot, ...] = ()
    repeats: bool = False
    runs: bool = True
    barrier: bool = False


def program(loop: LoopPlan, iterations: int, *, barriers: bool) -> list[Issue]:
    """What ``loop`` issues for a trip count of ``iterations``.

    ``barriers``: whether its threads share memory at all; else no barrier is placed.
    """
    issues = list(_issues(loop, iterations))
    return list(_with_barriers(loop, issues, iterations)) if barriers else issues


def part_of(step: int, ahead: int, iterations: int) -> Phase:
    """The part of the pipelined loop that ``step`` belongs to."""
    if step >= iterations:
        return "epilogue"
    return "prologue" if step < ahead else "steady state"


def awaited(loop: LoopPlan) -> dict[Op, tuple[Op, ...]]:
    """For each wait of ``loop`` the copies that it lets land."""
    found: dict[Op, dict[Op, None]] = {op.name: {} for op in loop.ops if op.kind == "wait"}
    for edge in loop.edges:
        if edge.dst in found and edge.kind == "RAW" and edge.distance == 0:
            found[edge.dst][edge.src] = None
    return {wait: tuple(copies) for wait, copies in found.items()}


def is_shared(ring: RingPlan) -> bool:
    """Whether all threads of the CTA see the ring."""
    return ring.scope.startswith("shared")


def _issues(loop: LoopPlan, iterations: int) -> Iterator[Issue]:
    ops = sorted(loop.ops, key=lambda op: op.order)
    repeating = {op.name for op in ops if _repeats(loop, op)}
    guarded = loop.epilogue != "peeled"
    for step in range(iterations + loop.stages - 1):
        part = part_of(step, loop.ahead, iterations)
        drained = step >= iterations + loop.ahead  # but for what waits behind the loop
        for op in ops:
            iteration = step - op.stage
            past = iteration >= iterations
            if drained and op.stage <= loop.ahead:
                continue
            if iteration < 0 or (past and (not guarded or step < loop.ahead)):
                continue  # only the steady loop, which runs to the end, has guards
            yield Issue(
                op,
                iteration,
                step,
                part,
                tuple(_slots(loop, op.name, iteration, "consumers")),
                tuple(_slots(loop, op.name, iteration, "producers")),
                repeats=past,
                runs=not past or op.name in repeating,
            )
    late = [op for op in ops if op.name in repeating and op.kind == "copy"]
    if late and not _lands_everything(loop, ops, [op.name for op in late]):
        drain = OpPlan(late[0].name.adding("drain"), "wait", late[0].block, "sync", 0, 0)
        yield Issue(drain, iterations, iterations + loop.stages - 1, "epilogue", repeats=True)


def _lands_everything(loop: LoopPlan, ops: Sequence[OpPlan], late: Sequence[Op]) -> bool:
    """Whether the waits of a step leave no copy of ``late`` in flight behind it."""
    copies = {copy for waited in awaited(loop).values() for copy in waited}
    commits = commit_points(ops, copies, loop)
    counts = wait_counts(ops, commits, loop)
    empty = empty_behind(ops, commits, late)

    def in_flight(wait: OpPlan) -> int:
        """Groups at the end of a step: what the wait leaves, and what is committed behind it."""
        behind = sum(op.name in commits and op.order > wait.order for op in ops)
        return counts[wait.name] + behind

    return any(op.kind == "wait" and in_flight(op) <= empty for op in ops)


def _repeats(loop: LoopPlan, op: OpPlan) -> bool:
    """Whether ``op`` runs past the last iteration: what the expansion leaves without a guard.

    Waits; in a clamped epilogue asynchronous copies into slots that nobody reads any more, of what
    the loop does not write; loads from shared memory into registers.
    """
    ahead = loop.ahead - op.stage
    if ahead <= 0:
        return False
    if op.kind == "wait":
        return True
    written = [ring for ring in loop.rings if op.name in ring.producers]
    read = [ring for ring in loop.rings if op.name in ring.consumers]
    if any(op.name in copies for copies in awaited(loop).values()):
        return loop.epilogue == "clamped" and all(ahead < ring.depth for ring in written)
    return (
        op.kind == "load"
        and op.pipe == "lsu"
        and bool(read)
        and all(is_shared(ring) for ring in read)
        and not any(is_shared(ring) for ring in written)
    )


def _slots(
    loop: LoopPlan, op: Op, iteration: int, side: Literal["producers", "consumers"]
) -> Iterator[Slot]:
    for ring in loop.rings:
        if op in getattr(ring, side):
            yield Slot(ring.buffer, iteration % ring.depth)


def _with_barriers(loop: LoopPlan, issues: Sequence[Issue], iterations: int) -> Iterator[Issue]:
    """The issues, with a barrier before each that conflicts with one since the barrier before.

    One past the end is guarded, the barrier before it is not: it stands there if any step of the
    steady loop needs it, so unless the guard holds in none.

    A copy in flight writes from its issue on, and becomes a write of its thread, which a barrier
    shows to the others, when a wait lets it land.
    """
    shared = {ring.buffer for ring in loop.rings if is_shared(ring)}
    landing = awaited(loop)
    read: set[Slot] = set()
    written: dict[Slot, set[int]] = {}
    for issue in issues:
        never = not issue.runs and loop.ahead - issue.op.stage >= iterations
        reads = {slot for slot in issue.reads if slot.ring in shared and not never}
        writes = {slot for slot in issue.writes if slot.ring in shared and not never}
        # Ops of one iteration that fill a slot together write different elements of it.
        rewrites = any(written.get(slot, set()) - {issue.iteration} for slot in writes)
        barrier = rewrites or bool(writes & read) or bool(reads & written.keys())
        if barrier:
            read, written = set(), {}
        read |= reads
        for copy in landing.get(issue.op.name, ()):
            writes.update(_slots(loop, copy, issue.iteration, "producers"))
        for slot in writes:
            written.setdefault(slot, set()).add(issue.iteration)
        yield replace(issue, barrier=barrier)
