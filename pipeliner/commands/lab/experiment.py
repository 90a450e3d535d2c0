"""``pipeliner experiment``: run what a TOML file lists, and go on where it ended."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import TYPE_CHECKING, Any, Final

from ... import knobs
from ..shared import console, workload
from ..shared.usage import EXIT_INTERRUPTED, check_least
from .tune import DB

if TYPE_CHECKING:
    from ...experiments import Experiment, Outcome, Step

HELP: Final = "measure workloads times variants as a file lists them; resumes (needs a GPU)"

EXAMPLE: Final = """\
# small.toml
title = "How many slots"
machines = ["h100"]                  # GPUs that it is for; default: any

[[workload]]
kind = "gemm"                        # gated, rows, scaled, conv1d .., attention, and fields
square = [1024, 4096]                # m = n = k; a list makes as many workloads

[[workload]]
suite = "conv"                       # gemm, conv, attention or other: what bench times
only = "3x3_56"                      # those with this in their name; dtype = ... of the suite

[[variant]]
name = "depth {depth}"               # braces name an option of this variant
depth = [2, 4]                       # options of pipeliner.pipeline; a list makes as many variants
tile = { m = 128, n = 128, k = 64 }  # kind = "gemm", "conv", "depthwise", "naive"; default: chosen
for = "gemm"                         # of products only; "conv": of convolutions only

[[variant]]
name = "chosen by the model"

[[variant]]
name = "cuBLAS, bf16"
workload = { dtype = "bf16" }        # fields of the workload that differ
peer = "cublas"                      # another library's kernel: cublas, cudnn, triton or torch
for = "gemm"
"""
"""A file with every kind of key; the README of ``pipeliner/experiments`` explains each."""

WIDTH: Final = 79

COUNTS: Final = ("steps", "before", "done", "failed", "seconds", "interrupted")
"""What ``--json`` has of an outcome as it is."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    from ...plan.request import OPTIONS

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = textwrap.fill(
        f"{HELP}. What is recorded already is not measured again. Three come with the library: "
        "'ladder', the rungs of the tutorials, 'depths', one to eight slots on both suites, and "
        "'attention', one mechanism after the other.",
        WIDTH,
    )
    options = textwrap.fill(
        f"options of a variant: {', '.join(name for name in OPTIONS if name != 'plan')}", WIDTH
    )
    parser.epilog = f"a file, in TOML:\n\n{textwrap.indent(EXAMPLE, '  ')}\n{options}"
    parser.add_argument("file", metavar="FILE", help="a TOML file; or ladder, depths or attention")
    parser.add_argument("--target", help="the GPU (default: this one; with --dry-run, any: h100)")
    parser.add_argument("--db", metavar="FILE", help=f"records (default: PIPELINER_DB, or {DB})")
    parser.add_argument("--jobs", type=int, help="processes that compile (default: cores - 1)")
    parser.add_argument(
        "--retry", action="store_true", help="measure again what is recorded without a time"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="list the steps, with predicted times, and end: no GPU",
    )
    parser.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def run(args: argparse.Namespace) -> int:
    """Run what is missing; 130 when interrupted."""
    check_least(args, jobs=1)
    with console.progress("loading TVM"):
        from ...experiments import read_experiment, run_experiment
    experiment = read_experiment(args.file)
    if args.dry_run:
        return _dry_run(args, experiment)
    outcome = run_experiment(
        experiment,
        args.target,
        db=args.db or knobs.records() or DB,
        jobs=args.jobs,
        retry=args.retry,
        say=console.say,
    )
    if args.json:
        console.print_json(**as_dict(experiment, outcome))
    else:
        _print(experiment, outcome)
    return EXIT_INTERRUPTED if outcome.interrupted else 0


def _dry_run(args: argparse.Namespace, experiment: Experiment) -> int:
    from ...experiments import predicted_us, steps_of
    from ...records.candidate import describe
    from ...targets import cuda_target, gpu

    target = cuda_target(args.target or (None if gpu() else workload.DEFAULT_TARGET))
    with console.progress("choosing tiles"):
        steps = steps_of(experiment, target)
        times = [predicted_us(step, target) for step in steps]
    if args.json:
        listed = [{**_step(step), "predicted_us": us or None} for step, us in zip(steps, times)]
        console.print_json(title=experiment.title, steps=listed)
        return 0
    print(f"{experiment.title}: {len(steps)} steps")
    rows = [
        (
            step.workload.label,
            step.variant.name,
            *(
                (str(step.failure) or step.contender, "-")
                if step.candidate is None
                else describe(step.candidate)
            ),
            console.microseconds(us),
        )
        for step, us in zip(steps, times)
    ]
    console.print_table(("workload", "variant", "tile", "asked", "predicted us"), rows, numeric=1)
    return 0


def as_dict(experiment: Experiment, outcome: Outcome) -> dict[str, Any]:
    """What a run came to, of types that JSON has."""
    return {
        "title": experiment.title,
        **{name: getattr(outcome, name) for name in COUNTS},
        "db": str(outcome.path),
        "results": [
            {**_step(step), "us": record.us or None, "failure": record.failure}
            for step, record in outcome.results
        ],
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "workload": step.workload.label,
        "variant": step.variant.name,
        "contender": step.contender,
        "candidate": None if step.candidate is None else json.loads(step.candidate.to_json()),
        "failure": step.failure,
    }


def _print(experiment: Experiment, outcome: Outcome) -> None:
    print(
        f"{experiment.title}: {outcome.steps} steps, {outcome.before} of them recorded before, "
        f"{outcome.done} now, {outcome.failed} of these without a time, {outcome.seconds:.0f} s"
    )
    print(f"  pipeliner report --db {outcome.path} draws them")
