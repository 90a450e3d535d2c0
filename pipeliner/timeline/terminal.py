"""A timeline as text: one row for each pipe and slot, digits for iterations, marks for states."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from . import rows
from .model import LoopRun, Runs
from .slots import Span
from .trace import Event

WIDTH: Final = 100
LEAST_COLUMNS: Final = 30
MOST_LABEL: Final = 30
LEAST_NAME: Final = 3
"""Letters of a part's name that have to fit."""

Segment: TypeAlias = "tuple[str, str]"
"""Text and the name of its style: ``""``, ``title``, ``dim``, a part, a state, ``i0`` .. ``i5``,
``stall``."""
Line: TypeAlias = "tuple[Segment, ...]"

COLOURS: Final = 6
"""Styles for iterations, used in turn."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One character each. ``flight``: a result is under way after its pipe is free."""

    idle: str
    flight: str
    states: dict[str, str]
    rule: str
    tick: str


UNICODE: Final = Glyphs(
    "·", "╌", {"empty": "·", "filling": "░", "ready": "▒", "read": "█"}, "─", "┬"
)
ASCII: Final = Glyphs(".", "-", {"empty": ".", "filling": ":", "ready": "=", "read": "#"}, "-", "+")


def draw(
    timeline: Runs, width: int = WIDTH, *, glyphs: Glyphs = UNICODE, each: bool = False
) -> list[Line]:
    """The lines of a drawing of ``width`` columns; a narrow one still gets 30 beside the labels.

    ``each``: a row for every op and every slot, instead of one for what a statement does on a pipe.
    """
    label = _label_width(timeline, each)
    scale = _Scale(timeline.cycles, max(LEAST_COLUMNS, width - label - 1))
    across = label + 1 + scale.columns
    lines = [
        *_wrapped(f"timeline of {rows.title(timeline)}", across, "title"),
        *_wrapped(rows.disclaimer(timeline), across, "dim"),
    ]
    for run in timeline.runs:
        lines += [(), *_wrapped(rows.headline(run), across, "title")]
        lines += _run(timeline, run, scale, label, glyphs, each)
        for words in (rows.pace(run), rows.holds(run), rows.doubts(run)):
            lines += _wrapped(words, across, "", indent=2)
    lines += [(), *_wrapped(rows.verdict(timeline), across, "title")]
    for words in _legend(timeline, glyphs, scale):
        lines += _wrapped(words, across, "dim", indent=2)
    return lines


def text(timeline: Runs, width: int = WIDTH, *, each: bool = False) -> str:
    """The drawing without styles, in Unicode; options as for ``draw``."""
    return plain(draw(timeline, width, each=each))


