"""``pipeliner plan``: every decision about a kernel, with its reason."""

from __future__ import annotations

import argparse
from typing import Final

from ...errors import WorkloadError
from ..shared import console, workload

HELP: Final = "decide how to pipeline a kernel and say why"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    workload.configure(parser)
    workload.configure_records(parser)
    workload.configure_refine(parser)
    parser.add_argument(
        "--why",
        action="store_true",
        help="the alternatives instead: depths, instructions, mechanisms, tiles, and their times, "
        "with those that records have",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="the plan as JSON (edit it: --plan); with --why, the alternatives",
    )


def run(args: argparse.Namespace) -> int:
    """Print the plan, or what else was considered."""
    with console.progress("loading TVM"):
        from ...kernel.compiled import plan_of

        work = workload.load(args, tuned=not args.why)
    if args.why:
        if args.refine:
            raise WorkloadError("option.why_refine")
        return _why(args, work)
    with console.progress(f"planning {work.title}"):
        if args.refine:
            plan = workload.built(work, refine=True).plan
        else:
            plan = plan_of(workload.pipelined(work))
    print(plan.to_json(indent=2) if args.json else plan.explain())
    return 0


def _why(args: argparse.Namespace, work: workload.ScheduledFunction) -> int:
    from ...explain.why import alternatives
    from .why import show

    with console.progress(f"comparing what {work.title} could be"):
        found = alternatives(
            work.function, work.target, work.request, work.spec, work.tile, args.splits, args.db
        )
    if args.json:
        console.print_json(**found.as_dict())
    else:
        show(found)
    return 0
