"""``pipeliner verify``: run a small instance on the CPU and hold it against numpy."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Final

from . import console, workload

if TYPE_CHECKING:
    from ..verify import Verdict

HELP: Final = "run a kernel on the CPU, copies as late as allowed, and compare with numpy"

SMALL: Final = 256
"""Extent of a GEMM where the command line gives none: several tiles and several iterations."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    workload.configure(parser)
    parser.add_argument("--seed", type=int, default=0, help="of the random operands (default: 0)")
    parser.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def run(args: argparse.Namespace) -> int:
    """Print the verdict; 1 where the kernel is wrong."""
    with console.progress("loading TVM"):
        from ..api import build, pipeline_with
        from ..verify import verify_function, verify_gemm

        work = workload.load(args, SMALL)
    with console.progress(f"pipelining {work.title}"):
        kernel = build(pipeline_with(work.function, work.target, work.request), work.target)
    with console.progress("running every thread of it on the CPU"):
        if work.gemm is not None:
            verdict = verify_gemm(kernel, work.gemm, args.seed)
        else:
            plain = build(work.function, work.target, depth=1)
            verdict = verify_function(kernel, plain, work.reference, args.seed)
    if args.json:
        console.print_json(ok=verdict.ok, **dataclasses.asdict(verdict))
    else:
        print_verdict(verdict)
    return 0 if verdict.ok else 1


def print_verdict(verdict: Verdict) -> None:
    """The verdict in words."""
    for hazard in verdict.hazards:
        print(f"hazard: {hazard}")
    what = "right" if verdict.ok else "WRONG"
    print(
        f"{what}: {verdict.title}: largest error {verdict.worst:.2f} of what rounding allows, "
        f"{len(verdict.hazards)} hazards"
    )
