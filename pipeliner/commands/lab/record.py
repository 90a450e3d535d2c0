"""``pipeliner record``: time a declared grid of candidates on this machine's GPU, into a log."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...errors import WorkloadError
from ..shared import console
from ..shared.usage import check_least

if TYPE_CHECKING:
    from ...logs.recorder import Job

HELP: Final = "time many tiles and depths of the suites into a log (needs a GPU and PyTorch)"

DTYPES: Final = ("float16", "float32")

SUITES: Final = ("gemm", "conv")
"""What is timed by default."""

_LIMIT: Final = 200


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        f"{HELP}. The grid is declared, not chosen by the model, which `pipeliner regret` judges "
        "by the log. What the log has already is not measured again."
    )
    parser.add_argument(
        "--log",
        required=True,
        metavar="FILE",
        help="the log to begin or go on; FILE.sqlite: records, with every sample",
    )
    parser.add_argument("--suite", choices=(*SUITES, "other"), help="default: gemm, conv")
    parser.add_argument("--dtype", choices=DTYPES, help="default: both")
    parser.add_argument(
        "--only", default="", metavar="NAMES", help="workloads of these names, as in A,B"
    )
    parser.add_argument(
        "--limit", type=int, default=_LIMIT, help="candidates of a workload (default: 200)"
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop after about so long"
    )
    parser.add_argument("--jobs", type=int, help="processes that compile (default: cores - 1)")
    parser.add_argument("--list", action="store_true", help="print the grid, measure nothing")
    parser.add_argument("--target", help="with --list: the GPU (default: this one)")


def run(args: argparse.Namespace) -> int:
    """Measure; 1 where time ran out before all was done."""
    check_least(args, limit=1, jobs=1)
    return _list(args) if args.list else _measure(args)


def _list(args: argparse.Namespace) -> int:
    with console.progress("loading TVM"):
        from ...records.names import name_of
        from ...targets import accelerated, cuda_target

    for job in _jobs(args, accelerated(cuda_target(args.target))):
        for one in job.candidates:
            print(f"{job.label} {job.spec.dtype} {name_of(one, job.spec, job.machine)}")
    return 0


def _measure(args: argparse.Namespace) -> int:
    with console.progress("loading TVM"):
        from ...logs.recorder import record
        from ...measuring import Compiler, GpuMeasurer, current_conditions, require_gpu
        from ...targets import accelerated, cuda_target

    require_gpu()
    target = accelerated(cuda_target())
    compiler = Compiler(target, args.jobs, disassemble=True)
    with contextlib.closing(compiler), GpuMeasurer() as timer:
        compiler.start()
        jobs = _jobs(args, target)  # while processes start
        console.say(
            f"{sum(len(job.candidates) for job in jobs)} candidates of {len(jobs)} workloads"
        )
        log, conditions = Path(args.log), current_conditions()
        done = record(jobs, compiler, timer, log, args.seconds, console.say, conditions)
    if not done:
        console.say("not all was timed: the same command goes on from here")
    return int(not done)


def _jobs(args: argparse.Namespace, target: object) -> list[Job]:
    from ...logs.recorder import jobs_for
    from ...schedules.suites import suite

    names = [name for name in args.only.split(",") if name]
    found: list[Job] = []
    known: list[str] = []
    for kind in [args.suite] if args.suite else SUITES:
        for dtype in [args.dtype] if args.dtype else DTYPES:
            specs = suite(kind, dtype)
            known += specs
            chosen = {name: spec for name, spec in specs.items() if not names or name in names}
            found += jobs_for(chosen, target, Path(args.log), args.limit)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise WorkloadError(
            "command.record_only", names=tuple(dict.fromkeys(known)), value=unknown[0]
        )
    return found
