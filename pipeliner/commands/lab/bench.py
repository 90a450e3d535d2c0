"""``pipeliner bench``: kernels against cuBLAS, cuDNN, TVM and Triton, on this machine's GPU."""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING, Any, Final

from ... import knobs
from ...diagnostics import Reason
from ...diagnostics.formatting import nearest
from ...errors import WorkloadError
from ..shared import console, specs, workload
from ..shared.usage import EXIT_INTERRUPTED, check_least

if TYPE_CHECKING:
    from ...bench import Problem, Report

HELP: Final = "time kernels against cuBLAS, cuDNN, TVM and Triton (needs a GPU and PyTorch)"

SPINE: Final = "default"
RANDOM: Final = "random"
"""The suite of products that a seed draws."""

OF_KINDS: Final = ("kinds", "few_rows", "batched")
"""Suites of one kind each, whose figures stand beside the roof."""

SUITES: Final = (
    "gemm",
    "conv",
    "gated",
    "attention",
    "decode",
    "rows",
    "scaled",
    "grouped",
    "packed",
    "back_to_back",
    *OF_KINDS,
    RANDOM,
)
PEERS: Final = ("cublas", "cudnn", "tvm", "torch", "sdpa", "triton", "best")
USUAL_PEERS: Final = PEERS[:5]

FEWEST_ROUNDS: Final = 2

FLUSHES: Final = ("written", "read")
"""Ways to replace what the L2 cache holds before a run."""

CONV: Final = "conv"
"""The suite of convolutions."""

DECODE: Final = "decode"
"""The suite of attention of few queries."""

_BOTH: Final = (
    specs.GEMM,
    specs.GATED,
    specs.ATTENTION,
    specs.ROWS,
    specs.SCALED,
    specs.GROUPED,
    specs.PACKED,
    specs.BACK_TO_BACK,
)
"""Suites whose names are those of workloads, too."""

