"""A wrong execution, drawn: which op works on which iteration, in the order of one interleaving.

    A_shared             |  0  .  .  1  .  .  .  .  . 2!
    empty.wait           |  .  1  .  .  2  .  .  .  .  .
    full.expect          |  .  .  1  .  .  .  .  .  2  .
    matmul_update_o      |  .  .  .  .  . 0?  .  1  .  .
    matmul_update_o.wait |  .  .  .  .  .  .  0  .  .  .

Time goes from left to right. A column is an op of one iteration, when the first warp comes to it:
several do the same one after the other. ``!`` stands where the hazard was met, ``?`` at the other
statement of the two. Of code that was written by hand, without ops, there is what synchronises, as
``empty.arrive``, and the two statements, such as ``S =`` and ``C = S``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...emulator import Hazard, Site
from ...emulator.engine.machine import SiteInfo

COLUMNS: Final = 16
"""Columns that are drawn at most: the last ones before the hazard."""

_NOTHING: Final = "."
_WIDTH: Final = 32
"""Characters of a statement without an op."""

_CALL: Final = re.compile(r"T\.(?:ptx|cuda)\.(\w+)\(")
_STORE: Final = re.compile(r"(\w+)\[.*?\] = ")
_WORD: Final = re.compile(r'"(init|inval|arrive|arrive_drop|expect_tx|commit_group|wait_group)"')
"""What an instruction does, where its name does not say so."""

_ORDERS: Final = ("mbarrier", "fence", "bar", "barrier")
"""Names of instructions of which all order others."""

_ARENA: Final = "buf_dyn_shmem"
"""The beginning of the name of the dynamic shared memory of a kernel, where all buffers are."""

_BARRIER: Final = "T.tvm_storage_sync("


@dataclass(frozen=True)
class Moment:
    """One op at one time: its iteration (None: it is in no loop), and which statement it is.

    ``mark``: ``!`` where the hazard was met, ``?`` at the other statement, empty elsewhere.
    """

    op: str
    iteration: int | None
    mark: str = ""

    @property
    def text(self) -> str:
        """What stands in its column."""
        return f"{'x' if self.iteration is None else self.iteration}{self.mark}"


def moments(
    log: Sequence[tuple[int, ...]], sites: Sequence[SiteInfo], hazard: Hazard
) -> tuple[Moment, ...]:
    """Return the ops of an execution up to a hazard, the last ones.

    ``log``: of its events, each a statement of ``sites`` by its number, and loop variables.
    """
    ends = _events(log, sites, hazard.site)
    if not ends:
        return ()
    end = ends[-1]
    others = _events(log[:end], sites, hazard.other) if hazard.other is not None else []
    marks = {end: "!"} | ({others[-1]: "?"} if others else {})
    found: dict[tuple[str, int | None], Moment] = {}
    for at in range(1, end + 1):
        info = sites[log[at][0]]
        if at not in marks and not _is_drawn(info):
            continue
        moment = Moment(_named(info), _iteration(info, log[at][1:]), marks.get(at, ""))
        key = moment.op, moment.iteration
        if moment.mark == "!":
            found.pop(key, None)  # it comes last, whoever did the same before
        known = found.setdefault(key, moment)
        found[key] = replace(known, mark=moment.mark or known.mark)
    return _window(list(found.values()))


def _events(log: Sequence[tuple[int, ...]], sites: Sequence[SiteInfo], site: Site) -> list[int]:
    """When a statement was executed, in these iterations."""
    values = tuple(value for _, value in site.iteration)
    return [
        at
        for at, entry in enumerate(log)
        if entry and sites[entry[0]].number == site.number and entry[1:] == values
    ]


def _window(found: list[Moment]) -> tuple[Moment, ...]:
    """The last ones, and the other statement in front of them where it lies further back."""
    last = found[-COLUMNS:]
    early = [moment for moment in found[:-COLUMNS] if moment.mark]
    return (*early, *last[len(early) :])


def _is_drawn(info: SiteInfo) -> bool:
    """Whether a statement is an op's, touches shared memory or orders others."""
    if info.origin is not None and (info.origin.op or info.origin.places):
        return True
    text = info.statement()
    call = _CALL.match(text)
    if call is None:
        return text.startswith(_BARRIER)
    return call[1].startswith(_ORDERS) or call[1].endswith("sync") or _WORD.search(text) is not None


def _named(info: SiteInfo) -> str:
    """The op of a statement; without one what it does to which buffers, as ``full.wait``."""
    origin = info.origin
    if origin is not None and origin.op:
        return str(origin.op)
    text = info.statement().splitlines()[0]
    places = ", ".join(origin.buffers) if origin is not None else ""
    call, store = _CALL.match(text), _STORE.match(text)
    if text.startswith(_BARRIER):
        return "barrier"
    if call is not None:
        word = _WORD.search(text)
        what = call[1].removeprefix("mbarrier_") if word is None else word[1]
        return f"{places}.{what}" if places else what
    if store is not None and places:
        return f"{places} =" if store[1].startswith(_ARENA) else f"{store[1]} = {places}"
    return text[:_WIDTH]


def _iteration(info: SiteInfo, values: tuple[int, ...]) -> int | None:
    """The iteration of the original loop that a statement is of, or of the loop around it."""
    if info.origin is not None:
        said = info.origin.at(dict(zip(info.variables, values, strict=True))).iteration
        if said.isdecimal():
            return int(said)
    return values[-1] if values else None


def drawing(order: Sequence[Moment]) -> list[str]:
    """Return a row for each op, a column for each moment."""
    rows = list(dict.fromkeys(moment.op for moment in order))
    wide = max((len(row) for row in rows), default=0)
    cell = max((len(moment.text) for moment in order), default=0) + 1
    return [
        f"{row:{wide}} |"
        + "".join(
            f"{moment.text if moment.op == row else _NOTHING:>{cell}}" for moment in order
        ).rstrip()
        for row in rows
    ]
