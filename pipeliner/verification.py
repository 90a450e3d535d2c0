"""Whether a kernel is right: run on the CPU under adversarial timing, judged and compared.

The emulator executes the lowered kernel and objects to every access that nothing orders; what it
computes is compared with a reference. Each run has its own timing of asynchronous copies and its
own order of warps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import tvm
from tvm import ir
from tvm.tirx.buffer import is_buffer_var

from .accuracy import equal, poisoned, relative_error, worst_error
from .api import build
from .compiled import Kernel, as_module, only_function, plan_of
from .cuda_lines import lines_when_asked
from .emulator import Emulation, Hazard, emulate
from .emulator.copies import TIMINGS
from .emulator.evaluate import evaluate
from .emulator.lower import is_device_function
from .emulator.report import CudaLine
from .emulator.scheduler import ORDERS
from .errors import WorkloadError
from .passes.ir import const_int, walk
from .passes.pipeline import is_marked

if TYPE_CHECKING:
    from .schedules.workloads import Spec

Inputs: TypeAlias = "Sequence[Any] | Mapping[str, Any]"
Block: TypeAlias = "tuple[int, int, int]"
Outputs: TypeAlias = "Mapping[str, np.ndarray[Any, Any]]"

LARGEST_INTEGER: Final = 4
"""Of the integers in random arguments: sums of thousands of their products are exact in float32."""


@dataclass(frozen=True, slots=True)
class Run:
    """One execution: when copies landed, how warps took turns, and what came of it."""

    timing: str
    order: str
    worst: float
    hazards: tuple[Hazard, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every element is right and nothing was objected to."""
        return self.worst <= 1 and not self.hazards


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of all runs of one kernel.

    ``against``: what the outputs were compared with. ``outputs``: of the first run, by parameter.
    """

    title: str
    against: str
    runs: tuple[Run, ...]
    outputs: Outputs = field(default_factory=dict, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether every run is right."""
        return all(run.ok for run in self.runs)

    @property
    def worst(self) -> float:
        """The largest error in units of what is allowed, so right means at most 1.

        NaN where an element was not written.
        """
        return float(np.max([run.worst for run in self.runs]))

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """What the emulator objects to: each pair of statements once, of the first run with it."""
        found: dict[tuple[Any, ...], Hazard] = {}
        for run in self.runs:
            for hazard in run.hazards:
                other = hazard.other.statement if hazard.other else ""
                key = (hazard.kind, hazard.site.statement, other, hazard.buffer)
                found.setdefault(key, hazard)
        return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Subject:
    """Something to run: its host function, how to emulate it, and the same not pipelined.

    ``line``: where a statement of a device function, by their name and number, stands in the CUDA.
    """

    title: str
    function: Any
    lowered: Any
    emulate: Callable[..., Emulation]
    plain: Callable[[], Kernel] | None = None
    line: Callable[[str, int], CudaLine | None] = lambda kernel, number: None


