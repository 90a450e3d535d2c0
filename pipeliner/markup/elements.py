"""Elements of HTML: what is put into one is escaped, unless it is HTML already.

element("p", "a < b", class_="dim")     =>     <p class="dim">a &lt; b</p>
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

LONG: Final = 24
"""Letters of a cell that is wrapped, rather than its table made wider without end."""

_VOID: Final = ("br", "col", "hr", "img", "meta")


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *inner: str, **attributes: str | int | bool) -> Html:
    """One element. ``attributes``: ``class_`` is ``class``, ``aria_label`` is ``aria-label``.

    An attribute that is ``""`` or false is left out, one that is true has no value.
    """
    opened = f"<{tag}{spelled(**attributes)}>"
    return Html(opened if tag in _VOID else f"{opened}{joined(inner, '')}</{tag}>")


def spelled(**attributes: str | int | bool) -> str:
    """Attributes as an element has them, with a space before each."""
    return "".join(_attribute(name, value) for name, value in attributes.items())


def joined(parts: Iterable[str], separator: str = "\n") -> Html:
    """The parts that are not empty, one after the other."""
    return Html(separator.join(_escaped(part) for part in parts if part))


def fold(title: str, *inner: str, opened: bool = False, **attributes: str | int) -> Html:
    """What is folded away under a title, without any script."""
    return element("details", element("summary", title), *inner, open=opened, **attributes)


def wide(name: str, *inner: str, class_: str = "") -> Html:
    """What may be wider than a phone: it scrolls by itself. ``name``: what it is."""
    classes = f"wide {class_}".strip()
    return element("div", *inner, class_=classes, role="region", aria_label=name, tabindex=0)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. ``note``: what its name means. ``text``: it holds words, not numbers."""

    name: str
    note: str = ""
    text: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell. ``key``: what its row is sorted by, where that is not its text. ``style``: of CSS."""

    inner: str
    key: float | None = None
    style: str = ""
    note: str = ""
    class_: str = ""


def table(
    caption: str,
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[str | Cell]],
    *,
    sortable: bool = False,
    hidden_caption: bool = False,
) -> Html:
    """A table in a box that scrolls; the first cell of a row is its heading.

    ``sortable``: readers sort it by any column, where scripts run. ``hidden_caption``: it is read
    out, not shown, as where the same words are a heading above.
    """
    heads = [one if isinstance(one, Column) else Column(one) for one in columns]
    top = [
        element("th", one.name, scope="col", title=one.note, class_="text" if one.text else "")
        for one in heads
    ]
    body = [
        element(
            "tr", *(_cell(head, cell, at == 0) for at, (head, cell) in enumerate(zip(heads, row)))
        )
        for row in rows
    ]
    shown = element("caption", caption, class_="unseen" if hidden_caption else "")
    header = element("thead", element("tr", *top)) if any(one.name for one in heads) else ""
    inner = (shown, header, element("tbody", joined(body)))
    return wide(caption, element("table", *inner, class_="sortable" if sortable else ""))


def _cell(column: Column, cell: str | Cell, first: bool) -> Html:
    found = cell if isinstance(cell, Cell) else Cell(cell)
    long = "long" if column.text and len(html.unescape(found.inner)) > LONG else ""
    classes = " ".join(filter(None, (found.class_, "text" if column.text else "", long)))
    return element(
        "th" if first else "td",
        found.inner,
        scope="row" if first else "",
        class_=classes,
        style=found.style,
        title=found.note,
        data_key="" if found.key is None else f"{found.key:.9g}",
    )


def _attribute(name: str, value: str | int | bool) -> str:
    if value is False or value == "":
        return ""
    spelled = name.rstrip("_").replace("_", "-")
    return f" {spelled}" if value is True else f' {spelled}="{html.escape(str(value))}"'


def _escaped(text: str) -> str:
    return text if isinstance(text, Html) else html.escape(text)
