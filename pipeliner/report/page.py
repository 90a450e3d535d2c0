"""The page: one HTML file with everything in it, for a wide screen, a phone and paper."""

from __future__ import annotations

import base64
import html
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ..diagnostics import Reason
from ..records import Record
from ..records.candidate import Candidate, describe
from .charts import Chart
from .figures import DEPTH, FunctionRow, Row, Tables, chart_names
from .kernels import STAGES, KernelView

FEW_FAILURES: Final = 10
"""That are shown without a click."""

MOST_FAILURES: Final = 200
"""That are listed."""

_STAGE_COLOURS: Final = ("#4878a8", "#d98b2b", "#4f9a4a", "#a5669b", "#3f9c96", "#a06a4f")

STYLE: Final = """
:root { color-scheme: light dark; --ink: #24292f; --dim: #57606a; --page: #ffffff;
  --line: #d0d7de; --soft: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #9198a1; --page: #0d1117;
  --line: #30363d; --soft: #161b22; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px; max-width: 1080px; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.6em; line-height: 1.2; } h2 { margin-top: 2em; border-bottom: 1px solid
  var(--line); } h3 { margin-bottom: 0.3em; overflow-wrap: anywhere; }
.dim { color: var(--dim); }
.wide { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: 0.9em; }
th, td { padding: 3px 10px; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td.text { text-align: left; white-space: normal; min-width: 16em; }
svg.chart { max-width: 100%; height: auto; } .wide svg.chart { min-width: 520px; }
@media (max-width: 600px) { td:first-child { white-space: normal; overflow-wrap: anywhere;
  min-width: 7em; } th, td { padding: 3px 6px; } }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(300px, 100%), 1fr));
  gap: 12px; }
pre { background: var(--soft); padding: 10px; overflow-x: auto; max-width: 100%;
  font: 12px/1.45 ui-monospace, Menlo, Consolas, monospace; }
h1, p, summary, nav { overflow-wrap: anywhere; }
details { margin: 0.4em 0; } summary { cursor: pointer; }
img.timeline { min-width: 900px; width: 100%; }
nav a { margin-right: 1em; }
.role, .role-producer, .role-consumer { border-left: 3px solid #8c959f; padding-left: 3px; }
.role-producer { border-left-color: #cf222e; } .role-consumer { border-left-color: #2da44e; }
"""


def page(
    title: str,
    rows: Mapping[str, Sequence[Row]],
    functions: Mapping[str, Sequence[FunctionRow]],
    charts: Mapping[str, Sequence[Chart]],
    tables: Mapping[str, Tables],
    views: Mapping[str, Sequence[tuple[Row, Record, KernelView]]],
    hidden: Mapping[Reason, int],
) -> str:
    """The whole page; each mapping is by machine, but ``hidden``: records not shown, by reason."""
    sections = "\n".join(
        _machine(name, rows[name], functions[name], charts[name], tables[name], views[name])
        for name in rows
    )
    links = " ".join(f'<a href="#{_anchor(name)}">{html.escape(name)}</a>' for name in rows)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}{_stage_styles()}</style>\n</head>\n"
        f"<body>\n<h1>{html.escape(title)}</h1>\n<nav>{links}</nav>\n{sections}\n{_hidden(hidden)}</body>\n</html>\n"
    )


