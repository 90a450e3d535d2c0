"""Search for the fastest kernel of a workload; everything that is measured is kept.

The model ranks the space, processes side by side compile what comes next in it, and one kernel at a
time is measured on each GPU, beside the fastest so far. Each result corrects the ranking.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .. import knobs
from ..errors import RecordsError, TargetError, WorkloadError
from ..kernel.building import target_for
from ..machine import machine_for
from ..measuring import Compiler, Compiles, GpuMeasurer, Measurer, cores, workers_for
from ..records import Record, Records
from ..records.candidate import NOTHING_ASKED, Candidate
from ..schedules.workloads import Spec
from ..targets import gpu_arch
from .session import Progress, Session
from .space import Point, space

TRIALS: Final = 64


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a search came to. ``best``: None where no candidate ran. ``done``: of all trials.

    ``seconds``: that this call took. ``interrupted``: it was ended early, by ^C; what was measured
    is in the records at ``path``, and the same call goes on from there.
    """

    spec: Spec
    target: Any
    path: Path
    best: Record | None
    done: int
    failed: int
    seconds: float
    interrupted: bool = False

    @property
    def candidate(self) -> Candidate:
        """The fastest candidate; WorkloadError: none ran."""
        if self.best is None:
            raise WorkloadError("tune.no_best", workload=self.spec.name)
        return Candidate.from_json(self.best.candidate)


def tune(
    workload: Spec,
    target: Any = None,
    *,
    trials: int = TRIALS,
    seconds: float | None = None,
    db: str | Path | None = None,
    jobs: int | None = None,
    devices: Sequence[int] = (),
    verify: bool = False,
    say: Callable[[Progress], None] = lambda progress: None,
    measurers: Sequence[Measurer] = (),
    compiler: Compiles | None = None,
) -> Tuned:
    """Try candidates of ``workload`` until ``trials`` are recorded or ``seconds`` have passed.

    Parameters
    ----------
    workload
        A ``Gemm``, a convolution or one of its gradients; every extent is known.
    target
        As for ``pipeliner.pipeline``; None is the GPU of this machine.
    trials, seconds
        When to stop. Trials that the records already hold for this workload, machine and versions
        count: an interrupted search goes on, a finished one is done at once.
    db
        The file of records, made where there is none; default ``PIPELINER_DB``.
    jobs
        Processes that compile; default all cores but one.
    devices
        Indices of the GPUs that measure, all of a kind; default the first.
    verify
        The emulator runs a small instance of each candidate before it is measured.
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
    given = target_for(target, NOTHING_ASKED)
    path = records_path(db)
    workload.shapes()  # WorkloadError where an extent is open: nothing could be run
    if trials < 1:
        raise WorkloadError("tune.trials", value=trials)
    if seconds is not None and not seconds > 0:
        raise WorkloadError("tune.seconds", value=seconds)
    measuring = list(measurers) or on_gpus(given, devices)
    for measurer in measuring:
        measurer.start()
    count = workers_for(cores()) if jobs is None else jobs
    deadline = None if seconds is None else started + seconds
    with Records(path) as records:
        compiling = compiler or Compiler(given, count, verify=verify)
        try:
            compiling.start()
            search = Session(workload, given, records, trials, deadline, say)
            interrupted = search.run(compiling, measuring)
        finally:
            compiling.close()
            for measurer in measuring:
                measurer.close()
        took = time.monotonic() - started
        best = records.best(*search.key)
        done, failed = search.done, search.failed
    return Tuned(workload, given, path, best, done, failed, took, interrupted)


def records_path(db: str | Path | None) -> Path:
    """The file of records that is named; RecordsError: none is."""
    named = db or knobs.records()
    if named is None:
        raise RecordsError("tune.no_file")
    return Path(named)


def ranked(workload: Spec, target: Any) -> list[Point]:
    """The whole space of ``workload``, the fastest predicted first; needs no GPU."""
    return space(workload, machine_for(target_for(target, NOTHING_ASKED)))


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
