"""Check the contenders of a problem, then time them interleaved."""

from __future__ import annotations

import statistics

from ..diagnostics import Reason, Why
from ..kernel.compiled import Kernel
from ..measuring import (
    ROUNDS,
    Contender,
    GpuBench,
    ReadyContender,
    Rounds,
    Say,
    device_name,
    require_gpu,
)
from ..measuring.conditions import sm_clock
from ..records.record import OURS
from ..schedules import Gemm
from ..values.failure import why
from .peers import cublas
from .problems import LIBRARY_SLACK, Problem, describe
from .results import CUBLAS, Report, Result


def measure(problem: Problem, report: Report, rounds: int = ROUNDS, say: Say = print) -> None:
    """Check and time the contenders of a problem; results and failures go to ``report``.

    Whatever fails is a result in one line, not the end. An interrupt keeps what has been measured
    and sets ``report.interrupted``.
    """
    require_gpu()
    entries: list[ReadyContender] = []
    failed: set[str] = set()

    def fail(contender: Contender, why: Why) -> None:
        say(f"  {contender.name}: {why}")
        failed.add(contender.name)
        report.results.append(_failure(problem, contender, why))

    try:
        bench = GpuBench(problem.spec)
        for contender in problem.contenders:
            say(f"{problem.name}: {contender.name}")
            try:
                entry = bench.ready(contender)
            except Exception as err:  # a peer's library raises what it likes: its result
                fail(contender, why(err))
                continue
            if entry.is_right:
                entries.append(entry)
            else:
                fail(contender, Reason("measure.wrong", error=entry.worst))
        bench.race(entries, Rounds(rounds))
        clock = sm_clock()
        if clock is not None:
            report.sm_clocks[problem.name] = clock
        for entry in entries:  # a race that shows only at times shows here too
            bench.check(entry)
            if not entry.is_right:
                fail(entry.contender, Reason("measure.wrong_later", error=entry.worst))
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
