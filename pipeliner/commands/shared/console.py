"""What a person sees: tables, headings, progress. Plain text without rich or a terminal."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final, TextIO

from ... import knobs
from ...diagnostics import Reason

JSON_VERSION = 2


def say(text: str) -> None:
    """What goes on, on stderr at once."""
    print(text, file=sys.stderr, flush=True)


def print_json(**data: Any) -> None:
    """One JSON object on stdout; ``version`` changes when a field changes its meaning.

    A reason has its code, its arguments and its sentence.
    """
    print(json.dumps(_plain({"version": JSON_VERSION, **data}), indent=2))


def print_error(code: str, text: str, **more: Any) -> None:
    """Why nothing else is on stdout, as one JSON object.

    ``code``: of the reason, whose arguments are ``args``; or ``usage``, ``interrupted``,
    ``unexpected``. ``text``: the line that stderr has.
    """
    print_json(error={"code": code, "text": text, **more})


def _plain(value: Any) -> Any:
    """``value`` of types that JSON has."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.as_dict() if isinstance(value, Reason) else value


def microseconds(us: float) -> str:
    """A predicted time to the digits that a plan has; ``-`` where there is none."""
    return f"{us:.2f}" if us else "-"


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
def progress(text: str, number: int = 1, of: int = 1) -> Iterator[None]:
    """Say on a terminal (stderr) what is going on, and for how long.

    ``number``: which ``of`` several things it is. With rich, the line goes when it is done.
    """
    said = f"{text} ({number} of {of})" if of > 1 else text
    if not fancy(sys.stderr):
        if sys.stderr.isatty():
            print(f"{said} ...", file=sys.stderr, flush=True)
        yield
        return
    with _bar(said, total=None):
        yield


@contextmanager
def steps(text: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal (stderr) that what is yielded moves one step on."""
    if not fancy(sys.stderr):
        if sys.stderr.isatty():
            print(f"{text} ({total}) ...", file=sys.stderr, flush=True)
        yield lambda: None
        return
    with _bar(text, total) as (bar, task):
        yield lambda: bar.advance(task)


@contextmanager
def counted(text: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal (stderr), to be told what is done, how much of it, and of how much."""
    if not fancy(sys.stderr):
        yield _lines(text) if sys.stderr.isatty() else lambda what, done, total: None
        return
    with _bar(text, total=0) as (bar, task):
        yield lambda what, done, total: bar.update(
            task, description=_cut(f"{text}: {what}", total), completed=done, total=total
        )


@contextmanager
def _bar(text: str, total: int | None) -> Iterator[tuple[Any, Any]]:
    """A line that says what, for how long and, where there is a ``total``, how much and how fast.

    Where the terminal is narrow there is no bar, and the text is cut.
    """
    from rich import progress as rich_progress
    from rich.console import Console

    columns: list[Any] = [rich_progress.SpinnerColumn()]
    columns.append(rich_progress.TextColumn("{task.description}", markup=False))
    if total is not None:
        if _columns() >= _WIDE:
            columns.append(rich_progress.BarColumn(bar_width=20))
        columns.append(rich_progress.MofNCompleteColumn())
        columns.append(rich_progress.TextColumn("{task.fields[rate]}"))
    columns.append(rich_progress.TimeElapsedColumn())
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        rate = _Rate()
        task = bar.add_task(_cut(text, total), total=total, rate=rate)
        rate.task = bar.tasks[0]
        yield bar, task


_WIDE: Final = 80
"""Columns of a terminal from which on there is a bar."""


def _cut(text: str, total: int | None) -> str:
    """``text`` as far as spinner, time, bar, count and rate leave it place."""
    others = 10 if total is None else 22 + 2 * len(str(total)) + 21 * (_columns() >= _WIDE)
    most = max(_columns() - others, 1)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _columns() -> int:
    return shutil.get_terminal_size().columns  # obeys COLUMNS


class _Rate:
    """How fast a bar moves, as a column shows it."""

    task: Any = None

    def __str__(self) -> str:
        speed = None if self.task is None else self.task.finished_speed or self.task.speed
        return "" if speed is None else f"{_short(speed)}/s"


def _short(number: float) -> str:
    """Three digits of a number: ``0.125``, ``12.5``, ``12.5k``, ``12.5M``."""
    for unit in ("", "k", "M"):
        if number < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}G"


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
