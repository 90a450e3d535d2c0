"""Search for the fastest kernel of a workload; everything that is measured is kept.

The model ranks the space, processes side by side compile what comes next in it, and one kernel at a
time is measured on each GPU, beside the fastest so far. Each result corrects the ranking.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypedDict

from .. import knobs
from ..diagnostics import Reason
from ..errors import RecordsError, TargetError, WorkloadError
from ..kernel.building import build_with, target_for
from ..kernel.compiled import Kernel
from ..measuring import Compiler, Compiles, GpuMeasurer, Measurer, RemoteMeasurer
from ..records import Record, Records
from ..records.candidate import NOTHING_ASKED, Candidate
from ..records.functions import AnyWorkload, FunctionWorkload
from ..records.recorded import proof_in, with_proof
from ..records.settings import KnobValues
from ..targets import gpu_arch
from .session import Progress, Session
from .space import Point
from .subjects import LeftOut, TuningSubject, subject_of

TRIALS: Final = 64


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a search came to. ``best``: None where no candidate ran. ``done``: of all trials.

    ``seconds``: that this call took. ``interrupted``: it was ended early, by ^C; what was measured
    is in the records at ``path``, and the same call goes on from there. ``stopped``: why it ended
    before all trials were made; None: it did not.
    """

    subject: TuningSubject
    target: Any
    path: Path
    best: Record | None
    done: int
    failed: int
    seconds: float
    interrupted: bool = False
    stopped: Reason | None = None

    def __repr__(self) -> str:
        """One line, of what a session shows."""
        best = "none ran" if self.best is None else f"{self.best.us:.1f} us"
        counts = f"{self.done} trials, {self.failed} failed"
        return f"Tuned({self.workload.title!r}: {best}, {counts}, {str(self.path)!r})"

    @property
    def candidate(self) -> Candidate:
        """The fastest candidate; WorkloadError: none ran."""
        if self.best is None:
            raise WorkloadError("tune.no_best", workload=self.workload.name)
        return Candidate.from_json(self.best.candidate)

    @property
    def workload(self) -> AnyWorkload:
        """What was tuned."""
        return self.subject.workload

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Settings of the knobs that were not tried, and why; of what has no plan those ranked."""
        return self.subject.left_out

    @property
    def proof(self) -> Reason | None:
        """Whether the fastest was proved, as its plan says; None: nobody tried, or none ran."""
        return None if self.best is None else proof_in(self.best)

    @property
    def kernel(self) -> Kernel:
        """The fastest kernel, built; WorkloadError: none ran."""
        function = self.candidate.function(self.subject.given(self.candidate))
        return build_with(function, self.target, self.candidate.request)


class TuneOptions(TypedDict, total=False):
    """How to tune: the keyword arguments of ``tune`` that say nothing of what is tuned."""

    trials: int
    all_trials: bool
    seconds: float | None
    db: str | Path | None
    jobs: int | None
    devices: Sequence[int]
    verify: bool
    prove: bool
    say: Callable[[Progress], None]
    measurers: Sequence[Measurer]
    compiler: Compiles | None


def tune(
    workload: Any,
    target: Any = None,
    *,
    space: KnobValues | None = None,
    given: Mapping[str, Any] | None = None,
    trials: int = TRIALS,
    all_trials: bool = False,
    seconds: float | None = None,
    db: str | Path | None = None,
    jobs: int | None = None,
    devices: Sequence[int] = (),
    verify: bool = False,
    prove: bool = True,
    say: Callable[[Progress], None] = lambda progress: None,
    measurers: Sequence[Measurer] = (),
    compiler: Compiles | None = None,
) -> Tuned:
    """Try candidates of ``workload`` until ``trials`` are recorded or ``seconds`` have passed.

    Parameters
    ----------
    workload
        A ``Gemm``, a convolution or one of its gradients; or a PrimFunc, a Schedule or an IRModule
        with one, scheduled by whatever means, of which the choices of the plan are searched; or a
        function that returns one of these, given its knobs. Every extent is known. A function is
        right where it does what it does unpipelined.
    target
        As for ``pipeliner.pipeline``; None is the GPU of this machine.
    space
        Values to try of each knob, a parameter of ``workload``, by name: ``{"bk": [32, 64]}``. A
        parameter whose default is a list is a knob without that. Names that are no parameters are
        options of ``pipeliner.pipeline``; without any, the choices of the plan are searched.
    given
        KnobValues of the parameters that are no knobs.
    trials, seconds
        When to stop. Trials that the records already hold for this workload, machine and versions
        count: an interrupted search goes on, a finished one is done at once.
    all_trials
        Make all trials: without it a search ends once nothing better is likely to be left, by how
        far the model was off for this workload so far. ``Tuned.stopped`` says so.
        Of a function all trials are made, since no log has any.
    db
        The file of records, made where there is none; default ``PIPELINER_DB``.
    jobs
        Processes that compile; default all cores but one.
    devices
        Indices of the GPUs that measure, all of a kind; default the first.
    verify
        The emulator runs a small instance of each candidate before it is measured.
    prove
        The fastest is proved in the end for every trip count and every interleaving, as far as it
        can be (``pipeliner/proof``); its plan on record says what came of it.
    say
        Called at the start and after each trial.
    measurers, compiler
        What measures and compiles instead.

    Raises
    ------
    TargetError, ToolError
        There is no GPU, or not the target's, or no PyTorch to time with; or the first trials failed
        alike, so that no candidate can be at fault.
    RecordsError
        No file of records is named, or it is something else.
    """
    started = time.monotonic()
    chosen = target_for(target, NOTHING_ASKED)
    path = records_path(db)
    if trials < 1:
        raise WorkloadError("tune.trials", value=trials)
    if seconds is not None and not seconds > 0:
        raise WorkloadError("tune.seconds", value=seconds)
    subject = subject_of(workload, chosen, space, given)
    if isinstance(subject.workload, FunctionWorkload) and _are_remote(measurers):
        raise WorkloadError("tune.remote_function", function=subject.workload.name)
    measuring = list(measurers) or on_gpus(chosen, devices)
    for measurer in measuring:
        measurer.start()
    deadline = None if seconds is None else started + seconds
    with Records(path) as records:
        compiling = compiler or Compiler(chosen, jobs, verify=verify)
        try:
            compiling.start()
            how = (trials, deadline, say)
            search = Session(subject, chosen, records, compiling, *how, every=all_trials)
            interrupted = search.run(measuring)
        finally:
            compiling.close()
            for measurer in measuring:
                measurer.close()
        took = time.monotonic() - started
        best = records.best(*search.key)
        done, failed = search.done, search.failed
        found = Tuned(subject, chosen, path, best, done, failed, took, interrupted, search.stopped)
        if prove and best is not None and found.proof is None and not interrupted:
            found = replace(found, best=with_proof(best, found.kernel))
            assert found.best is not None
            records.amend(found.best)
    return found


def records_path(db: str | Path | None) -> Path:
    """The file of records that is named; RecordsError: none is."""
    named = db or knobs.records()
    if named is None:
        raise RecordsError("tune.no_file")
    return Path(named)


def ranked(workload: Any, target: Any, space: KnobValues | None = None) -> list[Point]:
    """The space of ``workload``, as for ``tune``, the fastest predicted first; needs no GPU."""
    return subject_of(workload, target_for(target, NOTHING_ASKED), space).ranked()


def _are_remote(measurers: Sequence[Measurer]) -> bool:
    return any(isinstance(one, RemoteMeasurer) for one in measurers)


def on_gpus(target: Any, devices: Sequence[int] = ()) -> list[Measurer]:
    """A measurer on each of ``devices``, or on the first; TargetError: they are not ``target``.

    WorkloadError: one is named twice; kernels that run at once tell nothing of their times.
    """
    if len(set(devices)) < len(devices):
        raise WorkloadError("tune.devices", devices=tuple(devices))
    present = gpu_arch()
    arch = str(target.attrs["arch"]).rstrip("af")
    if present is not None and arch != present:
        raise TargetError("tune.other_gpu", arch=arch, present=present)
    return [GpuMeasurer(device) for device in devices] or [GpuMeasurer()]
