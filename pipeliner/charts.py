"""Charts as values: drawn as SVG by themselves, as PNG through matplotlib, written as CSV."""

from __future__ import annotations

import contextlib
import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal
from xml.sax.saxutils import escape

from .errors import ToolError, WorkloadError
from .markup import PALETTE

LEFT: Final = 56
RIGHT: Final = 16
TOP: Final = 58
BOTTOM: Final = 46
NOTE: Final = 18
BAR: Final = 13
GAP: Final = 9
LABELS: Final = 210
LETTER: Final = 6.6
"""Width of a character, rounded up, in pixels."""
DPI: Final = 150

FEW_POINTS: Final = 6
"""That are all named in words."""

MOST_MARKS: Final = 10
"""Values of x that are all marked where lines are drawn through them."""

ChartKind = Literal["points", "lines", "bars"]


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one name, in order. For bars ``x`` is the place of the label."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn. ``name``: a file's stem. ``labels``: of bars. ``diagonal``: x = y is marked.

    ``log``: both axes are logarithmic, for points. Bars lie, so that their labels read. ``note``:
    under bars. ``one``: of bars, the value 1 is marked, and the axis holds it.
    """

    name: str
    title: str
    kind: ChartKind
    x: str
    y: str
    series: tuple[Series, ...]
    labels: tuple[str, ...] = ()
    log: bool = False
    diagonal: bool = False
    note: str = ""
    one: bool = False
    width: int = 640
    height: int = 400

    def csv(self) -> str:
        """One line for each point."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["series", self.x, self.y])
        for series in self.series:
            for x, y in series.points:
                writer.writerow([series.name, self.labels[int(x)] if self.labels else x, y])
        return text.getvalue()

    def svg(self) -> str:
        """As the text of an SVG that scales, its colours those of the page around it."""
        drawn = _bars(self) if self.kind == "bars" else _plot(self)
        height, parts = drawn
        body = "\n".join([*_heading(self), *parts])
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" '
            f'viewBox="0 0 {self.width} {height:.0f}" width="{self.width}" height="{height:.0f}" '
            f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">\n'
            f"<title>{escape(self.title)}</title>\n<desc>{escape(self.words())}</desc>\n"
            f"{body}\n</svg>\n"
        )

    def words(self) -> str:
        """What is drawn, for who does not see it: of each series its number, least and largest."""
        return "; ".join(f"{one.name}: {self._range(one)}" for one in self.series)

    def _range(self, series: Series) -> str:
        points = sorted(series.points, key=lambda point: point[1])
        ends = [f"{y:.3g} at {self.labels[int(x)] if self.labels else f'{x:g}'}" for x, y in points]
        if len(points) <= FEW_POINTS:
            return f"{self.y} {', '.join(ends)}"
        return f"{len(points)} values of {self.y}, from {ends[0]} to {ends[-1]}"


def check_png() -> None:
    """ToolError: matplotlib, which PNG takes, is missing."""
    if find_spec("matplotlib") is None:
        raise ToolError("report.matplotlib")


