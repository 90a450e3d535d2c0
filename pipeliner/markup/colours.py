"""Colours that read on white and on dark pages, with white letters on them."""

from __future__ import annotations

from typing import Final

PALETTE: Final = ("#3f6f9f", "#a86410", "#3d8038", "#96558c", "#2b7b76", "#94603f", "#75752b")
"""Of series, iterations and stages. White letters on any of them have a contrast of 4.5 and more,
and each has one of 3 and more to a white page and to a dark one (WCAG 2.2, AA)."""

STAGES: Final = 6
"""Colours of stages; what is later than that has the colour of the last."""


def stage_class(stage: int) -> str:
    """The class of what is of a stage, which has its colour in the style."""
    return f"stage{min(stage, STAGES - 1)}"
