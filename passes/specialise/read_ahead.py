"""Say whether consumers that are warps read fragments of the iteration ahead, as scheduled.

    stage 2: wait, k0.a, k0.b    =>   while iteration i is multiplied, the first fragments of
    stage 3: k0, k1.a, k1.b, k1       i + 1 are read

Such a loop works on two iterations at a time, and each fragment has one set of registers. A
schedule that wants more is run in one stage: every op of an iteration, then every op of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...plan import PRODUCER, OpPlan, RingPlan


def reads_ahead(ops: Sequence[OpPlan]) -> bool:
    """Whether the consumers of these ops work on two iterations at a time."""
    return len(_stages(ops)) > 1


def may_read_ahead(ops: Sequence[OpPlan], rings: Sequence[RingPlan]) -> bool:
    """Whether consumers can run the stages of ``ops`` with ``rings``.

    Two neighbouring stages, the waits in the first, whose slots alone they know the phases of; and
    registers of one iteration.
    """
    stages = _stages(ops)
    versions = [ring for ring in rings if ring.scope == "local" and ring.depth > 1]
    waits = {op.stage for op in _consumers(ops) if op.kind == "wait"}
    return max(stages) - min(stages) <= 1 and waits <= {min(stages)} and not versions


def in_one_stage(ops: Sequence[OpPlan]) -> tuple[OpPlan, ...]:
    """Return ``ops`` with those of consumers in one stage, in the order of an iteration.

    They have the last stage of theirs, so that copies run no less ahead, and each other's places in
    the step.
    """
    own = sorted(_consumers(ops), key=lambda op: (op.stage, op.order))
    places = sorted(op.order for op in own)
    last = max(_stages(ops))
    moved = {op.name: replace(op, stage=last, order=at) for op, at in zip(own, places, strict=True)}
    return tuple(moved.get(op.name, op) for op in ops)


def _consumers(ops: Sequence[OpPlan]) -> list[OpPlan]:
    return [op for op in ops if op.role != PRODUCER]


def _stages(ops: Sequence[OpPlan]) -> set[int]:
    return {op.stage for op in _consumers(ops)}