def verify(
    func: Any,
    inputs: Inputs | None = None,
    *,
    target: Any = None,
    reference: Callable[..., Any] | None = None,
    timings: Sequence[str] = TIMINGS,
    orders: Sequence[str] = ORDERS,
    seed: int = 0,
    blocks: Iterable[Block] | None = None,
    integers: bool = False,
    extents: Mapping[str, int] | None = None,
) -> Verdict:
    """Run ``func`` on the CPU under adversarial timing; whether it is right, and every hazard.

    Parameters
    ----------
    func
        A kernel, a PrimFunc, a Schedule, or an IRModule, also a lowered one. A function that is not
        pipelined yet is pipelined and compiled as by ``pipeliner.build``.
    inputs
        Its arguments as numpy arrays, outputs included, in order or by name; they stay as they are.
        None: random ones, standard normal, from ``seed``.
    target
        As for ``pipeliner.build``.
    reference
        Given the arrays, returns what the last one must become, or a mapping of what several must
        become by name. None: the same function, not pipelined, run on the same arrays; what was
        pipelined before it came here has none, and only its runs are compared with each other.
    timings
        When asynchronous copies land: ``"late"``, ``"early"``, ``"random"``.
    orders
        How warps take turns: ``"lockstep"``, ``"round-robin"``, ``"reversed"``, ``"random"``. Every
        timing and every order is in a run, as many runs as there are of whichever are more: hazards
        are judged by happens-before, which no order hides.
    seed
        Of the arguments, random timing and random order: the same seed gives the same verdict.
    blocks
        blockIdx (x, y, z) of the CTAs to run, all by default. What they leave as it was is not
        compared.
    integers
        Random arguments are small integers, whose sums are exact: every element must be equal.
    extents
        Values of the symbolic extents in the shapes of random arguments, by name.

    Raises
    ------
    WorkloadError
        A shape is symbolic and ``extents`` has no value for it.
    EmulatorError
        An operation that the emulator does not know, or arguments that do not fit.
    """
    subject = subject_of(func, target)
    arrays = arguments(subject.function, inputs, seed, integers=integers, extents=extents)
    chosen = None if blocks is None else list(blocks)
    options = {"blocks": chosen, "seed": seed}
    against, wanted = _reference(subject, arrays, reference, options)

    parts = added_parts(subject.function)

    def judge(outputs: Outputs) -> float:
        nonlocal wanted
        wanted = wanted or outputs
        kept = {} if chosen is None else arrays
        return max(
            _error(outputs[name], want, kept.get(name), parts, exact=integers)
            for name, want in wanted.items()
        )

    modes = paired(timings, orders)
    runs, outputs = _run(subject, list(arrays.values()), modes, judge, options)
    return Verdict(subject.title, against, runs, outputs)


def verify_workload(
    kernel: Kernel,
    spec: Spec,
    seed: int = 0,
    timings: Sequence[str] = TIMINGS,
    orders: Sequence[str] = ORDERS,
) -> Verdict:
    """``kernel`` on random operands, held against what ``spec`` must compute, in float64."""
    inputs = spec.inputs(seed)
    out = poisoned(spec.shapes()[-1], spec.out)
    exact, magnitude = spec.reference(*inputs), spec.magnitude(*inputs)

    subject = subject_of(kernel)
    parts = added_parts(subject.function)

    def judge(outputs: Outputs) -> float:
        return worst_error(spec, list(outputs.values())[-1], exact, magnitude, parts)

    modes = paired(timings, orders)
    runs, outputs = _run(subject, [*inputs, out], modes, judge, {"seed": seed})
    return Verdict(spec.name, "the exact result in float64", runs, outputs)


