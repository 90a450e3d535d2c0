"""Kernels measured one by one, each interleaved with another of its workload, and recorded."""

from __future__ import annotations

import functools
import statistics
from dataclasses import dataclass
from typing import Any

from ..records import OURS, Record, Records
from ..records.candidate import Candidate, workload_key
from ..records.functions import AnyWorkload
from .compiling import BuiltCandidate
from .lab import Batch, Study
from .measurer import Compiles, Measurement, Measurer


@dataclass(slots=True, eq=False, kw_only=True)
class KernelTrial(Batch):
    """A kernel on its way. ``candidate``: None where it is not ours.

    ``us``: of a reference, the time that it is known to take. ``against``: what the kernel is
    measured beside, and the time of that.
    """

    candidate: Candidate | None = None
    contender: str = OURS
    label: str = ""
    us: float = 0.0
    against: tuple[BuiltCandidate, float] | None = None


class Trials(Study[KernelTrial, Measurer]):
    """A study of which each batch is a kernel that runs beside another of its workload.

    That is the first that ran, or where ``fastest`` is set the fastest so far.
    """

    def __init__(
        self,
        records: Records,
        machine: str,
        compiler: Compiles,
        *,
        source: str,
        experiment: str = "",
        fastest: bool = False,
    ) -> None:
        self.done = self.failed = 0
        self._records, self._machine, self._compiler = records, machine, compiler
        self._source, self._experiment, self._fastest = source, experiment, fastest
        self._references: dict[str, tuple[BuiltCandidate, float]] = {}

    def trial(self, spec: AnyWorkload, candidate: Candidate, **told: Any) -> KernelTrial:
        """The trial of a candidate."""
        make = functools.partial(self._compiler.compile, spec, candidate)
        return KernelTrial(makes=[make], candidate=candidate, **told)

    def beside(self, trial: KernelTrial) -> None:
        """Measure what comes beside it, if it was compiled."""
        built = _built(trial)
        if not built.failure:
            self._references.setdefault(workload_key(built.spec), (built, trial.us))

    def measure(self, trial: KernelTrial, measurer: Measurer) -> Measurement:
        """The kernel's times and those of the reference; a failure where there is no kernel."""
        built = _built(trial)
        if built.failure:
            return Measurement(failure=built.failure)
        trial.against = self._references.get(workload_key(built.spec))
        return measurer.measure(built, None if trial.against is None else trial.against[0])

    def keep(self, trial: KernelTrial, found: Measurement) -> None:
        """Record a trial, and take it as the reference where it is to be that."""
        built = _built(trial)
        record = self._record(trial, built, found)
        self.add(record)
        self.done += 1
        self.failed += bool(record.failure)
        known = self._references.get(record.workload)
        if not record.failure and (known is None or (self._fastest and record.us < known[1])):
            self._references[record.workload] = (built, record.us)
        self.kept(trial, record)

    def add(self, record: Record) -> None:
        """Put a record on the disk."""
        self._records.add(record)

    def predicted_us(self, candidate: Candidate) -> float:
        """What is predicted of a candidate whose plan, built, says nothing; 0: nothing is."""
        return 0.0

    def kept(self, trial: KernelTrial, record: Record) -> None:
        """Hear what became of a trial, which is recorded."""
        return

    def _record(self, trial: KernelTrial, built: BuiltCandidate, found: Measurement) -> Record:
        """What is recorded of a trial.

        Its time is the reference's, times what the kernel took of it when both ran interleaved: so
        times compare although clocks and temperature drift. What is not compiled has no plan to say
        its predicted time, nor has a tile of a small group: that is asked of the model then.
        """
        us = 0.0
        if found.samples and found.beside and trial.against is not None:
            us = trial.against[1] * found.us / statistics.median(found.beside)
        predicted = built.predicted_us
        if not predicted and trial.candidate is not None:
            predicted = self.predicted_us(trial.candidate)
        return found.record(
            built,
            self._machine,
            predicted_us=predicted,
            candidate="" if trial.candidate is None else trial.candidate.to_json(),
            contender=trial.contender,
            us=us,
            source=self._source,
            experiment=self._experiment,
            label=trial.label,
        )


def _built(trial: KernelTrial) -> BuiltCandidate:
    (built,) = trial.built
    assert built is not None
    return built
