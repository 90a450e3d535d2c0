"""CUDA as HTML: coloured by stage and role, prologue, steady state and epilogue to be folded."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from ..markup import Html, element, fold, fragment, joined, stage_class, wide
from ..plan import CONSUMER, PRODUCER, KernelPlan
from ..plan.links import Link, Links
from ..plan.shown import plan_html
from ..values.origin import Origin
from .annotated import FoldedLines, regions

PHASES: Final = ("prologue", "steady state", "epilogue")
"""How the titles of regions end that are open at first."""

ROLES: Final = (PRODUCER, CONSUMER)

HINT: Final = (
    "Point at a stage, an op or a slot, or move there with Tab: its lines of CUDA and its slots "
    "light up. Enter or a click goes to the lines."
)


def cuda_html(
    source: str, origins: Mapping[int, Origin], links: Links | None = None, name: str = "CUDA"
) -> Html:
    """Lines of CUDA in a box that scrolls, linked to the plan that ``links`` are of.

    ``origins``: by line, from 1. What is of no pipelined loop is folded away where it is long.
    """
    lines = source.splitlines()
    return wide(name, *_parts(lines, origins, links), class_="code")


def linked(
    plan: KernelPlan,
    source: str,
    origins: Mapping[int, Origin],
    drawing: Callable[[Links], Html] | None = None,
) -> Html:
    """A plan beside the CUDA that it became: what is pointed at in one lights in the other.

    ``drawing``: makes one that is linked to both, to stand above.
    """
    links = Links(plan)
    drawn = "" if drawing is None else drawing(links)
    halves = (
        element("div", element("h4", "Plan"), plan_html(plan, links), class_="half"),
        element(
            "div",
            element("h4", "CUDA"),
            legend(origins.values()),
            cuda_html(source, origins, links),
            class_="half",
        ),
    )
    says = element("p", HINT, class_="says", role="status")
    return element("div", says, drawn, element("div", *halves, class_="halves"), class_="linked")


def kernel_fragment(
    name: str, arch: str, plan: KernelPlan | None, source: str, origins: Mapping[int, Origin]
) -> Html:
    """A kernel as a notebook shows it; ``plan``: None where it was not made by pipeliner."""
    title = element("h4", f"Kernel {name} for {arch}")
    shown = cuda_html(source, {}) if plan is None else linked(plan, source, origins)
    return fragment(title, shown)


def legend(origins: Iterable[Origin]) -> Html:
    """What the colours of the lines mean: the stages and roles that there are."""
    known = list(origins)
    stages = sorted({one.stage for one in known if one.stage is not None})
    roles = [role for role in ROLES if any(one.role == role for one in known)]
    shown = [element("span", f"stage {at}", class_=stage_class(at)) for at in stages]
    shown += [element("span", role, class_=f"role-{role}") for role in roles]
    return element("p", "Lines of ", joined(shown, " "), class_="dim legend") if shown else Html("")


def _parts(
    lines: Sequence[str], origins: Mapping[int, Origin], links: Links | None
) -> Iterator[Html]:
    at = 0
    for region in regions(lines, origins):
        if region.first > at:
            yield _lines(lines, at, region.first, origins, links)
        yield _region(lines, region, origins, links)
        at = region.last + 1
    if at < len(lines):
        yield _lines(lines, at, len(lines), origins, links)


def _region(
    lines: Sequence[str],
    region: FoldedLines,
    origins: Mapping[int, Origin],
    links: Links | None,
) -> Html:
    end = region.last + 1
    title = f"{region.title}: lines {region.first + 1} to {end}"
    inner = _lines(lines, region.first, end, origins, links)
    return fold(title, inner, opened=any(region.title.endswith(phase) for phase in PHASES))


def _lines(
    lines: Sequence[str],
    start: int,
    end: int,
    origins: Mapping[int, Origin],
    links: Links | None,
) -> Html:
    """The lines [start, end); neighbours of one origin are one element."""
    groups = itertools.groupby(range(start, end), key=lambda at: origins.get(at + 1))
    parts = [_group([lines[at] for at in group], origin, links) for origin, group in groups]
    return element("pre", *parts)


def _group(lines: Sequence[str], origin: Origin | None, links: Links | None) -> str:
    """Lines of one origin, which are an element if there is one."""
    text = "".join(f"{line}\n" for line in lines)
    if origin is None:
        return text
    names = [] if origin.stage is None else [stage_class(origin.stage)]
    if origin.role in ROLES:
        names.append(f"role-{origin.role}")
    link = Link() if links is None else links.origin(origin)
    return element("span", text, class_=" ".join(names), title=str(origin), **link.attributes)