def paired(timings: Sequence[str], orders: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs in which every timing and every order is, the first with the first.

    WorkloadError: there are none of one of them.
    """
    if not timings or not orders:
        raise WorkloadError("expected at least one timing and one order")
    count = max(len(timings), len(orders))
    return [(timings[at % len(timings)], orders[at % len(orders)]) for at in range(count)]


def subject_of(func: Any, target: Any = None) -> Subject:
    """What ``verify`` runs for ``func``."""
    if isinstance(func, tvm.IRModule) and any(map(is_device_function, func.functions.values())):
        host = only_function(tvm.IRModule(
            {var: f for var, f in func.functions.items() if not is_device_function(f)}
        ))  # fmt: skip
        name = str(host.attrs["global_symbol"])
        lines = lines_when_asked(func)

        def run(*arrays: Any, **options: Any) -> Emulation:
            return emulate(func, arrays, lines=lines, **options)

        return Subject(name, host, func, run, line=lines)
    kernel = func if isinstance(func, Kernel) else build(func, target)
    plain = _unpipelined(func, kernel)

    def line(name: str, number: int) -> CudaLine | None:
        return kernel.cuda_lines.find(name, number)

    return Subject(kernel.name, kernel.function, kernel.lowered, kernel.emulate, plain, line)


def arguments(
    function: Any,
    inputs: Inputs | None = None,
    seed: int = 0,
    *,
    integers: bool = False,
    extents: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Arguments of a PrimFunc by name: ``inputs``, or random ones.

    WorkloadError: ``inputs`` are not as many as it takes.
    """
    names = [str(param.name) for param in function.params]
    if inputs is None:
        return dict(
            zip(names, random_arguments(function, seed, integers=integers, extents=extents))
        )
    if isinstance(inputs, Mapping):
        inputs = [inputs[name] for name in names if name in inputs]
    if len(inputs) != len(names):
        raise WorkloadError(f"expected arguments {', '.join(names)}, got {len(inputs)} of them")
    return dict(zip(names, inputs))


def random_arguments(
    func: Any,
    seed: int = 0,
    *,
    integers: bool = False,
    extents: Mapping[str, int] | None = None,
) -> list[Any]:
    """Random arguments for the parameters of a PrimFunc; WorkloadError: a shape is not known."""
    from .schedules.workloads import numpy_dtype

    rng = np.random.default_rng(seed)
    known = dict(extents or {})
    found: list[Any] = []
    for param in func.params:
        if not is_buffer_var(param):
            found.append(_known(param, param, known))
            continue
        shape = [_known(param, extent, known) for extent in param.shape]
        kind = numpy_dtype(str(param.dtype))
        if kind.kind == "b":
            found.append(rng.integers(0, 2, shape).astype(kind))
        elif kind.kind in "iu":
            found.append(rng.integers(0, 8, shape).astype(kind))
        elif integers:
            found.append(rng.integers(-LARGEST_INTEGER, LARGEST_INTEGER + 1, shape).astype(kind))
        else:
            found.append(rng.standard_normal(shape).astype(kind))
    return found


def _known(param: Any, extent: Any, extents: Mapping[str, int]) -> int:
    """The value of an extent of ``param``, whose variables have the values ``extents``."""
    value = const_int(extent)
    if value is not None:
        return value
    variables: set[Any] = set()
    walk(extent, ir.Var, variables.add)
    missing = sorted(str(var.name) for var in variables if str(var.name) not in extents)
    if missing:
        raise WorkloadError(
            f"cannot make an argument for '{param.name}': its shape is not static, "
            f"and extents has no {', '.join(missing)}"
        )
    return int(evaluate(extent, {var: extents[str(var.name)] for var in variables}))


def _unpipelined(func: Any, kernel: Kernel) -> Callable[[], Kernel] | None:
    """Makes the kernel of the same function not pipelined; None where that is not known."""
    source = kernel.original if isinstance(func, Kernel) else only_function(as_module(func))
    if is_marked(source):
        return None
    return lambda: build(source, kernel.target, depth=1)


def _reference(
    subject: Subject,
    arrays: Mapping[str, Any],
    reference: Callable[..., Any] | None,
    options: Mapping[str, Any],
) -> tuple[str, Outputs]:
    """What the outputs are compared with, in words and as arrays; none: with the first run."""
    if reference is not None:
        wanted = reference(*arrays.values())
        if not isinstance(wanted, Mapping):
            wanted = {list(arrays)[-1]: wanted}
        return "the reference", {name: np.asarray(want) for name, want in wanted.items()}
    if subject.plain is None:
        return "the first run", {}
    outcome = subject.plain().emulate(*arrays.values(), **options)
    return "the same function, not pipelined", outcome.outputs


def _run(
    subject: Subject,
    arrays: Sequence[Any],
    modes: Sequence[tuple[str, str]],
    judge: Callable[[Outputs], float],
    options: Mapping[str, Any],
) -> tuple[tuple[Run, ...], Outputs]:
    """Every run, and the outputs of the first."""
    runs: list[Run] = []
    first: Outputs = {}
    for timing, order in modes:
        begun = time.perf_counter()
        outcome = subject.emulate(*arrays, timing=timing, order=order, **options)
        first = first or outcome.outputs
        worst = judge(outcome.outputs)
        seconds = time.perf_counter() - begun
        runs.append(Run(timing, order, worst, outcome.hazards, seconds))
    return tuple(runs), first


def added_parts(function: Any) -> int:
    """As how many parts, each rounded, the plan of ``function`` has its results added; 0: none."""
    if not is_marked(function):
        return 0
    return max((store.adds for store in plan_of(function).stores), default=0)


def _error(got: Any, want: Any, kept: Any, parts: int, *, exact: bool) -> float:
    """The error of one output over what is allowed; ``kept``: elements equal to it do not count."""
    if got.shape != want.shape:
        raise WorkloadError(f"expected a reference of shape {got.shape}, got {want.shape}")
    if kept is not None:
        want = np.where(equal(got, kept), got, want)
    if exact:
        return 0.0 if equal(got, want).all() else float("inf")
    return relative_error(got, want, parts)
