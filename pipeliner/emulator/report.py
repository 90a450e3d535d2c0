"""What an emulation returns: outputs, hazards, counts.  Plain values, no TVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import EmulatorError

__all__ = ["CtaStats", "Emulation", "EmulatorError", "Hazard", "Site"]

HAZARD_KINDS = (
    "race",  # two threads, one of them writing, no ordering between them
    "read-before-arrival",  # an asynchronous copy into these bytes has not been waited for
    "write-in-flight",  # written while an asynchronous copy into the bytes is in flight
    "uninitialised-read",
    "out-of-bounds",
    "misaligned",
    "barrier-divergence",  # a barrier that not every thread reaches
    "divergent-warp",  # a warp-collective instruction without all of its threads
)


@dataclass(frozen=True)
class Site:
    """One execution of one statement of the device function.

    ``origin`` is the value of the enclosing ``pipeliner.origin`` or ``pipeliner.op`` attribute,
    ``iteration`` the enclosing loop variables, outermost first.
    """

    statement: str
    origin: str | None = None
    iteration: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        where = self.origin or self.statement
        loops = ", ".join(f"{name}={value}" for name, value in self.iteration)
        return f"{where!r} at {loops}" if loops else repr(where)


@dataclass(frozen=True)
class Hazard:
    """One defect, reported once per pair of statements.

    Attributes
    ----------
    kind
        One of ``HAZARD_KINDS``.
    site, other
        The statement that met the hazard and, for a conflict, the earlier one.
    buffer, offset
        Buffer accessed, and the byte offset in it (in the whole shared window for ``shared``).
    threads
        Linear thread ids of one example: the thread at ``site``, then the thread at ``other``.
    block
        blockIdx (x, y, z) of the example.
    count
        Executions of this pair of statements in which it was seen.
    """

    kind: str
    site: Site
    detail: str = ""
    other: Site | None = None
    buffer: str = ""
    offset: int = -1
    threads: tuple[int, ...] = ()
    block: tuple[int, int, int] = (0, 0, 0)
    count: int = 1

    def __str__(self) -> str:
        parts = [f"{self.kind}: {self.site}"]
        if self.other is not None:
            parts.append(f"against {self.other}")
        if self.buffer:
            place = f"on {self.buffer}"
            parts.append(place if self.offset < 0 else f"{place}, byte {self.offset}")
        if self.threads:
            parts.append(f"threads {', '.join(map(str, self.threads))}")
        parts.append(f"block {self.block}")
        if self.detail:
            parts.append(self.detail)
        return "; ".join(parts)


@dataclass(frozen=True)
class CtaStats:
    """Operations executed by one CTA.

    ``copies`` counts cp.async operations of single threads, ``mmas`` and ``ldmatrix`` count
    instructions of single warps, ``barriers`` counts completions of CTA-wide barriers.
    """

    kernel: str
    block: tuple[int, int, int]
    counts: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.counts.get(name, 0)


@dataclass(frozen=True)
class Emulation:
    """Result of one emulated call of a host function.

    ``outputs`` maps the name of every array parameter to its content after the call (a fresh
    array; arguments are never written).  A call is right if the outputs are right *and*
    ``hazards`` is empty.
    """

    outputs: Mapping[str, np.ndarray[Any, Any]]
    hazards: tuple[Hazard, ...]
    stats: tuple[CtaStats, ...] = field(default=(), repr=False)

    def total(self, name: str) -> int:
        """Sum of one count over all CTAs."""
        return sum(cta[name] for cta in self.stats)
