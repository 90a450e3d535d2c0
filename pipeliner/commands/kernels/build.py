"""``pipeliner build``: compile a kernel to a library, or compare an edited one with it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...diagnostics import Reason
from ...errors import ToolError, WorkloadError
from ..shared import console, workload

if TYPE_CHECKING:
    from ...diagnostics import Why
    from ...measuring import Measurement
    from ...toolchain.nvcc import Resources

_OURS: Final = re.compile(r"\S*/kernel\.cu")
"""What nvcc calls the file that it is given."""

HELP: Final = "compile a kernel to a library; or from edited CUDA, checked, timed and compared"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        f"{HELP}. Edit and recompile: `pipeliner inspect gemm --emit cuda -o k.cu`, change k.cu, "
        "`pipeliner build gemm --from k.cu`, both with the same workload and options."
    )
    workload.configure(parser)
    workload.configure_records(parser)
    workload.configure_refine(parser)
    parser.add_argument(
        "--from", dest="source", metavar="FILE", help="the kernel's CUDA, edited, to use instead"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the library there")
    parser.add_argument("--json", action="store_true", help="what was made, on stdout")
    parser.add_argument(
        "--line-info",
        metavar="FILE",
        help="write annotated CUDA there, and put its lines into the library: ncu and "
        "compute-sanitizer then show them; with --from, a copy of that CUDA",
    )


def run(args: argparse.Namespace) -> int:
    """Build and compare; 1 where the edited kernel does not compile or is wrong."""
    with console.progress("loading TVM"):
        from ...targets import gpu

        work = workload.load(args)
    if args.output and not Path(args.output).parent.is_dir():
        raise WorkloadError(
            "file.no_folder", path=args.output, folder=str(Path(args.output).parent)
        )
    source = None if args.source is None else _read(Path(args.source))
    with console.progress(f"building {work.title}"):
        kernel = workload.built(work, args.refine)
        made = kernel if source is None else _edited(kernel, source)
        used = _resources(kernel, made, args.source)
    told: dict[str, Any] = {
        "kernel": kernel.name,
        "arch": kernel.arch,
        "why": work.why,
        "reasons": kernel.plan.reasons if args.refine else (),
        "resources": {name: asdict(one) for name, one in used.items()},
    }
    if kernel.proving.found is not None:
        told["proof"] = list(map(str, kernel.proving.found.said))
    if not args.json:
        _show(used)
        print(*told.get("proof", ()), sep="\n", end="\n" if told.get("proof") else "")
        for line in filter(None, map(str, (told["why"], *told["reasons"]))):
            print(line)
    right = True
    if source is not None:
        subject, why = (None, "no GPU is visible") if gpu() is None else measurable(work)
        if subject is None:
            told["unchecked"] = why
            _say(args, f"not checked and not timed: {why}")
        else:
            found = _race(subject, kernel, made)
            right = not found.failure
            us = {"us": found.samples, "beside_us": found.beside}
            told["edited"] = {"failure": found.failure, **us}
            _say(args, verdict(found))
    if args.line_info:
        made = made.with_line_info(args.line_info)
        told["line_info"] = args.line_info
        _say(args, f"{args.line_info}: the CUDA whose lines the machine code has")
    if args.output and right:
        with console.progress(f"compiling {args.output}"):
            holds = made.export(args.output)
        told.update(output=args.output, holds=holds)
        _say(args, f"{args.output}: {holds}")
    if args.json:
        console.print_json(**told)
    return 0 if right else 1


def _say(args: argparse.Namespace, text: str) -> None:
    """What a person reads; ``--json`` has it as fields."""
    if not args.json:
        print(text)


def _edited(kernel: Any, source: str) -> Any:
    from ...kernel.edited import EditedKernel

    return EditedKernel(kernel, source)


def _resources(kernel: Any, made: Any, source: str | None) -> dict[str, Resources]:
    """What the compiler makes of both; what is wrong in ``source`` is told by that name."""
    try:
        used = [one.resources for one in dict.fromkeys((kernel, made))]
    except ToolError as err:
        text = str(err) if source is None else _OURS.sub(lambda _: source, str(err))
        raise ToolError("nvcc.compile", kernel=kernel.name, why=text) from err
    return dict(zip(["original", "edited"] if len(used) > 1 else [kernel.name], used))


def _show(used: Mapping[str, Resources]) -> None:
    rows = [
        (name, str(one.registers), str(one.spills), str(one.shared)) for name, one in used.items()
    ]
    headers = ("kernel", "registers", "bytes spilled", "bytes shared")
    console.print_table(headers, rows, numeric=3)
    for name, one in used.items():
        if one.wgmma_warning:
            print(f"wgmma of {name}: {one.wgmma_warning}")


def measurable(work: workload.ScheduledFunction) -> tuple[Any, Why]:
    """What is compared and timed, a workload or a function; or None, and why it cannot be."""
    if work.spec is not None:
        return work.spec, ""
    from ...records.functions import function_workload

    try:
        return function_workload(work.function), ""
    except WorkloadError as err:
        return None, err.reason


def _race(spec: Any, kernel: Any, made: Any) -> Measurement:
    """Check the edited kernel and time both, interleaved: see ``measuring``."""
    import tempfile

    from ...measuring import BuiltCandidate, GpuMeasurer

    measurer = GpuMeasurer()
    with tempfile.TemporaryDirectory(prefix="pipeliner-") as folder:
        built = []
        for name, one in (("original", kernel), ("edited", made)):
            path = Path(folder) / f"{name}.so"
            one.export(path)
            built.append(BuiltCandidate(spec, path=str(path), name=one.name))
        try:
            measurer.start()
            with console.progress("timing"):
                return measurer.measure(built[1], built[0])
        finally:
            measurer.close()


def verdict(found: Measurement) -> str:
    """How the edited kernel did beside the original, in one line."""
    import statistics

    if found.failure:
        return f"edited: {found.failure}"
    ours, theirs = statistics.median(found.samples), statistics.median(found.beside)
    return (
        f"edited: right, {ours:.2f} us; original {theirs:.2f} us: {theirs / ours:.3f} times as fast"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        why = getattr(err, "strerror", None) or Reason("file.no_text")
        raise WorkloadError("file.read", path=str(path), why=why) from err