_ONE: Final = (
    *specs.KINDS[specs.GEMM].options,
    *specs.KINDS[specs.GATED].options,
    *specs.KINDS[specs.ATTENTION].options,
    *specs.KINDS[specs.BACK_TO_BACK].options,
    *specs.KINDS[specs.GROUPED].options,
    "layout",
    "out",
    "fuse",
    "tile",
    "splits",
    "persistent",
)
"""Options that make one workload of ``gemm`` instead of the suite."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    workload.configure(parser, default=SPINE)
    parser.set_defaults(dtype="")
    parser.description = (
        f"{HELP}. WORKLOAD is a suite: 'gemm', 'conv', 'gated', 'attention', 'decode', 'rows', "
        "'scaled', 'grouped', 'packed', 'back_to_back', 'kinds' (every kind of convolution), "
        "'few_rows' (products of 1 to 64 rows), 'batched', 'random SEED' (40 products that the "
        "seed draws) or 'default', the figures that this library states; or one workload: conv2d, "
        "or gemm with a shape or layout. Contenders are checked against float64 before and after, "
        "and timed interleaved in one process."
    )
    parser.add_argument("seed", nargs="?", type=int, help=f"of '{RANDOM}' (default: 0)")
    timed = parser.add_argument_group("what is timed")
    timed.add_argument("--only", default="", metavar="TEXT", help="workloads with TEXT in the name")
    timed.add_argument("--rounds", type=int, default=30, help="timed runs of each (default: 30)")
    timed.add_argument(
        "--depth-one",
        action=argparse.BooleanOptionalAction,
        help=f"also our kernels with one slot: the gain of depth (default: in the suite '{CONV}')",
    )
    timed.add_argument(
        "--peers",
        type=_peers,
        default=USUAL_PEERS,
        metavar="NAMES",
        help=f"of {','.join(PEERS)} (default: all but the last two); each where it has the "
        "workload. best: all that cuBLASLt and cuDNN offer, the fastest of it",
    )
    timed.add_argument(
        "--flush",
        choices=FLUSHES,
        help="what fills the L2 cache before each run: bytes that are written, or read (default: "
        f"written; in the suite '{DECODE}', whose kernels write next to nothing, read)",
    )
    timed.add_argument(
        "--hot", action="store_true", help="also time calls back to back, in a CUDA graph"
    )
    timed.add_argument(
        "--host",
        action="store_true",
        help="also print how long an eager call takes the host, ours and PyTorch's",
    )
    timed.add_argument(
        "--jobs", type=int, help="processes that compile, before timing (default: cores - 1)"
    )
    timed.add_argument(
        "--db",
        metavar="FILE",
        help="keep every sample there (default: PIPELINER_DB, if it is set)",
    )
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("--json", action="store_true", help="machine-readable, on stdout")
    shown.add_argument("--chart", metavar="FILE", help="write the ratios as bars: .svg or .png")


def run(args: argparse.Namespace) -> int:
    """Measure and print; 1 where something failed or a floor was missed, 130 when interrupted."""
    check_least(args, rounds=FEWEST_ROUNDS, jobs=1)
    with console.progress("loading TVM"):
        from ... import bench

    bench.require_gpu()
    if args.chart:
        bench.check_chart(args.chart)
    problems = _problems(args)
    report = bench.Report(
        bench.device_name(),
        suite=_title(args),
        rounds=args.rounds,
        conditions=bench.current_conditions(),
        flush=args.flush or FLUSHES[args.workload == DECODE],
    )
    db = args.db or knobs.records()
    bench.measure(
        problems,
        report,
        workload.target_of(args),
        rounds=args.rounds,
        jobs=args.jobs,
        db=db,
        hot=args.hot,
        say=console.say,
    )
    if args.workload == SPINE and not args.only and not report.interrupted:
        with console.progress("timing the passes"):
            report.claims = bench.spine_claims(report, workload.target_of(args))
    if args.workload == specs.GATED:
        report.claims = bench.gated_claims(report)
    if args.workload == DECODE:
        specs_of = {problem.name: problem.spec for problem in problems}
        report.claims = bench.decode_claims(report, specs_of, bench.copied_per_us)
    if args.workload == specs.ROWS:
        report.claims = bench.row_claims(report)
    if args.workload == specs.SCALED:
        report.claims = bench.scaled_claims(report)
    if args.workload == specs.GROUPED:
        report.claims = bench.grouped_claims(report)
    if args.workload == specs.PACKED:
        report.claims = bench.packed_claims(report)
    if args.workload == specs.BACK_TO_BACK:
        report.claims = bench.back_to_back_claims(report)
    if args.workload in (*OF_KINDS, RANDOM) or "best" in args.peers:
        report.roofs = _roofs(problems, workload.target_of(args))
    _show(report, args, db)
    if args.host:
        _show_host(args)
    if db is not None:
        console.say(f"recorded in {db}: pipeliner report --db {db} draws it")
    if report.interrupted:
        return EXIT_INTERRUPTED
    return int(_failed(report))


def print_report(report: Report) -> None:
    """Conditions, results and claims as tables; a suite in one of them."""
    from ...bench import tables

    print("\n".join(tables.condition_lines(report)))
    whole = [tables.suite_table(report)] if report.suite else tables.problem_tables(report)
    for table in whole if report.results else ():
        print()
        console.print_table(table.headers, table.rows, numeric=table.numeric)
    lines = (tables.summary_lines, tables.best_lines) if report.suite else ()
    told = [*itertools.chain(*(one(report) for one in lines)), *tables.failure_lines(report)]
    if told:
        print("\n".join(["", *told]))
    if report.claims:
        print()
        table = tables.claim_table(report)
        console.print_table(table.headers, table.rows, numeric=table.numeric)


def _show(report: Report, args: argparse.Namespace, db: str | None) -> None:
    """On stdout first: a chart that cannot be written loses no measurement."""
    from ... import bench

    if args.json:
        console.print_json(**report.as_dict(), db=db)
    else:
        print_report(report)
    if args.chart:
        bench.draw(report, args.chart)
        console.say(args.chart)


def _show_host(args: argparse.Namespace) -> None:
    """Host times of calls through PyTorch: on stderr where stdout is one JSON object."""
    from ...torch.host_times import host_lines, host_times

    lines = host_lines(host_times())
    for line in lines:
        console.say(line) if args.json else print(line)


def _problems(args: argparse.Namespace) -> list[Problem]:
    """What the arguments name; WorkloadError where that is nothing."""
    found = _all_problems(args)
    chosen = [problem for problem in found if args.only in problem.name]
    if not chosen:
        names = tuple(problem.name for problem in found)
        raise WorkloadError("command.time_only", value=args.only, names=names)
    return chosen


def _all_problems(args: argparse.Namespace) -> list[Problem]:
    from ... import bench
    from ...targets import cuda_target

    if args.workload == SPINE:
        _refuse_shape(args)
        problems = bench.spine(workload.target_of(args), args.peers)
        return [problem for problem in problems if _has_dtype(problem, args.dtype)]
    if args.seed is not None and args.workload != RANDOM:
        raise WorkloadError("option.seed", suite=RANDOM, workload=args.workload)
    if _is_suite(args):
        _refuse_shape(args)
        target, request = cuda_target(workload.target_of(args)), workload.requested(args)
        of_suite = {
            specs.GATED: bench.gated_problems,
            specs.ROWS: bench.row_problems,
            specs.SCALED: bench.scaled_problems,
            specs.GROUPED: bench.grouped_problems,
            specs.PACKED: bench.packed_problems,
            specs.BACK_TO_BACK: bench.back_to_back_problems,
        }
        if args.workload in of_suite:
            make, plain = of_suite[args.workload], bool(args.depth_one)
            return make(target, request, args.dtype, args.peers, plain=plain)
        plain = args.workload == CONV if args.depth_one is None else args.depth_one
        told: dict[str, Any] = {"plain": plain, "peers": args.peers, "hot": args.hot}
        if args.workload == RANDOM:
            drawn = bench.random_gemms(args.seed or 0).items()
            made = [bench.contenders(s, target, request, label=name, **told) for name, s in drawn]
            return [problem for problem in made if _has_dtype(problem, args.dtype)]
        return [
            bench.contenders(spec, target, request, label=label, **told)
            for label, spec in bench.suite(args.workload, args.dtype or "float16").items()
        ]
    if args.workload not in specs.KINDS:
        raise WorkloadError(
            "command.time",
            workload=args.workload,
            suites=(SPINE, *SUITES),
            workloads=tuple(specs.KINDS),
        )
    args.dtype = args.dtype or "float16"
    spec = specs.make(args, None)
    target, request = cuda_target(workload.target_of(args)), workload.requested(args)
    asked = (args.tile, args.splits, args.persistent)
    given = any(option is not None for option in asked)
    tile = workload.tile_of(spec, target, request, *asked)[0] if given else None
    return [bench.contenders(spec, target, request, tile, peers=args.peers, hot=args.hot)]


def _is_suite(args: argparse.Namespace) -> bool:
    """Whether ``gemm`` is meant as the suite: nothing says which one product."""
    if args.workload in _BOTH:
        return all(getattr(args, name) in (None, "") for name in _ONE)
    return args.workload in SUITES


def _roofs(problems: list[Problem], target: Any) -> dict[str, float]:
    from ... import bench
    from ...machine import machine_for
    from ...targets import cuda_target

    of = {problem.name: problem.spec for problem in problems}
    return bench.roofs(of, machine_for(cuda_target(target)), bench.copied_per_us())


def _refuse_shape(args: argparse.Namespace) -> None:
    """WorkloadError where an option speaks of one workload beside a suite of many."""
    options = (name for kind in specs.KINDS.values() for name in kind.options)
    for name in dict.fromkeys((*options, *_ONE)):
        if getattr(args, name) not in (None, ""):
            raise WorkloadError(
                "option.not_of_suite",
                option=name,
                suite=args.workload,
                workloads=tuple(specs.KINDS),
            )


def _has_dtype(problem: Problem, asked: str) -> bool:
    from ...schedules import Gemm

    return not asked or problem.spec.dtype == Gemm(1, 1, 1, dtype=asked).dtype


def _title(args: argparse.Namespace) -> str:
    """What a table of all problems is called; empty where each has a table of its own."""
    from ...bench import GATED_DTYPE, GROUPED_DTYPE, PACKED_DTYPE, SCALED_DTYPE
    from ...schedules import Gemm

    if not _is_suite(args):
        return ""
    if args.workload == RANDOM:
        return f"{RANDOM} {args.seed or 0}"
    of_suite = {
        specs.GATED: GATED_DTYPE,
        specs.SCALED: SCALED_DTYPE,
        specs.GROUPED: GROUPED_DTYPE,
        specs.PACKED: PACKED_DTYPE,
    }
    usual = of_suite.get(args.workload, "float16")
    return f"{args.workload}, {Gemm(1, 1, 1, dtype=args.dtype or usual).dtype}"


def _peers(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        near = nearest(unknown[0], PEERS)
        raise argparse.ArgumentTypeError(
            Reason("usage.names", choices=PEERS, value=unknown[0], near=near)
        )
    return names


def _failed(report: Report) -> bool:
    from ...bench import OURS

    ours = [result for result in report.results if result.contender.startswith(OURS)]
    return any(result.failure for result in ours) or any(not claim.met for claim in report.claims)
