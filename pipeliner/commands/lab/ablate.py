"""``pipeliner ablate``: what each fitted constant of the model is worth, by a log."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from ..shared import console

if TYPE_CHECKING:
    from ...logs.ablation import Ablated, Means

HELP: Final = "judge each fitted constant of the model by a log: choices and times without it"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        f"{HELP}. A constant is left out by its neutral value, such as no cycles, and with --refit "
        "also replaced by the multiple of its value that suits the other workloads best. Figures "
        "are of the workloads that nothing was fitted to. Needs no GPU; all of it takes minutes."
    )
    parser.add_argument("name", nargs="*", help="only constants whose name has one of these in it")
    parser.add_argument(
        "--log", metavar="FILE", help="of `pipeliner record` or of records (default: shipped)"
    )
    parser.add_argument("--target", default="h100", help="the GPU that was measured")
    parser.add_argument("--machine", metavar="FILE", help="predict by this machine file")
    parser.add_argument("--refit", action="store_true", help="cross-validate other values, too")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="everything, as one JSON object")
    form.add_argument("--markdown", action="store_true", help="as the table of README.md")


def run(args: argparse.Namespace) -> int:
    """Leave out one constant after the other; 0."""
    with console.progress("predicting what was measured"):
        from ...logs.ablation import Ablation, selected
        from ...logs.cases import cases_of

        names = selected(args.name)
        _, machine, timed = cases_of(args.log, args.target, args.machine)
        ablation = Ablation(timed)
    base = ablation.means(ablation.base)
    found = []
    for name in names:
        with console.progress(f"leaving out {name}"):
            found.append(ablation.of(name, refit=args.refit))
    if args.json:
        constants = [asdict(one) for one in found]
        console.print_json(machine=machine.name, base=asdict(base), constants=constants)
    elif args.markdown:
        print(markdown(base, found))
    else:
        console.print_table(HEADERS, rows(base, found), numeric=len(HEADERS) - 1)
    return 0


HEADERS: Final = ("constant", "kind", "workloads", "first choice", "best of 8", "error", "refitted")


def rows(base: Means, found: Sequence[Ablated]) -> list[tuple[str, ...]]:
    """The model as it is, and without each constant, those that cost most first."""
    ordered = sorted(found, key=lambda one: -(one.without.first + one.without.error))
    return [
        ("as it is", "-", "-", *_cells(base), "-"),
        *(
            (one.name, one.kind, str(one.workloads), *_cells(one.without), _refitted(one.refitted))
            for one in ordered
        ),
    ]


def markdown(base: Means, found: Sequence[Ablated]) -> str:
    """The same as a table in Markdown."""
    lines = ["| " + " | ".join(HEADERS) + " |", "|" + " --- |" * len(HEADERS)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows(base, found))])


def _cells(means: Means) -> tuple[str, ...]:
    return f"{means.first:.4f} ({means.worst:.3f})", f"{means.top:.4f}", f"{means.error:.2%}"


def _refitted(means: Means | None) -> str:
    return "-" if means is None else f"{means.first:.4f}, {means.error:.2%}"
