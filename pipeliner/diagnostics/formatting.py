"""Sentences from their templates: format strings with a few words for lists and counts."""

from __future__ import annotations

import functools
import string
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

_COUNT: Final = "count "

_OWN: Final = ("count", "near", "or", "nor", "quoted", "by", "list")
"""Formats that ``str.format`` does not know."""

_LAST: Final = {"or": " or ", "nor": " and no "}
"""What stands before the last item of a list, by format."""


def sentence(template: str, args: Mapping[str, Any]) -> str:
    """``template`` with its fields filled in from ``args``.

    Fields are those of ``str.format``, with more formats: ``{ctas:count CTA}`` is ``1 CTA`` or
    ``3 CTAs``, ``{names:list}`` is ``a, b, c``, ``{names:quoted}`` is ``'a', 'b'``, ``{names:or}``
    is ``a, b or c``, ``{names:nor}`` is ``a and no b``, ``{tile:by}`` is ``128x64``,
    ``{name:near}`` is ``; did you mean 'a'?`` or nothing. Without a format a tuple is written as
    ``list`` does, joined by ``; `` if it holds reasons.
    """
    plain, own, bare = _compiled(template)
    given: dict[str, Any] = dict(args) if own else cast("dict[str, Any]", args)
    for place, name, spec, conversion in own:
        given[place] = _filled(_own(_value(name, args), conversion), spec)
    for name in bare:
        if type(given[name]) is tuple:
            given = {**given, name: _joined(given[name])}
    return plain.format_map(given)


@functools.cache
def _compiled(template: str) -> tuple[str, list[tuple[str, str, str, str | None]], list[str]]:
    """``template`` for ``str.format``, the fields that are filled in first, and those as they are.

    Models make thousands of reasons for a kernel, of which a few are printed.
    """
    plain = ""
    own: list[tuple[str, str, str, str | None]] = []
    bare: list[str] = []
    for text, name, spec, conversion in string.Formatter().parse(template):
        plain += text.replace("{", "{{").replace("}", "}}")
        if name is None:
            continue
        if name.isidentifier() and not (spec or conversion):
            bare.append(name)
        if (spec or "").partition(" ")[0] in _OWN or not name.isidentifier():
            own.append((f"_{len(own)}", name, spec or "", conversion))
            plain += f"{{_{len(own) - 1}}}"
        else:
            plain += f"{{{name}{f'!{conversion}' * bool(conversion)}{f':{spec}' * bool(spec)}}}"
    return plain, own, bare


def _value(name: str, args: Mapping[str, Any]) -> Any:
    """The argument ``name``, or an item of one: ``buffers[0]``."""
    return args[name] if name in args else string.Formatter().get_field(name, (), args)[0]


def _own(value: Any, conversion: str | None) -> Any:
    return repr(value) if conversion == "r" else value


def _filled(value: Any, spec: str) -> str:
    if isinstance(value, tuple) and not spec:
        return _joined(value)
    if spec.startswith(_COUNT):
        noun = spec.removeprefix(_COUNT)
        return f"{value} {noun}" if value == 1 else f"{value} {plural(noun)}"
    if spec == "near":
        return f"; did you mean '{value}'?" if value else ""
    if spec in _LAST:
        *most, last = (str(each) for each in _each(value))
        return f"{', '.join(most)}{_LAST[spec]}{last}" if most else last
    if spec == "quoted":
        return ", ".join(f"'{each}'" for each in _each(value))
    if spec == "by":
        return "x".join(str(each) for each in _each(value))
    return _joined(value) if spec == "list" else format(value, spec)


def plural(noun: str) -> str:
    """``noun`` for several: the last word of it gets an ending."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def fields(template: str) -> frozenset[str]:
    """Names of the arguments that ``template`` has."""
    parsed = string.Formatter().parse(template)
    return frozenset(name.split(".")[0].split("[")[0] for _, name, _, _ in parsed if name)


def _each(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (tuple, list, frozenset)) else (value,)


def _joined(value: Any) -> str:
    items = [str(each) for each in _each(value)]
    return ("; " if any(" " in each for each in items) else ", ").join(items)


def nearest(wrong: str, known: Iterable[str]) -> str:
    """The one of ``known`` that ``wrong`` is a slip for, or an empty string."""
    import difflib  # only a mistake needs it

    lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(wrong.lower(), lower, n=1)
    return lower[near[0]] if near else ""
