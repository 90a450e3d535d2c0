"""``pipeliner regret --fresh SEED``: the model judged by workloads that a seed draws."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...errors import WorkloadError
from ..shared import console
from ..shared.usage import check_least

if TYPE_CHECKING:
    from ...logs.fresh import FreshScores, Theirs
    from ...machine import Machine

PLANNERS: Final = 4
"""Processes that plan workloads, of which each takes seconds."""

STORE: Final = "fresh.sqlite"
"""Where what is measured is kept by default."""


def run(args: argparse.Namespace) -> int:
    """Measure what is not measured yet, and judge what is; 1 where something is left."""
    check_least(args, shapes=1, jobs=1)
    log = Path(args.log or STORE)
    done = _measure(args, log)
    found = scored(args.fresh, args.shapes, log, heuristics=args.heuristics)
    if args.json:
        console.print_json(**found)
    else:
        _print(found)
    return int(not done)


def scored(
    seed: int, shapes: int, log: Path, target: Any = None, *, heuristics: bool = False
) -> dict[str, Any]:
    """What ``--json`` prints: the scores of each workload that ``log`` has, and their means.

    ``heuristics``: NVIDIA's are judged, too.
    """
    from ...logs.fresh import judge
    from ...machine import machine_for
    from ...records.log import read_any
    from ...targets import accelerated, cuda_target

    machine = machine_for(accelerated(cuda_target(target)))
    if not log.exists():
        raise WorkloadError("command.log_without_time", log=str(log))
    theirs = _theirs(machine) if heuristics else None
    found = judge(seed, read_any(log, machine), machine, shapes, theirs)
    return {
        "machine": machine.name,
        "seed": seed,
        "asked": shapes,
        "mean": _means(found),
        "workloads": [asdict(one) for one in found],
    }


def _means(found: Sequence[FreshScores]) -> dict[str, float]:
    """Means of all, and the worst regrets."""
    names = ("first", "top", "correlation", "error", "bias")
    means = {name: sum(getattr(one, name) for one in found) / len(found) for name in names}
    worst = {f"worst_{name}": max(getattr(one, name) for one in found) for name in ("first", "top")}
    return {**means, **worst, **_beside(found)}


def _beside(found: Sequence[FreshScores]) -> dict[str, float]:
    """The means of another's choices, and of ours on the workloads that it has any for."""
    both = [one for one in found if one.their_first is not None]
    names = ("first", "their_first", "top", "their_top")
    return {
        f"both_{name}": sum(getattr(one, name) for one in both) / len(both)
        for name in names
        if both
    } | ({"both": len(both)} if both else {})


def _theirs(machine: Machine) -> Theirs:
    """What NVIDIA's heuristics choose on ``machine``; ToolError: they are not there."""
    from ...logs.nvidia import NvidiaHeuristics

    return NvidiaHeuristics(machine)


def _measure(args: argparse.Namespace, log: Path) -> bool:
    """Whether all workloads of the seed are measured; what is, is kept when this is interrupted."""
    with console.progress("loading TVM"):
        from ...logs.fresh import fresh_jobs
        from ...logs.recorder import record
        from ...machine import machine_for
        from ...measuring import Compiler, GpuMeasurer, current_conditions, require_gpu
        from ...records.log import read_any
        from ...targets import accelerated, cuda_target

    require_gpu()
    target = accelerated(cuda_target())
    machine = machine_for(target)
    theirs = _theirs(machine) if args.heuristics else None
    compiler = Compiler(target, args.jobs)
    planners = ProcessPoolExecutor(PLANNERS, multiprocessing.get_context("spawn"))
    with contextlib.closing(compiler), contextlib.ExitStack() as ended, GpuMeasurer() as timer:
        ended.callback(planners.shutdown, cancel_futures=True)
        compiler.start()
        known = read_any(log, machine) if log.exists() else []
        jobs = fresh_jobs(args.fresh, machine, args.shapes, known, theirs, planners)
        conditions = current_conditions()
        with contextlib.suppress(KeyboardInterrupt):
            return record(jobs, compiler, timer, log, args.seconds, console.say, conditions)
    return False


def _print(found: dict[str, Any]) -> None:
    print(
        f"seed {found['seed']}: {len(found['workloads'])} of {found['asked']} workloads on "
        f"{found['machine']}; over the best measured"
    )
    headers = (
        "workload",
        "measured",
        "best, us",
        "first choice",
        "best of 8",
        "Spearman",
        "error",
        "bias",
    )
    rows = [
        (f"{one['workload']}", str(one["measured"]), f"{one['us']:.1f}", *_cells(one))
        for one in found["workloads"]
    ]
    mean = found["mean"]
    rows.append(("mean", "", "", *_cells(mean)))
    rows.append(
        ("worst", "", "", f"{mean['worst_first']:.3f}", f"{mean['worst_top']:.3f}", *3 * ("",))
    )
    console.print_table(headers, rows, numeric=len(headers) - 1)
    if "both" in mean:
        print(
            f"on the {mean['both']} that NVIDIA's heuristics know: their first choice "
            f"{mean['both_their_first']:.3f}, best of 8 {mean['both_their_top']:.3f}; ours "
            f"{mean['both_first']:.3f}, {mean['both_top']:.3f}"
        )


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{one['first']:.3f}",
        f"{one['top']:.3f}",
        f"{one['correlation']:.3f}",
        f"{one['error']:.1%}",
        f"{one['bias']:+.1%}",
    )
