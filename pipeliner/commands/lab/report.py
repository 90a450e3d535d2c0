"""``pipeliner report``: what was measured, as one page to read anywhere."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from ... import knobs
from ...errors import WorkloadError
from ..shared import console
from ..shared.usage import check_least
from .tune import DB

HELP: Final = "make one self-contained HTML page of what was tuned and measured"

OUTPUT: Final = "report.html"
KERNELS: Final = 16
TARGET: Final = "h100"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument("--db", metavar="FILE", help=f"records (default: PIPELINER_DB, or {DB})")
    parser.add_argument(
        "--log",
        nargs="?",
        const="",
        metavar="FILE",
        help="a log of `pipeliner record` in place of records (without FILE: the one that ships)",
    )
    parser.add_argument(
        "--target", metavar="GPU", help=f"with --log: the GPU that was measured (default: {TARGET})"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", default=OUTPUT, help=f"the page (default: {OUTPUT})"
    )
    parser.add_argument(
        "--plots", metavar="FOLDER", help="write every chart there, as SVG and as CSV"
    )
    parser.add_argument(
        "--machine", metavar="FILE", help="of `pipeliner calibrate`, or of a GPU not described here"
    )
    parser.add_argument("--png", action="store_true", help="with --plots: as PNG too (matplotlib)")
    parser.add_argument(
        "--kernels",
        type=int,
        default=KERNELS,
        metavar="N",
        help=f"kernels that are shown with plan, timeline and CUDA (default: {KERNELS})",
    )


def run(args: argparse.Namespace) -> int:
    """Write the page; the names of the files on stdout."""
    if args.png and args.plots is None:
        raise WorkloadError("option.png")
    check_least(args, kernels=0)
    if args.log is None and args.target is not None:
        raise WorkloadError("option.log_target")
    if args.log is not None and args.db is not None:
        raise WorkloadError("option.log_db")
    with console.progress("making the page"):
        from ...records.log import find_log, is_store
        from ...report import report

        target = args.target or TARGET
        source = args.db or knobs.records() or DB
        if args.log is not None:
            source = find_log(args.log, target)
        written = report(
            source,
            args.output,
            plots=args.plots,
            png=args.png,
            kernels=args.kernels,
            machine=args.machine,
            log=target if args.log is not None and not is_store(Path(source)) else "",
        )
    print("\n".join(map(str, written)))
    console.say("1 file" if len(written) == 1 else f"{len(written)} files")
    return 0
