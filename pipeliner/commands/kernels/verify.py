"""``pipeliner verify``: run the planned kernel on the CPU, judge it, hold it against a reference.

A workload of ours is run on extents that are small enough, by the plan of those that were given.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...diagnostics import Reason, reason_as_json
from ...errors import WorkloadError
from ..shared import console, workload
from ..shared.usage import at_least
from . import mutate

if TYPE_CHECKING:
    from ...proof.proof import Proof
    from ...verification.verdict import Verdict

HELP: Final = "run a kernel on the CPU under adversarial timing, and compare with a reference"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    workload.configure(parser)
    workload.configure_records(parser)
    runs = parser.add_argument_group("how it is run")
    runs.add_argument(
        "--seed", type=at_least(0), default=0, help="of arguments and random timing (0)"
    )
    runs.add_argument("--timing", metavar="T[,...]", help="when copies land: late,early,random")
    runs.add_argument(
        "--order", metavar="O[,...]", help="of warps: lockstep,round-robin,reversed,random"
    )
    runs.add_argument(
        "--blocks",
        metavar="B",
        default="auto",
        help="CTAs of a function of your own to run: all, or X[,Y[,Z]][:...] of the last kernel or "
        "of each, with / between them (default: of a large grid whose CTAs do not meet the first, "
        "the last, ragged ones and some at random)",
    )
    runs.add_argument(
        "--tolerance",
        metavar="RTOL[,ATOL]",
        help="what each element may differ by (default: what rounding allows it, or nothing where "
        "the same sums are made in the same order)",
    )
    runs.add_argument(
        "--mutate",
        action="store_true",
        help="plant a defect in every wait, commit, barrier, fence and ring index: each must show",
    )
    runs.add_argument(
        "--prove",
        action="store_true",
        help="whether the planned kernel is right for every trip count and every interleaving",
    )
    runs.add_argument("--json", action="store_true", help="machine-readable, on stdout")
    runs.add_argument(
        "--save",
        metavar="FILE",
        help="where a wrong kernel is saved as a program that shows it (default: wrong_NAME.py)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the verdict; 1 where the kernel is wrong."""
    with console.progress("loading TVM"):
        from ...emulator.engine.scheduler import ORDERS
        from ...emulator.units.cp_async import TIMINGS
        from ...verification.reproducer import reproducer
        from ...verification.sampling import parsed as parsed_blocks
        from ...verification.shrunk import shrunk
        from ...verification.tolerance import parsed as parsed_tolerance
        from ...verification.verdict import verify, verify_workload

        timings = _chosen(args.timing, TIMINGS, "timing")
        orders = _chosen(args.order, ORDERS, "order")
        blocks = parsed_blocks(args.blocks)
        tolerance = parsed_tolerance(args.tolerance)
        work = workload.load(args)
        if work.spec is not None and args.blocks != "auto":
            raise WorkloadError("option.blocks_of_workload")
    with console.progress(f"pipelining {work.title}"):
        kernel = planned = workload.built(work, refine=False)
        small = None if work.spec is None else shrunk(work.spec, work.cut, kernel)
    if small is not None:
        kernel = small.kernel
        if small.title and not args.json:
            print(small.title, flush=True)
    if args.mutate:
        return mutate.run(
            kernel, small, work.reference, timings, orders, args.seed, as_json=args.json
        )
    proof: Proof | None = None
    if args.prove:
        with console.progress("walking through all states"):
            proof = planned.proof
    with console.counted("running every thread on the CPU") as told:
        if small is not None:
            verdict = verify_workload(
                kernel, small.spec, args.seed, timings, orders, tolerance, told
            )
        else:
            verdict = verify(
                kernel,
                reference=work.reference,
                seed=args.seed,
                timings=timings,
                orders=orders,
                blocks=blocks,
                tolerance=tolerance,
                progress=told,
            )
    if args.json:
        shown = as_json(verdict) | ({} if proof is None else {"proof": proof_as_json(proof)})
        console.print_json(verified_on=small.title if small else "", **shown)
    else:
        print_verdict(verdict)
        if proof is not None:
            print_proof(proof)
    if proof is not None and proof.wrong:
        return 1
    if verdict.ok:
        return 0
    file = Path(args.save or f"wrong_{kernel.name}.py")
    text = reproducer(
        kernel,
        file.name,
        seed=args.seed,
        timings=timings,
        orders=orders,
        spec=small.spec if small else None,
        reference=work.reference,
        blocks=blocks,
        tolerance=tolerance,
    )
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as err:
        raise WorkloadError("file.write", path=str(file), why=err.strerror) from err
    print(f"saved as a program: {file}", file=sys.stderr)
    return 1


