"""``pipeliner verify --mutate``: plant every defect, one at a time, and see each found."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

from . import console

if TYPE_CHECKING:
    from ..mutation import Campaign, Fate, MutationReport
    from ..plan import KernelPlan
    from .workload import Workload

INTERRUPTED: Final = 130
WIDTH: Final = 100
"""Characters of the table that say what killed a mutant; `--json` has them all."""

TRIPS: Final = (1, 2, 3, 4, 6, 9)
"""Trip counts of a GEMM's relatives, on which mutants are tried that survive on the GEMM itself."""

TIMES: Final = (2, 3)
"""How much longer the reductions of a convolution's relatives are."""


def run(
    work: Workload, timings: Sequence[str], orders: Sequence[str], seed: int, *, as_json: bool
) -> int:
    """Run all mutants of a workload and print their fates; 1 where one survives unexplained.

    An interrupt ends it with what was done so far, and code 130.
    """
    from ..api import build_with
    from ..mutation import Campaign, MutationReport
    from ..verification import paired

    modes = paired(timings, orders)
    with console.progress(f"pipelining {work.title}"):
        kernel = build_with(work.function, work.target, work.request)
        campaign = Campaign(
            kernel,
            relatives=_relatives(work, kernel.plan),
            modes=modes,
            seed=seed,
            reference=work.reference,
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
    report = MutationReport(campaign.title, len(campaign.mutants), tuple(fates))
    if as_json:
        console.print_json(**_as_json(report, campaign))
    else:
        _print(report, campaign)
    if interrupted:
        print("pipeliner: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0 if report.ok else 1


def _relatives(work: Workload, plan: KernelPlan) -> dict[str, Callable[[], Any]]:
    """The same workload for other trip counts; none for a function of the user's own."""
    if work.tile is None or work.spec is None:
        return {}
    if work.gemm is None:
        return _longer(work, work.spec, work.tile, plan)
    gemm, tile = work.gemm, work.tile

    def maker(k: int) -> Callable[[], Any]:
        def make() -> Any:
            from ..api import build_with
            from ..schedules import schedule_gemm

            other = schedule_gemm(dataclasses.replace(gemm, k=k), tile)
            return build_with(other, work.target, work.request)

        return make

    extents = [trips * tile.k * tile.splits for trips in TRIPS]
    return {f"K = {k}": maker(k) for k in extents if k != gemm.k}


def _longer(work: Workload, spec: Any, tile: Any, plan: KernelPlan) -> dict[str, Callable[[], Any]]:
    """The same convolution with more to sum, and rings as deep."""
    rings = [ring for loop in plan.loops for ring in loop.rings if ring.scope == "shared"]
    depths = {ring.buffer: ring.depth for ring in rings}
    request = dataclasses.replace(work.request, depth=depths or "auto")

    def maker(times: int) -> Callable[[], Any]:
        def make() -> Any:
            from ..api import build_with
            from ..schedules import schedule_conv
            from ..schedules.workloads import longer

            other = schedule_conv(longer(spec, times, tile.fold), tile)
            return build_with(other, work.target, request)

        return make

    return {f"{times} times the reduction": maker(times) for times in TIMES}


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
    killed = sum(fate.killed for fate in report.fates)
    proved = len(report.survivors) - len(report.unexplained)
    syncs = sum(mutant.synchronises for mutant in campaign.mutants)
    print(
        f"{'right' if report.ok else 'WRONG'}: {report.title}: "
        f"{killed} of {report.mutants} mutants killed, {proved} proved equivalent, "
        f"{len(report.unexplained)} survive, {report.mutants - len(report.fates)} not run "
        f"({syncs} synchronising operations, {report.mutants - syncs} ring indices)"
    )


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
        return shorten(fate.killed_by, WIDTH, placeholder=" ...")
    return f"equivalent: {fate.reason}" if fate.reason else "SURVIVES"


def _as_json(report: MutationReport, campaign: Campaign) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "title": report.title,
        "mutants": report.mutants,
        "operations": sum(mutant.synchronises for mutant in campaign.mutants),
        "fates": [
            {
                "kernel": fate.mutant.kernel,
                "kind": fate.mutant.kind,
                "operation": fate.mutant.what,
                "change": fate.mutant.change,
                "origin": str(fate.mutant.origin or ""),
                "line": _line(campaign, fate),
                "killed_by": fate.killed_by,
                "run": fate.run,
                "reason": fate.reason,
                "runs": fate.runs,
                "seconds": round(fate.seconds, 3),
            }
            for fate in report.fates
        ],
    }
