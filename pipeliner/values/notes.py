"""What a schedule says of a block, for the plan's reason: an annotation that holds a reason.

    sch.annotate(copy, NOTE, note_text(Reason("conv.runs", positions=7, channels=3)))
 => annotations={"pipeliner.note": '{"code": "conv.runs", "args": {"positions": 7, "channels": 3}}'}

Its sentence is made where the plan is printed. Any other text is a person's words, which the plan
repeats as they are::

    sch.annotate(copy, NOTE, "gathers the rows of a table")
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ..diagnostics import Reason, Why

NOTE: Final = "pipeliner.note"
"""Key of the annotation of a copy's or an elementwise kernel's block, or a function's attribute."""


def note_text(why: Why) -> str:
    """``why`` as the annotation holds it: code and arguments of a reason as JSON, or words."""
    return json.dumps(_coded(why.as_dict())) if isinstance(why, Reason) else why


def note_in(annotations: Mapping[str, Any]) -> Why:
    """The note among ``annotations``; empty where there is none.

    A text that is no reason that this version knows is a person's words.
    """
    text = str(annotations.get(NOTE, ""))
    try:
        data = json.loads(text)
        return Reason.from_dict(data) if isinstance(data, dict) else text
    except (ValueError, LookupError, TypeError):
        return text


def _coded(value: Any) -> Any:
    """Return JSON of a reason without its sentence, and without those of its arguments."""
    if isinstance(value, list):
        return [_coded(one) for one in value]
    if not isinstance(value, dict):
        return value
    args = {name: _coded(one) for name, one in value["args"].items()}
    return {"code": value["code"], "args": args}
