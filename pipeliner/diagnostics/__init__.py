"""Reasons, refusals and errors as codes with arguments; their sentences stand in one table.

``Reason("copy.slower", by="cp_async", us=17.4, than=7.9)`` is a value: it is compared, stored in a
plan and written as JSON by its code and arguments. ``str`` makes its sentence from the table of its
subject in this folder, so that prose can be improved in one place, and tests ask for codes.
"""

from .reason import Reason, Value, Why, all_of, each_of, is_code, joined, reason_as_json, replaced
from .sentences import SENTENCES, TEXT

__all__ = [
    "SENTENCES",
    "TEXT",
    "Reason",
    "Value",
    "Why",
    "all_of",
    "each_of",
    "is_code",
    "joined",
    "reason_as_json",
    "replaced",
]
