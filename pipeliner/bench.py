"""Time kernels against their peers on the GPU of this machine, side by side in one process.

Every contender is checked against float64 first, on an output that holds NaN before. Then all of
one problem run in turns, the order rotated each round, the L2 cache overwritten before each run, so
that clocks and temperature drift for all alike; a contender's figure is the median of its rounds.
Operands are standard normal: zeros draw less power and run faster than any real matrix.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from .accuracy import worst_error
from .api import build, pipeline_with
from .compiled import Kernel
from .errors import TargetError, ToolError
from .peers import NESTED, STAGES, cublas, stock_mma, stock_simt
from .request import Request
from .schedules import Gemm, GemmTile, default_tile, schedule_gemm
from .targets import cuda_target, gpu

Runner = Callable[[Any, Any, Any], Any]

OURS: Final = "pipeliner"
OURS_PLAIN: Final = "pipeliner, depth 1"
CUBLAS: Final = "cuBLAS"
STOCK_PREFIX: Final = "TVM stock"

ROUNDS: Final = 30
WARM_UP: Final = 3
FLUSH_BYTES: Final = 256 * 1024 * 1024
"""More than the L2 cache of any GPU that is planned for, written before each timed run."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to compute a problem. ``make`` compiles it and says in a few words what it is."""

    name: str
    make: Callable[[], tuple[Runner, str]]
    out: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A GEMM and who computes it."""

    gemm: Gemm
    contenders: tuple[Contender, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What one contender did on one problem.

    Times are microseconds: the median and the quartiles of ``rounds`` runs. ``worst``: the largest
    error over what rounding allows. ``failure``: why there is no time, in one line.
    """

    problem: str
    contender: str
    us: float = 0.0
    low_us: float = 0.0
    high_us: float = 0.0
    rounds: int = 0
    tflops: float = 0.0
    worst: float = 0.0
    detail: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A ratio worth stating, with the least that is acceptable and what is aimed at.

    ``at_most``: the value is a bound from above (a time), not from below.
    """

    name: str
    value: float
    floor: float
    goal: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether the floor is reached."""
        return self.value <= self.floor if self.at_most else self.value >= self.floor


@dataclass
class Report:
    """What has been measured so far; complete unless ``interrupted``."""

    device: str
    results: list[Result] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    interrupted: bool = False

    def find(self, problem: str, contender: str) -> Result | None:
        """The result of a contender that ran and was right."""
        for result in self.results:
            if (result.problem, result.contender) == (problem, contender) and not result.failure:
                return result
        return None

    def best(self, problem: str, prefix: str) -> Result | None:
        """The fastest contender whose name starts with ``prefix``."""
        found = [
            result
            for result in self.results
            if result.problem == problem
            and result.contender.startswith(prefix)
            and not result.failure
        ]
        return min(found, key=lambda result: result.us, default=None)


def require_gpu() -> Any:
    """The torch module; TargetError without a GPU, ToolError without PyTorch."""
    if gpu() is None:
        raise TargetError("cannot time kernels: no GPU is visible")
    try:
        import torch
    except ImportError as err:
        raise ToolError("cannot time kernels: PyTorch is missing; pip install torch") from err
    if not torch.cuda.is_available():
        raise TargetError("cannot time kernels: PyTorch sees no GPU")
    return torch


def contenders(
    gemm: Gemm,
    target: Any,
    request: Request,
    tile: GemmTile | None = None,
    *,
    plain: bool = True,
    stock: bool = True,
) -> Problem:
    """Ours as requested, ours at depth 1, cuBLAS, and TVM's stock pipeline at each depth."""

    def ours(asked: Request) -> Callable[[], tuple[Runner, str]]:
        def make() -> tuple[Runner, str]:
            from .machine import machine_for

            chosen = tile or default_tile(gemm, machine_for(target))
            function = pipeline_with(schedule_gemm(gemm, chosen), target, asked)
            kernel = build(function, target)
            return kernel, f"{chosen.m}x{chosen.n}x{chosen.k} {describe(kernel)}"

        return make

    found = [Contender(OURS, ours(request), gemm.out)]
    if plain:
        found.append(Contender(OURS_PLAIN, ours(Request(depth=1)), gemm.out))
    found.append(Contender(CUBLAS, lambda: (cublas(gemm), ""), gemm.out))
    if stock:
        found.extend(_stock(gemm, target))
    return Problem(gemm, tuple(found))


def _stock(gemm: Gemm, target: Any) -> Iterator[Contender]:
    make = {"float16": stock_mma, "float32": stock_simt}.get(gemm.dtype)
    if make is None:
        return
    for stages in (*STAGES, *([NESTED] if gemm.dtype == "float16" else [])):
        name = f"{STOCK_PREFIX}, {stages or 'two levels, 4'} slots"

        def compiled(stages: int = stages, make: Any = make) -> tuple[Runner, str]:
            kernel = make(gemm, target, stages)
            return kernel, describe(kernel)

        yield Contender(name, compiled, "float32")


