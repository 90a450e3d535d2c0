"""What the tests of late passes share: a pass left out, and the steady loop in machine code."""

from __future__ import annotations

import re
from typing import Any

from pipeliner.passes.ir.named_pass import named_pass

_LABEL = re.compile(r"^(\.L_\w+):")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
_BRANCH = re.compile(r"\bBRA\b.*\(?(\.L_\w+)\)")


@named_pass("Nothing")
def nothing(func: Any) -> Any:
    """``func`` as it is, in place of the pass whose effect is measured."""
    return func


def longest_loop(sass: str) -> list[str]:
    """The instructions between the backward branch that goes furthest and where it goes.

    ``sass``: what nvdisasm prints.
    """
    return max(_loops(sass), key=len, default=[])


def loop_around(sass: str, name: str, least: int | None = None) -> list[str]:
    """The instructions of the innermost loop that has ``least`` or all instructions ``name``."""
    counts = [sum(name in one for one in loop) for loop in _loops(sass)]
    wanted = max(counts) if least is None else least
    around = [loop for count, loop in zip(counts, _loops(sass)) if count >= wanted]
    return min(around, key=len)


def _loops(sass: str) -> list[list[str]]:
    """The instructions from where each backward branch goes up to it."""
    code: list[str] = []
    labels: dict[str, int] = {}
    found: list[list[str]] = []
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(code)
        elif instruction := _INSTRUCTION.match(line):
            code.append(instruction[1])
            target = _BRANCH.search(instruction[1])
            start = labels.get(target[1]) if target else None
            # Code ends with a branch to itself.
            if start is not None and len(code) - start > 1:
                found.append(code[start:])
    return found
