"""The field's words: idioms of ours become fewer, and what is allowed shrinks with them."""

from __future__ import annotations

from pathlib import Path

from .words import IDIOMS, counts, limits


def test_idioms_become_fewer() -> None:
    allowed, found = limits(), counts()
    assert allowed.keys() == IDIOMS.keys()
    assert {idiom: n for idiom, n in found.items() if n > allowed[idiom]} == {}


def found(folder: Path, text: str) -> dict[str, int]:
    """The idioms that are found in a file with that text."""
    (folder / "passes").mkdir()
    (folder / "passes" / "some.py").write_text(text)
    return {idiom: n for idiom, n in counts(folder).items() if n}


def test_they_are_found_in_sentences(tmp_path: Path) -> None:
    text = "# Teams take tiles by turns; the tile is held, and slots are given back.\n"
    assert found(tmp_path, text) == {
        "ping-pong (turns, teams)": 1,
        "stationary operand, pinned ring (held)": 1,
        "full/empty mbarrier pair, release (channel, give back)": 1,
    }


def test_they_are_found_in_names(tmp_path: Path) -> None:
    assert found(tmp_path, "held = swapped(lead)\n") == {
        "stationary operand, pinned ring (held)": 1,
        "swap A/B (swapped)": 1,
        "batch axes (lead)": 1,
    }


def test_plain_words_are_none(tmp_path: Path) -> None:
    text = '"""What tells slots apart, and the remainder. It may lead to the wait it held."""\n'
    assert not found(tmp_path, text)
