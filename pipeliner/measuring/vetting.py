"""Vet a candidate before it is measured: the emulator runs its kernel on smaller extents."""

from __future__ import annotations

from typing import Final

from ..diagnostics import Reason
from ..errors import EmulatorError
from ..kernel.compiled import Kernel
from ..records.candidate import Candidate
from ..schedules.workloads import Spec
from ..verification.shrunk import shrunk
from ..verification.verdict import verify_workload

TIMINGS: Final = ("late", "random")
ORDERS: Final = ("lockstep", "random")


def vet(spec: Spec, candidate: Candidate, kernel: Kernel) -> None:
    """EmulatorError where ``kernel``, of the candidate, races or is wrong on smaller extents.

    PlanError: its plan fits none.
    """
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
