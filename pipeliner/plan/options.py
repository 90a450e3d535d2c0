"""What an option of a request is: its check, its text on a command line, and how common it is.

``Request`` declares each option once, as a field: its type, default, check and help. Signatures,
flags, JSON and the tables of the documentation follow from that, or are compared with it by a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..errors import PlanError

AUTO: Final = "auto"

Check = Callable[[str, object], None]
"""Raises PlanError where an option of that name cannot have a value."""


@dataclass(frozen=True, slots=True)
class Option:
    """How one option is checked, read from text and explained.

    ``help``: one line. ``values``: what a person may write, in a few words. ``common``: whether
    ``--help`` shows it, or ``--help-all`` alone.
    """

    check: Check
    read: Callable[[str], Any]
    help: str
    values: str
    common: bool = False


Declared = Mapping[str, Option]
"""The metadata of a field that is an option."""


def declared(how: Option) -> Declared:
    """The metadata by which a field says ``how`` it is an option."""
    return {"option": how}


def one_of(choices: tuple[str, ...], help: str, *, common: bool = False) -> Declared:
    """An option that is one of some words; a wrong one is refused when it is asked for."""

    def check(name: str, value: object) -> None:
        if value not in choices:
            raise PlanError("request.choice", option=name, choices=choices, value=repr(value))

    return declared(Option(check, str, help, f"{{{','.join(choices)}}}", common))


def switch(help: str) -> Declared:
    """An option that is ``"auto"``, on or off."""

    def check(name: str, value: object) -> None:
        if value != AUTO and not isinstance(value, bool):
            raise PlanError("request.pdl", value=repr(value))

    values: Mapping[str, Any] = {AUTO: AUTO, "on": True, "off": False}
    return declared(
        Option(check, lambda text: values.get(text, text), help, f"{{{','.join(values)}}}")
    )


def number(check: Check, help: str, values: str, *, common: bool = False) -> Declared:
    """An option that is a number or ``"auto"``."""
    return declared(
        Option(check, lambda text: int(text) if text.isdigit() else text, help, values, common)
    )


def pair(help: str, values: str) -> Declared:
    """An option that is two sizes, or not asked for."""

    def check(name: str, value: object) -> None:
        if value is None:
            return
        sizes = value if isinstance(value, tuple) else ()
        if len(sizes) != 2 or any(type(size) is not int or size < 1 for size in sizes):
            raise PlanError("request.pair", option=name, value=repr(value))

    return declared(Option(check, _sizes, help, values))


def _sizes(text: str) -> tuple[int, ...]:
    """``2x4`` as two numbers; PlanError says what it is instead."""
    try:
        return tuple(int(size) for size in text.lower().split("x"))
    except ValueError as err:
        raise PlanError("option.pair", value=text) from err


def check_depth(name: str, depth: object) -> None:
    """Slots of every ring, or of rings by name: at least one."""
    if isinstance(depth, Mapping):
        for ring, slots in depth.items():
            _check_slots(f"{name} of '{ring}'", slots)
    elif depth != AUTO:
        _check_slots(name, depth)


def read_depth(text: str) -> Any:
    """``auto``, a number, or ``A_shared=4,B_shared=3``."""
    if text == AUTO:
        return text
    try:
        if "=" not in text:
            return int(text)
        pairs = (item.split("=") for item in text.split(","))
        return {name: int(slots) for name, slots in pairs}
    except ValueError as err:
        raise PlanError("option.depth", value=text) from err


def _check_slots(what: str, slots: object) -> None:
    if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
        raise PlanError("request.slots", option=what, value=repr(slots))


def check_roles(name: str, roles: object) -> None:
    """Consumer warpgroups; 0 is none."""
    if roles != AUTO and (isinstance(roles, bool) or not isinstance(roles, int) or roles < 0):
        raise PlanError("request.roles", value=repr(roles))
