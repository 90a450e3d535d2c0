"""The files that a report wrote, as a list that shows in a notebook what they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ..markup import element, fragment, joined
from .page import MachinePart, summary_html


class ReportFiles(list[Path]):
    """The page, then the plots."""

    def __init__(self, files: Iterable[Path], parts: Sequence[MachinePart]) -> None:
        super().__init__(files)
        self._parts = parts

    def __repr__(self) -> str:
        """One line; ``str`` is that of a list."""
        more = f" and {len(self) - 1} plots" if len(self) > 1 else ""
        shown = ", ".join(f"{len(part.every)} workloads on {part.name}" for part in self._parts)
        return f"ReportFiles({str(self[0])!r}{more}: {shown})"

    def __str__(self) -> str:
        return list.__repr__(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the head of the page, and where the page is."""
        link = element("p", "The page: ", element("a", str(self[0]), href=self[0].as_posix()))
        heads = (
            joined((element("h4", part.full_name), summary_html(part))) for part in self._parts
        )
        return fragment(*heads, link)
