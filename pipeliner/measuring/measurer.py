"""Who measures a kernel: an interface, so that a search does not know what a GPU is."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ..diagnostics import Why
from ..records import Record
from ..records.candidate import Candidate, versions_key, workload_key
from ..records.functions import AnyWorkload
from ..records.log import with_loop
from .compiling import BuiltCandidate
from .lab import CompilesSome


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one trial found; times are microseconds.

    ``samples``: of the candidate. ``beside``: of the incumbent, whose runs alternate with its own.
    ``failure``: why there are no samples. ``conditions``: under which it was measured. ``error``:
    the largest, over what rounding allows. ``detail``: what the kernel is, in a few words. ``hot``:
    samples of a call where calls follow each other, where asked for; ``not_hot``: why none came.
    """

    samples: tuple[float, ...] = ()
    beside: tuple[float, ...] = ()
    failure: Why = ""
    conditions: Mapping[str, str] = field(default_factory=dict)
    error: float = 0.0
    detail: str = ""
    hot: tuple[float, ...] = ()
    not_hot: Why = ""

    @property
    def us(self) -> float:
        """The median of the samples."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Interquartile range of the samples over their median."""
        low, middle, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / middle

    def record(self, built: BuiltCandidate, machine: str, **told: Any) -> Record:
        """What records keep of it as the measurement of ``built``."""
        return Record(
            **{
                "workload": workload_key(built.spec),
                "machine": machine,
                "versions": versions_key(),
                "candidate": "" if built.candidate is None else built.candidate.to_json(),
                "samples": self.samples,
                "beside": self.beside,
                "failure": self.failure,
                "predicted_us": built.predicted_us,
                "resources": with_loop(built.resources, built.loop),
                "conditions": self.conditions,
                "plan": built.plan,
                **told,
            }
        )

    def interleaved_with(self, other: Measurement) -> Measurement:
        """The same, of a candidate whose runs alternated with those of ``other``."""
        return self if self.failure else replace(self, beside=other.samples)


class Measurer(ABC):
    """Measures kernels, one at a time. What goes wrong with one is its measurement's failure."""

    @abstractmethod
    def measure(self, built: BuiltCandidate, incumbent: BuiltCandidate | None) -> Measurement:
        """Run ``built`` and ``incumbent``, of the same workload, interleaved; nothing is raised."""

    def start(self) -> None:
        """Get ready; what cannot measure here raises, in one line."""
        return

    def end(self) -> None:
        """End a measurement that is under way, from any thread."""
        return

    def close(self) -> None:
        """Let everything go."""
        return


class Compiles(CompilesSome, Protocol):
    """Who compiles a candidate: ``Compiler``, or what a test puts in its place."""

    def start(self) -> None:
        """Get ready, without waiting for it."""

    def compile(self, spec: AnyWorkload, candidate: Candidate) -> BuiltCandidate:
        """The candidate's kernel, or why there is none."""

    def close(self) -> None:
        """Let everything go."""
