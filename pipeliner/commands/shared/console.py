"""What a person sees: tables, headings, progress. Plain text without rich or a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TextIO

from ... import knobs
from ...diagnostics import Reason

JSON_VERSION = 2


def print_json(**data: Any) -> None:
    """One JSON object on stdout; ``version`` changes when a field changes its meaning.

    A reason has its code, its arguments and its sentence.
    """
    print(json.dumps(_plain({"version": JSON_VERSION, **data}), indent=2))


def _plain(value: Any) -> Any:
    """``value`` of types that JSON has."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.as_dict() if isinstance(value, Reason) else value


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], numeric: int = 0) -> None:
    """A table on stdout; the last ``numeric`` columns are aligned to the right."""
    first_number = len(headers) - numeric
    if not fancy(sys.stdout):
        print(plain_table(headers, rows, first_number))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", box=box.SIMPLE_HEAD)
    for at, header in enumerate(headers):
        justify: Any = "right" if at >= first_number else "left"
        table.add_column(header, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], first_number: int) -> str:
    """The table as text, columns as wide as their longest cell."""
    lines = [list(headers), *(list(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(headers))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at >= first_number else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    )


def print_code(code: str, language: str) -> None:
    """Source code on stdout, coloured on a terminal."""
    if not fancy(sys.stdout):
        print(code)
        return
    from rich.console import Console
    from rich.syntax import Syntax

    Console().print(Syntax(code, language, background_color="default", word_wrap=False))


def heading(text: str) -> None:
    """A step's title on stdout."""
    if not fancy(sys.stdout):
        print(f"\n{text}\n{'-' * len(text)}", flush=True)
        return
    from rich.console import Console

    Console().print(f"\n{text}", style="bold cyan", markup=False, highlight=False)


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Say on a terminal (stderr) what is going on; with rich, the line goes when it is done."""
    if not fancy(sys.stderr):
        if sys.stderr.isatty():
            print(f"{text} ...", file=sys.stderr, flush=True)
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextmanager
def steps(text: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal (stderr) that what is yielded moves one step on."""
    if not fancy(sys.stderr):
        if sys.stderr.isatty():
            print(f"{text} ({total}) ...", file=sys.stderr, flush=True)
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(text), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def counted(text: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal (stderr), to be told what is done, how much of it, and of how much."""
    if not fancy(sys.stderr):
        yield _lines(text) if sys.stderr.isatty() else lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(text, total=None)
        yield lambda what, done, total: bar.update(
            task, description=f"{text}: {what}", completed=done, total=total
        )


def _lines(text: str) -> Callable[[str, int, int], None]:
    """A line on stderr for each thing that begins."""
    seen: set[str] = set()

    def told(what: str, done: int, total: int) -> None:
        if what not in seen:
            seen.add(what)
            print(f"{text}: {what} ({total} CTAs) ...", file=sys.stderr, flush=True)

    return told


def fancy(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal that rich may draw on."""
    return stream.isatty() and knobs.color() and find_spec("rich") is not None
