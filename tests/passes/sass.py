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
    code: list[str] = []
    labels: dict[str, int] = {}
    best: list[str] = []
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(code)
        elif instruction := _INSTRUCTION.match(line):
            code.append(instruction[1])
            target = _BRANCH.search(instruction[1])
            start = labels.get(target[1]) if target else None
            # Code ends with a branch to itself.
            if start is not None and len(code) - start > max(1, len(best)):
                best = code[start:]
    return best