def plain(lines: Iterable[Line]) -> str:
    """The text of lines."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


@dataclass(frozen=True, slots=True)
class _Scale:
    cycles: int
    columns: int

    def cell(self, column: int) -> tuple[float, float]:
        """The cycles of a column."""
        each = self.cycles / self.columns
        return column * each, (column + 1) * each

    def column(self, cycle: float) -> int:
        return min(self.columns - 1, int(cycle * self.columns / max(1, self.cycles)))


def _run(
    timeline: Runs, run: LoopRun, scale: _Scale, label: int, glyphs: Glyphs, each: bool
) -> list[Line]:
    lines = [_axis(scale, label, glyphs), _parts(run, scale, label, glyphs)]
    for op in rows.op_rows(run, each=each):
        cells = _busy(op.events, _background(run, scale, glyphs), scale, glyphs)
        lines.append(_row(f"{op.pipe:<6} {op.name}", label, cells))
    cells = _stalls(rows.stalls(run), _background(run, scale, glyphs), scale)
    lines.append(_row(rows.STALLED, label, cells))
    for row in rows.slot_rows(timeline, run, each=each):
        lines.append(_row(str(row.slot), label, _states(row, scale, glyphs)))
    return lines


def _label_width(timeline: Runs, each: bool) -> int:
    labels = [rows.STALLED]
    for run in timeline.runs:
        labels += [f"{op.pipe:<6} {op.name}" for op in rows.op_rows(run, each=each)]
        labels += [str(row.slot) for row in rows.slot_rows(timeline, run, each=each)]
    return min(MOST_LABEL, max(len(label) for label in labels))


def _row(label: str, width: int, cells: Sequence[Segment]) -> Line:
    return ((f"{rows.shortened(label, width):<{width}} ", ""), *_joined(cells))


def _joined(cells: Iterable[Segment]) -> list[Segment]:
    """Neighbours of one style as one segment."""
    found: list[Segment] = []
    for text, style in cells:
        if found and found[-1][1] == style:
            found[-1] = (found[-1][0] + text, style)
        else:
            found.append((text, style))
    return found


def _axis(scale: _Scale, label: int, glyphs: Glyphs) -> Line:
    step = rows.nice_step(scale.cycles, max(2, scale.columns // 12))
    cells = [" "] * scale.columns
    for cycle in range(0, scale.cycles, step):
        text, at = glyphs.tick + rows.number(cycle), scale.column(cycle)
        if at + len(text) <= scale.columns:
            cells[at : at + len(text)] = text
    return (f"{'cycles':<{label}} ", "dim"), ("".join(cells), "dim")


def _parts(run: LoopRun, scale: _Scale, label: int, glyphs: Glyphs) -> Line:
    cells: list[Segment] = []
    for part, (start, end) in run.trace.parts.items():
        first, last = scale.column(start), scale.column(end - 1) + 1
        first = max(first, len(cells))
        room = last - first
        cut = part[: room - 1] if room > LEAST_NAME else ""
        name = next((name for name in (part, part.split()[0]) if len(name) < room), cut)
        cells += [(char, part) for char in f"|{name}"[:room].ljust(room, glyphs.rule)]
    return _row("part", label, cells)


def _background(run: LoopRun, scale: _Scale, glyphs: Glyphs) -> list[Segment]:
    last = scale.column(run.cycles - 1)
    return [(glyphs.idle, "dim") if at <= last else (" ", "") for at in range(scale.columns)]


def _busy(
    events: Sequence[Event], cells: list[Segment], scale: _Scale, glyphs: Glyphs
) -> list[Segment]:
    """Digits where the pipe works on an iteration, a line until the result is there."""
    for event in events:
        if event.end > event.busy:
            for column in range(scale.column(event.busy), scale.column(event.end - 1) + 1):
                cells[column] = (glyphs.flight, _colour(event))
    _cover(cells, scale, events, lambda e: (e.start, e.busy), lambda e: (_digit(e), _colour(e)))
    return cells


def _stalls(events: Sequence[Event], cells: list[Segment], scale: _Scale) -> list[Segment]:
    marks = {event: rows.MARKS[event.cause] for event in events if event.cause in rows.MARKS}
    _cover(
        cells,
        scale,
        events,
        lambda event: (event.resume - event.stall, event.resume),
        lambda event: (marks[event], "stall"),
    )
    return cells


def _cover(
    cells: list[Segment],
    scale: _Scale,
    events: Sequence[Event],
    interval: Callable[[Event], tuple[int, int]],
    cell: Callable[[Event], Segment],
) -> None:
    """Each cell shows the event that takes most of it; one that takes little, where it starts."""
    most = [0.0] * scale.columns
    for event in events:
        start, end = interval(event)
        for column in range(scale.column(start), scale.column(max(start, end - 1)) + 1):
            low, high = scale.cell(column)
            share = min(end, high) - max(start, low)
            starts = column == scale.column(start)
            if share > most[column] and (starts or 2 * share >= high - low):
                most[column] = share
                cells[column] = cell(event)


def _states(row: rows.SlotRow, scale: _Scale, glyphs: Glyphs) -> list[Segment]:
    """The state that takes most of each cell, but for a read, which shows however short it is.

    Where a slot begins to fill, the iteration.
    """
    most = [0.0] * scale.columns
    shown: list[Span | None] = [None] * scale.columns
    for span in row.spans:
        for column in range(scale.column(span.start), scale.column(span.end - 1) + 1):
            low, high = scale.cell(column)
            share = min(span.end, high) - max(span.start, low)
            if span.state == "read" and column == scale.column(span.start):
                share = high - low
            if share > most[column]:
                most[column], shown[column] = share, span
    cells: list[Segment] = []
    named: set[int | None] = set()
    for best in shown:
        if best is None:
            cells.append((" ", ""))
        elif best.state == "filling" and best.iteration not in named:
            cells.append((str((best.iteration or 0) % 10), best.state))
            named.add(best.iteration)
        else:
            cells.append((glyphs.states[best.state], best.state))
    return cells


def _digit(event: Event) -> str:
    return "*" if event.repeats else str(event.iteration % 10)


def _colour(event: Event) -> str:
    return "dim" if event.repeats else f"i{event.iteration % COLOURS}"


def _wrapped(words: str, width: int, style: str, indent: int = 0) -> list[Line]:
    lines = textwrap.wrap(
        words, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2)
    )
    return [((line, style),) for line in lines]


def _legend(timeline: Runs, glyphs: Glyphs, scale: _Scale) -> list[str]:
    each = timeline.cycles / scale.columns
    ops = f"ops: the digit is the iteration (mod 10), {glyphs.flight} its result is under way"
    if any(event.repeats for run in timeline.runs for event in run.trace.events):
        ops += ", * past the end, overrunning"
    states = ", ".join(f"{glyphs.states[state]} {state}" for state in glyphs.states)
    found = {event.cause for run in timeline.runs for event in rows.stalls(run)}
    marks = [f"{mark} {cause}" for cause, mark in rows.MARKS.items() if cause in found]
    stalled = f"stalled: {', '.join(marks)}; " if marks else ""
    return [
        ops,
        f"slots: {states}; the digit is the iteration",
        f"{stalled}a column is {rows.number(each)} cycles",
    ]
