"""The style and the script, which stand in files of their own, and what notebooks show by them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from .colours import PALETTE, STAGES
from .elements import Html, element


@cache
def style() -> str:
    """The style of all that is shown, and the colours of stages."""
    stages = (
        f".pipeliner .stage{at} {{ --stage: {PALETTE[at]}; background: {PALETTE[at]}2e; }}"
        for at in range(STAGES)
    )
    return _file("style.css") + "\n".join(stages)


@cache
def script() -> str:
    """What sorts tables, and lights what belongs to the stage, the op or the slot pointed at."""
    return _file("script.js")


def fragment(*inner: str) -> Html:
    """A piece of a page of others, such as a notebook: with its style and its script."""
    parts = (element("style", Html(style())), *inner, element("script", Html(script())))
    return element("div", *parts, class_="pipeliner fragment")


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