def describe(kernel: Kernel) -> str:
    """Depth and registers of a kernel, in a few words."""
    used = kernel.resources
    loops = kernel.plan.loops if kernel.pipeline == "pipeliner" else ()
    depths = {ring.depth for loop in loops for ring in loop.rings if ring.scope != "local"}
    depth = f"depth {'/'.join(map(str, sorted(depths)))}, " if depths else ""
    return f"{depth}{used.registers} registers, {used.spills} B spilled, {used.shared} B shared"


def measure(
    problem: Problem, report: Report, rounds: int = ROUNDS, say: Callable[[str], None] = print
) -> None:
    """Check and time the contenders of a problem; results and failures go to ``report``.

    An interrupt keeps what has been measured and sets ``report.interrupted``.
    """
    torch = require_gpu()
    gemm = problem.gemm
    samples: dict[str, list[float]] = {}
    details: dict[str, str] = {}
    errors: dict[str, float] = {}

    def fail(contender: Contender, err: Exception | str) -> None:
        lines = str(err).strip().splitlines() or [type(err).__name__]
        say(f"  {contender.name}: {lines[-1]}")
        report.results.append(Result(gemm.name, contender.name, failure=lines[-1]))

    try:
        operands = _operands(torch, gemm)
        truth = _truth(torch, gemm, *operands)
        ready: list[tuple[Contender, Runner, Any]] = []
        for contender in problem.contenders:
            say(f"{gemm.name}: {contender.name}")
            try:
                run, details[contender.name] = contender.make()
                out = _output(torch, gemm, contender.out)
                worst = _checked(torch, gemm, run, operands, out, truth)
            except Exception as err:  # one contender's failure is a result, not the end
                fail(contender, err)
                continue
            if not worst <= 1:
                fail(contender, f"wrong: largest error {worst:.3g} of what rounding allows")
                continue
            errors[contender.name] = worst
            samples[contender.name] = []
            ready.append((contender, run, out))
        _take_turns(torch, ready, operands, rounds, samples)
        for contender, run, out in list(ready):  # a race that shows only at times shows here too
            worst = _checked(torch, gemm, run, operands, out, truth)
            if not worst <= 1:
                del samples[contender.name]
                fail(contender, f"wrong after timing: error {worst:.3g} of what rounding allows")
    except KeyboardInterrupt:
        report.interrupted = True
    for name, times in samples.items():
        if len(times) > 1:
            report.results.append(_result(gemm, name, times, errors[name], details[name]))


def _result(gemm: Gemm, name: str, times: list[float], worst: float, detail: str) -> Result:
    low, middle, high = statistics.quantiles(times, n=4)
    return Result(
        gemm.name,
        name,
        us=middle,
        low_us=low,
        high_us=high,
        rounds=len(times),
        tflops=gemm.flops() / middle * 1e-6,
        worst=worst,
        detail=detail,
    )


def _take_turns(
    torch: Any,
    ready: list[tuple[Contender, Runner, Any]],
    operands: tuple[Any, Any],
    rounds: int,
    samples: dict[str, list[float]],
) -> None:
    """Time every contender once a round, in an order that moves on by one each round."""
    if not ready:
        return
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    for turn in range(-WARM_UP, rounds):
        first = turn % len(ready)
        timed = []
        for contender, run, out in [*ready[first:], *ready[:first]]:
            flush.zero_()  # also keeps the GPU busy while the launch is prepared
            start = torch.cuda.Event(enable_timing=True)
            stop = torch.cuda.Event(enable_timing=True)
            start.record()
            run(*operands, out)
            stop.record()
            timed.append((contender.name, start, stop))
        torch.cuda.synchronize()
        if turn >= 0:
            for name, start, stop in timed:
                samples[name].append(start.elapsed_time(stop) * 1e3)


def _checked(
    torch: Any, gemm: Gemm, run: Runner, operands: tuple[Any, Any], out: Any, truth: Any
) -> float:
    """The largest error of one run on a poisoned output; NaN where an element is not written."""
    out.fill_(float("nan") if out.is_floating_point() else -85)
    run(*operands, out)
    torch.cuda.synchronize()
    return worst_error(gemm, out, *truth)


def _operands(torch: Any, gemm: Gemm) -> tuple[Any, Any]:
    torch.manual_seed(0)
    a, b, _ = gemm.shapes()
    if gemm.storage == "int8":
        made = [torch.randint(-8, 8, shape, device="cuda", dtype=torch.int8) for shape in (a, b)]
    else:
        dtype = getattr(torch, gemm.storage)
        made = [torch.randn(shape, device="cuda").to(dtype) for shape in (a, b)]
    return made[0], made[1]


def _truth(torch: Any, gemm: Gemm, a: Any, b: Any) -> tuple[Any, Any]:
    """The product in float64, and the product of the absolute values."""
    left = a.double() if gemm.layout[0] == "N" else a.double().transpose(-1, -2)
    right = b.double() if gemm.layout[1] == "N" else b.double().transpose(-1, -2)
    return left @ right, left.abs() @ right.abs()


