"""Where a statement of a kernel comes from: the op, its stage, its iteration, its slots.

A plain value that travels as text in the attribute ``pipeliner.origin`` around each statement that
the passes emit. CUDA is printed without it; the emulator names statements by it.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from .op import NO_OP, Op

ORIGIN_ATTR: Final = "pipeliner.origin"
"""Key of the AttrStmt around each emitted statement; its value is an origin as text."""

PHASE: Final = "pipeliner.phase"
"""Key of the annotation of an expanded loop; its value is a phase."""

STEADY: Final = "steady"
"""The phase of the loop in which an iteration of each stage runs, between prologue and epilogue."""

_FIELD: Final = "|"
_PLACE: Final = ";"
_PHASES: Final = {STEADY: "steady state"}
_OPERATORS: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Final[dict[str, Callable[..., int]]] = {"min": min, "max": max}


@dataclass(frozen=True, slots=True)
class Place:
    """A buffer that a statement touches, and its slot as an expression ('': it has no slots)."""

    buffer: str
    slot: str = ""

    def __str__(self) -> str:
        return f"{self.buffer}[{self.slot}]" if self.slot else self.buffer


@dataclass(frozen=True, slots=True)
class Origin:
    """What a statement of the emitted kernel does, in the terms of the plan.

    ``op``: as in the plan, or what the passes put beside one, such as a commit, a drain or a
    barrier; ``NO_OP`` outside pipelined loops. ``kind``: the op's (copy, wait, mma, ...), or
    commit, barrier. ``block``: the user's block. ``stage``: in the modulo schedule, None outside.
    ``phase``: prologue, steady or epilogue. ``role``: '' where all threads do the same.
    ``iteration``: of the original loop, from 0. ``places``: the buffers touched; slots and
    iteration are expressions over the loop's variable. ``reason``: why it was added.
    """

    op: Op = NO_OP
    kind: str = ""
    block: str = ""
    stage: int | None = None
    phase: str = ""
    role: str = ""
    iteration: str = ""
    places: tuple[Place, ...] = ()
    reason: str = ""

    @property
    def buffers(self) -> tuple[str, ...]:
        """The buffers touched, by name."""
        return tuple(place.buffer for place in self.places)

    def as_dict(self) -> dict[str, Any]:
        """What is known of it, as JSON has it."""
        found = dict(self._items())
        if self.places:
            found["places"] = [{"buffer": one.buffer, "slot": one.slot} for one in self.places]
        return found

    @property
    def phase_name(self) -> str:
        """The phase in words, empty outside of pipelined loops."""
        return _PHASES.get(self.phase, self.phase)

    @property
    def text(self) -> str:
        """``op=A|stage=0|places=S[k % 3]``: what ``parse`` reads; empty fields are left out."""
        return _FIELD.join(f"{name}={_printed(value)}" for name, value in self._items())

    @classmethod
    @functools.lru_cache(maxsize=1 << 12)  # a statement's origin is asked for by many passes
    def parse(cls, text: str) -> Origin:
        """The origin that prints as ``text``; ValueError where there is none."""
        known = {field.name for field in fields(cls)}
        values: dict[str, Any] = {}
        for part in text.split(_FIELD) if text else ():
            name, equals, value = part.partition("=")
            if not equals or name not in known or name in values:
                raise ValueError(f"expected an origin such as 'op=A|stage=0', got {text!r}")
            values[name] = _parsed(name, value)
        return cls(**values)

    def at(self, values: Mapping[str, int]) -> Origin:
        """This origin where loop variables have ``values``: iteration and slots as numbers.

        An expression over a variable that is not among them stays as it is.
        """
        places = tuple(Place(place.buffer, _valued(place.slot, values)) for place in self.places)
        return replace(self, iteration=_valued(self.iteration, values), places=places)

    def __str__(self) -> str:
        """In words: ``A_shared, stage 0, steady state, iteration 4, A_shared[1]``."""
        parts = [self.op or self.kind]
        if self.block and self.block != self.op:
            parts.append(f"block {self.block}")
        if self.stage is not None:
            parts.append(f"stage {self.stage}")
        parts += [self.phase_name, self.role and f"role {self.role}"]
        if self.iteration:
            parts.append(f"iteration {self.iteration}")
        parts += [*map(str, self.places), self.reason]
        return ", ".join(part for part in parts if part)

    def _items(self) -> list[tuple[str, Any]]:
        pairs = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return [(name, value) for name, value in pairs if value not in ("", None, ())]


def _printed(value: str | int | tuple[Place, ...]) -> str:
    if isinstance(value, tuple):
        return _PLACE.join(map(_place_text, value))
    return _quoted(str(value), "~|")


def _place_text(place: Place) -> str:
    name = _quoted(place.buffer, "~|;[")
    return f"{name}[{_quoted(place.slot, '~|;')}]" if place.slot else name


def _parsed(name: str, value: str) -> Any:
    if name == "stage":
        return int(value)
    if name == "op":
        return Op.parse(_unquoted(value))
    if name != "places":
        return _unquoted(value)
    found = []
    for item in value.split(_PLACE):
        buffer, bracket, slot = item.partition("[")
        found.append(Place(_unquoted(buffer), _unquoted(slot[:-1]) if bracket else ""))
    return tuple(found)


def _quoted(text: str, special: str) -> str:
    return "".join(f"~{ord(char):02X}" if char in special else char for char in text)


def _unquoted(text: str) -> str:
    return re.sub("~(..)", lambda match: chr(int(match[1], 16)), text)


def _valued(expression: str, values: Mapping[str, int]) -> str:
    try:
        return str(_value(ast.parse(expression, mode="eval").body, values))
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError):
        return expression


def _value(node: ast.AST, values: Mapping[str, int]) -> int:
    """The value of an integer expression; KeyError for what is none or has an unknown variable."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.BinOp):
        apply = _OPERATORS[type(node.op)]
        return apply(_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _FUNCTIONS[node.func.id](*(_value(arg, values) for arg in node.args))
    raise KeyError(ast.dump(node))
