"""Hazards in the user's terms: the buffer in the arena, the lines of the CUDA, aliased space.

On the device all dynamic shared memory is one allocation. Which buffer a byte of it belongs to
follows from the plan of the arena and from what the statement's origin says that it touches. Two
statements that conflict on bytes of two different buffers show that the arena let these share space
and nothing orders one's end before the other's beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ..diagnostics import Reason
from ..plan import SmemPlan
from .base.report import CudaLine, Hazard, Life, Site
from .engine.machine import SiteInfo
from .translate.buffers import Memory
from .translate.compiler import CompiledKernel

Lines: TypeAlias = "Callable[[str, int], CudaLine | None]"
"""The CUDA of a statement, by its device function and its number there."""

_SYNCHRONISATION: Final = ("barrier", "commit", "wait")
"""Kinds of an origin that access no buffer of theirs."""


def with_arena(kernel: CompiledKernel, smem: SmemPlan) -> CompiledKernel:
    """Return ``kernel`` with the buffers in its dynamic shared memory, as they were planned."""
    touched = {name for info in kernel.sites if info.origin for name in info.origin.buffers}
    placed = tuple(
        Memory("shared", buffer.buffer, kernel.arena + buffer.offset, buffer.bytes)
        for buffer in smem.buffers
        if buffer.buffer in touched
    )
    return replace(kernel, shared=(*placed, *kernel.shared))


@dataclass(frozen=True)
class Blame:
    """What is known of one kernel: ``lines`` of its CUDA, None where nobody can tell."""

    kernel: CompiledKernel
    lines: Lines | None = None

    def explain(self, hazard: Hazard) -> Hazard:
        """Return ``hazard`` with its CUDA lines and its buffer; aliasing is a kind of its own."""
        other = None if hazard.other is None else self._with_lines(hazard.other)
        hazard = replace(hazard, site=self._with_lines(hazard.site), other=other)
        if hazard.buffer not in {memory.name for memory in self.kernel.shared}:
            return hazard
        here = self._candidates(hazard.site, hazard.offset)
        there = here if other is None else self._candidates(other, hazard.offset)
        if here and there and not here.keys() & there.keys():
            return self._aliased(hazard, next(iter(here)), next(iter(there)))
        shared = [name for name in here if name in there] or [*here, *there]
        return self._about(hazard, shared[0]) if len(set(shared)) == 1 else hazard

    def _with_lines(self, site: Site) -> Site:
        if self.lines is None or site.number is None:
            return site
        return replace(site, cuda=self.lines(self.kernel.name, site.number))

    def _candidates(self, site: Site, offset: int) -> Mapping[str, None]:
        """The buffers that ``site`` touches and that may hold the byte, in the origin's order."""
        touched = dict.fromkeys(site.origin.buffers if site.origin else ())
        places = {name: self._place(name) for name in touched}
        holding = [name for name, place in places.items() if place is None or _holds(place, offset)]
        return dict.fromkeys(holding or touched)

    def _about(self, hazard: Hazard, name: str) -> Hazard:
        """Return ``hazard`` on the buffer ``name``, its offset from the buffer's start."""
        place = self._place(name)
        start = 0 if place is None else place.base
        return replace(hazard, buffer=name, offset=hazard.offset - start)

    def _aliased(self, hazard: Hazard, here: str, there: str) -> Hazard:
        detail = Reason("hazard.aliased", buffers=(here, there))
        lives = (self._life(here), self._life(there))
        return replace(self._about(hazard, here), kind="aliasing", detail=detail, lives=lives)

    def _life(self, name: str) -> Life:
        uses = [info for info in self.kernel.sites if _uses(info, name)]
        first, last = (
            self._with_lines(Site(info.statement(), info.origin, (), info.number))
            for info in (uses[0], uses[-1])
        )
        place = self._place(name)
        base, size = (-1, 0) if place is None else (place.base, place.nbytes or 0)
        return Life(name, base, size, first, last)

    def _place(self, name: str) -> Memory | None:
        return next((memory for memory in self.kernel.shared if memory.name == name), None)


def _holds(place: Memory, offset: int) -> bool:
    return place.base <= offset and (place.nbytes is None or offset < place.base + place.nbytes)


def _uses(info: SiteInfo, name: str) -> bool:
    origin = info.origin
    return origin is not None and name in origin.buffers and origin.kind not in _SYNCHRONISATION
