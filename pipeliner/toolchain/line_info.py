"""Machine code and PTX with a note where the line of the source changes.

    //## File "k.cu", line 147 inlined at "k.cu", line 210
    //## File "k.cu", line 210
    /*00d0*/  SYNCS.EXCH.64 URZ, [UR6+0x19000], UR4 ;
    =>
    // line 210: setup
    /*00d0*/  SYNCS.EXCH.64 URZ, [UR6+0x19000], UR4 ;

Code of a function that was inlined is that of the line which calls it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

_Place: TypeAlias = "tuple[str, int]"
"""The margin of a directive, and the line of the source that it names."""

_SASS: Final = re.compile(
    r'(\s*)//## File "[^"]*", line (\d+)(?: inlined at "[^"]*", line (\d+))?\s*'
)
_LOC: Final = re.compile(r"(\s*)\.loc\s+(\d+ \d+ \d+)(?:,.*\binlined_at (\d+ \d+ \d+))?\s*")
_FILE: Final = re.compile(r"\s*\.file\s")
_DEBUG: Final = re.compile(r"\s*\.section\s+\.debug")


def noted_sass(text: str, note: Callable[[int], str]) -> str:
    """What ``nvdisasm -gi`` prints, with ``note(line)`` in place of each position."""
    return _noted(map(_sass_place, text.splitlines()), note)


def noted_ptx(text: str, note: Callable[[int], str]) -> str:
    """PTX with ``note(line)`` in place of each ``.loc``, without debug sections."""
    return _noted(_ptx_places(text.splitlines()), note)


def _noted(lines: Iterable[str | _Place], note: Callable[[int], str]) -> str:
    """The lines with a note where the source's line is another than in the note before."""
    out: list[str] = []
    place: _Place = "", 0
    told = 0
    for line in lines:
        if isinstance(line, tuple):
            place = line
            continue
        margin, number = place
        if number != told and line.strip():
            out.append(f"{margin}// {note(number)}")
            told = number
        out.append(line)
    return "\n".join(out) + "\n"


def _sass_place(line: str) -> str | _Place:
    """The place that ``line`` names, or itself. Of an inlined function the last line counts."""
    found = _SASS.fullmatch(line)
    return line if found is None else (found[1], int(found[3] or found[2]))


def _ptx_places(lines: Iterable[str]) -> Iterator[str | _Place]:
    """Each line of code, or the place that it names."""
    callers: dict[str, str] = {}
    debug = False
    for line in lines:
        debug = debug or _DEBUG.match(line) is not None
        found = _LOC.fullmatch(line)
        if found is not None:
            margin, at, caller = found.groups()
            callers.pop(at, None)
            if caller is not None:
                callers[at] = caller
            yield margin, int(_outermost(at, callers).split()[1])
        elif not debug and not _FILE.match(line):
            yield line
        debug = debug and line.strip() != "}"


def _outermost(at: str, callers: dict[str, str]) -> str:
    """The place in the kernel that the call at ``at`` is made for."""
    seen = set()
    while at in callers and at not in seen:
        seen.add(at)
        at = callers[at]
    return at
