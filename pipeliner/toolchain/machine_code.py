"""What the loop of a kernel is in machine code: its instructions, and those that wait for a bank.

Registers lie in two banks, even and odd numbers, each of which an instruction reads two operands of
in a cycle at most: a multiply-add whose three operands all lie in one bank takes a cycle more
(since Volta: Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, 3.5).
An operand that the instruction before it in the same place marked ``.reuse`` is not read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

BANKED: Final = 70
"""The first architecture, sm_70, whose registers lie in two banks."""

_MULTIPLIES: Final = ("FFMA", "DFMA", "HFMA2")
_TENSOR: Final = ("HMMA", "IMMA", "DMMA", "BMMA", "HGMMA", "IGMMA", "QGMMA")
_SPILLS: Final = ("LDL", "STL")

_FUNCTION: Final = re.compile(r"^\s*(?:\.section\s+\.text\.|Function : ).*$", re.MULTILINE)
_LABEL: Final = re.compile(r"^\s*(\.L_\w+):")
_INSTRUCTION: Final = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);"
)
_TARGET: Final = re.compile(r"`\((\.L_\w+)\)|\b0x([0-9a-f]+)\b")
_REGISTER: Final = re.compile(r"^[-|~]*R(\d+)\b")


@dataclass(frozen=True, slots=True)
class LoopCode:
    """The longest loop of a kernel, as a warp runs it once, from its first to its last instruction.

    ``instructions`` in all; ``multiplies``: by CUDA cores, ``tensor``: by tensor cores;
    ``conflicts``: multiply-adds that wait for a register bank; ``spills``: loads and stores of
    what did not fit the registers. nvcc may have put several iterations of the source into it.
    """

    instructions: int
    multiplies: int = 0
    tensor: int = 0
    conflicts: int = 0
    spills: int = 0


@dataclass(frozen=True, slots=True)
class _Instruction:
    address: int
    name: str
    operands: tuple[str, ...]

    @property
    def family(self) -> str:
        return self.name.split(".", 1)[0]


def longest_loop(sass: str) -> LoopCode | None:
    """The longest loop of all functions that nvdisasm or cuobjdump print; None: there is none."""
    bodies = [
        code[first : last + 1]
        for function in _FUNCTION.split(sass)
        for code, labels in [_read(function)]
        for first, last in _loops(code, labels)
    ]
    if not bodies:
        return None
    body = max(bodies, key=len)
    families = [one.family for one in body]
    return LoopCode(
        instructions=len(body),
        multiplies=sum(name in _MULTIPLIES for name in families),
        tensor=sum(name in _TENSOR for name in families),
        conflicts=sum(_conflicts(body)),
        spills=sum(name in _SPILLS for name in families),
    )


def _read(sass: str) -> tuple[list[_Instruction], dict[str, int]]:
    """All instructions of a function, and the place of each label among them."""
    code: list[_Instruction] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        label = _LABEL.match(line)
        if label is not None:
            labels[label[1]] = len(code)
            continue
        found = _INSTRUCTION.match(line)
        if found is not None:
            operands = tuple(part.strip() for part in found[3].split(","))
            code.append(_Instruction(int(found[1], 16), found[2], operands))
    return code, labels


def _loops(code: Sequence[_Instruction], labels: dict[str, int]) -> Iterator[tuple[int, int]]:
    """First and last instruction of each loop: what a branch goes back over."""
    places = {one.address: at for at, one in enumerate(code)}
    for at, one in enumerate(code):
        target = _TARGET.search(", ".join(one.operands)) if one.family == "BRA" else None
        if target is None:
            continue
        first = labels.get(target[1]) if target[1] else places.get(int(target[2], 16))
        if first is not None and first < at:
            yield first, at


def _conflicts(body: Iterable[_Instruction]) -> Iterator[bool]:
    """Of each multiply-add, whether all three registers that it reads anew lie in one bank."""
    kept: dict[int, int] = {}
    for one in body:
        if one.family not in _MULTIPLIES:
            continue
        read: list[int] = []
        fresh: dict[int, int] = {}
        for place, operand in enumerate(one.operands[1:4]):
            found = _REGISTER.match(operand)
            if found is None:
                continue
            register = int(found[1])
            if kept.get(place) != register:
                read.append(register)
            if ".reuse" in operand:
                fresh[place] = register
        kept = fresh
        yield len(read) == 3 and len({register % 2 for register in read}) == 1
