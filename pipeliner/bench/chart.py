"""Ratios to the library as bars: an SVG by itself, a PNG through matplotlib."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from ..errors import ToolError, WorkloadError
from ..records.record import OURS
from .results import LIBRARIES, OURS_PLAIN, STOCK_PREFIX, TRITON, Report

SUFFIXES: Final = (".svg", ".png")

DRAWN: Final = (OURS, OURS_PLAIN, STOCK_PREFIX, TRITON)
COLOURS: Final = {
    OURS: "#4878a8",
    OURS_PLAIN: "#a9c0d8",
    STOCK_PREFIX: "#d98b2b",
    TRITON: "#4f9a4a",
}

WIDTH: Final = 900
LABELS: Final = 150
RIGHT: Final = 70
TOP: Final = 92
BAR: Final = 14
GAP: Final = 10
BOTTOM: Final = 44
DPI: Final = 150

_STYLE: Final = """
text { font: 12px Inter, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #24292f; }
.h1 { font-size: 18px; font-weight: 600; } .dim { fill: #6e7781; } .small { font-size: 10px; }
.page { fill: #ffffff; } .grid { stroke: #8c959f; stroke-opacity: 0.25; }
.one { stroke: #24292f; stroke-opacity: 0.8; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .dim { fill: #9198a1; } .page { fill: #0d1117; } .one { stroke: #e6edf3; }
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """How many times as fast as the library a contender is."""

    contender: str
    ratio: float


@dataclass(frozen=True, slots=True)
class Group:
    """The bars of one problem, in the order of ``DRAWN``."""

    problem: str
    bars: tuple[Bar, ...]


def check_chart(file: str) -> None:
    """Refuse, before anything is measured, what could not be written afterwards.

    WorkloadError: by its name or folder. ToolError: matplotlib, which makes a .png, is missing.
    """
    path = Path(file)
    if path.suffix.lower() not in SUFFIXES:
        raise WorkloadError("chart.name", path=file)
    if not path.parent.is_dir():
        raise WorkloadError("file.no_folder", path=file, folder=str(path.parent))
    if path.suffix.lower() == ".png" and find_spec("matplotlib") is None:
        raise ToolError("chart.matplotlib", path=file)


def write_chart(report: Report, file: str) -> None:
    """Draw the ratios of a report; WorkloadError: there are none, or it cannot be written."""
    found = groups(report)
    if not found:
        raise WorkloadError("chart.empty", path=file)
    try:
        if Path(file).suffix.lower() == ".png":
            _write_png(report, found, file)
        else:
            Path(file).write_text(svg(report), encoding="utf-8")
    except OSError as err:
        raise WorkloadError("file.write", path=file, why=err.strerror) from err


def groups(report: Report) -> list[Group]:
    """What there is to draw: problems that the library ran, and who ran beside it."""
    found = []
    for problem in report.problems:
        library = report.library(problem)
        if library is None:
            continue
        bars = []
        for name in DRAWN:
            exact = name in (OURS, OURS_PLAIN)
            result = report.find(problem, name) if exact else report.best(problem, name)
            if result is not None:
                bars.append(Bar(name, library.us / result.us))
        if bars:
            found.append(Group(problem, tuple(bars)))
    return found


def svg(report: Report) -> str:
    """The bars as the text of a self-contained SVG, for light and dark pages."""
    found = groups(report)
    top = _axis_end(found)
    height = TOP + sum(BAR * len(group.bars) + GAP for group in found) + BOTTOM
    parts = [
        _text(24, 34, _title(report), "h1"),
        _text(24, 54, _subtitle(report), "dim"),
        *_legend(found),
    ]
    end = height - BOTTOM
    for tick in _ticks(top):
        x = _x(tick, top)
        parts.append(_line(x, end, "grid"))
        parts.append(_text(x, end + 16, f"{tick:g}", "dim small", "middle"))
    y = float(TOP)
    for group in found:
        middle = y + BAR * len(group.bars) / 2 + 4
        parts.append(_text(LABELS - 8, middle, group.problem, "", "end"))
        for bar in group.bars:
            parts.append(_bar(bar, group.problem, y, top))
            y += BAR
        y += GAP
    parts.append(_line(_x(1.0, top), end, "one"))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img">\n<title>{escape(_title(report))}</title>\n'
        f"<style>{escape(_STYLE)}</style>\n"
        f'<rect class="page" width="100%" height="100%"/>\n{body}\n</svg>\n'
    )


def _write_png(report: Report, found: list[Group], file: str) -> None:
    from matplotlib.figure import Figure

    count = sum(len(group.bars) for group in found)
    figure = Figure(figsize=(9, 1.6 + 0.22 * count + 0.12 * len(found)), layout="constrained")
    axes = figure.subplots()
    place, middles = 0.0, []
    seen: set[str] = set()
    for group in found:
        middles.append(place + (len(group.bars) - 1) / 2)
        for bar in group.bars:
            label = None if bar.contender in seen else bar.contender
            seen.add(bar.contender)
            drawn = axes.barh(place, bar.ratio, 0.9, color=COLOURS[bar.contender], label=label)
            axes.bar_label(drawn, fmt="%.2f", padding=3, fontsize=8)
            place += 1
        place += GAP / BAR
    axes.axvline(1.0, color="#24292f", linewidth=1, zorder=0)
    axes.set_yticks(middles, [group.problem for group in found])
    axes.invert_yaxis()
    axes.set_xlim(0, _axis_end(found))
    axes.set_title(_title(report), loc="left")
    axes.set_xlabel(_subtitle(report), fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if len(seen) > 1:
        figure.legend(fontsize=8, loc="outside upper right", ncols=len(seen))
    figure.savefig(file, dpi=DPI)


def _title(report: Report) -> str:
    names = [name for name in LIBRARIES if any(r.contender == name for r in report.measured)]
    return f"{report.suite}: speed beside {' or '.join(names)} (= 1)"


def _subtitle(report: Report) -> str:
    means = [summary for summary in report.summaries() if summary.peer in LIBRARIES]
    ours = "".join(
        f"geometric mean {summary.geometric_mean:.3f}, minimum {summary.minimum:.3f} "
        f"({summary.worst}); "
        for summary in means
    )
    return f"{ours}{report.device}, medians of {report.rounds} rounds"


def _axis_end(found: list[Group]) -> float:
    """The end of the axis: a tick past the longest bar, so that its number fits."""
    longest = max(bar.ratio for group in found for bar in group.bars)
    step = _step(max(longest, 1.0))
    return step * (math.floor(max(longest, 1.0) / step) + 1)


def _step(longest: float) -> float:
    """The distance of ticks: about a dozen at most."""
    return next((step for step in (0.1, 0.2, 0.5) if longest / step <= 12), math.ceil(longest / 12))


def _ticks(top: float) -> list[float]:
    step = _step(top)
    return [step * at for at in range(round(top / step) + 1)]


def _x(ratio: float, top: float) -> float:
    return LABELS + ratio / top * (WIDTH - LABELS - RIGHT)


def _line(x: float, end: float, style: str) -> str:
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{end}" class="{style}"/>'


def _bar(bar: Bar, problem: str, y: float, top: float) -> str:
    end = _x(bar.ratio, top)
    note = f"{problem}, {bar.contender}: {bar.ratio:.3f} of the library's speed"
    return (
        f'<rect x="{LABELS}" y="{y:.1f}" width="{end - LABELS:.1f}" height="{BAR - 2}" '
        f'fill="{COLOURS[bar.contender]}" rx="2"><title>{escape(note)}</title></rect>'
        + _text(end + 5, y + BAR - 4, f"{bar.ratio:.2f}", "small")
    )


def _legend(found: list[Group]) -> list[str]:
    names = {bar.contender for group in found for bar in group.bars}
    parts, x = [], 24.0
    for name in (name for name in DRAWN if name in names):
        parts.append(f'<rect x="{x:.1f}" y="66" width="14" height="11" fill="{COLOURS[name]}"/>')
        parts.append(_text(x + 19, 76, name))
        x += 19 + 7 * len(name) + 18
    return parts


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "") -> str:
    names = f' class="{style}"' if style else ""
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{names}{where}>{escape(text)}</text>'
