"""``pipeliner timeline``: a loop in model time, pipelined above un-pipelined, slot by slot."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...errors import WorkloadError
from ..shared import console, workload
from ..shared.usage import at_least

if TYPE_CHECKING:
    from ...timeline.terminal import Glyphs, Line

HELP: Final = "draw a loop's prologue, steady state, epilogue and slots over (model) time"

_STYLES: Final = {
    "title": "bold",
    "dim": "dim",
    "prologue": "yellow",
    "steady state": "green",
    "epilogue": "magenta",
    "empty": "dim",
    "filling": "yellow",
    "ready": "green",
    "read": "bright_blue",
    "stall": "bold red",
    "i0": "bright_blue",
    "i1": "yellow",
    "i2": "green",
    "i3": "magenta",
    "i4": "cyan",
    "i5": "white",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    workload.configure(parser)
    workload.configure_records(parser)
    drawn = parser.add_argument_group("what is drawn (default: in the terminal)")
    drawn.add_argument("--loop", metavar="NAME", help="which loop (default: the outermost)")
    drawn.add_argument(
        "--iterations", type=at_least(1), metavar="N", help="how many (default: 4 more than slots)"
    )
    drawn.add_argument("--ops", action="store_true", help="a row for every op and every fragment")
    drawn.add_argument("--svg", metavar="FILE", help="write an SVG, which browsers open")
    drawn.add_argument("--chrome", metavar="FILE", help="write a trace for ui.perfetto.dev")
    drawn.add_argument("--json", action="store_true", help="every event and slot, on stdout")


def run(args: argparse.Namespace) -> int:
    """Draw, or write what was asked for."""
    with console.progress("loading TVM"):
        from ...timeline import chrome, svg, timeline_with

        work = workload.load(args)
    with console.progress(f"planning {work.title}, twice"):
        drawn = timeline_with(
            work.function,
            work.target,
            work.request,
            loop=args.loop,
            iterations=args.iterations,
        )
    if args.svg:
        _write(args.svg, svg(drawn, each=args.ops))
    if args.chrome:
        _write(args.chrome, chrome(drawn))
    if args.json:
        console.print_json(**drawn.as_dict())
    elif not (args.svg or args.chrome):
        from ...timeline.terminal import ASCII, UNICODE, WIDTH, draw

        width = shutil.get_terminal_size((WIDTH, 0)).columns  # obeys COLUMNS
        glyphs = UNICODE if _can_print(UNICODE) else ASCII
        _print(draw(drawn, width, glyphs=glyphs, each=args.ops))
    return 0


def _can_print(glyphs: Glyphs) -> bool:
    try:
        "".join((*glyphs.states.values(), glyphs.flight)).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _print(lines: Sequence[Line]) -> None:
    if not console.fancy(sys.stdout):
        from ...timeline.terminal import plain

        print(plain(lines))
        return
    from rich.console import Console
    from rich.text import Text

    terminal = Console(highlight=False)
    for line in lines:
        parts = [(text, _STYLES.get(style, "")) for text, style in line]
        terminal.print(Text.assemble(*parts), soft_wrap=True)


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as err:
        raise WorkloadError("file.write", path=file, why=err.strerror) from err
    print(file, file=sys.stderr)