def write_charts(charts: Sequence[Chart], folder: Path, *, png: bool) -> list[Path]:
    """SVG and CSV of each, and PNG if asked for; WorkloadError: there is no place for them."""
    with _written(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    for chart in charts:
        for suffix in (".svg", ".csv", *([".png"] if png else [])):
            written.append(folder / f"{chart.name}{suffix}")
            write_chart(chart, written[-1])
    return written


def write_chart(chart: Chart, path: Path) -> None:
    """As the kind of file that its name says; WorkloadError: there is no place for it."""
    with _written(path):
        if path.suffix.lower() == ".png":
            _write_png(chart, path)
        else:
            text = chart.csv() if path.suffix == ".csv" else chart.svg()
            path.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        raise WorkloadError("file.write", path=str(path), why=err.strerror) from err


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from ``low`` to ``high``, ``most`` of them or fewer."""
    span = max(high - low, 1e-9)
    step = 10.0 ** math.floor(math.log10(span / most))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if span / (step * factor) <= most)
    first = math.ceil(low / step - 1e-9)
    return [at * step for at in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class _Axis:
    """From values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / max(high - low, 1e-12) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if not self.log:
            return ticks(self.low, self.high)
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        marks = [10.0**power * factor for power in powers for factor in (1, 2, 5)]
        shown = [mark for mark in marks if self.low <= mark <= self.high]
        return shown[:: max(1, len(shown) // 6)]


def _axes(chart: Chart) -> tuple[_Axis, _Axis]:
    xs = [x for series in chart.series for x, _ in series.points]
    ys = [y for series in chart.series for _, y in series.points]
    if chart.log:
        low, high = min(xs + ys) * 0.8, max(xs + ys) * 1.25
        bounds = (low, high, low, high)
    else:
        bounds = (min(xs), max(xs), 0.0, max(ys) * 1.08)
    right, bottom = chart.width - RIGHT, chart.height - BOTTOM
    return (
        _Axis(bounds[0], bounds[1], LEFT, right, chart.log),
        _Axis(bounds[2], bounds[3], bottom, TOP, chart.log),
    )


def _plot(chart: Chart) -> tuple[float, list[str]]:
    across, up = _axes(chart)
    parts = []
    known = sorted({x for series in chart.series for x, _ in series.points})
    for mark in known if chart.kind == "lines" and len(known) <= MOST_MARKS else across.ticks():
        x = across.at(mark)
        parts.append(_line(x, TOP, x, up.start, 'stroke-opacity="0.15"'))
        parts.append(_text(x, up.start + 16, f"{mark:g}", "middle"))
    for mark in up.ticks():
        y = up.at(mark)
        parts.append(_line(LEFT, y, across.end, y, 'stroke-opacity="0.15"'))
        parts.append(_text(LEFT - 6, y + 4, f"{mark:g}", "end"))
    if chart.diagonal:
        parts.append(_line(across.start, up.start, across.end, up.end, 'stroke-opacity="0.6"'))
    for at, series in enumerate(chart.series):
        colour = PALETTE[at % len(PALETTE)]
        places = [(across.at(x), up.at(y)) for x, y in series.points]
        if chart.kind == "lines":
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            )
        for (x, y), (value, other) in zip(places, series.points):
            note = escape(f"{series.name}: {value:g}, {other:.4g}")
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity="0.75">'
                f"<title>{note}</title></circle>"
            )
    parts.append(_text((LEFT + across.end) / 2, chart.height - 10, chart.x, "middle"))
    return chart.height, parts


def _bars(chart: Chart) -> tuple[float, list[str]]:
    longest = max(y for series in chart.series for _, y in series.points)
    longest = max(longest, 1.0) if chart.one else longest
    across = _Axis(0.0, longest * 1.12, LABELS, chart.width - RIGHT)
    values = {(s.name, int(x)): y for s in chart.series for x, y in s.points}
    place, parts = float(TOP), []
    for at, label in enumerate(chart.labels):
        shown = [(n, s.name) for n, s in enumerate(chart.series) if (s.name, at) in values]
        middle = place + BAR * len(shown) / 2 + 4
        parts.append(_text(LABELS - 8, middle, _short(label), "end"))
        for n, name in shown:
            value = values[name, at]
            note = escape(f"{label}, {name}: {value:.3g}")
            wide, colour = across.at(value) - LABELS, PALETTE[n % len(PALETTE)]
            parts.append(
                f'<rect x="{LABELS}" y="{place:.1f}" width="{wide:.1f}" height="{BAR - 2}" '
                f'fill="{colour}"><title>{note}</title></rect>'
            )
            parts.append(_text(across.at(value) + 4, place + BAR - 3, f"{value:.3g}", "", 10))
            place += BAR
        place += GAP
    grid = [
        _line(across.at(mark), TOP - 4, across.at(mark), place, 'stroke-opacity="0.15"')
        for mark in across.ticks()
    ]
    axis = [_text(across.at(mark), place + 14, f"{mark:g}", "middle") for mark in across.ticks()]
    axis.append(_text((LABELS + across.end) / 2, place + 34, chart.y, "middle"))
    if chart.one:
        x = across.at(1.0)
        parts.append(_line(x, TOP - 4, x, place, 'class="one" stroke-opacity="0.8"'))
    if chart.note:
        axis.append(_text(8, place + BOTTOM + 8, chart.note, "", 11))
    return place + BOTTOM + (NOTE if chart.note else 0), [*grid, *parts, *axis]


def _heading(chart: Chart) -> list[str]:
    """Title and legend; a name that does not fit the line any more begins a new one."""
    parts = [f'<text x="8" y="20" font-size="15" font-weight="600">{escape(chart.title)}</text>']
    if chart.kind != "bars":
        parts.append(_text(8, 50, chart.y, "", 11))
    if len(chart.series) == 1:
        return parts
    x = 8.0
    for at, series in enumerate(chart.series):
        colour = PALETTE[at % len(PALETTE)]
        parts.append(f'<rect x="{x:.1f}" y="28" width="12" height="9" fill="{colour}"/>')
        parts.append(_text(x + 16, 37, series.name, "", 11))
        x += 24 + LETTER * len(series.name)
    return parts


def _line(x: float, y: float, x2: float, y2: float, look: str) -> str:
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" '
        f"{look}/>"
    )


def _text(x: float, y: float, text: str, anchor: str = "", size: int = 12) -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}"{where}>{escape(text)}</text>'


def _short(label: str, most: int = 27) -> str:
    return label if len(label) <= most else f"{label[: most - 2]}.."


def _write_png(chart: Chart, path: Path) -> None:
    from matplotlib.figure import Figure

    bars = chart.kind == "bars"
    count = sum(len(series.points) for series in chart.series)
    height = 1.6 + 0.2 * count if bars else chart.height / 90
    figure = Figure(figsize=(chart.width / 90, height), layout="constrained")
    axes = figure.subplots()
    for at, series in enumerate(chart.series):
        xs, ys = [x for x, _ in series.points], [y for _, y in series.points]
        colour = PALETTE[at % len(PALETTE)]
        if bars:
            each = 0.8 / len(chart.series)
            places = [x + each * (at - (len(chart.series) - 1) / 2) for x in xs]
            drawn = axes.barh(places, ys, each, color=colour, label=series.name)
            axes.bar_label(drawn, fmt="%.3g", padding=3, fontsize=8)
        else:
            style = "-o" if chart.kind == "lines" else "o"
            axes.plot(xs, ys, style, color=colour, markersize=4, label=series.name)
    if bars:
        axes.set_yticks(range(len(chart.labels)), [_short(label) for label in chart.labels])
        axes.invert_yaxis()
        axes.set_xlabel(f"{chart.y}\n{chart.note}".strip())
        if chart.one:
            axes.axvline(1.0, color="#24292f", linewidth=1, zorder=0)
    else:
        axes.set_xlabel(chart.x)
        axes.set_ylabel(chart.y)
    if chart.log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    if chart.diagonal:
        ends = axes.get_xlim()
        axes.plot(ends, ends, color="#24292f", linewidth=1)
    axes.set_title(chart.title, loc="left")
    if len(chart.series) > 1:
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=DPI)
