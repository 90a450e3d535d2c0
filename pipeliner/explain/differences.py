"""What differs between two kernels, their variables numbered alike, so that it is the pipeline.

TVM and nvcc number variables as they come, so one more before the loop renames all behind it. Lines
are matched without those numbers; a variable of the second text has the name of the one in the
first that stands in its place in most lines, or one that the first has not.

    int cse_v7 = (k_0 * 64);   and   int cse_v9 = (k_0 * 64);   are the same line
"""

from __future__ import annotations

import difflib
import itertools
import re
import sys
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import Any, Final

from .condensed import condensed
from .inspect import condense as condense_cuda
from .inspect import emit, kernel_source

CONTEXT: Final = 3
"""Lines that are shown around each that differs."""

_DECLARED: Final = re.compile(r"(?:^\s*|\bfor \()(?:\w+ )*\w+ (\w+)(?= = |;)", re.MULTILINE)
_BOUND: Final = re.compile(r"(?:^\s*|\bfor )(\w+)(?=: T\.\w+ = | = T\.| in )", re.MULTILINE)
_IN_PTX: Final = re.compile(r"(?:%[a-z]+|\$L__[A-Z]+)\d+(?:_\d+)?\b")
_IN_SASS: Final = re.compile(r"\.L_x_\d+\b")
_ADDRESS: Final = re.compile(r"/\*[0-9a-f]{4,}\*/")
_NUMBER: Final = re.compile(r"[_\d]*$")


def diff(
    before: Any,
    after: Any,
    kind: str = "cuda",
    *,
    labels: tuple[str, str] = ("before", "after"),
    annotate: bool = False,
    condense: bool = False,
) -> str:
    """A unified diff of two kernels as ``emit`` shows them; empty: they are alike.

    CUDA is compared from the first kernel on. ``annotate``, ``condense``: as for ``inspect``.
    """
    first, second = (_shown(kernel, kind, annotate, condense) for kernel in (before, after))
    named = renamed(first, second, kind)
    lines = difflib.unified_diff(
        first.splitlines(), named.splitlines(), *labels, lineterm="", n=CONTEXT
    )
    return "\n".join(lines)


def renamed(before: str, after: str, kind: str) -> str:
    """``after`` with the names of ``before`` for what is the same and numbered otherwise."""
    names = [_variables(text, kind) for text in (before, after)]
    found = [_masked(text, name) for text, name in zip((before, after), names)]
    votes = Counter(_pairs(*found))
    known = {name for _, variables in found[0] for name in variables}
    others = dict.fromkeys(name for _, variables in found[1] for name in variables)
    taken: dict[str, str] = {}
    for (old, new), _ in votes.most_common():
        if new not in taken and old not in taken.values():
            taken[new] = old
    used = known | set(taken.values())
    for name in others:
        if name not in taken:
            taken[name] = _fresh(name, used)
            used.add(taken[name])
    return names[1].sub(lambda match: taken[match[0]], after)


def _shown(kernel: Any, kind: str, annotate: bool, short: bool) -> str:
    text = emit(kernel, kind, annotate=annotate)
    if kind == "cuda":
        text = kernel_source(text)
    if kind == "sass":
        return _ADDRESS.sub("", text)
    if short and kind == "tir":
        return condensed(text)
    return condense_cuda(text, most=sys.maxsize) if short and kind == "cuda" else text


def _variables(text: str, kind: str) -> re.Pattern[str]:
    """What matches the variables of ``text``, which are numbered to tell them apart."""
    if kind == "ptx":
        return _IN_PTX
    if kind == "sass":
        return _IN_SASS
    found = {*_DECLARED.findall(text), *_BOUND.findall(text)}
    names = "|".join(sorted(map(re.escape, found), key=len, reverse=True))
    return re.compile(rf"(?<![\w.])(?:{names})(?!\w)" if names else r"(?!)")


def _masked(text: str, names: re.Pattern[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Each line without the numbers of its variables, and the variables."""
    return [
        (names.sub(lambda name: _family(name[0]), line), tuple(names.findall(line)))
        for line in text.splitlines()
    ]


def _pairs(
    before: Sequence[tuple[str, tuple[str, ...]]], after: Sequence[tuple[str, tuple[str, ...]]]
) -> Iterator[tuple[str, str]]:
    """A variable of each that stand in the same place of lines that match."""
    first, second = ([line for line, _ in text] for text in (before, after))
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    for one, two, size in matcher.get_matching_blocks():
        for (_, old), (_, new) in zip(before[one : one + size], after[two : two + size]):
            yield from zip(old, new)


def _fresh(name: str, used: Container[str]) -> str:
    """``name``, or with a number with which it is not ``used``."""
    if name not in used:
        return name
    stem = name.rstrip("0123456789")
    return next(each for number in itertools.count(1) if (each := f"{stem}{number}") not in used)


def _family(name: str) -> str:
    return _NUMBER.sub("#", name, count=1)
