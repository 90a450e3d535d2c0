"""``pipeliner doctor``: what is found, what each missing thing disables, how to get it."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Final

from ...versions import OWN
from ..shared import console

HELP: Final = "say what this machine has and what each missing thing disables"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def run(args: argparse.Namespace) -> int:
    """Print the findings; 1 where something required cannot be used."""
    from ...doctor import examine, healthy

    findings = examine()
    usable = healthy(findings)
    if args.json:
        console.print_json(
            pipeliner=OWN, usable=usable, findings=[dataclasses.asdict(found) for found in findings]
        )
        return 0 if usable else 1
    rows = [(found.name, found.status, found.detail) for found in findings]
    console.print_table(("", "", "found"), rows)
    for found in findings:
        if found.status != "ok":
            print(f"\n{found.status} {found.name} disables: {found.disables}")
            print(f"  to get it: {found.remedy}")
    print(f"\n{'pipeliner can plan, lower and emulate kernels here' if usable else 'not usable'}")
    return 0 if usable else 1