def print_verdict(verdict: Verdict) -> None:
    """The verdict in words: each hazard once, then a line for each run."""
    for hazard in verdict.hazards:
        print(f"hazard: {hazard}\n")
    what = "right" if verdict.ok else "WRONG"
    if verdict.ok and not verdict.speaks_of_all:
        what = "right for the CTAs that ran (between CTAs: only those run)"
    print(
        f"{what}: {verdict.title}: {_error(verdict)}, {len(verdict.hazards)} hazards, "
        f"against {verdict.against}"
    )
    for note in verdict.notes:
        print(f"  {note}")
    for line in _ctas(verdict):
        print(f"  ran {line}")
    for ran in verdict.runs:
        calm = sum(map(len, ran.in_step.values()))
        order = ran.order + (f" (in {calm} CTAs lockstep)" if calm else "")
        print(
            f"  copies {ran.timing}, warps {order}: {'right' if ran.ok else 'WRONG'}, "
            f"error {ran.worst:.2f}, {len(ran.hazards)} hazards, {ran.seconds:.1f} s"
        )


def print_proof(proof: Proof) -> None:
    """What was proved, in words: what holds of each kernel, and what is assumed."""
    from ...proof.running.drawn import drawing

    for kernel in proof.kernels:
        print(f"{'proved' if kernel.ok else 'not proved'}: {kernel.statement}")
        print(f"  interleavings: {kernel.interleavings}")
        if kernel.narrow:
            print(f"  of other trip counts nothing is known: {kernel.narrow}")
        if kernel.beyond is not None:
            print(f"  of other trip counts it is wrong {kernel.beyond.said}")
        wrong = kernel.refuted or kernel.beyond
        for row in drawing(wrong.order) if wrong is not None else ():
            print(f"    {row}")
        print(f"  {kernel.steps} steps, {kernel.seconds:.1f} s")
    for otherwise in proof.disagreements:
        print(f"  {otherwise}")
    for assumption in proof.assumptions:
        print(f"  assumed: {assumption}")


def proof_as_json(proof: Proof) -> dict[str, Any]:
    """What was proved, as plain data."""
    from ...proof.running.drawn import drawing

    return {
        "ok": proof.ok,
        "seconds": round(proof.seconds, 3),
        "assumptions": list(map(str, proof.assumptions)),
        "disagreements": list(map(str, proof.disagreements)),
        "kernels": [
            {
                "kernel": kernel.kernel,
                "ok": kernel.ok,
                "statement": str(kernel.statement),
                "interleavings": str(kernel.interleavings),
                "narrow": reason_as_json(kernel.narrow),
                "drawn": drawing(kernel.refuted.order) if kernel.refuted is not None else [],
                "states": kernel.states,
                "steps": kernel.steps,
                "bound": kernel.bound,
                "values": [
                    {"name": one.name, "least": one.least, "only": one.only}
                    for one in kernel.values
                ],
                "loops": [
                    {
                        "name": loop.name,
                        "least": loop.least,
                        "only": loop.only,
                        "by_end": loop.by_end,
                    }
                    for loop in kernel.loops
                ],
            }
            for kernel in proof.kernels
        ],
    }


def _ctas(verdict: Verdict) -> list[str]:
    """Which CTAs ran, and what is known of others: a line for each kernel."""
    ran, between = verdict.ran, verdict.between
    if ran.code != "sample.kernels":
        return [f"{ran}; between CTAs: {between}"] if between else []
    if not isinstance(between, Reason):
        return list(map(str, ran["kernels"]))
    each = zip(ran["kernels"], between["kernels"], strict=True)
    return [f"{one}; between CTAs: {known['said']}" for one, known in each]


def _error(verdict: Verdict) -> str:
    """How far outputs are off, and which tolerance that is in."""
    from ...verification.tolerance import EQUAL

    if verdict.tolerance == EQUAL:
        return str(EQUAL) if verdict.worst == 0 else f"not {EQUAL}"
    return f"error / bound = {verdict.worst:.2f}; bound: {verdict.tolerance}"


def as_json(verdict: Verdict) -> dict[str, Any]:
    """The verdict as plain data."""
    return {
        "ok": verdict.ok,
        "title": verdict.title,
        "worst": verdict.worst,
        "against": verdict.against.as_dict(),
        "tolerance": verdict.tolerance,
        "ran": verdict.ran.as_dict(),
        "between": reason_as_json(verdict.between),
        "ctas": {name: list(blocks) for name, blocks in verdict.ctas.items()},
        "notes": list(verdict.notes),
        "hazards": [str(hazard) for hazard in verdict.hazards],
        "runs": [
            {
                "timing": ran.timing,
                "order": ran.order,
                "in_step": {name: list(blocks) for name, blocks in ran.in_step.items()},
                "worst": ran.worst,
                "hazards": len(ran.hazards),
                "seconds": round(ran.seconds, 3),
            }
            for ran in verdict.runs
        ],
    }


def _chosen(text: str | None, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    """The values that an option lists, all by default."""
    if text is None:
        return known
    chosen = tuple(text.split(","))
    if not set(chosen) <= set(known):
        raise WorkloadError("option.choice", option=option, choices=known, value=text)
    return chosen
