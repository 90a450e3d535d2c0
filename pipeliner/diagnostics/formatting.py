"""Sentences from their templates: format strings with a few words for lists and counts."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from typing import Any, Final

_COUNT: Final = "count "

_LAST: Final = {"or": " or ", "nor": " and no "}
"""What stands before the last item of a list, by format."""


def sentence(template: str, args: Mapping[str, Any]) -> str:
    """``template`` with its fields filled in from ``args``.

    Fields are those of ``str.format``, with more formats: ``{ctas:count CTA}`` is ``1 CTA`` or
    ``3 CTAs``, ``{names:list}`` is ``a, b, c``, ``{names:quoted}`` is ``'a', 'b'``, ``{names:or}``
    is ``a, b or c``, ``{names:nor}`` is ``a and no b``, ``{name:near}`` is
    ``; did you mean 'a'?`` or nothing. Without a format a tuple is written as ``list`` does,
    joined by ``; `` if it holds reasons.
    """
    return _FORMATTER.vformat(template, (), args)


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith(_COUNT):
            noun = format_spec.removeprefix(_COUNT)
            return f"{value} {noun}" if value == 1 else f"{value} {plural(noun)}"
        if format_spec == "near":
            return f"; did you mean '{value}'?" if value else ""
        if format_spec in _LAST:
            *most, last = (str(each) for each in _each(value))
            return f"{', '.join(most)}{_LAST[format_spec]}{last}" if most else last
        if format_spec == "quoted":
            return ", ".join(f"'{each}'" for each in _each(value))
        if format_spec == "list" or (isinstance(value, tuple) and not format_spec):
            return _joined(value)
        return str(super().format_field(value, format_spec))


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


_FORMATTER: Final = _Formatter()
