"""One chosen kernel for reading: its plan, its timeline, its CUDA with coloured lines."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import PipelinerError
from ..kernel.building import build_with
from ..records import Record
from ..records.candidate import Candidate
from ..schedules.workloads import Spec
from ..targets import accelerated, cuda_target
from ..timeline import svg, timeline_with
from ..values.origin import Origin

STAGES: Final = 6
"""Colours of stages; what is later than that has the colour of the last."""


@dataclass(frozen=True, slots=True)
class KernelView:
    """What a page shows of a kernel. ``timeline``: an SVG, or empty where no loop is pipelined.

    ``cuda``: HTML. ``missing``: why there is nothing, in one line.
    """

    explanation: str = ""
    timeline: str = ""
    cuda: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)
    missing: str = ""


def view_of(spec: Spec, record: Record, machine: str) -> KernelView:
    """The kernel of a record, made again from its candidate; needs no GPU.

    ``machine``: the name of its GPU, or a machine file.
    """
    target = accelerated(cuda_target(machine))
    try:
        candidate = Candidate.from_json(record.candidate)
        function = candidate.function(spec)
        kernel = build_with(function, target, candidate.request)
        explanation = kernel.plan.explain()
        lines = coloured(kernel.cuda_lines.source, kernel.cuda_lines.origins())
    except PipelinerError as err:  # as of another version
        return KernelView(resources=record.resources, missing=str(err))
    return KernelView(explanation, _timeline(function, target, candidate), lines, record.resources)


def _timeline(function: Any, target: Any, candidate: Candidate) -> str:
    try:
        return svg(timeline_with(function, target, candidate.request))
    except PipelinerError:  # no loop is pipelined: the plan says why
        return ""


def coloured(source: str, origins: Mapping[int, Origin]) -> str:
    """CUDA as HTML, each line that has an origin in the colours of its stage and role.

    What TVM prints before the first kernel is left out.
    """
    lines = source.splitlines()
    first = next(
        (at for at, line in enumerate(lines) if line.startswith('extern "C"') and "{" in line), 0
    )
    numbered = enumerate(lines[first:], first + 1)
    return "\n".join(
        _lines("\n".join(text for _, text in group), origin)
        for origin, group in itertools.groupby(numbered, key=lambda pair: origins.get(pair[0]))
    )


def _lines(text: str, origin: Origin | None) -> str:
    """Neighbouring lines of one origin."""
    shown = html.escape(text)
    if origin is None:
        return shown
    names = [] if origin.stage is None else [f"stage{min(origin.stage, STAGES - 1)}"]
    if origin.role:
        names.append(f"role-{origin.role}" if origin.role in ("producer", "consumer") else "role")
    title = html.escape(str(origin), quote=True)
    return f'<span class="{" ".join(names) or "other"}" title="{title}">{shown}</span>'
