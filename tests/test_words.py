"""The field's words: idioms of ours become fewer, and what is allowed shrinks with them."""

from __future__ import annotations

from pathlib import Path

from .words import IDIOMS, counts, limits


def test_idioms_become_fewer() -> None:
    allowed, found = limits(), counts()
    assert allowed.keys() == IDIOMS.keys()
    assert {idiom: n for idiom, n in found.items() if n > allowed[idiom]} == {}


def test_they_are_found(tmp_path: Path) -> None:
    (tmp_path / "passes").mkdir()
    text = "Teams take tiles by turns; the tile is held, and slots are given back.\n"
    (tmp_path / "passes" / "some.py").write_text(text)
    found = counts(tmp_path)
    assert found["ping-pong (turns, teams)"] == 1
    assert found["stationary operand, pinned ring (held)"] == 1
    assert found["full/empty mbarrier pair, release (channel, give back)"] == 1
    assert found.total() == 3
