"""``pipeliner residuals``: how far measured times lie from predicted ones, by the logs."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Final

from ..shared import console

HELP: Final = "compute from the logs how far predicted times are to be trusted"

HEADERS: Final = (
    "time is", "kernels", "workloads", "shipped", "by the logs", "covered", "first choices",
    "covered",
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        f"{HELP}: the interval of a plan, by what bounds the kernel, and the share of kernels "
        "within it where a workload is judged by the others. Needs no GPU."
    )
    parser.add_argument("--json", action="store_true", help="everything, as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the residuals of the shipped logs together; 0."""
    with console.progress("predicting what was measured"):
        from ...logs.cases import cases_of
        from ...logs.residuals import residuals, summaries
        from ...records.log import SHIPPED

        found = summaries([one for key in SHIPPED for one in residuals(cases_of(None, key)[2])])
    if args.json:
        console.print_json(residuals=[asdict(one) for one in found])
        return 0
    rows = [
        (
            one.bound,
            str(one.kernels),
            str(one.workloads),
            f"{one.shipped:.2f}",
            f"{one.residual:.3f}",
            f"{one.covered:.0%}",
            str(one.firsts),
            f"{one.covered_firsts:.0%}",
        )
        for one in found
    ]
    console.print_table(HEADERS, rows, numeric=len(HEADERS) - 1)
    return 0
