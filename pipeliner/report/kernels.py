"""One chosen kernel for reading: its plan, its timeline and its CUDA, each linked to the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import PipelinerError
from ..kernel.building import build_with
from ..kernel.cuda_lines import cuda_lines
from ..kernel.shown import linked
from ..markup import Html, element, fold, joined, wide
from ..plan.links import Links
from ..records import Record
from ..records.candidate import Candidate, describe
from ..schedules.workloads import Spec
from ..targets import accelerated, cuda_target
from ..timeline import svg, timeline_from
from .rows import Row


@dataclass(frozen=True, slots=True)
class KernelView:
    """What a page shows of a kernel, as HTML. ``missing``: why there is nothing, in one line."""

    shown: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)
    missing: str = ""


def view_of(spec: Spec, record: Record, machine: str, prefix: str) -> KernelView:
    """The kernel of a record, made again from its candidate; needs no GPU.

    ``machine``: the name of its GPU, or a machine file. ``prefix``: of the names in its drawing,
    which no other kernel of the page has.
    """
    target = accelerated(cuda_target(machine))
    try:
        candidate = Candidate.from_json(record.candidate)
        function = candidate.function(spec)
        kernel = build_with(function, target, candidate.request)
        lines = cuda_lines(kernel.lowered)  # nothing is compiled
        drawing = _drawing(function, kernel.function, target, prefix)
        shown = linked(kernel.plan, lines.source, lines.origins(), drawing)
    except PipelinerError as err:  # as of another version
        return KernelView(resources=record.resources, missing=str(err))
    return KernelView(shown, record.resources)


def kernel_section(row: Row, record: Record, view: KernelView, anchor: str) -> Html:
    """A kernel, folded away under its name and its time."""
    title = f"{row.label}: {record.us:.1f} us, {row.tflops(record.us):.1f} TFLOP/s"
    tile, asked = describe(Candidate.from_json(record.candidate))
    used = ", ".join(f"{name} {value:,}" for name, value in view.resources.items())
    about = (
        element("p", f"tile {tile}; asked: {asked}", class_="dim"),
        element("p", f"resources: {used}", class_="dim") if used else "",
        element("p", view.missing) if view.missing else "",
    )
    return fold(title, joined(about), Html(view.shown), id=anchor, class_="kernel")


def _drawing(function: Any, pipelined: Any, target: Any, prefix: str) -> Callable[[Links], Html]:
    """What draws the timeline, or says why there is none, as where no loop is pipelined."""
    try:
        drawn = timeline_from(function, pipelined, target)
    except PipelinerError as err:
        why = element("p", f"No timeline: {err}", class_="dim")
        return lambda links: why
    title, name = element("h4", "Timeline, in model time"), f"timeline of {drawn.kernel}"
    return lambda links: joined((title, wide(name, Html(svg(drawn, links=links, prefix=prefix)))))