def _machine(
    name: str,
    rows: Sequence[Row],
    functions: Sequence[FunctionRow],
    charts: Sequence[Chart],
    tables: Tables,
    views: Sequence[tuple[Row, Record, KernelView]],
) -> str:
    drawings = chart_names(tables)
    small = [chart for chart in charts if chart.name.startswith(DEPTH)]
    large = [chart for chart in charts if chart not in small and chart.name not in drawings]
    rates = {chart.name: chart for chart in charts if chart.name in drawings}
    parts = [f'<h2 id="{_anchor(name)}">{html.escape(name)}</h2>', _speed_table(rows)]
    parts.append(_function_table(functions))
    parts += [_wide(chart.svg()) for chart in large]
    if small:
        drawn = "\n".join(f"<div>{chart.svg()}</div>" for chart in small)
        parts.append(f'<h3>Time over depth</h3>\n<div class="grid">{drawn}</div>')
    for (title, variants), drawing in zip(tables.items(), drawings):
        chart = rates.get(drawing)
        parts += [_experiment(title, variants), _wide(chart.svg()) if chart else ""]
    if views:
        parts.append(f"<h3>The chosen kernels</h3>\n{_legend()}")
        parts += [_kernel(row, record, view) for row, record, view in views]
    every: list[Row | FunctionRow] = [*rows, *functions]
    parts += [_failures(every), _conditions(every)]
    return "\n".join(part for part in parts if part)


def _speed_table(rows: Sequence[Row]) -> str:
    peers = list(dict.fromkeys(name for row in rows for name in row.peers))
    head = ["workload", "us", "TFLOP/s", "of the roofline", "predicted us", "tried"]
    body = []
    for row in rows:
        best = row.best
        if best is None:
            continue
        ratios = [
            f"{row.peers[name].us / best.us:.2f}" if name in row.peers else "-" for name in peers
        ]
        body.append(
            [
                row.label,
                f"{best.us:.1f}",
                f"{row.tflops(best.us):.1f}",
                f"{row.roofline_us / best.us:.0%}",
                f"{best.predicted_us:.1f}" if best.predicted_us else "-",
                str(len(row.ours)),
                *ratios,
            ]
        )
    return _table([*head, *(f"of {name}" for name in peers)], body) if body else ""


def _function_table(functions: Sequence[FunctionRow]) -> str:
    """The fastest of each function of the user's."""
    body = []
    for row in functions:
        best = row.best
        if best is None:
            continue
        knobs, asked = describe(Candidate.from_json(best.candidate))
        predicted = f"{best.predicted_us:.1f}" if best.predicted_us else "-"
        body.append([row.label, f"{best.us:.1f}", predicted, str(len(row.ours)), knobs, asked])
    head = ["function", "us", "predicted us", "tried", "knobs", "asked"]
    return _table(head, body) if body else ""


def _experiment(title: str, variants: Mapping[str, Mapping[str, Record]]) -> str:
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
    body = []
    reasons: dict[str, int] = {}
    for label, found in variants.items():
        cells = [f"<td>{html.escape(label)}</td>"]
        for column in columns:
            record = found.get(column)
            if record is None:
                cells.append("<td></td>")
                continue
            if record.failure:
                number = reasons.setdefault(str(record.failure), len(reasons) + 1)
                cells.append(f'<td class="dim">none ({number})</td>')
                continue
            share = best[column] / record.us
            shade = f"background: rgba(45, 164, 78, {0.6 * share:.2f})"
            cells.append(f'<td style="{shade}" title="{share:.0%}">{record.us:.1f}</td>')
        body.append("<tr>" + "".join(cells) + "</tr>")
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ("us", *columns))
    lines = "\n".join(body)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{lines}\n</tbody></table>"
    notes = "".join(f"<br>({at}) {html.escape(why)}" for why, at in reasons.items())
    below = f'\n<p class="dim">No time:{notes}</p>' if notes else ""
    return f"<h3>{html.escape(title)}</h3>\n{_wide(table)}{below}"


