"""Bound the size of a loop's code: a plan that asks for more is refused before any is emitted.

Stages are straight-line iterations before the loop, register rings unroll it, and a peeled epilogue
follows it. A mistyped number must not keep the pass busy for hours.
"""

from __future__ import annotations

from typing import Final

from ...errors import ScheduleRefused
from ...plan import LoopPlan

MOST_STEPS: Final = 256
"""Most stages of a loop, slots of a ring, or iterations that register rings unroll a loop by."""

MOST_STATEMENTS: Final = 8192
"""Most ops emitted for one loop: seconds of the pass, minutes of nvcc."""


def check_slots(loop: LoopPlan) -> None:
    """Raise ScheduleRefused if a ring of ``loop`` has more slots than any searched schedule."""
    for ring in loop.rings:
        if ring.depth > MOST_STEPS:
            raise ScheduleRefused(
                "size.slots", loop=loop.name, buffer=ring.buffer, slots=ring.depth, most=MOST_STEPS
            )


def check_size(loop: LoopPlan) -> None:
    """Raise ScheduleRefused if the code of ``loop``, as it is scheduled, would be too long."""
    if loop.stages > MOST_STEPS:
        raise ScheduleRefused("size.stages", loop=loop.name, stages=loop.stages, most=MOST_STEPS)
    if loop.unroll > MOST_STEPS:
        raise ScheduleRefused("size.unroll", loop=loop.name, unroll=loop.unroll, most=MOST_STEPS)
    steps = 2 * loop.ahead + 2 * loop.unroll  # before the loop, in it, left over by it, behind it
    if steps * len(loop.ops) > MOST_STATEMENTS:
        raise ScheduleRefused(
            "size.statements",
            loop=loop.name,
            steps=steps,
            ops=len(loop.ops),
            most=MOST_STATEMENTS,
        )
