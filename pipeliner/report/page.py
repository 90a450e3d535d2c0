"""The page: one HTML file with everything in it, for a wide screen, a phone and paper."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..charts import Chart
from ..diagnostics import Reason
from ..markup import Html, element, fold, joined, script, style, wide
from ..records import Record
from . import tables
from .figures import DEPTH, Tables, chart_names
from .headline import Named, facts, headline
from .kernels import KernelView, kernel_section
from .rows import FunctionRow, Row
from .summary import summary_of

MANY_BARS: Final = 24
"""Bars of a chart that is folded away: the table above it says the same."""

NOTED: Final = ("gpu", "log", "measured on")
"""Conditions that stand in the head; the first words of a log's are its GPU."""

STYLE: Final = """
body { margin: 0 auto; padding: 16px; max-width: 1400px; font-size: 16px; }
h1 { font-size: 1.6em; line-height: 1.2; }
h2 { margin-top: 1.5em; border-bottom: 1px solid var(--line); }
h3 { margin: 2em 0 0.3em; }
nav a { margin-right: 1em; }
.lead { max-width: 46em; }
.headline { font-size: 1.25em; font-weight: 600; margin: 0.6em 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(230px, 100%), 1fr));
  gap: 10px; margin: 0 0 1.5em; }
.facts div { background: var(--soft); padding: 8px 12px; border-radius: 6px; }
.facts dt { color: var(--dim); font-size: 0.9em; } .facts dd { margin: 0; }
svg.chart { max-width: 100%; height: auto; } .wide svg.chart { min-width: 520px; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(300px, 100%), 1fr));
  gap: 12px; }
svg.timeline { display: block; min-width: 900px; width: 100%; height: auto; }
details.kernel { border: 1px solid var(--line); border-radius: 6px; padding: 6px 12px; }
details.kernel > summary { font-weight: 600; }
@media (max-width: 600px) { body { padding: 10px; } .pipeliner th, .pipeliner td {
  padding: 3px 6px; } .pipeliner tbody th { white-space: normal; min-width: 8.5em; } }
@media print { .pipeliner .code { max-height: none; } }
"""


@dataclass(frozen=True, slots=True)
class MachinePart:
    """What the page shows of one machine. ``full_name``: as its datasheet has it."""

    name: str
    full_name: str
    rows: Sequence[Row]
    functions: Sequence[FunctionRow]
    charts: Sequence[Chart]
    experiments: Tables
    views: Sequence[tuple[Row, Record, KernelView]]

    @property
    def every(self) -> list[FunctionRow]:
        """The rows of workloads and of functions."""
        return [*self.rows, *self.functions]


def page(title: str, parts: Sequence[MachinePart], hidden: Mapping[Reason, int]) -> str:
    """The whole page; ``hidden``: records that are not shown, by reason."""
    code = script()
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = (
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(style() + STYLE)),
    )
    links = [element("a", part.name, href=f"#{_anchor(part.name)}") for part in parts]
    body = (
        element("h1", title),
        element("p", LEAD, class_="lead"),
        element("nav", joined(links, " "), aria_label="machines") if len(links) > 1 else "",
        element("main", joined(_machine(part) for part in parts)),
        _hidden(hidden),
        element("script", Html(code)),
    )
    root = element(
        "html",
        element("head", joined(head)),
        element("body", joined(body), class_="pipeliner"),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{root}\n"


LEAD: Final = (
    "Each kernel was made by pipeliner from a plan, timed on the GPU and checked. us: microseconds "
    "of a run. The roofline is the least time that the GPU's arithmetic and memory allow."
)


def summary_html(part: MachinePart) -> Html:
    """What a machine's records come to: the sentence, and the facts."""
    return _summary(part, lambda row: row.label)


def _machine(part: MachinePart) -> Html:
    anchor = _anchor(part.name)
    anchors = {id(row): f"{anchor}-kernel-{at}" for at, (row, _, _) in enumerate(part.views)}

    def named(row: Row) -> str:
        target = anchors.get(id(row))
        return row.label if target is None else element("a", row.label, href=f"#{target}")

    return joined(
        (
            element("h2", f"{part.full_name} ({part.name})", id=anchor),
            _summary(part, named),
            tables.speed_table(part.rows, named),
            tables.function_table(part.functions),
            *_charts(part, named),
            *_experiments(part),
            *_kernels(part, anchors),
            tables.failures(part.every),
            tables.conditions(part.every),
        )
    )


def _summary(part: MachinePart, named: Named) -> Html:
    found = summary_of(part.rows)
    settings = tables.settings(part.every)
    noted = [
        ", ".join(one.partition(";")[0] for one in settings[name])
        for name in NOTED
        if name in settings
    ]
    said = headline(found) if part.rows else f"{len(part.functions)} functions tuned"
    about = facts(found, ", ".join(noted), named) if part.rows else Html("")
    return joined((element("p", said, class_="headline"), about))


def _charts(part: MachinePart, named: Named) -> list[Html]:
    drawings = chart_names(part.experiments)
    small = [chart for chart in part.charts if chart.name.startswith(DEPTH)]
    large = [one for one in part.charts if one not in small and one.name not in drawings]
    bars = [chart for chart in large if chart.kind == "bars"]
    made = [
        fold(f"{chart.title}, drawn", _drawn(chart))
        if len(chart.labels) > MANY_BARS
        else _drawn(chart)
        for chart in bars
    ]
    made.append(tables.choice_table(summary_of(part.rows), named))
    made += [_drawn(chart) for chart in large if chart not in bars]
    if small:
        drawn = (element("div", Html(chart.svg())) for chart in small)
        made += [element("h3", "Time over depth"), element("div", *drawn, class_="grid")]
    return made


def _experiments(part: MachinePart) -> list[Html]:
    rates = {chart.name: chart for chart in part.charts}
    made = []
    drawings = chart_names(part.experiments)
    for (title, variants), drawing in zip(part.experiments.items(), drawings):
        made.append(tables.experiment(title, variants))
        if drawing in rates:
            made.append(_drawn(rates[drawing]))
    return made


def _kernels(part: MachinePart, anchors: Mapping[int, str]) -> list[Html]:
    if not part.views:
        return []
    sections = (
        kernel_section(row, record, view, anchors[id(row)]) for row, record, view in part.views
    )
    return [element("h3", "The fastest kernels: plan, timeline and CUDA"), *sections]


def _drawn(chart: Chart) -> Html:
    return wide(chart.title, Html(chart.svg()))


def _hidden(hidden: Mapping[Reason, int]) -> Html:
    if not hidden:
        return Html("")
    lines = [joined((element("br"), f"{count}: {why}"), "") for why, count in hidden.items()]
    return element("p", "Records that are not shown:", *lines, class_="dim")


def _anchor(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)
