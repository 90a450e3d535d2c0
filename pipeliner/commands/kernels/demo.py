"""``pipeliner demo``: one GEMM from plain TensorIR to a checked, explained CUDA kernel."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, Final

from ...errors import TargetError, ToolError, WorkloadError
from ..shared import console, specs, workload

if TYPE_CHECKING:
    from ...kernel.compiled import Kernel

HELP: Final = "pipeline a GEMM, step by step: plan, CUDA, registers, check, speed"

ROUNDS: Final = 20

_NEXT: Final = (
    "pipeliner plan gemm --depth 2, pipeliner inspect gemm --emit cuda, --passes; examples/"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    workload.configure(parser, default=specs.GEMM)


def run(args: argparse.Namespace) -> int:
    """Walk through the steps; 1 where the check fails."""
    started = time.perf_counter()
    with console.progress("loading TVM (a second or two)"):
        from ... import api
        from ...kernel import building
        from ...targets import gpu

        work = workload.load(args)
    if work.spec is not None and work.gemm is None:
        raise WorkloadError("command.demo", workload=args.workload)
    console.heading(f"1. {work.title}, scheduled but not pipelined")
    print(_plain_loop(work))
    console.heading("2. Pipelined: what was decided, and why")
    before = time.perf_counter()
    with console.progress("pipelining"):
        fast = building.pipeline_with(work.function, work.target, work.request)
    took = time.perf_counter() - before
    kernel = api.build(fast, work.target)
    print(kernel.plan.explain())
    print(f"\n(all passes together: {took * 1e3:.0f} ms)")
    console.heading("3. The steady state in CUDA")
    _show_loop(kernel)
    console.heading("4. Compiled")
    _show_resources(kernel)
    console.heading("5. Right? Every thread of a small instance, run on the CPU")
    right = _check(work, kernel)
    console.heading("6. How fast?")
    if gpu() is None:
        print("No GPU is visible, so nothing is timed here; the plan predicts the time above.")
    else:
        _time(work, kernel)
    print(f"\n{time.perf_counter() - started:.0f} s in all. Next: {_NEXT}")
    return 0 if right else 1


def _plain_loop(work: workload.ScheduledFunction) -> str:
    """What the schedule says, in few words, for ours; the script for a function of the user's."""
    if work.gemm is None or work.tile is None:
        return str(work.function.script())
    tile, gemm = work.tile, work.gemm
    batch = f"for each of {gemm.batch} matrices:\n" if gemm.batch else ""
    lines = [
        f"for each {tile.m} x {tile.n} tile of C:            # one CTA",
        f"  for k in 0 .. {gemm.k} by {tile.k}:",
        f"    A_shared = the {tile.m} x {tile.k} tile of A      # who copies, how wide, how early?",
        f"    B_shared = the {tile.k} x {tile.n} tile of B      # in which layout?",
        "    acc += A_shared * B_shared               # which instruction, which warp?",
        "  C = acc",
    ]
    return batch + "\n".join(lines)


def _show_loop(kernel: Any) -> None:
    from ...explain.inspect import condense, find_loop, kernel_source

    source = kernel_source(kernel.cuda)
    names = [loop.name for loop in kernel.plan.loops if loop.pipelined]
    loops = [found for found in (find_loop(source, name) for name in names) if found]
    if not loops:
        print("No loop is pipelined; the plan above says why.")
    for loop in loops:
        console.print_code(condense(loop), "cuda")


def _show_resources(kernel: Any) -> None:
    from ...explain.inspect import instruction_counts, resource_lines
    from ...toolchain.nvcc import find_tool

    try:
        with console.progress("nvcc"):
            lines = resource_lines(kernel)
            disassembler = find_tool("nvdisasm") or find_tool("cuobjdump")
            counts = instruction_counts(kernel.sass if disassembler else kernel.ptx)
    except ToolError as err:
        print(f"Not compiled here: {err}")
        return
    print("\n".join(lines))
    level = "machine code" if disassembler else "PTX"
    print(f"  instructions in the {level}, in the whole kernel:")
    for name, count in counts.items():
        print(f"    {count:5d}  {name}")


def _check(work: workload.ScheduledFunction, kernel: Kernel) -> bool:
    from ...kernel.building import build_with
    from ...verification.shrunk import shrunk
    from ...verification.verdict import verify, verify_workload
    from .verify import print_verdict

    with console.progress("emulating"):
        if work.spec is None:
            made = build_with(work.function, work.target, work.request)
            verdict = verify(made, reference=work.reference)
        else:
            small = shrunk(work.spec, work.cut, kernel)
            if small.title:
                print(small.title)
            verdict = verify_workload(small.kernel, small.spec)
    print_verdict(verdict)
    return verdict.ok


def _time(work: workload.ScheduledFunction, kernel: Any) -> None:
    from ...bench import quick
    from ..lab.bench import print_report

    if work.gemm is None:
        print("A GPU is here, but only GEMMs are timed by this command.")
        return
    try:
        with console.progress("timing against cuBLAS"):
            report = quick(work.gemm, kernel, ROUNDS)
    except (ToolError, TargetError) as err:
        print(f"Not timed here: {err}")
        return
    print_report(report)
