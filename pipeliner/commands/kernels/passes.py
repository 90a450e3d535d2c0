"""``pipeliner passes``: what the passes are, where they run, and before => after of each."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from ...diagnostics import Reason
from ...diagnostics.formatting import nearest
from ..shared import console

if TYPE_CHECKING:
    from ...passes.ir.named_pass import Pass

HELP: Final = "list the passes in their order, or explain one with its before => after"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        f"{HELP}. What a pass changes of a kernel is shown by pipeliner inspect --passes NAME."
    )
    parser.add_argument("name", nargs="?", help="explain this pass")
    parser.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def run(args: argparse.Namespace) -> int:
    """Print the list or the explanation; 0. Ends with usage if there is no such pass."""
    with console.progress("loading the passes"):
        from ...passes.listed import PASSES, SITES

    if args.name is None:
        shown = PASSES
    else:
        shown = tuple(one for one in PASSES if one.name.lower() == args.name.lower())
        if not shown:
            near = nearest(args.name, [one.name for one in PASSES])
            args.parser.error(Reason("usage.pass", name=args.name, near=near))
    if args.json:
        console.print_json(passes=[_fields(one) for one in shown])
    elif args.name is not None:
        _explain(shown[0])
    else:
        for site in SITES:
            console.heading(f"{site.name}: {site.meaning}")
            for one in site.passes:
                print(f"{one.name}  {one.file}\n  {one.summary}")
    return 0


def _fields(one: Pass[..., Any]) -> dict[str, str]:
    from ...passes.listed import site_of

    site = site_of(one)
    return {
        "name": one.name,
        "file": one.file,
        "site": site.name,
        "run_by": site.file,
        "summary": one.summary,
        "doc": one.doc,
    }


def _explain(one: Pass[..., Any]) -> None:
    """Print where a pass is and runs, and its documentation."""
    from ...passes.listed import PASSES, site_of

    site, at = site_of(one), PASSES.index(one)
    print(f"{one.name}  {one.file}")
    print(f"  runs    {site.meaning} ({site.file})")
    if at > 0:
        print(f"  behind  {PASSES[at - 1].name}")
    if at + 1 < len(PASSES):
        print(f"  before  {PASSES[at + 1].name}")
    print(f"\n{one.doc}")
