"""``pipeliner inspect``: the kernel at each level, and what each pass changed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...diagnostics.formatting import nearest
from ...errors import WorkloadError
from ..shared import console, workload

if TYPE_CHECKING:
    from ...explain.pass_runs import PassRun

HELP: Final = "show a kernel: TensorIR, plan, CUDA, PTX, SASS, resources, pass by pass"

_KINDS: Final = ("tir", "plan", "cuda", "ptx", "sass", "resources")
_ANNOTATED: Final = ("cuda", "ptx", "sass")
_NOT_COMPARED: Final = (
    "workload",
    "nvcc",
    "machine",
    "plan",
    "db",
    "emit",
    "passes",
    "diff",
    "output",
)
_LANGUAGES: Final = {"tir": "python", "cuda": "cuda", "ptx": "ptx", "sass": "asm"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    workload.configure(parser)
    workload.configure_records(parser)
    parser.add_argument(
        "--emit",
        default="cuda",
        metavar="KIND[,...]",
        help=f"of {', '.join(_KINDS)} (default: cuda)",
    )
    parser.add_argument(
        "--passes",
        nargs="?",
        const="",
        metavar="NAME",
        help="the passes that changed the IR, as diffs; only those with NAME in their name",
    )
    parser.add_argument(
        "--diff",
        metavar="OPTION=A,B",
        help="how what is emitted differs between two values of an option: depth=2,3; "
        "tile=64x64x32,128x64x32",
    )
    parser.add_argument(
        "--condense",
        action="store_true",
        help="--passes and --diff for reading: no blocks, regions, attributes and addresses; "
        "instructions by name",
    )
    parser.add_argument(
        "--annotate",
        action="store_true",
        help="CUDA, PTX and SASS with the op, stage, phase, iteration and slots of each line "
        "before it; in CUDA prologue, steady state and epilogue as regions, which editors fold",
    )
    parser.add_argument("--json", action="store_true", help="all of that as JSON, on stdout")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="write files instead of stdout; k.cu: that one file"
    )


def run(args: argparse.Namespace) -> int:
    """Print or write what was asked for."""
    kinds = args.emit.split(",")
    unknown = [kind for kind in kinds if kind not in _KINDS]
    if unknown:
        raise WorkloadError("option.choice", option="emit", choices=_KINDS, value=unknown[0])
    if args.annotate and not set(_ANNOTATED) & set(kinds):
        raise WorkloadError("option.annotate", known=_ANNOTATED, emitted=tuple(kinds))
    if args.condense and args.passes is None and args.diff is None:
        raise WorkloadError("option.condense")
    if args.json and args.output is not None:
        raise WorkloadError("option.json_output")
    if args.diff is not None:
        if args.passes is not None:
            raise WorkloadError("option.diff_passes")
        return _show_diff(args, kinds, *_two_values(args.parser, args.diff))
    with console.progress("loading TVM"):
        from ...explain.inspect import SUFFIXES, emit

        work = workload.load(args)
    if args.passes is not None:
        return _show_passes(args, work)
    kernel = _build(work)
    if args.json:
        return _print_json(kernel, kinds, annotate=args.annotate)
    file = _file(args.output, kinds)
    folder = None if file is not None else _folder(args.output)
    for at, kind in enumerate(kinds, 1):
        with console.progress(f"making {kind}", at, len(kinds)):
            text = emit(kernel, kind, annotate=args.annotate)
        if file is not None:
            _write(file, text)
        elif folder is not None:
            _write(folder / f"{kernel.name}.{SUFFIXES[kind]}", text)
        elif kind in _LANGUAGES:
            console.print_code(text, _LANGUAGES[kind])
        else:
            print(text)
    return 0


def _build(work: workload.ScheduledFunction) -> Any:
    from ...api import build

    with console.progress(f"pipelining {work.title}"):
        return build(workload.pipelined(work), work.target)


def _print_json(kernel: Any, kinds: list[str], *, annotate: bool) -> int:
    """Each level as JSON has it; of annotated CUDA the origin of each line, too."""
    from dataclasses import asdict

    from ...explain.inspect import emit

    emitted: dict[str, Any] = {}
    for at, kind in enumerate(kinds, 1):
        with console.progress(f"making {kind}", at, len(kinds)):
            if kind == "plan":
                emitted[kind] = json.loads(kernel.plan.to_json())
            elif kind == "resources":
                emitted[kind] = [asdict(used) for used in kernel.all_resources]
            else:
                emitted[kind] = emit(kernel, kind, annotate=annotate)
    told: dict[str, Any] = {"kernel": kernel.name, "arch": kernel.arch, "emitted": emitted}
    if annotate and "cuda" in kinds:
        origins = kernel.annotated.origins
        told["origins"] = [{"line": at, **one.as_dict()} for at, one in sorted(origins.items())]
    console.print_json(**told)
    return 0


def _show_passes(args: argparse.Namespace, work: workload.ScheduledFunction) -> int:
    from ...explain.pass_runs import trace

    wanted, output, condense = args.passes, args.output, args.condense
    with console.progress(f"running the passes on {work.title}"):
        seen = trace(work.function, work.target, work.request)
    if not any(wanted.lower() in name.lower() for name in seen.names):
        short = tuple(name.rpartition(".")[2] for name in seen.names)
        near = nearest(wanted, short)
        raise WorkloadError("option.pass", choices=short, value=wanted, near=near)
    runs = [found for found in seen.runs if wanted.lower() in found.name.lower()]
    if args.json:
        diffs = [{"name": run.name, "diff": run.diff(condense=condense)} for run in runs]
        console.print_json(passes=diffs)
        return 0
    folder = _folder(output)
    for at, found in enumerate(runs):
        diff = found.diff(condense=condense)
        if folder is not None:
            _write_pass(folder, at, found, diff)
        elif diff:
            console.heading(found.name)
            console.print_code(diff, "diff")
    passes = "1 pass" if len(runs) == 1 else f"{len(runs)} passes"
    print(f"{passes} changed the IR", file=sys.stderr)
    return 0


def _two_values(parser: argparse.ArgumentParser, text: str) -> tuple[argparse.Action, list[str]]:
    """The option that ``--diff`` names and its two values; WorkloadError: it has another form."""
    known = {
        action.dest: action
        for action in parser._actions
        if isinstance(action, argparse._StoreAction) and action.dest not in _NOT_COMPARED
    }
    option, _, values = text.partition("=")
    action = known.get(option.strip("-").replace("-", "_"))
    if action is None:
        near = nearest(option, known)
        raise WorkloadError("option.diff_option", choices=tuple(known), value=option, near=near)
    both = values.split(",")
    if len(both) != 2 or not all(both):
        raise WorkloadError("option.diff", value=text)
    return action, both


def _show_diff(
    args: argparse.Namespace, kinds: list[str], option: argparse.Action, values: list[str]
) -> int:
    with console.progress("loading TVM"):
        from ...explain.differences import diff

    name, given = option.dest, []
    for value in values:
        try:
            read = option.type(value) if callable(option.type) else value
        except (argparse.ArgumentTypeError, ValueError) as err:
            args.parser.error(f"argument --diff: {name}: {err}")
        given.append(argparse.Namespace(**{**vars(args), name: read}))
    kernels = [_build(workload.load(one)) for one in given]
    folder = _folder(args.output)
    labels = (f"{name}={values[0]}", f"{name}={values[1]}")
    texts = {}
    for at, kind in enumerate(kinds, 1):
        with console.progress(f"comparing {kind}", at, len(kinds)):
            texts[kind] = diff(
                kernels[0],
                kernels[1],
                kind,
                labels=labels,
                annotate=args.annotate,
                condense=args.condense,
            )
    if args.json:
        console.print_json(kernel=kernels[0].name, option=name, values=values, differences=texts)
        return 0
    for kind, text in texts.items():
        if folder is not None:
            _write(folder / f"{kernels[0].name}.{kind}.diff", text)
        else:
            console.print_code(text or f"{kind}: no difference", "diff")
    return 0


def _write_pass(folder: Path, at: int, found: PassRun, diff: str) -> None:
    name = f"{at:02d}-{found.name}"
    for when, text in zip(("before", "after"), found.texts):
        _write(folder / f"{name}.{when}.py", text)
    _write(folder / f"{name}.diff", diff)


def _file(output: str | None, kinds: list[str]) -> Path | None:
    """The file that is named by the suffix of the only thing to write."""
    from ...explain.inspect import SUFFIXES

    if output is None or len(kinds) != 1 or not output.endswith(f".{SUFFIXES[kinds[0]]}"):
        return None
    if not Path(output).parent.is_dir():
        raise WorkloadError("file.no_folder", path=output, folder=str(Path(output).parent))
    return Path(output)


def _folder(output: str | None) -> Path | None:
    if output is None:
        return None
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise WorkloadError("file.write", path=str(folder), why=err.strerror) from err
    return folder


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    except OSError as err:
        raise WorkloadError("file.write", path=str(path), why=err.strerror) from err
    print(path)
