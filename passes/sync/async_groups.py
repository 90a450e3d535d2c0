"""Place the commits of cp.async groups in a pipelined loop, and count what each wait may leave.

    copy A (stage 0), copy B (stage 0), use at stage 3
 => copy A; copy B; commit; ..; wait_group(3); use

It also removes commits of empty groups, and waits that never wait: PTX completes groups in the
order of their commits, so a wait that leaves n groups in flight, followed by k commits, makes a
wait that leaves n + k or more redundant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from tvm import tirx

from ...errors import PlanError
from ...plan import LoopPlan, OpPlan
from ...values.op import Op
from ..ir.calls import CP_ASYNC_COMMIT, CP_ASYNC_COPY, CP_ASYNC_WAIT, CP_ASYNC_WAIT_ALL, called
from ..ir.kernels import bodies, with_bodies
from ..ir.nodes import Call, Stmt, const_int, has, origin_of, seq

GroupEvent: TypeAlias = "tuple[Literal['commit', 'wait', 'other'], int]"
"""A commit; a wait, with the number of groups that it leaves in flight; or another event."""


def issues_copies(stmt: Stmt) -> bool:
    """Whether ``stmt`` issues a cp.async, which must be committed in a group."""
    return has(stmt, Call, lambda call: called(call).startswith(CP_ASYNC_COPY))


def commit_points(ops: Sequence[OpPlan], copies: Collection[Op], plan: LoopPlan) -> dict[Op, int]:
    """Return the last op of each run of asynchronous copies between waits -> its number.

    ``ops``: in order. ``copies``: names of the asynchronous ones. Copies of different stages, which
    fill rings of different depths, get separate commits if some wait needs the first and can leave
    the others in flight.
    """
    needed = _needed_last(ops, plan)
    points: list[Op] = []
    run: OpPlan | None = None
    is_separate = False
    for op in ops:
        starts = op.name in copies
        if run is not None and (
            op.kind == "wait" or (starts and is_separate and op.stage != run.stage)
        ):
            points.append(run.name)
            run, is_separate = None, False
        if starts:
            run, is_separate = op, is_separate or op.name in needed
    if run is not None:
        points.append(run.name)
    return {name: number for number, name in enumerate(points)}


def _needed_last(ops: Sequence[OpPlan], plan: LoopPlan) -> set[Op]:
    """Return the copies that are the last ones some wait of a step needs.

    A wait with nothing to do in the steady state is left out: copies complete in order, so an
    earlier wait, in this step or the one before, may already need a copy as late as its last.
    """
    position = {op.name: place for place, op in enumerate(ops)}
    # Of each wait: the step, counted from its own, that issues what it needs last; and where.
    ends = {
        op.name: max((plan.op(src).stage - op.stage, position[src]) for src in members)
        for op in ops
        if op.kind == "wait" and (members := _members(op, plan))
    }

    def covers(other: Op, wait: Op) -> bool:
        step, place = ends[other]
        ago = 0 if position[other] < position[wait] else 1
        return (step - ago, place) >= ends[wait]

    return {
        ops[place].name
        for wait, (_, place) in ends.items()
        if not any(covers(other, wait) for other in ends)
    }


def _members(wait: OpPlan, plan: LoopPlan) -> list[Op]:
    """Return the copies that ``wait`` waits for."""
    return [edge.src for edge in plan.edges if edge.dst == wait.name]


def wait_counts(ops: Sequence[OpPlan], points: Mapping[Op, int], plan: LoopPlan) -> dict[Op, int]:
    """Return for each wait how many groups are committed after the one that it needs.

    The number is the same in every step. A copy of stage ``s`` is committed in step ``i + s``; the
    wait for iteration ``i`` runs in step ``i + w``. Between them are ``w - s`` steps of groups,
    more or less by their places within the step. Raises PlanError for a wait that waits for no
    copy, or for one that is not committed yet.
    """
    position = {op.name: place for place, op in enumerate(ops)}
    ends = [position[name] for name in points]
    counts: dict[Op, int] = {}
    for op in ops:
        if op.kind != "wait":
            continue
        members = _members(op, plan)
        if not members:
            raise PlanError("schedule.waits_for_none", loop=plan.name, op=op.name)
        committed = sum(end < position[op.name] for end in ends)
        counts[op.name] = min(
            (op.stage - plan.op(member).stage) * len(ends)
            + committed
            - (sum(end < position[member] for end in ends) + 1)
            for member in members
        )
        if counts[op.name] < 0:
            raise PlanError("schedule.waits_too_early", loop=plan.name, op=op.name)
    return counts


def wgmma_wait_counts(
    ops: Sequence[OpPlan], issues: Mapping[Op, Sequence[Op]], plan: LoopPlan
) -> dict[Op, int]:
    """Return for each wait that comes steps after its wgmma how many groups it leaves in flight.

    ``ops``: in order. ``issues``: for each wait the ops that it ends, each of which commits a group
    in every step. Groups end in the order of their commits, so the count is that of
    ``wait_counts``.
    """
    position = {op.name: place for place, op in enumerate(ops)}
    ends = sorted({position[name] for names in issues.values() for name in names})
    return {
        op.name: min(
            (op.stage - plan.op(name).stage) * len(ends)
            + sum(end < position[op.name] for end in ends)
            - sum(end <= position[name] for end in ends)
            for name in issues[op.name]
        )
        for op in ops
        if op.name in issues and op.stage > plan.ahead
    }


def empty_behind(ops: Sequence[OpPlan], points: Mapping[Op, int], late: Collection[Op]) -> int:
    """Return how many groups a step commits behind all those with copies of ``late``.

    ``ops``: in order. Behind a loop that clamps the copies of ``late`` these groups are empty.
    """
    position = {op.name: place for place, op in enumerate(ops)}
    ends = [position[name] for name in points]
    return min(sum(end >= position[name] for end in ends) - 1 for name in late)


class InFlight:
    """Bounds the groups in flight: ``before[n]`` is the most before wait ``n``, and what it leaves.

    ``event``: says what a statement does to the groups. Events are numbered in program order.
    """

    def __init__(self, event: Callable[[Stmt], GroupEvent | None]) -> None:
        self._event = event
        self._number = 0
        self.before: dict[int, tuple[float, int]] = {}

    def run(self, stmt: Stmt, most: float) -> float:
        """Return the most groups in flight after ``stmt``, given the most before it."""
        event = self._event(stmt)
        if event is not None:
            return self._pass(event, most)
        kind = type(stmt)
        if kind is tirx.IfThenElse:
            outs = [self.run(part, most) for part in bodies(stmt)]
            return max(*outs, most) if len(outs) == 1 else max(outs)
        if kind in (tirx.For, tirx.While):
            return self._loop(stmt.body, most)
        for part in bodies(stmt):
            most = self.run(part, most)
        return most

    def _pass(self, event: GroupEvent, most: float) -> float:
        number, (kind, left) = self._number, event
        self._number += 1
        if kind == "commit":
            return most + 1
        if kind == "wait":
            self.before[number] = max(most, self.before.get(number, (0, 0))[0]), left
            return min(most, left)
        return most

    def _loop(self, body: Stmt, most: float) -> float:
        """Return the most after a loop: visited twice it is bounded, or nothing bounds it.

        A wait forgets what was before it.
        """
        first = self._number
        once = max(most, self.run(body, most))
        if self._number == first:
            return most  # nothing in it is counted
        self._number = first
        twice = max(once, self.run(body, once))
        if twice == once:
            return once
        self._number = first
        self.run(body, math.inf)
        return math.inf


def without_idle_waits(parts: Sequence[Stmt]) -> list[Stmt]:
    """Return the statements of an expanded loop without those of its own waits that can never wait.

    This is independent of what is in flight before the loop.
    """
    bounds = InFlight(_cp_async_event)
    most = math.inf
    for part in parts:
        most = bounds.run(part, most)
    idle = {number for number, (most, left) in bounds.before.items() if most <= left}
    if not idle:
        return list(parts)
    numbers = itertools.count()
    kept = [_without(part, idle, numbers) for part in parts]
    return [part for part in kept if part is not None]


def _without(stmt: Stmt, idle: Collection[int], numbers: Iterator[int]) -> Stmt | None:
    """Return ``stmt`` without the emitted waits in ``idle``; None if it is one of them."""
    if _cp_async_event(stmt) is not None:
        next(numbers)
        return stmt
    origin = origin_of(stmt)
    if origin is not None and origin.kind == "wait":
        return None if next(numbers) in idle else stmt
    kept = [_without(part, idle, numbers) for part in bodies(stmt)]
    if isinstance(stmt, tirx.SeqStmt):
        return seq(*kept)
    return with_bodies(stmt, [seq(part) for part in kept]) if kept else stmt


def without_idle_commits(parts: list[Stmt]) -> list[Stmt]:
    """Return the statements without commits that make no difference to any wait.

    Those are groups that issue nothing, before any copy and behind all waits, and the oldest of
    several groups that the first wait waits for.
    """
    parts = _without_old_commits(parts)
    first = next((at for at, part in enumerate(parts) if issues_copies(part)), 0)
    last = next((at for at in reversed(range(len(parts))) if _has_wait(parts[at])), len(parts))
    return [part for at, part in enumerate(parts) if first <= at < last or not _is_commit(part)]


def _without_old_commits(parts: list[Stmt]) -> list[Stmt]:
    """Return the statements without commits whose copies can as well be in the next group.

    A wait that leaves n groups in flight waits for all older ones alike, and later waits count from
    the newest. So one commit is enough for the older groups that are committed before the first
    wait.
    """
    first = next((at for at, part in enumerate(parts) if _has_wait(part)), 0)
    commits = [at for at, part in enumerate(parts[:first]) if _is_commit(part)]
    inside = _before_wait(parts[first]) if parts else None
    if inside is None or len(commits) != sum(map(_commits, parts[:first])):
        return parts
    committed, left = inside
    older = min(len(commits), len(commits) + committed - left) - 1
    idle = set(commits[: max(0, older)])
    return [part for at, part in enumerate(parts) if at not in idle]


def _commits(stmt: Stmt) -> int:
    """Count the commits in ``stmt``, as it is written."""
    if _cp_async_event(stmt) == ("commit", 0):
        return 1
    return sum(map(_commits, bodies(stmt)))


def _before_wait(stmt: Stmt) -> tuple[int, int] | None:
    """Return the commits in ``stmt`` before its first wait, and what that leaves, or None."""
    committed = 0
    while True:
        event = _cp_async_event(stmt)
        if event is not None:
            return (committed, event[1]) if event[0] == "wait" else None
        inner = bodies(stmt)
        if isinstance(stmt, tirx.IfThenElse) or not inner:
            return None
        at = next((n for n, part in enumerate(inner) if _has_wait(part)), 0)
        committed += sum(map(_commits, inner[:at]))
        stmt = inner[at]


def _has_wait(stmt: Stmt) -> bool:
    return has(stmt, tirx.AttrStmt, lambda attr: _kind(attr) == "wait")


def _is_commit(stmt: Stmt) -> bool:
    return _kind(stmt) == "commit"


def _kind(stmt: Stmt) -> str:
    origin = origin_of(stmt)
    return "" if origin is None else origin.kind


def _cp_async_event(stmt: Stmt) -> GroupEvent | None:
    if type(stmt) is not tirx.Evaluate:
        return None
    call: Any = stmt.value
    name = called(call)
    if name == CP_ASYNC_COMMIT:
        return "commit", 0
    if name == CP_ASYNC_WAIT_ALL:
        return "wait", 0
    if name == CP_ASYNC_WAIT:
        return "wait", const_int(call.args[0]) or 0
    return None
