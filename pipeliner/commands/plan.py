"""``pipeliner plan``: every decision about a kernel, with its reason."""

from __future__ import annotations

import argparse
from typing import Final

from . import console, workload

HELP: Final = "decide how to pipeline a kernel and say why"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    workload.configure(parser)
    parser.add_argument("--json", action="store_true", help="the plan as JSON (edit it: --plan)")


def run(args: argparse.Namespace) -> int:
    """Print the plan."""
    with console.progress("loading TVM"):
        from ..api import pipeline_with
        from ..compiled import plan_of

        work = workload.load(args)
    with console.progress(f"planning {work.title}"):
        plan = plan_of(pipeline_with(work.function, work.target, work.request))
    print(plan.to_json(indent=2) if args.json else plan.explain())
    return 0