def _kernel(row: Row, record: Record, view: KernelView) -> str:
    title = f"{row.label}: {record.us:.1f} us, {row.tflops(record.us):.1f} TFLOP/s"
    parts = [f"<summary>{html.escape(title)}</summary>"]
    tile, asked = describe(Candidate.from_json(record.candidate))
    parts.append(f'<p class="dim">tile {html.escape(tile)}; asked: {html.escape(asked)}</p>')
    if view.missing:
        parts.append(f"<p>{html.escape(view.missing)}</p>")
    if view.resources:
        cells = [[name, str(value)] for name, value in view.resources.items()]
        parts.append(_table(["resource", ""], cells))
    if view.explanation:
        parts.append(f"<h4>Plan</h4>\n<pre>{html.escape(view.explanation)}</pre>")
    if view.timeline:
        data = base64.b64encode(view.timeline.encode()).decode()
        name = html.escape(row.label, quote=True)
        drawn = f'alt="timeline of {name}" src="data:image/svg+xml;base64,{data}"'
        parts.append(
            "<h4>Timeline, in model time</h4>\n" + _wide(f'<img class="timeline" {drawn}>')
        )
    if view.cuda:
        parts.append(f'<h4>CUDA</h4>\n<pre class="cuda">{view.cuda}</pre>')
    return "<details>" + "\n".join(parts) + "</details>"


def _failures(rows: Sequence[Row | FunctionRow]) -> str:
    failed = [(row, one) for row in rows for one in row.failures]
    if not failed:
        return ""
    body = "\n".join(
        f"<tr><td>{html.escape(row.label)}</td>"
        f'<td class="text">{html.escape(one.label or one.candidate or one.contender)}</td>'
        f'<td class="text">{html.escape(str(one.failure))}</td></tr>'
        for row, one in failed[:MOST_FAILURES]
    )
    if (more := len(failed) - MOST_FAILURES) > 0:
        body += f"\n<tr><td>and {more} more</td></tr>"
    return (
        f"<h3>What has no time ({len(failed)})</h3>\n"
        f"<details{' open' * (len(failed) <= FEW_FAILURES)}><summary>reasons</summary>"
        + _wide(f"<table><tbody>\n{body}\n</tbody></table>")
        + "</details>"
    )


def _hidden(hidden: Mapping[Reason, int]) -> str:
    if not hidden:
        return ""
    lines = "".join(f"<br>{count}: {html.escape(str(why))}" for why, count in hidden.items())
    return f'<p class="dim">Records that are not shown:{lines}</p>\n'


def _conditions(rows: Sequence[Row | FunctionRow]) -> str:
    """Each setting with every value that it had."""
    records = [one for row in rows for one in row.records]
    values: dict[str, dict[str, None]] = {}
    for one in records:
        values.setdefault("versions", {})[one.versions] = None
        for name, value in one.conditions.items():
            values.setdefault(name, {})[value] = None
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(one.made)) for one in records if one.made})
    if days:  # a log has none
        values["measured on"] = dict.fromkeys(days)
    body = [[name, ", ".join(found)] for name, found in values.items()]
    samples = sum(len(one.samples) for one in records)
    note = (
        f"{len(records)} records, {samples} samples; kernels run interleaved with the fastest "
        "before them, the L2 cache overwritten before each run, and are checked against float64."
    )
    return f"<h3>Conditions</h3>\n<p>{note}</p>\n{_table(['', ''], body)}"


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in body
    )
    return _wide(f"<table><thead><tr>{top}</tr></thead><tbody>\n{lines}\n</tbody></table>")


def _wide(inner: str) -> str:
    """What may be wider than a phone: it scrolls by itself."""
    return f'<div class="wide">{inner}</div>'


def _legend() -> str:
    stages = " ".join(f'<span class="stage{at}">stage {at}</span>' for at in range(STAGES))
    roles = (
        '<span class="role-producer">producer</span> <span class="role-consumer">consumer</span>'
    )
    return f'<p class="dim">CUDA lines: {stages} {roles}; a line tells its origin on hovering.</p>'


def _stage_styles() -> str:
    return "\n".join(
        f".stage{at} {{ background: {colour}33; }}" for at, colour in enumerate(_STAGE_COLOURS)
    )


def _ran(record: Record | None) -> bool:
    return record is not None and not record.failure


def _anchor(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)
