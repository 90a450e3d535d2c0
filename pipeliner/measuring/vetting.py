"""Vet a candidate before it is measured: the emulator runs its kernel on smaller extents."""

from __future__ import annotations

from typing import Final

from ..diagnostics import Reason
from ..errors import EmulatorError
from ..kernel.compiled import Kernel
from ..records.candidate import Candidate
from ..records.functions import AnyWorkload, FunctionWorkload, Knobs
from ..verification.shrunk import shrunk
from ..verification.verdict import verify, verify_workload

TIMINGS: Final = ("late", "random")
ORDERS: Final = ("lockstep", "random")


def vet(spec: AnyWorkload, candidate: Candidate, kernel: Kernel) -> None:
    """EmulatorError where ``kernel``, of the candidate, races or is wrong on smaller extents.

    A function of the user's has its own extents: some of its CTAs are run.

    PlanError: its plan fits none.
    """
    if isinstance(spec, FunctionWorkload):
        verdict = verify(kernel, timings=TIMINGS, orders=ORDERS)
    else:
        assert not isinstance(candidate.tile, Knobs)
        small = shrunk(spec, candidate.tile, kernel)
        verdict = verify_workload(small.kernel, small.spec, timings=TIMINGS, orders=ORDERS)
    if verdict.ok:
        return
    first = str(verdict.hazards[0]).splitlines()[0] if verdict.hazards else ""
    raise EmulatorError(
        "tune.wrong",
        hazards=len(verdict.hazards),
        first=first or Reason("tune.no_hazard"),
        error=verdict.worst,
    )
