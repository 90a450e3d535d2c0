"""cp.async groups of a pipelined step: where they are committed, and how many a wait may leave."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..errors import PlanError
from ..plan import LoopPlan, OpPlan


def commit_points(ops: Sequence[OpPlan], copies: Collection[str]) -> dict[str, int]:
    """The last op of each run of asynchronous copies between waits -> its number in the step.

    ``ops``: in order. ``copies``: the names of those that are asynchronous.
    """
    points: list[str] = []
    run = ""
    for op in ops:
        if op.kind == "wait" and run:
            points.append(run)
            run = ""
        elif op.name in copies:
            run = op.name
    if run:
        points.append(run)
    return {name: number for number, name in enumerate(points)}


def wait_counts(ops: Sequence[OpPlan], points: Mapping[str, int], plan: LoopPlan) -> dict[str, int]:
    """For each wait, how many groups were committed after the one it needs, the same in every step.

    A copy of stage ``s`` is committed in step ``i + s``; the wait for iteration ``i`` runs in step
    ``i + w``: ``w - s`` steps of groups, more or less by their places within the step.
    """
    position = {op.name: place for place, op in enumerate(ops)}
    ends = [position[name] for name in points]
    counts: dict[str, int] = {}
    for op in ops:
        if op.kind != "wait":
            continue
        members = [edge.src for edge in plan.edges if edge.dst == op.name]
        if not members:
            raise PlanError(f"cannot expand loop '{plan.name}': '{op.name}' waits for no copy")
        committed = sum(end < position[op.name] for end in ends)
        counts[op.name] = min(
            (op.stage - plan.op(member).stage) * len(ends)
            + committed
            - (sum(end < position[member] for end in ends) + 1)
            for member in members
        )
        if counts[op.name] < 0:
            raise PlanError(
                f"cannot expand loop '{plan.name}': '{op.name}' comes before what it waits for"
            )
    return counts
