"""``pipeliner verify --mutate``: plant every defect, one at a time, and see each found."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

from ...diagnostics import reason_as_json
from ..shared import console

if TYPE_CHECKING:
    from ...kernel.compiled import Kernel
    from ...mutation import Campaign, Fate, MutationReport
    from ...schedules import GemmTile
    from ...schedules.workloads import Spec
    from ...verification.shrunk import Shrunk

INTERRUPTED: Final = 130
WIDTH: Final = 100
"""Characters of the table that say what killed a mutant; `--json` has them all."""

TRIPS: Final = (1, 2, 3, 4, 6, 9)
"""Trip counts of a GEMM's relatives, on which mutants are tried that survive on the GEMM itself."""

TIMES: Final = (2, 3)
"""How much longer the reductions of a convolution's relatives are."""


def run(
    kernel: Kernel,
    small: Shrunk | None,
    reference: Callable[..., Any] | None,
    timings: Sequence[str],
    orders: Sequence[str],
    seed: int,
    *,
    as_json: bool,
) -> int:
    """Run all mutants of a kernel and print their fates; 1 where one survives unexplained.

    ``small``: the workload that it is of. An interrupt ends it with what was done so far, and code
    130.
    """
    from ...mutation import Campaign
    from ...verification.verdict import paired

    modes = paired(timings, orders)
    with console.progress(f"looking for mutants of {kernel.name}"):
        campaign = Campaign(
            kernel,
            relatives=_relatives(small) if small else {},
            modes=modes,
            seed=seed,
            reference=reference,
        )
    fates: list[Fate] = []
    interrupted = False
    try:
        with console.steps("running mutants", len(campaign.mutants)) as step:
            for fate in campaign.run():
                fates.append(fate)
                step()
    except KeyboardInterrupt:
        interrupted = True
    report = campaign.report(fates)
    if as_json:
        console.print_json(verified_on=small.title if small else "", **_as_json(report, campaign))
    else:
        _print(report, campaign)
    if interrupted:
        print("pipeliner: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0 if report.ok else 1


def _relatives(small: Shrunk) -> dict[str, Callable[[], Any]]:
    """The same kernel of other trip counts."""
    from ...schedules import GemmTile

    if not isinstance(small.tile, GemmTile):
        return {}
    return dict(_of_extents(small, _others(small.spec, small.tile)))


def _others(spec: Any, tile: GemmTile) -> dict[str, Spec]:
    from ...mutation.longer import longer
    from ...schedules import ConvTile, Gemm

    if isinstance(spec, Gemm):
        less = (tile.k - spec.k % tile.k) % tile.k  # of the last step, as it was
        extents = [trips * tile.k * tile.splits - less for trips in TRIPS]
        return {f"K = {k}": dataclasses.replace(spec, k=k) for k in extents if k != spec.k}
    fold = isinstance(tile, ConvTile) and tile.fold
    found: dict[str, Spec] = {}
    for times in TIMES:
        found[f"{times} times the reduction"] = longer(spec, times, fold)
    return found


def _of_extents(small: Shrunk, others: dict[str, Spec]) -> Iterator[tuple[str, Callable[[], Any]]]:
    def maker(spec: Spec) -> Callable[[], Any]:
        def make() -> Any:
            from ...schedules.scheduled import scheduled
            from ...verification.shrunk import handed_over

            kernel = small.kernel
            return handed_over(scheduled(spec, small.tile), kernel.target, kernel.plan)

        return make

    for name, spec in others.items():
        yield name, maker(spec)


def _print(report: MutationReport, campaign: Campaign) -> None:
    rows = [
        [
            str(_line(campaign, fate) or ""),
            fate.mutant.what,
            fate.mutant.change,
            _origin(fate),
            _outcome(fate),
            fate.run,
        ]
        for fate in report.fates
    ]
    console.print_table(("line", "operation", "mutant", "origin", "killed by", "run"), rows)
    for fate in report.unexplained:
        cuda = campaign.line(fate.mutant)
        print(f"survives: {fate.mutant}" + (f"\n  {cuda}" if cuda else ""))
    for line in _ctas(report):
        print(f"ran {line}")
    killed = sum(fate.killed for fate in report.fates)
    proved = len(report.survivors) - len(report.unexplained)
    syncs = sum(mutant.synchronises for mutant in campaign.mutants)
    print(
        f"{'right' if report.ok else 'WRONG'}: {report.title}: "
        f"{killed} of {report.mutants} mutants killed, {proved} proved equivalent, "
        f"{len(report.unexplained)} survive, {report.mutants - len(report.fates)} not run "
        f"({syncs} synchronising operations, {report.mutants - syncs} ring indices)"
    )


def _ctas(report: MutationReport) -> list[str]:
    """Which CTAs ran, where not all did: a line for each kernel."""
    ran = report.ran
    if ran.code == "sample.all":
        return []
    return list(map(str, ran["kernels"] if ran.code == "sample.kernels" else [ran]))


def _line(campaign: Campaign, fate: Fate) -> int | None:
    """The first line in the CUDA of what a mutant changes."""
    cuda = campaign.line(fate.mutant)
    return None if cuda is None else cuda.first


def _origin(fate: Fate) -> str:
    origin = fate.mutant.origin
    if origin is None:
        return ""
    return ", ".join(part for part in (origin.op, origin.phase) if part)


def _outcome(fate: Fate) -> str:
    if fate.killed:
        return shorten(str(fate.killed_by), WIDTH, placeholder=" ...")
    return f"equivalent: {fate.reason}" if fate.reason else "SURVIVES"


def _as_json(report: MutationReport, campaign: Campaign) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "title": report.title,
        "mutants": report.mutants,
        "ran": reason_as_json(report.ran),
        "operations": sum(mutant.synchronises for mutant in campaign.mutants),
        "fates": [
            {
                "kernel": fate.mutant.kernel,
                "kind": fate.mutant.kind,
                "operation": fate.mutant.what,
                "change": fate.mutant.change,
                "origin": str(fate.mutant.origin or ""),
                "line": _line(campaign, fate),
                "killed_by": reason_as_json(fate.killed_by),
                "run": fate.run,
                "reason": reason_as_json(fate.reason),
                "runs": fate.runs,
                "seconds": round(fate.seconds, 3),
            }
            for fate in report.fates
        ],
    }
