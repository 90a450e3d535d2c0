"""``pipeliner bench``: kernels against TVM's stock pipeline and cuBLAS, on this machine's GPU."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import TYPE_CHECKING, Final

from ..errors import WorkloadError
from . import console, workload

if TYPE_CHECKING:
    from ..bench import Claim, Problem, Report, Result

HELP: Final = "time kernels against cuBLAS and TVM's stock pipeline (needs a GPU and PyTorch)"

SPINE: Final = "spine"
EXIT_INTERRUPTED: Final = 130
FEWEST_ROUNDS: Final = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    workload.configure(parser, default=SPINE)
    parser.add_argument("--rounds", type=int, default=30, help="timed runs of each (default: 30)")
    parser.add_argument("--only", default="", metavar="TEXT", help="problems with TEXT in the name")
    parser.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def run(args: argparse.Namespace) -> int:
    """Measure and print; 1 where something failed or a floor was missed, 130 when interrupted."""
    if args.rounds < FEWEST_ROUNDS:
        raise WorkloadError(f"expected --rounds of at least {FEWEST_ROUNDS}, not {args.rounds}")
    with console.progress("loading TVM"):
        from .. import bench

    bench.require_gpu()
    report = bench.Report(bench.device_name())
    problems = [problem for problem in _problems(args) if args.only in problem.gemm.name]
    for problem in problems:
        if not report.interrupted:
            bench.measure(problem, report, args.rounds, say=_say)
    if args.workload == SPINE and not report.interrupted:
        with console.progress("timing the passes"):
            report.claims = bench.spine_claims(report, args.target)
    if args.json:
        console.print_json(**dataclasses.asdict(report))
    else:
        print_report(report)
    if report.interrupted:
        return EXIT_INTERRUPTED
    return int(_failed(report))


def _problems(args: argparse.Namespace) -> list[Problem]:
    from .. import bench

    if args.workload == SPINE:
        return bench.spine(args.target)
    work = workload.load(args)
    if work.gemm is None:
        raise WorkloadError("cannot time a function of your own here: expected 'spine' or 'gemm'")
    return [bench.contenders(work.gemm, work.target, work.request, work.tile)]


def _failed(report: Report) -> bool:
    from ..bench import OURS

    ours = [result for result in report.results if result.contender.startswith(OURS)]
    return any(result.failure for result in ours) or any(not claim.met for claim in report.claims)


def print_report(report: Report) -> None:
    """Results, then claims, as tables."""
    print(f"{report.device}{' (interrupted: what was measured so far)' * report.interrupted}")
    for problem in dict.fromkeys(result.problem for result in report.results):
        print()
        rows = [_row(result, report) for result in report.results if result.problem == problem]
        console.print_table(
            (problem, "", "TFLOP/s", "us", "quartiles", "of cuBLAS", "error"), rows, numeric=5
        )
    if report.claims:
        print()
        headers = ("claim", "met", "value", "floor", "goal")
        console.print_table(headers, [_claim_row(claim) for claim in report.claims], numeric=3)


def _row(result: Result, report: Report) -> tuple[str, ...]:
    if result.failure:
        return (result.contender, result.failure, "-", "-", "-", "-", "-")
    from ..bench import CUBLAS

    peer = report.find(result.problem, CUBLAS)
    ratio = f"{peer.us / result.us:.3f}" if peer else "-"
    return (
        result.contender,
        result.detail,
        f"{result.tflops:.1f}",
        f"{result.us:.1f}",
        f"{result.low_us:.1f}-{result.high_us:.1f}",
        ratio,
        f"{result.worst:.2f}",
    )


def _claim_row(claim: Claim) -> tuple[str, ...]:
    met = "yes" if claim.met else "NO"
    return (claim.name, met, f"{claim.value:.3g}", f"{claim.floor:g}", f"{claim.goal:g}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
