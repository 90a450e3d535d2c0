"""Run the probes on the GPU of this machine.

Each kernel runs several times; the least counts, for nothing makes a GPU faster than it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..diagnostics import Why
from ..kernel.compiled import Kernel, compile_kernel
from ..machine import Machine, MeasuredValue
from ..measuring import WRITTEN, Builder, Recipe, Say, flushing, timed
from ..measuring.lab import Batch, Lab, Make, Study
from ..values.failure import why
from . import kernels
from .probes import LINE_WORDS, STEPS, Probe, ProbeRun, Took, probes

REPEATS: Final = 5
PIPELINE: Final = "tirx"
SECONDS: Final = 600.0
"""To compile one kernel."""

_LAUNCHES: Final = (20, 220)
"""Kernels in a row, of which the difference is timed."""


@dataclass(frozen=True)
class ProbeKernel(Recipe):
    """The kernel of run ``run`` of probe ``probe`` on a GPU such as ``machine``.

    ``probe``: -1: the kernel that does nothing.
    """

    machine: Machine
    target: Any
    probe: int
    run: int

    def kernel(self) -> tuple[Kernel, str]:
        """Compiled as it is written."""
        made = kernels.nothing
        if self.probe >= 0:
            made = list(probes(self.machine))[self.probe].runs[self.run].make
        return compile_kernel(made(), self.target, PIPELINE), ""


@dataclass
class Calibration:
    """What was measured so far; ``failed``: probes that could not be run, with the reason."""

    measured: dict[str, MeasuredValue] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def calibrate(
    torch: Any,
    machine: Machine,
    target: Any,
    jobs: int | None,
    say: Say,
    make: Callable[[ProbeKernel], Make] | None = None,
) -> Calibration:
    """Measure everything, once all is compiled; an interrupt keeps what has been measured.

    ``make``: what compiles a probe's kernel instead.
    """
    found = Calibration()
    asked = [(at, probe, len(probe.runs)) for at, probe in enumerate(probes(machine))]
    places: list[tuple[int, Probe | None, int]] = [*asked, (-1, None, 1)]
    builder = Builder(jobs, seconds=SECONDS)
    make = make or (lambda kernel: functools.partial(builder.build, kernel))
    batches = [
        _Asked(
            makes=[make(ProbeKernel(machine, target, at, run)) for run in range(runs)], probe=probe
        )
        for at, probe, runs in places
    ]
    study = _Probing(torch, batches, found, say)
    try:
        found.interrupted = Lab(study, builder, [builder], here=say).run()
    finally:
        builder.close()
    return found


@dataclass(slots=True, eq=False, kw_only=True)
class _Asked(Batch):
    """The kernels of a probe; None: of the one that does nothing."""

    probe: Probe | None


class _Probing(Study[_Asked, Builder]):
    """Probes one after the other, in this process."""

    def __init__(self, torch: Any, batches: Sequence[_Asked], found: Calibration, say: Say) -> None:
        self._torch, self.batches, self._found, self._say = torch, iter(batches), found, say
        self._flush = flushing(torch, WRITTEN)

    def measure(self, batch: _Asked, measurer: Builder) -> Mapping[str, MeasuredValue] | Why:
        """What a probe measured, or why it could not."""
        try:
            kernels = [built.load()[0] for built in batch.built if built is not None]
            if batch.probe is None:
                return launch_times(self._torch, kernels[0])
            runs = zip(kernels, batch.probe.runs)
            return batch.probe.values([_took(self._torch, *one, self._flush) for one in runs])
        except Exception as err:  # a GPU refuses what it likes: the others are still asked
            return str(why(err))

    def keep(self, batch: _Asked, found: Mapping[str, MeasuredValue] | Why) -> None:
        """Add the values to the calibration, or the failure."""
        name = "launch" if batch.probe is None else batch.probe.name
        if isinstance(found, Mapping):
            self._found.measured.update(found)
            self._say(f"{name}: " + ", ".join(_text(key, one) for key, one in found.items()))
        else:
            self._found.failed[name] = str(found)
            self._say(f"{name}: {found}")


def _text(key: str, one: MeasuredValue) -> str:
    return f"{key} {one.value:.4g} {one.unit}"


def _took(torch: Any, kernel: Any, run: ProbeRun, flush: Any) -> Took:
    """The least of several runs, after one that loads the kernel and warms L2."""
    out = torch.zeros((run.ctas,), dtype=torch.int64, device="cuda")
    arguments = (*_inputs(torch, run), out, *_sink(torch, run))
    cycles: list[float] = []
    us: list[float] = []
    before = flush if run.cold else None
    for _ in range(REPEATS + 1):
        us += timed(torch, [lambda: kernel(*arguments)], before)
        cycles.append(float(out.double().max()))
    return Took(min(cycles[1:]), min(us[1:]))


def _inputs(torch: Any, run: ProbeRun) -> tuple[Any, ...]:
    if run.chased:
        return (pointer_cycle(torch, run.chased),)
    if run.words:
        return (torch.zeros((run.words,), dtype=torch.int32, device="cuda"),)
    if run.rows:
        shape = (run.rows, kernels.BOX_COLUMNS)
        return (torch.zeros(shape, dtype=torch.float16, device="cuda"),)
    return ()


def _sink(torch: Any, run: ProbeRun) -> tuple[Any, ...]:
    if run.sink is None:
        return ()
    count, dtype = run.sink
    return (torch.zeros((count,), dtype=getattr(torch, dtype), device="cuda"),)


def pointer_cycle(torch: Any, words: int) -> Any:
    """Words each of which says where the next is, in lines that come in no order and once."""
    torch.manual_seed(0)
    stride = LINE_WORDS if words >= LINE_WORDS * 2 * STEPS else 1
    lines = torch.randperm(words // stride - 1, device="cuda")[: words // stride - 1] + 1
    order = torch.cat([torch.zeros_like(lines[:1]), lines]) * stride
    found = torch.zeros((words,), dtype=torch.int32, device="cuda")
    found[order] = torch.roll(order, -1).to(torch.int32)
    return found


def launch_times(torch: Any, kernel: Any) -> dict[str, MeasuredValue]:
    """Of kernels that do nothing, one behind another in a CUDA graph."""
    out = torch.zeros((1,), dtype=torch.int64, device="cuda")
    kernel(out)
    torch.cuda.synchronize()
    times = []
    for count in _LAUNCHES:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                kernel(out)
        times.append(min(timed(torch, [graph.replay] * (REPEATS + 1))[1:]))
    each = (times[1] - times[0]) / (_LAUNCHES[1] - _LAUNCHES[0])
    how = "from kernel to kernel that does nothing, in a CUDA graph"
    return {"launch_us": MeasuredValue(round(each, 3), "us", how)}
