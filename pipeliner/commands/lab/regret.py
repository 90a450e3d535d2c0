"""``pipeliner regret``: the model and other projects' rules, judged by a log of measurements."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ..shared import console
from . import fresh

if TYPE_CHECKING:
    from ...logs.published import Comparison
    from ...logs.regret import LogSplit, Scores, ScoreSummary

HELP: Final = "judge the model's choices by a log of measured candidates, beside others' rules"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        f"{HELP}. A regret is the time of what is chosen over that of the best measured. Most "
        "workloads, left over by a seeded draw, are never fitted to; those of suite other were "
        "measured last. Needs no GPU."
    )
    parser.add_argument(
        "--log", metavar="FILE", help="of `pipeliner record` or of records (default: shipped)"
    )
    parser.add_argument("--target", default="h100", help="the GPU that was measured")
    parser.add_argument("--machine", metavar="FILE", help="predict by this machine file")
    parser.add_argument(
        "--heuristics",
        action="store_true",
        help="with --fresh: measure and judge NVIDIA's heuristics beside the model, too",
    )
    parser.add_argument(
        "--fresh",
        type=int,
        metavar="SEED",
        help="measure workloads that this seed draws, and judge by them (needs a GPU and PyTorch); "
        "--log FILE.sqlite keeps them, and the same command goes on from there",
    )
    parser.add_argument("--shapes", type=int, default=16, help="with --fresh: workloads")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="with --fresh: stop after about so long"
    )
    parser.add_argument("--jobs", type=int, help="with --fresh: processes that compile")
    parser.add_argument("--json", action="store_true", help="everything, workload by workload")


def run(args: argparse.Namespace) -> int:
    """Judge every rule by the log, or the model by fresh workloads; 0."""
    if args.fresh is not None:
        return fresh.run(args)
    with console.progress("predicting what was measured"):
        found = judged(args)
    if args.json:
        console.print_json(**found)
    else:
        _print(found)
    return 0


def judged(args: argparse.Namespace) -> dict[str, Any]:
    """Every rule by the log that ``args`` names: what ``--json`` prints."""
    from ...logs import noise
    from ...logs.cases import cases_of
    from ...logs.published import TABLES, compare
    from ...logs.regret import PARTS, parts, scores, summary
    from ...logs.rules import RULES

    records, machine, timed = cases_of(args.log, args.target, args.machine)
    part = parts(timed)
    rules: dict[str, dict[LogSplit, ScoreSummary]] = {}
    workloads: dict[str, list[tuple[Scores, LogSplit]]] = {}
    for rule in RULES:
        scored = {group: scores(found, rule) for group, found in timed.items()}
        rules[rule.name] = {
            name: summary([one for group, one in scored.items() if part[group] == name])
            for name in PARTS
            if name in part.values()
        }
        workloads[rule.name] = [(one, part[group]) for group, one in scored.items()]
    compared = [each for table in TABLES for each in compare(table)]
    return {
        "machine": machine.name,
        "candidates": sum(map(len, timed.values())),
        "noise": noise(records),
        "rules": {name: _plain(rule, workloads[name]) for name, rule in rules.items()},
        "published": [
            {**_rounded(each), "difference": round(each.difference, 4)} for each in compared
        ],
    }


def _plain(
    rule: Mapping[LogSplit, ScoreSummary], workloads: Sequence[tuple[Scores, LogSplit]]
) -> dict[str, Any]:
    return {
        **{name: _rounded(found) for name, found in rule.items()},
        "workloads": [{**_rounded(one), "part": part} for one, part in workloads],
    }


def _rounded(found: Scores | ScoreSummary | Comparison) -> dict[str, Any]:
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in asdict(found).items()
    }


def _print(found: dict[str, Any]) -> None:
    from ...logs.regret import PARTS
    from ...logs.rules import AS_BUILT, OURS

    count = len(next(iter(found["rules"].values()))["workloads"])
    print(
        f"{found['candidates']} candidates of {count} workloads on {found['machine']}; the same "
        f"candidate again: within {found['noise']:.1%} (median)"
    )
    name, ours, compiled = OURS.name, found["rules"][OURS.name], found["rules"][AS_BUILT.name]
    for part, title in PARTS.items():
        if part in ours:
            console.heading(f"{title}: mean (worst) over the best measured")
            _table("rule", [(name, rule[part]) for name, rule in found["rules"].items()])
    console.heading(f"{name}, by workload")
    rows = [
        (
            f"{one['workload']} {one['dtype']}" + " *" * (one["part"] == "fitted"),
            f"{max(one['depths'], default=1.0):.3f}",
            f"{max(other['depths'], default=1.0):.3f}",
            _ratio(one["first"]),
            _ratio(one["top"]),
            _ratio(one["correlation"]),
        )
        for one, other in zip(ours["workloads"], compiled["workloads"], strict=True)
    ]
    headers = (
        "workload (* fitted to)",
        "worst depth",
        "once compiled",
        "first choice",
        "best of 8",
        "Spearman",
    )
    console.print_table(headers, rows, numeric=5)
    _print_published(found["published"])


def _print_published(cells: Sequence[dict[str, Any]]) -> None:
    """Tables of GPUs that are not at hand: times as fast as the row to compare with."""
    for title in dict.fromkeys(cell["table"] for cell in cells):
        console.heading(f"published, not fitted: {title}")
        rows = [
            (
                cell["row"],
                str(cell["size"]),
                f"{cell['published']:.2f}",
                f"{cell['predicted']:.2f}",
                f"{cell['difference']:+.0%}",
            )
            for cell in cells
            if cell["table"] == title
        ]
        headers = ("kernel", "size", "published", "predicted", "difference")
        console.print_table(headers, rows, numeric=4)


def _table(what: str, named: Sequence[tuple[str, dict[str, Any]]]) -> None:
    kinds = ("depth", "first", "top", "correlation")
    rows = [(name, *(_both(one, kind) for kind in kinds)) for name, one in named]
    headers = (what, "depth alone", "first choice", "best of 8", "Spearman")
    console.print_table(headers, rows, numeric=4)


def _both(found: dict[str, Any], kind: str) -> str:
    if found[kind] is None:
        return "-"
    return f"{found[kind]:.3f} ({found[f'worst_{kind}']:.3f})"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
