"""``pipeliner replay``: what the tuner would have found in so many trials, by a log."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any, Final

from ..shared import console

HELP: Final = "replay the tuner's order over a log of measured candidates"

CLOSE: Final = 0.99
"""Share of the best from which on it counts as found."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        f"{HELP}: the speed of the best of so many trials beside the best in the log, workload by "
        "workload, with as many trials under way as on a machine of 16 cores; and after how many "
        "trials tune stops by itself, with what share of the best. Needs no GPU."
    )
    parser.add_argument(
        "--log", metavar="FILE", help="of `pipeliner record` or of records (default: shipped)"
    )
    parser.add_argument("--target", default="h100", help="the GPU that was measured")
    parser.add_argument("--json", action="store_true", help="everything, as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Replay the log of each workload; 0."""
    with console.progress("replaying what was measured"):
        found = replayed(args)
    if args.json:
        console.print_json(**found)
        return 0
    print(
        f"{found['candidates']} candidates of {len(found['workloads'])} workloads on "
        f"{found['machine']}; share of the log's best within so many trials"
    )
    headers = ("workload (* fitted to)", "logged", *map(str, found["trials"]), "stops at", "share")
    rows = [
        (
            one["workload"] + " *" * one["fitted"],
            str(one["candidates"]),
            *_texts(one["shares"]),
            str(one["stops"]),
            *_texts([one["share"]]),
        )
        for one in found["workloads"]
    ]
    rows.append(("geometric mean", "", *_texts(found["mean"]), "", *_texts([found["share"]])))
    console.print_table(headers, rows, numeric=len(headers) - 1)
    saved = found["candidates"] - found["stops"]
    print(
        f"tune stops after {found['stops']} of {found['candidates']} trials, {saved} are saved; "
        f"99 % of the best is found on {found['close']} of {len(found['workloads'])} workloads"
    )
    return 0


def replayed(args: argparse.Namespace) -> dict[str, Any]:
    """What ``--json`` prints: the shares of each workload, and their geometric means."""
    from ...logs.cases import cases_of
    from ...logs.regret import parts
    from ...logs.replay import TRIALS, shares, stopped

    _, machine, timed = cases_of(args.log, args.target)
    part = parts(timed)
    ends = {group: stopped(found) for group, found in timed.items()}
    workloads = [
        {
            "workload": f"{label} {dtype}",
            "fitted": part[label, dtype] == "fitted",
            "candidates": len(found),
            "shares": shares(found),
            "stops": ends[label, dtype][0],
            "share": ends[label, dtype][1],
        }
        for (label, dtype), found in timed.items()
    ]
    return {
        "machine": machine.name,
        "candidates": sum(map(len, timed.values())),
        "trials": TRIALS,
        "workloads": workloads,
        "stops": sum(trials for trials, _ in ends.values()),
        "share": geometric_mean(share for _, share in ends.values()),
        "close": sum(share >= CLOSE for _, share in ends.values()),
        "mean": [geometric_mean(each) for each in zip(*(one["shares"] for one in workloads))],
    }


def _texts(shares: Sequence[float]) -> list[str]:
    return [f"{share:.3f}" for share in shares]
