"""Check the contenders of a problem, then time them interleaved."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any, Final

from ..diagnostics import Reason, Why
from ..kernel.compiled import Kernel
from ..records.record import OURS
from ..schedules import Gemm
from ..values.failure import why
from .conditions import device_name, require_gpu, sm_clock
from .libraries import Runner
from .peers import cublas
from .problems import LIBRARY_SLACK, Contender, Inputs, Problem, Say, describe
from .results import CUBLAS, Report, Result
from .truth import Truth, empty_output, random_inputs, truth

ROUNDS: Final = 30
WARM_UP: Final = 3
FLUSH_BYTES: Final = 512 * 1024 * 1024
"""Written before each timed run: more than the L2 cache of any GPU that is planned for, and long
enough (about 0.2 ms on an H100) that the launch is prepared before the GPU is done with it."""


@dataclass(slots=True)
class ReadyContender:
    """A contender that is ready: compiled, and right once."""

    contender: Contender
    run: Runner
    inputs: Inputs
    out: Any
    detail: str
    worst: float
    times: list[float] = field(default_factory=list)


def measure(problem: Problem, report: Report, rounds: int = ROUNDS, say: Say = print) -> None:
    """Check and time the contenders of a problem; results and failures go to ``report``.

    Whatever fails is a result in one line, not the end. An interrupt keeps what has been measured
    and sets ``report.interrupted``.
    """
    torch = require_gpu()
    entries: list[ReadyContender] = []
    failed: set[str] = set()

    def fail(contender: Contender, why: Why) -> None:
        say(f"  {contender.name}: {why}")
        failed.add(contender.name)
        report.results.append(_failure(problem, contender, why))

    try:
        inputs = random_inputs(torch, problem.spec)
        right = truth(torch, problem.spec, inputs)
        for contender in problem.contenders:
            say(f"{problem.name}: {contender.name}")
            try:
                entry = ready(torch, problem, contender, inputs, right)
            except Exception as err:  # a peer's library raises what it likes: its result
                fail(contender, why(err))
                continue
            if entry.worst <= contender.slack:
                entries.append(entry)
            else:
                fail(contender, Reason("measure.wrong", error=entry.worst))
        _interleave(torch, entries, rounds)
        clock = sm_clock()
        if clock is not None:
            report.sm_clocks[problem.name] = clock
        for entry in entries:  # a race that shows only at times shows here too
            worst = checked(torch, entry, right)
            if not worst <= entry.contender.slack:
                fail(entry.contender, Reason("measure.wrong_later", error=worst))
    except KeyboardInterrupt:
        report.interrupted = True
    except Exception as err:
        # Out of memory, or a GPU that a kernel has left unusable: any library may be the one to
        # say so, and what was measured before is worth keeping.
        for contender in problem.contenders:
            if contender.name not in failed:
                fail(contender, why(err))
    for entry in entries:
        if len(entry.times) > 1 and entry.contender.name not in failed:
            report.results.append(_result(problem, entry))
    _say_outcome(problem, report, say)


def quick(gemm: Gemm, kernel: Kernel, rounds: int) -> Report:
    """``kernel`` against cuBLAS on ``gemm``."""
    report = Report(device_name(), rounds=rounds)
    ours = Contender(OURS, lambda: (kernel, describe(kernel)), gemm.out)
    peer = Contender(CUBLAS, lambda: (cublas(gemm), ""), gemm.out, slack=LIBRARY_SLACK)
    measure(Problem(gemm, (ours, peer)), report, rounds, say=lambda text: None)
    return report


def ready(
    torch: Any, problem: Problem, contender: Contender, inputs: Inputs, right: Truth
) -> ReadyContender:
    """The contender, compiled, loaded and run once; whether it was right is in ``worst``."""
    run, detail = contender.make()
    out = empty_output(torch, problem.spec, contender.out)
    entry = ReadyContender(contender, run, contender.arrange(inputs), out, detail, worst=0.0)
    entry.worst = checked(torch, entry, right)
    return entry


def checked(torch: Any, entry: ReadyContender, right: Truth) -> float:
    """The largest error of one run on a poisoned output; NaN where an element is not written."""
    out = entry.out
    out.fill_(float("nan") if out.is_floating_point() else -85)
    made = entry.run(*entry.inputs, out)
    torch.cuda.synchronize()
    return right.error(out if made is None else made)


def _interleave(torch: Any, entries: list[ReadyContender], rounds: int) -> None:
    """Time every contender once a round."""
    if not entries:
        return
    flush = flush_buffer(torch)
    for number in range(-WARM_UP, rounds):
        run_round(torch, entries, number, flush)


def flush_buffer(torch: Any) -> Any:
    """What is written before each timed run."""
    return torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")


def run_round(torch: Any, entries: list[ReadyContender], number: int, flush: Any) -> None:
    """Run every contender once, in an order that moves on by one each round.

    Times go to the entries, but for rounds below 0, which warm up.
    """
    first = number % len(entries)
    timed = []
    for entry in [*entries[first:], *entries[:first]]:
        flush.zero_()
        start = torch.cuda.Event(enable_timing=True)
        stop = torch.cuda.Event(enable_timing=True)
        start.record()
        entry.run(*entry.inputs, entry.out)
        stop.record()
        timed.append((entry, start, stop))
    torch.cuda.synchronize()
    if number >= 0:
        for entry, start, stop in timed:
            entry.times.append(start.elapsed_time(stop) * 1e3)


def _result(problem: Problem, entry: ReadyContender) -> Result:
    low, middle, high = statistics.quantiles(entry.times, n=4)
    return Result(
        problem.name,
        entry.contender.name,
        us=middle,
        low_us=low,
        high_us=high,
        rounds=len(entry.times),
        tflops=problem.spec.flops() / middle * 1e-6,
        worst=entry.worst,
        detail=entry.detail,
        workload=problem.spec.title,
    )


def _failure(problem: Problem, contender: Contender, why: Why) -> Result:
    return Result(problem.name, contender.name, failure=why, workload=problem.spec.title)


def _say_outcome(problem: Problem, report: Report, say: Say) -> None:
    """One line for whoever waits: our rate, and how it compares."""
    ours, peer = report.find(problem.name, OURS), report.library(problem.name)
    if ours is None:
        return
    beside = f", {peer.us / ours.us:.3f} of {peer.contender}" if peer else ""
    say(f"{problem.name}: {ours.tflops:.1f} TFLOP/s{beside}; {ours.detail}")