def _output(torch: Any, gemm: Gemm, dtype: str) -> Any:
    return torch.empty(gemm.shapes()[2], dtype=getattr(torch, dtype), device="cuda")


def device_name() -> str:
    """The GPU and the libraries of the peers."""
    torch = require_gpu()
    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}"


def quick(gemm: Gemm, kernel: Kernel, rounds: int) -> Report:
    """``kernel`` against cuBLAS on ``gemm``."""
    report = Report(device_name())
    ours = Contender(OURS, lambda: (kernel, describe(kernel)), gemm.out)
    peer = Contender(CUBLAS, lambda: (cublas(gemm), ""), gemm.out)
    measure(Problem(gemm, (ours, peer)), report, rounds, say=lambda text: None)
    return report


@contextmanager
def stopwatch(took: list[float]) -> Iterator[None]:
    """Append the milliseconds that the body takes to ``took``."""
    started = time.perf_counter()
    yield
    took.append((time.perf_counter() - started) * 1e3)


def transformation_ms(gemm: Gemm, target: Any, tile: GemmTile, repeats: int = 3) -> float:
    """Median milliseconds of all passes on one schedule: from scheduled to pipelined TensorIR."""
    took: list[float] = []
    for _ in range(repeats):
        schedule = schedule_gemm(gemm, tile)
        with stopwatch(took):
            pipeline_with(schedule, target, Request())
    return statistics.median(took)


SQUARE: Final = 4096
SIMT_SIZES: Final = (2048, 4096, 8192)
RAGGED: Final = (4000, 4104, 4040)
HALVES: Final = ("float16", "bfloat16")
LAYOUTS: Final = ("NN", "NT")


def spine(target: Any = None) -> list[Problem]:
    """The problems on which this library states its figures."""
    where = cuda_target(target)
    asked = Request()

    return [
        *(
            contenders(square(SQUARE, dtype, layout), where, asked, stock=layout == "NN")
            for dtype in HALVES
            for layout in LAYOUTS
        ),
        *(
            contenders(Gemm(*RAGGED, layout=layout), where, asked, plain=False, stock=False)
            for layout in LAYOUTS
        ),
        *(
            contenders(
                square(size, "float32", layout), where, asked, plain=False, stock=layout == "NN"
            )
            for layout in LAYOUTS
            for size in SIMT_SIZES
        ),
    ]


def square(size: int, dtype: str, layout: str) -> Gemm:
    """The GEMM of three equal extents."""
    return Gemm(size, size, size, dtype=dtype, layout=layout)


def spine_claims(report: Report, target: Any = None) -> list[Claim]:
    """The figures of ``spine`` as ratios, as far as they could be measured.

    TVM has one tensor core schedule, for fp16 and layout NN: both types and layouts are held
    against it.
    """
    from .machine import machine_for

    where = cuda_target(target)
    stock = report.best(square(SQUARE, "float16", "NN").name, STOCK_PREFIX)
    claims: list[Claim | None] = []
    for dtype in HALVES:
        for layout in LAYOUTS:
            name = square(SQUARE, dtype, layout).name
            ours, plain = report.find(name, OURS), report.find(name, OURS_PLAIN)
            label = f"{dtype} {layout} {SQUARE}^3"
            claims.append(_faster(f"{label} over TVM's stock fp16 NN", ours, stock, 1.6, 1.9))
            claims.append(_faster(f"{label}: chosen depth over depth 1", ours, plain, 1.25, 1.25))
    for layout in LAYOUTS:
        for size in SIMT_SIZES:
            name = square(size, "float32", layout).name
            pair = report.find(name, OURS), report.find(name, CUBLAS)
            claims.append(_faster(f"float32 {layout} {size}^3 over cuBLAS", *pair, 0.92, 1.0))
    for layout in LAYOUTS:
        ragged, even = Gemm(*RAGGED, layout=layout), square(SQUARE, "float16", layout)
        rates = report.find(ragged.name, OURS), report.find(even.name, OURS)
        shape = "x".join(map(str, RAGGED))
        label = f"ragged {layout} {shape}: rate over {SQUARE}^3's"
        claims.append(_faster(label, *rates, 0.92, 0.96))
    gemms = [problem.gemm for problem in spine(where)]
    tiles = [(gemm, default_tile(gemm, machine_for(where))) for gemm in gemms]
    slowest = max(transformation_ms(gemm, where, tile) for gemm, tile in tiles)
    claims.append(Claim("slowest transformation, ms", slowest, 150.0, 150.0, at_most=True))
    return [claim for claim in claims if claim is not None]


def _faster(
    name: str, ours: Result | None, theirs: Result | None, floor: float, goal: float
) -> Claim | None:
    if ours is None or theirs is None:
        return None
    return Claim(name, ours.tflops / theirs.tflops, floor, goal)
