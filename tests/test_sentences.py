"""Every sentence of the tables, made from sample arguments: one line, complete, and its formats."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from typing import Final

import pytest

from pipeliner.diagnostics import SENTENCES, Reason, Value
from pipeliner.diagnostics.formatting import sentence

LISTS: Final = ("list", "quoted", "or", "nor")


def samples(spec: str) -> tuple[Value, ...]:
    """Values that a field with the format ``spec`` may have."""
    if spec.startswith("count "):
        return 1, 3
    if spec in LISTS:
        return ("one",), ("one", "two", "three")
    if spec == "near":
        return "", "nearest"
    return (1.25, 7) if spec else ("name", 7, ("one", "two"), Reason("request.pdl", value="3"))


def filled(template: str) -> Iterator[str]:
    """``template`` with samples of each field: the first of all, then the second, and so on."""
    found: dict[str, tuple[Value, ...]] = {}
    for _, name, spec, _ in string.Formatter().parse(template):
        if name:
            items = (("one", "two"),) if "[" in name else samples(spec or "")
            found[name.split("[")[0]] = items
    for at in range(4):
        yield sentence(template, {name: items[at % len(items)] for name, items in found.items()})


def is_one_complete_line(text: str) -> bool:
    return (
        text != ""
        and text == " ".join(text.split())
        and text.count("(") == text.count(")")
        and re.sub(r"\b's\b", "", text).count("'") % 2 == 0
        and not text.endswith((".", ",", ";", ":"))
    )


def test_each_sentence_is_one_complete_line() -> None:
    made = [(code, text) for code in sorted(SENTENCES) for text in filled(SENTENCES[code])]
    assert [(code, text) for code, text in made if not is_one_complete_line(text)] == []


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("{x:count CTA}", 1, "1 CTA"),
        ("{x:count entry}", 2, "2 entries"),
        ("{x:list}", ("a", "b"), "a, b"),
        ("{x}", ("a", "b"), "a, b"),
        ("{x}", (Reason.text("a b"), "c"), "a b; c"),
        ("{x:quoted}", ("a", "b"), "'a', 'b'"),
        ("{x:or}", ("a",), "a"),
        ("{x:or}", ("a", "b", "c"), "a, b or c"),
        ("found no {x:nor}", ("a", "b"), "found no a and no b"),
        ("{x:near}", "right", "; did you mean 'right'?"),
        ("{x:near}", "", ""),
        ("{x!r}", "a", "'a'"),
        ("{x[0]} and {x[1]}", ("a", "b"), "a and b"),
        ("{x:.1f} us", 17.44, "17.4 us"),
    ],
)
def test_a_format(template: str, value: Value, text: str) -> None:
    assert sentence(template, {"x": value}) == text
