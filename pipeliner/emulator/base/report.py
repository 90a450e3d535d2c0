"""What an emulation returns: outputs, hazards, counts.  Plain values, no TVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ...diagnostics import Reason, Why, reason_as_json
from ...values.origin import Origin

HazardKind: TypeAlias = Literal[
    "race",  # two threads, one of them writing, no ordering between them
    "read-before-arrival",  # an asynchronous copy into these bytes has not been waited for
    "write-while-read",  # written while another thread may still read it
    "write-in-flight",  # written while an asynchronous copy into the bytes is in flight
    "uninitialised-read",
    "out-of-bounds",
    "misaligned",
    "index-overflow",  # signed arithmetic of an index, an address or a condition wraps
    "barrier-divergence",  # a barrier that not every thread reaches
    "divergent-warp",  # a warp-collective instruction without all of its threads
    "deadlock",  # threads wait for each other, or for what never comes
    "never-waited",  # an asynchronous operation that no wait covers by the exit of its CTA
    "before-predecessor",  # global memory touched before a wait for the preceding kernel
    "mbarrier-uninitialised",  # used before its initialisation, or before that is visible
    "mbarrier-overwritten",  # initialised or written again while live
    "mbarrier-arrivals",  # missing or surplus
    "mbarrier-bytes",  # missing or surplus transaction bytes
    "phase-aliasing",  # a phase may complete, and its parity return, before a thread has waited
    "missing-proxy-fence",  # generic and async accesses of the same bytes without a fence between
    "missing-wgmma-fence",  # registers of a wgmma touched before it without a fence between
    "register-in-flight",  # touched while a wgmma may use it
    "before-start",  # a CTA may not have started when another of its cluster stores there
    "exit-before-peer",  # a CTA may exit before another of its cluster touches its memory
    "aliasing",  # a conflict between two buffers that share bytes of the arena
]
"""What may be wrong with an execution."""

_WIDTH: Final = 100
"""Characters of a statement or a line of CUDA that a report shows."""


@dataclass(frozen=True)
class CudaLine:
    """Where a statement stands in the CUDA: its first and last line, from 1, and their text."""

    first: int
    last: int
    code: str

    def __str__(self) -> str:
        lines = self.code.splitlines()
        more = f"  (to line {self.last})" if len(lines) > 1 else ""
        return f"CUDA line {self.first}: {_shortened(lines[0].strip())}{more}"


@dataclass(frozen=True)
class Site:
    """One execution of one statement of the device function.

    ``origin``: where the passes say it comes from, iteration and slots as numbers.  ``iteration``:
    the enclosing loop variables, outermost first.  ``number``: of the statement in the device
    function, in preorder.  ``cuda``: its lines, where the caller of the emulator knows them.
    """

    statement: str
    origin: Origin | None = None
    iteration: tuple[tuple[str, int], ...] = ()
    number: int | None = None
    cuda: CudaLine | None = None

    @property
    def line(self) -> int | None:
        """The first line of it in the CUDA, from 1."""
        return None if self.cuda is None else self.cuda.first

    @property
    def title(self) -> str:
        """The origin in words, behind the statement where it names no op; the loops' variables."""
        where = str(self.origin or "")
        if self.origin is None or not (self.origin.op or self.origin.kind):
            where = ", ".join(part for part in (_shortened(self.statement), where) if part)
        loops = ", ".join(f"{name} = {value}" for name, value in self.iteration)
        return f"{where}, at {loops}" if loops else where

    def __str__(self) -> str:
        return self.title if self.cuda is None else f"{self.title}\n{self.cuda}"


@dataclass(frozen=True)
class Life:
    """A buffer of the arena: its bytes there, and the first and last statement that use it."""

    buffer: str
    offset: int
    nbytes: int
    first: Site
    last: Site

    def __str__(self) -> str:
        end = self.offset + self.nbytes
        place = f"{self.buffer} (bytes {self.offset} to {end})" if self.nbytes else self.buffer
        return f"{place} lives from {_brief(self.first)} to {_brief(self.last)}"


@dataclass(frozen=True)
class Hazard:
    """One defect, reported once per pair of statements.

    Attributes
    ----------
    kind
        What is wrong.
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
    kernel
        Name of the device function.
    lives
        For aliased bytes: the two buffers, that of ``site`` first.
    """

    kind: HazardKind
    site: Site
    detail: Why = ""
    other: Site | None = None
    buffer: str = ""
    offset: int = -1
    threads: tuple[int, ...] = ()
    block: tuple[int, int, int] = (0, 0, 0)
    count: int = 1
    kernel: str = ""
    lives: tuple[Life, ...] = ()

    @property
    def slot(self) -> int | None:
        """The slot of ``buffer`` that ``site`` touches, where it has slots."""
        places = self.site.origin.places if self.site.origin else ()
        slots = [place.slot for place in places if place.buffer == self.buffer]
        return int(slots[0]) if slots and slots[0].isdecimal() else None

    @property
    def title(self) -> str:
        """Kind and place in one line."""
        text: str = self.kind
        if self.buffer:
            text += f" on {self.buffer}"
            text += f", byte {self.offset}" if self.offset >= 0 else ""
            text += f", slot {self.slot}" if self.slot is not None else ""
        return f"{text}: {self.detail}" if self.detail else text

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values that JSON can hold, with ``slot`` and ``text``."""
        return {
            **asdict(self),
            "detail": reason_as_json(self.detail),
            "slot": self.slot,
            "text": str(self),
        }

    def __str__(self) -> str:
        """Several lines: kind and place, both statements with their CUDA, the example."""
        lines = [self.title, *_labelled("at", self.site)]
        if self.other is not None:
            lines += _labelled("against", self.other)
        lines += [f"  {life}" for life in self.lives]
        threads = " against thread ".join(map(str, self.threads))
        who = f"thread {threads} of " if threads else ""
        times = f", {self.count} times" if self.count > 1 else ""
        kernel = f" of {self.kernel}" if self.kernel else ""
        return "\n".join([*lines, f"  {who}CTA {self.block}{kernel}{times}"])


def in_flight(operation: str, *, committed: bool) -> Reason:
    """Return why an operation has not been waited for by the exit of its CTA."""
    if committed:
        return Reason("hazard.group_unwaited", operation=operation)
    return Reason("hazard.group_uncommitted", operation=operation)


def _labelled(label: str, site: Site) -> list[str]:
    first, *rest = str(site).splitlines()
    return [f"  {label:<8}{first}", *(f"  {'':<8}{line}" for line in rest)]


def _brief(site: Site) -> str:
    name = site.title
    return name if site.line is None else f"{name} (CUDA line {site.line})"


def _shortened(text: str) -> str:
    """Return ``text`` without its middle where it is long: addresses stand at a line's end."""
    half = (_WIDTH - 5) // 2
    return text if len(text) <= _WIDTH else f"{text[:half]} ... {text[-half:]}"


@dataclass(frozen=True)
class CtaStats:
    """Operations executed by one CTA.

    ``copies`` counts cp.async operations of single threads, ``mmas`` and ``ldmatrix`` count
    instructions of single warps, ``barriers`` counts completions of CTA-wide barriers.  On sm_90,
    ``bulk_copies`` and ``arrivals`` (at mbarriers) count operations of single threads, ``wgmmas``
    and ``cluster_waits`` those of single warps.
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
