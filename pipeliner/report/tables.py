"""The tables of the page: the fastest kernels, where the model was wrong, experiments, failures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from ..markup import Cell, Column, Html, element, fold, joined, table
from ..records import Record
from ..records.candidate import Candidate, describe
from .headline import Named
from .rows import FunctionRow, Row
from .summary import RecordsSummary

FEW_FAILURES: Final = 10
"""That are shown without a click."""

MOST_FAILURES: Final = 200
"""That are listed."""

WRONG: Final = 1.02
"""Times as slow as the fastest, from which on a choice of the model counts as wrong."""


def speed_table(rows: Sequence[Row], named: Named) -> Html:
    """The fastest kernel of each workload."""
    shown = [(row, row.best) for row in rows if row.best is not None]
    if not shown:
        return Html("")
    peers = list(dict.fromkeys(name for row, _ in shown for name in row.peers))
    columns: list[Column] = [
        Column("workload", text=True),
        Column("us"),
        *(
            Column(f"of {name}", f"the time of {name} over ours: above 1 ours is faster")
            for name in peers
        ),
        Column("of the roofline", "of the least time that arithmetic and memory allow"),
        Column("TFLOP/s"),
        Column("predicted us"),
        Column("tried", "kernels of ours that were measured"),
        Column("in full", text=True),
    ]
    body: list[list[str | Cell]] = [
        [
            named(row),
            f"{best.us:.1f}",
            *(_ratio(row.peers[name].us / best.us) if name in row.peers else "-" for name in peers),
            _share(row.roofline_us / best.us),
            f"{row.tflops(best.us):.1f}",
            f"{best.predicted_us:.1f}" if best.predicted_us else "-",
            str(row.tried),
            row.spec.name,
        ]
        for row, best in shown
    ]
    return table("The fastest kernel of each workload", columns, body, sortable=True)


def choice_table(found: RecordsSummary, named: Named) -> Html:
    """Where the model would have taken a slower kernel than the fastest that was measured."""
    wrong = [one for one in found.choices if one.regret >= WRONG]
    if not found.choices:
        return Html("")
    heading = element("h3", "Where the model was wrong")
    if not wrong:
        said = f"Nowhere by {WRONG - 1:.0%}: of what was tried, its first choice is the fastest."
        return joined((heading, element("p", said)))
    columns = (
        Column("workload", text=True),
        Column("times as slow"),
        Column("us"),
        Column("fastest us"),
        Column("the model takes", text=True),
        Column("the fastest", text=True),
    )
    body = [
        [
            named(one.row),
            f"{one.regret:.3f}",
            f"{one.taken.us:.1f}",
            f"{one.fastest.us:.1f}",
            *_differing(one.taken, one.fastest),
        ]
        for one in wrong
    ]
    caption = (
        f"Of what was tried, the kernel with the least predicted time is not the fastest for "
        f"{len(wrong)} of {len(found.choices)} workloads"
    )
    return joined((heading, table(caption, columns, body, sortable=True)))


def function_table(functions: Sequence[FunctionRow]) -> Html:
    """The fastest of each function of the user's."""
    body = []
    for row in functions:
        best = row.best
        if best is None:
            continue
        knobs, asked = describe(Candidate.from_json(best.candidate))
        predicted = f"{best.predicted_us:.1f}" if best.predicted_us else "-"
        body.append([row.label, f"{best.us:.1f}", predicted, str(len(row.ours)), knobs, asked])
    columns = (
        Column("function", text=True),
        *map(Column, ("us", "predicted us", "tried")),
        Column("knobs", text=True),
        Column("asked", text=True),
    )
    caption = "The fastest setting of each function"
    return table(caption, columns, body, sortable=True) if body else Html("")


