"""What no timeline is drawn of, and what is said then."""

from __future__ import annotations

import pytest

from pipeliner.errors import PlanError
from pipeliner.machine import A100
from pipeliner.plan import LoopPlan
from pipeliner.timeline import timeline_of
from tests.refusals import refused

from .loops import copy_and_compute, kernel


@pytest.mark.parametrize(
    ("plan", "options", "code", "args"),
    [
        (kernel(), {}, "timeline.loopless", {}),
        (
            kernel(LoopPlan("i", "8", False, reasons=("no load",))),
            {},
            "timeline.loop",
            {"loop": "i", "why": ("no load",)},
        ),
        (
            kernel(LoopPlan("i", "8", False, reasons=("no load",)), copy_and_compute(2)),
            {"loop": "i"},
            "timeline.not_pipelined",
            {"loop": "i", "why": ("no load",)},
        ),
        (
            kernel(copy_and_compute(2)),
            {"loop": "x"},
            "plan.not_found",
            {"what": "loop", "name": "x", "known": ("k",)},
        ),
        (
            kernel(copy_and_compute(2)),
            {"iterations": 65},
            "timeline.trip",
            {"value": 65, "trip": 64},
        ),
        (
            kernel(copy_and_compute(2)),
            {"iterations": 0},
            "timeline.iterations",
            {"most": 1000, "value": 0},
        ),
    ],
)
def test_what_cannot_be_drawn(plan, options, code, args):
    with refused(code, PlanError, **args):
        timeline_of(plan, kernel(copy_and_compute(1)), A100, **options)


def test_a_loop_that_overlaps_with_one_slot_is_not_called_un_pipelined():
    with refused("timeline.never_serial", PlanError, stages=2):
        timeline_of(kernel(copy_and_compute(2)), kernel(copy_and_compute(2)), A100)
