"""Vet a candidate before it is measured: the emulator runs a small instance of its kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ..api import build_with
from ..candidate import Candidate
from ..errors import EmulatorError
from ..schedules import Conv, ConvInputGrad, Gemm
from ..schedules.workloads import Spec
from ..verification import verify_workload

STEPS: Final = 5
"""Of the reduction in a small product: more than most rings are deep."""

PIXELS: Final = 12
"""Along each dimension of a small image, or what the kernel reaches."""

TIMINGS: Final = ("late", "random")
ORDERS: Final = ("lockstep", "random")


def vet(spec: Spec, candidate: Candidate, target: Any) -> None:
    """EmulatorError where the candidate's kernel of a small instance races or is wrong."""
    small = smaller(spec, candidate.tile)
    kernel = build_with(candidate.function(small), target, candidate.request)
    verdict = verify_workload(kernel, small, timings=TIMINGS, orders=ORDERS)
    if verdict.ok:
        return
    found = str(verdict.hazards[0]).splitlines()[0] if verdict.hazards else "no hazard"
    raise EmulatorError(
        f"cannot accept it: the emulator finds {len(verdict.hazards)} hazards ({found}) and an "
        f"error of {verdict.worst:.3g} of what rounding allows"
    )


def smaller(spec: Spec, tile: Any) -> Spec:
    """The same workload on few tiles and steps; what tiles divide they still do."""
    if isinstance(spec, Gemm):
        batch = None if spec.batch is None else 1
        steps = STEPS * tile.splits
        return replace(spec, m=tile.m, n=tile.n, k=min(spec.k, steps * tile.k), batch=batch)
    if isinstance(spec, Conv):
        reach = [step * (extent - 1) + 1 for step, extent in zip(spec.dilation, spec.kernel)]
        size = tuple(min(was, max(PIXELS, over)) for was, over in zip(spec.size, reach))
        return replace(spec, n=1, size=size)
    forward = smaller(spec.forward, tile)
    assert isinstance(forward, Conv)
    return (
        ConvInputGrad(forward)
        if isinstance(spec, ConvInputGrad)
        else replace(spec, forward=forward)
    )
