"""One kernel that was tried: for what, on what, how, and every time that it took."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ..diagnostics import Why
from ..errors import RecordsError

OURS: Final = "pipeliner"
"""The contender whose kernels are made from candidates."""


@dataclass(frozen=True, slots=True)
class Record:
    """A candidate of a workload and what became of it. Times are microseconds.

    ``workload``, ``machine`` and ``versions`` are the key: what is computed (as JSON), the GPU, and
    the compilers. ``candidate``: what was tried, as JSON. ``contender``: whose kernel it is, where
    not ours: a peer's name, and then no candidate. ``samples``: every timed run, in order;
    ``beside``: those of the kernel that it was interleaved with, if any. ``us``: its time, the
    median of the samples unless given; a measurer that knows of drift gives what the samples come
    to without it. ``failure``: why there is no time, in one line. ``predicted_us``: by the model, 0
    where it says nothing. ``source``: who recorded it, such as ``tune``; ``experiment`` and
    ``label``: as which variant of which experiment. ``made``: when, in seconds since 1970.
    ``resources``: what the compiler reports. ``conditions``: of the measurement. ``plan``: the
    KernelPlan as JSON, ``trace``: of meta_schedule, as JSON; both empty where there is none.
    """

    workload: str
    machine: str
    versions: str
    candidate: str = ""
    contender: str = OURS
    samples: tuple[float, ...] = ()
    beside: tuple[float, ...] = ()
    us: float = 0.0
    failure: Why = ""
    predicted_us: float = 0.0
    source: str = ""
    experiment: str = ""
    label: str = ""
    made: float = field(default_factory=time.time)
    resources: Mapping[str, int] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)
    plan: str = ""
    trace: str = ""

    @property
    def spread(self) -> float:
        """Interquartile range of the samples over their median; 0: it is not known."""
        if len(self.samples) < 2:
            return 0.0
        low, middle, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / middle

    def __post_init__(self) -> None:
        """Fill in ``us``; RecordsError for a record that says nothing, or times that are none."""
        if any(not (math.isfinite(sample) and sample > 0) for sample in self.samples):
            raise RecordsError("record.samples", least=min(self.samples))
        if bool(self.samples) == bool(self.failure):
            raise RecordsError("record.failure")
        if self.samples and not self.us:
            object.__setattr__(self, "us", statistics.median(self.samples))
        for name in ("us", "predicted_us"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise RecordsError("record.negative", name=name, value=value)
        for name, value in self.conditions.items():
            if not isinstance(value, str):
                raise RecordsError("record.condition", name=name, value=repr(value))
