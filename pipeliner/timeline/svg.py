"""A timeline as one self-contained SVG, for light and dark pages; details show on hovering."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from xml.sax.saxutils import escape

from ..markup import PALETTE, spelled
from ..plan.links import Link, Links
from . import rows
from .bars import EventBar, bars_of
from .model import LoopRun, Runs
from .program import Phase, Slot
from .slots import SlotState, Span
from .terminal import COLOURS
from .trace import Event

Linked: TypeAlias = Callable[[Links], Link]
"""Finds the groups of something among those of a plan."""

WIDTH: Final = 1280
LABELS: Final = 212
MARGIN: Final = 24
ROW: Final = 22
BAR: Final = 16
GAP: Final = 10
LETTER: Final = 6.2
"""Width of a character of the small font, rounded up, in pixels: what fits into a bar."""

NARROW: Final = 3
"""Pixels; what is narrower is drawn with its neighbours of the same iteration."""

_STATES: Final[dict[SlotState, str]] = {"filling": "0.22", "ready": "0.45", "read": "0.95"}
_TINTS: Final[dict[Phase, str]] = {
    "prologue": "prologue",
    "steady state": "steady",
    "epilogue": "epilogue",
}

_STYLE: Final = """
.timeline text { font: 12px Inter, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #24292f; }
.timeline .mono { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: 11px; }
.timeline .h1 { font-size: 18px; font-weight: 600; }
.timeline .h2 { font-size: 14px; font-weight: 600; }
.timeline .dim { fill: #57606a; }
.timeline .small { font-size: 10px; }
.timeline .on { fill: #ffffff; font-size: 10px; }
.timeline .page { fill: #ffffff; }
.timeline .lane { fill: #8c959f; fill-opacity: 0.08; }
.timeline .grid { stroke: #8c959f; stroke-opacity: 0.25; }
.timeline .edge { stroke: #8c959f; stroke-opacity: 0.9; stroke-dasharray: 3 3; }
.timeline .prologue { fill: #d29922; } .timeline .steady { fill: #2da44e; }
.timeline .epilogue { fill: #8250df; }
.timeline .tint { fill-opacity: 0.07; } .timeline .band { fill-opacity: 0.28; }
.timeline .stall { fill: #cf222e; fill-opacity: 0.85; }
.timeline .past { fill: #6e7781; }
@media (prefers-color-scheme: dark) {
  .timeline text { fill: #e6edf3; } .timeline .dim { fill: #9198a1; }
  .timeline .on { fill: #ffffff; } .timeline .page { fill: #0d1117; }
}
"""


def svg(
    timeline: Runs,
    *,
    each: bool = False,
    width: int = WIDTH,
    links: Links | None = None,
    prefix: str = "",
) -> str:
    """The drawing as the text of an SVG file of ``width`` pixels.

    ``each``: a row for every op and every slot, instead of one for what a statement does on a pipe.
    ``links``: of the plan, for a page whose plan and CUDA light with it. ``prefix``: of the names
    that it defines, for a page with several.
    """
    page = _Page(_Scale(timeline.cycles, width - LABELS - MARGIN), width, links, prefix)
    page.text(MARGIN, 34, rows.title(timeline), "h1")
    page.text(MARGIN, 56, rows.verdict(timeline))
    page.text(MARGIN, 74, rows.disclaimer(timeline), "dim")
    page.y = 96
    for run in timeline.runs:
        page.links = links if run is timeline.pipelined else None
        _draw_run(page, timeline, run, each)
    _draw_legend(page, timeline)
    return page.finish(rows.title(timeline))


@dataclass(frozen=True, slots=True)
class _Scale:
    cycles: int
    pixels: int

    def x(self, cycle: float) -> float:
        """Where a cycle is, in pixels from the left edge."""
        return LABELS + cycle * self.pixels / max(1, self.cycles)

    def cycles_in(self, pixels: float) -> float:
        """How many cycles so many pixels are."""
        return pixels * self.cycles / self.pixels


class _Page:
    """The elements so far; ``y``: where the next row begins."""

    def __init__(self, scale: _Scale, width: int, links: Links | None, prefix: str) -> None:
        self.scale = scale
        self.width = width
        self.links = links
        self.prefix = prefix
        self._linked = links is not None
        self.y = 0.0
        self._parts: list[str] = []

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "") -> None:
        names = f' class="{style}"' if style else ""
        where = f' text-anchor="{anchor}"' if anchor else ""
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{names}{where}>{escape(text)}</text>')

    def box(self, x: float, y: float, size: tuple[float, float], look: str, note: str = "") -> None:
        """A rectangle. ``look``: its attributes. ``note``: shown on hovering."""
        hover = f"<title>{escape(note)}</title>" if note else ""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.5, size[0]):.1f}" '
            f'height="{size[1]:.1f}" {look}>{hover}</rect>'
        )

    def span(
        self, start: float, end: float, y: float, height: float, look: str, note: str = ""
    ) -> None:
        """A rectangle from one cycle to another."""
        left, right = self.scale.x(start), self.scale.x(end)
        self.box(left, y, (right - left, height), look, note)

    def line(self, x: float, top: float, bottom: float, style: str) -> None:
        self._parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" class="{style}"/>'
        )

    def label(self, start: float, end: float, y: float, style: str, *texts: str) -> None:
        """The first of ``texts`` that fits, in the middle of a bar."""
        left, right = self.scale.x(start), self.scale.x(end)
        fits = (text for text in texts if right - left >= LETTER * len(text) + 3)
        text = next(fits, None)
        if text is not None:
            self.text((left + right) / 2, y, text, style, "middle")

    def begin(self, link: Linked, name: str) -> None:
        """Begin a row that lights, and lights others; ``name``: what it is said to be."""
        if self.links is not None:
            found = {**link(self.links).attributes, "aria_label": name}
            self._parts.append(f"<g{spelled(class_='row', tabindex=0, role='button', **found)}>")

    def end(self) -> None:
        """End what ``begin`` began."""
        if self.links is not None:
            self._parts.append("</g>")

    def linking(self, link: Linked, iteration: int, name: str) -> str:
        """The attributes of what is of one iteration, and lights what else is."""
        if self.links is None:
            return ""
        found = link(self.links).of_iteration(iteration)
        return spelled(**found.attributes, data_name=f"{name}, iteration {iteration}")

    def finish(self, title: str) -> str:
        height = self.y + MARGIN
        body = "\n".join(self._parts)
        hatch = "\n".join(_hatch(f"{self.prefix}fill{at}", at) for at in range(COLOURS))
        role = "group" if self._linked else "img"  # what an image holds is not reached by keyboard
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="timeline" width="{self.width}" '
            f'height="{height:.0f}" viewBox="0 0 {self.width} {height:.0f}" role="{role}">\n'
            f"<title>{escape(title)}</title>\n<style>{escape(_STYLE)}</style>\n"
            f"<defs>\n{hatch}\n</defs>\n"
            f'<rect class="page" width="100%" height="100%"/>\n{body}\n</svg>\n'
        )


def _hatch(name: str, at: int) -> str:
    """The pattern of a slot that fills with the data of an iteration."""
    return (
        f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="6" height="6" fill="{PALETTE[at]}" '
        f'fill-opacity="0.15"/><rect width="2.2" height="6" fill="{PALETTE[at]}" '
        f'fill-opacity="0.6"/></pattern>'
    )


def _draw_run(page: _Page, timeline: Runs, run: LoopRun, each: bool) -> None:
    page.text(MARGIN, page.y + 14, rows.headline(run), "h2")
    page.text(MARGIN, page.y + 31, f"{rows.pace(run)}; {rows.holds(run)}", "dim")
    if rows.doubts(run):
        page.y += 17
        page.text(MARGIN, page.y + 31, rows.doubts(run), "dim")
    page.y += 40
    ops, slots = rows.op_rows(run, each=each), rows.slot_rows(timeline, run, each=each)
    top = page.y + 18
    bottom = top + 16 + 6 + ROW * (len(ops) + 1 + len(slots)) + GAP
    _draw_axis(page, top, bottom)
    _draw_parts(page, run, top, bottom)
    page.y = top + 16 + 6
    for op in ops:
        page.begin(_op_link(op.ops), f"{op.name}, {op.pipe}")
        _lane(page, f"{op.pipe}  {op.name}")
        _draw_events(page, op.events, each)
        page.end()
        page.y += ROW
    _lane(page, rows.STALLED)
    _draw_stalls(page, rows.stalls(run))
    page.y += ROW + GAP
    for row in slots:
        page.begin(_slot_link(row.slot), str(row.slot))
        _lane(page, str(row.slot))
        _draw_states(page, row.spans)
        page.end()
        page.y += ROW
    page.y += 22


def _lane(page: _Page, name: str) -> None:
    most = int((LABELS - MARGIN - 8) / 6.7)
    page.text(MARGIN, page.y + 13, rows.shortened(name, most), "mono")
    page.span(0, page.scale.cycles, page.y + 1, BAR, 'class="lane" rx="2"')


def _draw_axis(page: _Page, top: float, bottom: float) -> None:
    step = rows.nice_step(page.scale.cycles, 12)
    for cycle in range(0, page.scale.cycles + 1, step):
        x = page.scale.x(cycle)
        page.line(x, top - 4, bottom, "grid")
        text = rows.number(cycle) + (" cycles" if cycle == 0 else "")
        if x + 3 + LETTER * len(text) <= page.width:
            page.text(x + 3, top - 6, text, "dim small")


def _draw_parts(page: _Page, run: LoopRun, top: float, bottom: float) -> None:
    for part, (start, end) in run.trace.parts.items():
        tint = _TINTS[part]
        page.span(start, end, top, bottom - top, f'class="{tint} tint"')
        page.span(start, end, top, 15, f'class="{tint} band"', f"{part}: cycles {start} to {end}")
        page.label(start, end, top + 11, "small", part)
        page.line(page.scale.x(end), top, bottom, "edge")


def _draw_events(page: _Page, events: Iterable[Event], each: bool) -> None:
    """Results under way as thin bars, then what occupies the pipe as thick ones."""
    bars = bars_of(events, 0 if each else page.scale.cycles_in(NARROW))
    linked = [
        (bar, page.linking(_bar_link(bar), bar.first.iteration, bar.first.op)) for bar in bars
    ]
    for bar, linking in linked:
        look = f'{_fill(bar.first)} fill-opacity="0.4" rx="1"{linking}'
        page.span(bar.busy, bar.end, page.y + 7, 4, look, bar.note)
    for bar, linking in linked:
        look = f'{_fill(bar.first)} rx="2"{linking}'
        page.span(bar.first.start, bar.busy, page.y + 1, BAR, look, bar.note)
        text = "past" if bar.first.repeats else str(bar.first.iteration)
        page.label(bar.first.start, bar.busy, page.y + 13, "on", text)


def _draw_stalls(page: _Page, events: Iterable[Event]) -> None:
    for event in events:
        start = event.resume - event.stall
        note = f"{event.cause} {event.culprit}, before or in {event.op}: {event.stall} cycles"
        page.span(start, event.resume, page.y + 4, 10, 'class="stall" rx="1"', note)
        page.label(start, event.resume, page.y + 12, "on", str(event.cause).split()[0])


def _draw_states(page: _Page, spans: Iterable[Span]) -> None:
    for span in spans:
        if span.iteration is None:
            continue
        at = span.iteration % COLOURS
        paint = f"url(#{page.prefix}fill{at})" if span.state == "filling" else PALETTE[at]
        look = f'fill="{paint}"'
        if span.state != "filling":
            look += f' fill-opacity="{_STATES[span.state]}"'
        look += page.linking(_slot_link(span.slot), span.iteration, str(span.slot))
        note = (
            f"{span.slot} {span.state}, iteration {span.iteration}: cycles {span.start} to "
            f"{span.end}"
        )
        page.span(span.start, span.end, page.y + 1, BAR, f'{look} rx="2"', note)
        style = "on" if span.state == "read" else "small"
        texts = (f"{span.state} {span.iteration}", str(span.iteration))
        page.label(span.start, span.end, page.y + 13, style, *texts)


def _draw_legend(page: _Page, timeline: Runs) -> None:
    x = float(MARGIN)
    y = page.y
    samples: list[tuple[str, str]] = [
        (f'fill="{PALETTE[0]}"', "a pipe works, on the iteration that the number names"),
        (f'fill="{PALETTE[0]}" fill-opacity="0.4"', "the result is under way"),
        (f'fill="url(#{page.prefix}fill0)"', "slot filling"),
        (f'fill="{PALETTE[0]}" fill-opacity="{_STATES["ready"]}"', "ready"),
        (f'fill="{PALETTE[0]}" fill-opacity="{_STATES["read"]}"', "read"),
        ('class="stall"', "all threads stalled"),
    ]
    if any(event.repeats for run in timeline.runs for event in run.trace.events):
        samples.append(('class="past"', "past the end, overrunning"))
    for look, text in samples:
        page.box(x, y + 2, (18, 11), f'{look} rx="2"')
        page.text(x + 24, y + 12, text, "dim")
        x += 24 + 5.6 * len(text) + 26
    page.y = y + 16


def _op_link(ops: Sequence[str]) -> Linked:
    return lambda links: links.op(*ops)


def _slot_link(slot: Slot) -> Linked:
    return lambda links: links.slot(slot.ring, slot.index)


def _bar_link(bar: EventBar) -> Linked:
    slots = [(slot.ring, slot.index) for slot in bar.slots]
    return lambda links: links.event(bar.ops, slots)


def _fill(event: Event) -> str:
    return 'class="past"' if event.repeats else f'fill="{PALETTE[event.iteration % COLOURS]}"'
