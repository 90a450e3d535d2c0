"""Every defect planted in one of the small convolutions: what becomes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from pipeliner.kernel.building import build_with
from pipeliner.kernel.compiled import Kernel
from pipeliner.mutation import mutate
from pipeliner.mutation.longer import longer
from pipeliner.plan.request import Request
from pipeliner.schedules import schedule_conv

from ..schedules.conv_cases import CASES

TARGET: Final = "sm_80"
TIMES: Final = (2, 3)

SLOTS: Final = {"channels first bias": 2}
"""Asked for where the model sees nothing to gain by a ring: its indices and waits are judged too."""


def check_mutants(name: str) -> Counter[str]:
    """Count the mutants of a case that die and those proved equivalent; one that survives raises.

    What survives because the loop is short is tried on longer reductions.
    """
    spec, tile = CASES[name]
    kernel = _kernel(spec, tile, Request(depth=SLOTS.get(name, "auto")))
    rings = [ring for loop in kernel.plan.loops for ring in loop.rings if ring.scope == "shared"]
    alike = Request(depth={ring.buffer: ring.depth for ring in rings} or "auto")

    def relative(times: int) -> Callable[[], Kernel]:
        return lambda: _kernel(longer(spec, times, tile.fold), tile, alike)

    relatives = {f"{times} times the reduction": relative(times) for times in TIMES}
    report = mutate(kernel, relatives=relatives)
    assert report.mutants > 0
    assert report.ok, [str(fate.mutant) for fate in report.unexplained]
    killed = sum(fate.killed for fate in report.fates)
    return Counter({"killed": killed, "equivalent": report.mutants - killed})


def _kernel(spec, tile, request: Request) -> Kernel:
    return build_with(schedule_conv(spec, tile), TARGET, request)