def experiment(title: str, variants: Mapping[str, Mapping[str, Record]]) -> Html:
    """Times of every variant; in each column the cell's shade is its share of the fastest.

    Why there is no time is said below, by number; a cell is empty where there is no record.
    """
    columns = list(dict.fromkeys(name for found in variants.values() for name in found))
    best = {
        column: min(
            (found[column].us for found in variants.values() if _ran(found.get(column))), default=0
        )
        for column in columns
    }
    body: list[list[str | Cell]] = []
    reasons: dict[str, int] = {}
    for label, found in variants.items():
        cells: list[str | Cell] = [label]
        for column in columns:
            record = found.get(column)
            if record is None:
                cells.append("")
            elif record.failure:
                number = reasons.setdefault(str(record.failure), len(reasons) + 1)
                cells.append(Cell(f"none ({number})", class_="dim"))
            else:
                share = best[column] / record.us
                shade = f"background: rgba(45, 164, 78, {0.6 * share:.2f})"
                cells.append(Cell(f"{record.us:.1f}", style=shade, note=f"{share:.0%}"))
        body.append(cells)
    shown = table(
        f"Microseconds of each variant of {title}; the greener, the nearer to the fastest",
        (Column("variant", text=True), *map(Column, columns)),
        body,
        sortable=True,
    )
    notes = [joined((element("br"), f"({at}) {why}"), "") for why, at in reasons.items()]
    below = element("p", "No time:", *notes, class_="dim") if notes else ""
    return joined((element("h3", title), shown, below))


def failures(rows: Sequence[FunctionRow]) -> Html:
    """What has no time, and why."""
    failed = [(row, one) for row in rows for one in row.failures]
    if not failed:
        return Html("")
    body = [
        [row.label, one.label or one.candidate or one.contender, str(one.failure)]
        for row, one in failed[:MOST_FAILURES]
    ]
    columns = [Column(name, text=True) for name in ("workload", "kernel", "why")]
    more = len(failed) - MOST_FAILURES
    return joined(
        (
            element("h3", f"What has no time ({len(failed)})"),
            fold(
                "reasons",
                table("What has no time", columns, body, sortable=True, hidden_caption=True),
                element("p", f"and {more} more") if more > 0 else "",
                opened=len(failed) <= FEW_FAILURES,
            ),
        )
    )


def conditions(rows: Sequence[FunctionRow]) -> Html:
    """Each setting with every value that it had."""
    records = [one for row in rows for one in row.records]
    body = [[name, ", ".join(found)] for name, found in settings(rows).items()]
    samples = sum(len(one.samples) for one in records)
    note = (
        f"{len(records):,} records, {samples:,} samples; kernels run interleaved with the fastest "
        "before them, the L2 cache overwritten before each run, and are checked against float64."
    )
    columns = (Column("", text=True), Column("", text=True))
    shown = table("Settings of the measurements", columns, body, hidden_caption=True)
    return joined((element("h3", "Conditions"), element("p", note), shown))


def settings(rows: Sequence[FunctionRow]) -> dict[str, list[str]]:
    """Versions, days and what else was noted, each with its values."""
    values: dict[str, dict[str, None]] = {}
    records = [one for row in rows for one in row.records]
    for one in records:
        values.setdefault("versions", {})[one.versions] = None
        for name, value in one.conditions.items():
            values.setdefault(name, {})[value] = None
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(one.made)) for one in records if one.made})
    if days:  # a log has none
        values["measured on"] = dict.fromkeys(days)
    return {name: list(found) for name, found in values.items()}


def _differing(one: Record, other: Record) -> tuple[str, str]:
    """Two candidates in words: the tiles, and what else is not the same in both."""
    first, second = (_words(record) for record in (one, other))
    return (
        ", ".join(word for at, word in enumerate(first) if not at or word not in second),
        ", ".join(word for at, word in enumerate(second) if not at or word not in first),
    )


def _words(record: Record) -> list[str]:
    tile, asked = describe(Candidate.from_json(record.candidate))
    return f"{tile}, {asked}".split(", ")


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}x"


def _share(share: float) -> Cell:
    """A share as a number, and as a bar behind it."""
    filled = f"{min(share, 1):.0%}"
    style = f"background: linear-gradient(to right, var(--good) {filled}, transparent {filled})"
    return Cell(f"{share:.0%}", share, style)


def _ran(record: Record | None) -> bool:
    return record is not None and not record.failure
