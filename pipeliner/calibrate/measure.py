"""Run the probes on the GPU of this machine.

Each kernel runs several times; the least counts, for nothing makes a GPU faster than it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from ..kernel.compiled import Kernel, compile_kernel
from ..machine import Machine, MeasuredValue
from ..measuring import FLUSH_BYTES, BuiltCandidate, Recipe, Say, timed
from ..measuring.compiling import compiled as compiled_ahead
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


@contextmanager
def compiled(
    machine: Machine, target: Any, workers: int, say: Say
) -> Iterator[Mapping[tuple[int, int], BuiltCandidate]]:
    """Every kernel by its probe and run, compiled side by side."""
    places = [(-1, 0)]
    for at, probe in enumerate(probes(machine)):
        places += [(at, run) for run in range(len(probe.runs))]
    recipes = [ProbeKernel(machine, target, *place) for place in places]
    with compiled_ahead(recipes, workers, say, SECONDS) as built:
        yield dict(zip(places, built))


def calibrate(
    torch: Any,
    machine: Machine,
    made: Mapping[tuple[int, int], BuiltCandidate],
    say: Say,
) -> Calibration:
    """Measure everything; an interrupt keeps what has been measured."""
    found = Calibration()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    asked: Iterable[tuple[int, Probe | None]] = [*enumerate(probes(machine)), (-1, None)]
    try:
        for at, probe in asked:
            name = "launch" if probe is None else probe.name
            try:
                if probe is None:
                    values = launch_times(torch, _loaded(made[at, 0]))
                else:
                    took = [
                        _took(torch, _loaded(made[at, run]), one, flush)
                        for run, one in enumerate(probe.runs)
                    ]
                    values = probe.values(took)
            except Exception as err:  # a GPU refuses what it likes: the others are still asked
                found.failed[name] = str(why(err))
                say(f"{name}: {found.failed[name]}")
                continue
            found.measured.update(values)
            say(f"{name}: " + ", ".join(_text(key, one) for key, one in values.items()))
    except KeyboardInterrupt:
        found.interrupted = True
    return found


def _text(key: str, one: MeasuredValue) -> str:
    return f"{key} {one.value:.4g} {one.unit}"


def _loaded(made: BuiltCandidate) -> Any:
    return made.load()[0]


def _took(torch: Any, kernel: Any, run: ProbeRun, flush: Any) -> Took:
    """The least of several runs, after one that loads the kernel and warms L2."""
    out = torch.zeros((run.ctas,), dtype=torch.int64, device="cuda")
    arguments = (*_inputs(torch, run), out, *_sink(torch, run))
    cycles: list[float] = []
    us: list[float] = []
    before = flush.zero_ if run.cold else lambda: None
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
