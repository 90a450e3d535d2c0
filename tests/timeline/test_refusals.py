"""What no timeline is drawn of, and what is said then."""

from __future__ import annotations

import pytest

from pipeliner.errors import PlanError
from pipeliner.machine import A100
from pipeliner.plan import LoopPlan
from pipeliner.timeline import timeline_of

from .loops import copy_and_compute, kernel


@pytest.mark.parametrize(
    ("plan", "options", "message"),
    [
        (kernel(), {}, "cannot draw 'toy': none of its loops is pipelined: it has no loop"),
        (
            kernel(LoopPlan("i", "8", False, reasons=("no load",))),
            {},
            "cannot draw 'toy': none of its loops is pipelined: i: no load",
        ),
        (
            kernel(LoopPlan("i", "8", False, reasons=("no load",)), copy_and_compute(2)),
            {"loop": "i"},
            "cannot draw loop 'i': it is not pipelined: no load",
        ),
        (kernel(copy_and_compute(2)), {"loop": "x"}, "cannot find loop 'x' in 'toy': it has ['k']"),
        (
            kernel(copy_and_compute(2)),
            {"iterations": 65},
            "cannot draw 65 iterations of loop 'k': it has 64",
        ),
        (
            kernel(copy_and_compute(2)),
            {"iterations": 0},
            "expected iterations to be 1 to 1000, not 0",
        ),
    ],
)
def test_what_cannot_be_drawn(plan, options, message):
    with pytest.raises(PlanError) as error:
        timeline_of(plan, kernel(copy_and_compute(1)), A100, **options)
    assert str(error.value) == message


def test_a_loop_that_overlaps_with_one_slot_is_not_called_un_pipelined():
    with pytest.raises(PlanError, match="with one slot a ring it still has 2 stages"):
        timeline_of(kernel(copy_and_compute(2)), kernel(copy_and_compute(2)), A100)
