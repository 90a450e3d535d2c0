"""``pipeliner constants``: the numbers of the cost model and of a GPU, with unit and source."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...errors import WorkloadError
from ..shared import console

if TYPE_CHECKING:
    from ...machine.constant import Constant

HELP: Final = "list the cost model's constants with value, unit, formula, source and date"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        f"{HELP}. With --target, those of that GPU. The formulas are explained in "
        "pipeliner/cost/README.md. Needs no GPU."
    )
    parser.add_argument("name", nargs="*", help="only constants whose name has one of these in it")
    gpu = parser.add_mutually_exclusive_group()
    gpu.add_argument("--target", metavar="GPU", help="list what is known of this GPU instead")
    gpu.add_argument("--machine", metavar="FILE", help="list this machine file instead")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable, on stdout")
    form.add_argument("--markdown", action="store_true", help="as the table of README.md")


def run(args: argparse.Namespace) -> int:
    """Print the constants; 0."""
    with console.progress("loading the model"):
        from ...cost.constants import constants, markdown, shown
        from ...machine import REFERENCES, machine_for, read_machine, records_of
        from ...targets import cuda_target

        if args.machine:
            made = read_machine(Path(args.machine))
            found = records_of(made.machine, made.measured)
        elif args.target:
            found = records_of(machine_for(cuda_target(args.target)))
        else:
            found = constants()
    found = _named(found, args.name)
    if args.json:
        console.print_json(constants=[asdict(one) for one in found])
        return 0
    if args.markdown:
        print(markdown(found))
        return 0
    for one in found:
        unit = "" if one.unit == "1" else f" {one.unit}"
        print(f"{one.name} = {shown(one.value)}{unit}")
        print(f"  {one.meaning}")
        print(f"  in      {one.formula}")
        print(f"  from    {one.source} ({one.date})")
    used = [key for key in REFERENCES if any(f"[{key}]" in str(one.source) for one in found)]
    if used:
        print()
        for key in used:
            print(f"[{key}] {REFERENCES[key]}")
    return 0


def _named(found: tuple[Constant, ...], parts: list[str]) -> tuple[Constant, ...]:
    """Those whose names have one of ``parts`` in them; all where no part is given."""
    for part in parts:
        if not any(part.lower() in one.name.lower() for one in found):
            raise WorkloadError("constant.unknown", part=part)
    return tuple(
        one for one in found if not parts or any(part.lower() in one.name.lower() for part in parts)
    )
