"""``pipeliner tune``: search for the fastest kernel of a workload or a function on this GPU."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ... import knobs
from ...diagnostics import Reason, reason_as_json
from ...errors import WorkloadError
from ..shared import console, specs, workload
from ..shared.usage import EXIT_INTERRUPTED, check_least

if TYPE_CHECKING:
    from ...measuring import Measurer
    from ...tuning import Progress, Tuned
    from ...tuning.subjects import TuningSubject

HELP: Final = "search for the fastest kernel of a workload, and record every sample (needs a GPU)"

DB: Final = "tuned.sqlite"
SHOWN: Final = 20

REASONS: Final = 6
"""Why settings of knobs are left out: as many lines at most, each with as many settings."""

_CHOSEN: Final = ("tile", "splits", "persistent")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        f"{HELP}. Run again, it goes on where it ended: trials that are recorded count. "
        "pipeliner.build uses the record where PIPELINER_DB or db= names the file."
    )
    parser.add_argument(
        "workload",
        help=f"{', '.join(specs.KINDS)}; or file.py:name for a PrimFunc or Schedule, or a function "
        "that returns one: parameters that default to lists are its knobs",
    )
    specs.configure(parser)
    search = parser.add_argument_group("the search")
    search.add_argument("--target", help="the GPU (default: this one; with --dry-run, any: h100)")
    search.add_argument("--trials", type=int, default=64, help="in all (default: 64)")
    search.add_argument(
        "--all", action="store_true", help="all trials, however little is likely to be left"
    )
    search.add_argument("--seconds", type=float, help="stop after that long")
    search.add_argument(
        "--db", metavar="FILE", help=f"of the records (default: PIPELINER_DB, or {DB})"
    )
    search.add_argument("--jobs", type=int, help="processes that compile (default: cores - 1)")
    search.add_argument(
        "--devices", type=_devices, default=(), metavar="N[,N]", help="GPUs that measure: 0,1"
    )
    search.add_argument(
        "--tracker", metavar="HOST:PORT", help="measure on the RPC servers of a TVM tracker"
    )
    search.add_argument("--key", help="of these servers (default: the target's name)")
    search.add_argument(
        "--verify", action="store_true", help="the emulator vets each candidate beforehand"
    )
    search.add_argument(
        "--dry-run", action="store_true", help="rank the candidates by the model and end: no GPU"
    )
    search.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def run(args: argparse.Namespace) -> int:
    """Search, and print the best; 1 where no candidate ran, 130 when interrupted."""
    _check(args)
    work, title = _work(args)
    if args.dry_run:
        return _dry_run(args, work, title)
    with console.progress("loading TVM"):
        from ...measuring import check_gpu
        from ...tuning import tune

    measurers = _servers(args)
    if not measurers:
        check_gpu()
    found = tune(
        work,
        args.target,
        trials=args.trials,
        all_trials=args.all,
        seconds=args.seconds,
        db=args.db or knobs.records() or DB,
        jobs=args.jobs,
        devices=args.devices,
        verify=args.verify,
        say=say,
        measurers=measurers,
    )
    if args.json:
        console.print_json(**as_dict(found))
    else:
        _print(found)
    if found.interrupted:
        return EXIT_INTERRUPTED
    return 0 if found.best is not None else 1


def as_dict(found: Tuned) -> dict[str, Any]:
    """What a search came to, of types that JSON has."""
    best = found.best
    return {
        "workload": found.workload.title,
        "done": found.done,
        "failed": found.failed,
        "seconds": found.seconds,
        "interrupted": found.interrupted,
        "stopped": None if found.stopped is None else reason_as_json(found.stopped),
        "db": str(found.path),
        "best_us": None if best is None else best.us,
        "predicted_us": None if best is None else best.predicted_us,
        "candidate": None if best is None else best.candidate,
        "proof": None if found.proof is None else reason_as_json(found.proof),
        **_of_settings(found.subject),
    }


def print_left_out(subject: TuningSubject) -> None:
    """Print which settings of its knobs are not tried, and why; those of one reason in a line."""
    left = subject.left_out
    if not left:
        return
    settings: dict[str, list[str]] = {}
    for one in left:
        settings.setdefault(str(one.why), []).append(one.knobs.told)
    print(f"{len(left)} of {subject.settings} settings of the knobs are left out:")
    for why, some in list(settings.items())[:REASONS]:
        more = f" and {len(some) - REASONS} more" if len(some) > REASONS else ""
        print(f"  {'; '.join(some[:REASONS])}{more}: {why}")
    if len(settings) > REASONS:
        print(f"  {len(settings) - REASONS} more reasons; --json has all of them")


def _of_settings(subject: TuningSubject) -> dict[str, Any]:
    """How many settings a function of knobs has, and which of them are not tried."""
    left = [{"knobs": dict(one.knobs.values), "why": str(one.why)} for one in subject.left_out]
    return {"settings": subject.settings, "left_out": left}


def say(progress: Progress) -> None:
    """One line on stderr: what the last trial took, the best so far, the rate, the time left."""
    console.say(progress_line(progress))


def progress_line(progress: Progress) -> str:
    """``[12/64] 190.3 us; best 182.1 us, 754.2 TFLOP/s; 1.9 trials/s, 27 s left``."""
    parts = [progress.trial] if progress.trial else []
    if progress.best_us is not None:
        rate = "" if progress.tflops is None else f", {progress.tflops:.1f} TFLOP/s"
        parts.append(f"best {progress.best_us:.1f} us{rate}")
    pace = [f"{progress.rate:.2g} trials/s"] if progress.rate else []
    pace += [] if progress.left is None else [f"{progress.left:.0f} s left"]
    parts += [", ".join(pace)] if pace else []
    return f"[{progress.done}/{progress.trials}] {'; '.join(parts) or 'ranking is done'}"


def _work(args: argparse.Namespace) -> tuple[Any, str]:
    """What is tuned, and what a person calls it."""
    if args.workload in specs.KINDS:
        spec = specs.make(args, None)
        return spec, spec.title
    specs.refuse(args)
    with console.progress("loading TVM"):
        from ..shared.user_file import named_value
    return named_value(args.workload)[0], args.workload


def _dry_run(args: argparse.Namespace, work: Any, title: str) -> int:
    """The candidates that a search would begin with, and how many there are."""
    from ...records.candidate import describe
    from ...targets import cuda_target, gpu
    from ...tuning import subject_of

    target = cuda_target(args.target or (None if gpu() else workload.DEFAULT_TARGET))
    with console.progress(f"ranking {title}"):
        subject = subject_of(work, target)
        points = subject.ranked()
    if args.json:
        console.print_json(
            workload=title,
            points=len(points),
            ranked=[
                {"candidate": one.candidate.to_json(), "predicted_us": one.predicted_us}
                for one in points[: args.trials]
            ],
            **_of_settings(subject),
        )
        return 0
    print(f"{title}: {len(points)} candidates; the best predicted, nothing is measured")
    rows = [
        (*describe(one.candidate), console.microseconds(one.predicted_us))
        for one in points[: min(SHOWN, args.trials)]
    ]
    console.print_table(("tile", "asked", "us"), rows, numeric=1)
    print_left_out(subject)
    return 0


def _print(found: Tuned) -> None:
    """The best, and beside it what the model would have taken."""
    from ...records.candidate import describe

    title, flops = found.workload.title, found.workload.flops()
    if found.best is None:
        print(f"{title}: none of {found.done} candidates ran; {found.path} says why")
        print_left_out(found.subject)
        return
    best = found.best
    tile, asked = describe(found.candidate)
    rate = f" {flops / best.us * 1e-6:.1f} TFLOP/s," if flops else ""
    print(f"{title}: {best.us:.1f} us,{rate} predicted {best.predicted_us}")
    print(f"  {f'tile {tile}' if flops else tile or 'as it is'}; asked: {asked}")
    print(f"  {found.done} trials, {found.failed} of them failed, {found.seconds:.0f} s")
    if found.stopped is not None:
        print(f"  {found.stopped}")
    if found.proof is not None:
        print(f"  {found.proof}")
    print(f"  to build it: {_how_to_build(found)}")
    print_left_out(found.subject)


def _how_to_build(found: Tuned) -> str:
    """In one line; the environment names records of workloads alone."""
    how = f"pipeliner.build(..., db={str(found.path)!r})"
    return f"PIPELINER_DB={found.path}, or {how}" if found.workload.flops() else f"{how}, or --db"


def _servers(args: argparse.Namespace) -> Sequence[Measurer]:
    """Who measures where a tracker is named; nobody else is needed then."""
    if args.tracker is None:
        return ()
    if args.target is None:
        raise WorkloadError("option.tracker_target")
    from ...measuring import remote_measurers

    return remote_measurers(args.tracker, args.key or args.target)


def _check(args: argparse.Namespace) -> None:
    """WorkloadError for options that ask for what the search is to find, or for nothing."""
    for name in _CHOSEN:
        if getattr(args, name) is not None:
            raise WorkloadError("option.searched", option=name)
    check_least(args, trials=1, jobs=1)
    if args.seconds is not None and not args.seconds > 0:
        raise WorkloadError("option.positive", option="seconds", value=args.seconds)
    if args.tracker is None and args.key is not None:
        raise WorkloadError("option.key")
    if args.tracker is not None and args.devices:
        raise WorkloadError("option.devices")


def _devices(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(Reason("usage.numbers", such="0,1", value=text))
    devices = tuple(int(part) for part in parts)
    if len(set(devices)) < len(devices):
        raise argparse.ArgumentTypeError(Reason("tune.devices", devices=devices))
    return devices
