"""HTML and SVG of what is shown: elements that escape, colours that read, one style, one script."""

from .colours import PALETTE, STAGES, stage_class
from .elements import Cell, Column, Html, element, fold, joined, spelled, table, wide
from .files import fragment, script, style

__all__ = [
    "PALETTE",
    "STAGES",
    "Cell",
    "Column",
    "Html",
    "element",
    "fold",
    "fragment",
    "joined",
    "script",
    "spelled",
    "stage_class",
    "style",
    "table",
    "wide",
]
