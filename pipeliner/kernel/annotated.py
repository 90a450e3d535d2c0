"""CUDA with the origin of each line before it, in regions that editors fold.

    while (k_0 < 8) {
      copy(&S[k_0 % 3], &A[k_0]);
    }
    =>
    // region steady state
    while (k_0 < 8) {
      // S, stage 0, steady state, iteration k_0, S[k_0 % 3]
      copy(&S[k_0 % 3], &A[k_0]);
    }
    // endregion

It compiles to the same machine code as the plain text. Neighbouring lines of one origin have one
comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..values.origin import STEADY, Origin
from .cuda_lines import CudaLines

WIDTH: Final = 190
"""Columns that a comment may fill; a line of code may be longer."""

LONG: Final = 20
"""Lines outside of pipelined loops that are a region of their own."""

HELPERS: Final = "helpers"
"""The region of what TVM prints before the first kernel."""

_KERNEL: Final = re.compile(r'extern "C" __global__')
_LOOP: Final = re.compile(r"\s*for \(\w+ (\w+) = ")
_PRAGMA: Final = re.compile(r"\s*#pragma unroll\b")


@dataclass(frozen=True)
class AnnotatedCuda:
    """CUDA source with comments and regions; ``origins``: by its own lines, from 1."""

    source: str
    origins: Mapping[int, Origin]

    def note(self, line: int) -> str:
        """What to write beside machine code of ``line``: its number, and its origin or its code."""
        code = self._lines[line - 1].strip() if 0 < line <= len(self._lines) else ""
        return shortened(f"line {line}: {self.origins.get(line) or code}")

    @property
    def _lines(self) -> list[str]:
        return self.source.splitlines()


@dataclass(frozen=True, slots=True)
class FoldedLines:
    """Lines that belong together, from ``first`` to ``last``, from 0."""

    first: int
    last: int
    title: str


def annotated(lines: CudaLines) -> AnnotatedCuda:
    """``lines.source`` with what ``lines`` knows of it."""
    source = lines.source.splitlines()
    origins = lines.origins()
    found = regions(source, origins)
    opened = {region.first: region for region in found}
    closed = {region.last: region for region in found}
    out: list[str] = []
    numbered: dict[int, Origin] = {}
    before: Origin | None = None
    for at, line in enumerate(source):
        origin = origins.get(at + 1)
        if at in opened:
            out.append(f"{_margin(line)}// region {opened[at].title}")
            before = None
        if origin is not None and origin != before:
            out.append(shortened(f"{_margin(line)}// {origin}"))
        out.append(line)
        if origin is not None:
            numbered[len(out)] = origin
        if at in closed:
            out.append(f"{_margin(source[closed[at].first])}// endregion")
        before = origin
    return AnnotatedCuda("\n".join(out) + "\n", numbered)


def shortened(text: str) -> str:
    """``text``, which ends in dots where it would pass ``WIDTH``."""
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 4]} ..."


def regions(source: Sequence[str], origins: Mapping[int, Origin]) -> list[FoldedLines]:
    """The helpers, and each part of a pipelined loop, in their order and apart from each other."""
    found: list[FoldedLines] = []
    first = next((at for at, line in enumerate(source) if _KERNEL.match(line)), 0)
    if first:
        found.append(FoldedLines(0, first - 1, HELPERS))
    depths = _depths(source)
    for start, end, origin in _runs(source, depths, origins):
        region = _closed(source, depths, start, end, origin)
        if region is not None and (not found or region.first > found[-1].last):
            found.append(region)
    return found


def _runs(
    source: Sequence[str], depths: Sequence[int], origins: Mapping[int, Origin]
) -> Iterator[tuple[int, int, Origin]]:
    """First and last line, from 0, and the first origin, of each part of the kernel.

    Outside of pipelined loops it ends with the block that it begins in.
    """
    run: tuple[int, int, Origin] | None = None
    for at in range(len(source)):
        origin = origins.get(at + 1)
        left = run is not None and not run[2].phase and depths[at] < depths[run[0]]
        if origin is None and source[at] != "}" and not left:
            continue
        if run and origin and not left and _part(run[2]) == _part(origin):
            run = run[0], at, run[2]
            continue
        if run is not None:
            yield run
        run = (at, at, origin) if origin is not None and _part(origin)[1] else None
    if run is not None:
        yield run


def _part(origin: Origin) -> tuple[str, str]:
    """The role and the phase; outside of pipelined loops what is done, such as a store."""
    return origin.role, origin.phase_name or origin.op.statement or origin.block


def _depths(source: Sequence[str]) -> list[int]:
    """Open braces at each line, that of a line which closes one not counted."""
    depth, found = 0, []
    for line in source:
        found.append(depth - line.lstrip().startswith("}"))
        depth += line.count("{") - line.count("}")
    return found


def _closed(
    source: Sequence[str], depths: Sequence[int], start: int, end: int, origin: Origin
) -> FoldedLines | None:
    """The region of a run whose braces are all closed, with the loop that it is the body of."""
    outer = min(depths[start : end + 1])
    first = _opening(depths, start, outer)
    last = _closing(source, depths, end, outer)
    loop = _opening(depths, first, outer - 1) if origin.phase == STEADY else first
    while loop < first:
        head = _LOOP.match(source[loop])
        if head is not None and _is_of(head[1], origin.iteration):
            first, last = loop, _closing(source, depths, last, depths[loop])
            break
        if head is None or depths[loop] <= 1:
            break
        loop = _opening(depths, loop, depths[loop] - 1)
    if first and _PRAGMA.match(source[first - 1]):
        first -= 1
    if not origin.phase and last - first < LONG:
        return None
    return FoldedLines(first, last, ", ".join(filter(None, _part(origin))))


def _opening(depths: Sequence[int], at: int, depth: int) -> int:
    """The line at or before ``at`` whose depth is ``depth``."""
    while at and depths[at] > depth:
        at -= 1
    return at


def _closing(source: Sequence[str], depths: Sequence[int], at: int, depth: int) -> int:
    """The line at or behind ``at`` behind which no more than ``depth`` braces are open."""
    while at + 1 < len(source) and (depths[at] > depth or source[at].rstrip().endswith("{")):
        at += 1
    return at


def _is_of(variable: str, iteration: str) -> bool:
    """Whether a variable of CUDA, perhaps numbered, is the one that an iteration is counted by."""
    return any(
        re.fullmatch(rf"{re.escape(name)}(?:_\d+)?", variable)
        for name in re.findall(r"[A-Za-z_]\w*", iteration)
    )


def _margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
