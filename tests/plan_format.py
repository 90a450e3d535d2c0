"""The fields of a plan in JSON, as they are kept for its version.

    python -m tests.plan_format     keep those of today, for a new version

``plan_format.json`` has, for each object of a plan, its fields with their types, and those that may
be left out.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any, Final

from pipeliner.plan import KernelPlan
from pipeliner.plan.kernel_plan import PLAN_VERSION

KEPT: Final = Path(__file__).with_name("released") / "plan_format.json"


def fields_of(kind: type = KernelPlan) -> dict[str, dict[str, str]]:
    """The fields of each dataclass in ``kind``, by its name: the type, ``?`` behind it if optional."""
    found: dict[str, dict[str, str]] = {}
    waiting = [kind]
    while waiting:
        one = waiting.pop()
        if one.__name__ in found:
            continue
        found[one.__name__] = {field.name: _text(field) for field in dataclasses.fields(one)}
        for hint in typing.get_type_hints(one).values():
            waiting += _dataclasses(hint)
    return dict(sorted(found.items()))


def _text(field: dataclasses.Field[Any]) -> str:
    needed = field.default is field.default_factory is dataclasses.MISSING
    return str(field.type) if needed else f"{field.type}?"


def _dataclasses(hint: Any) -> list[type]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return [hint]
    return [one for inner in typing.get_args(hint) for one in _dataclasses(inner)]


def today() -> dict[str, Any]:
    """What is to be kept of today's plans."""
    return {"version": PLAN_VERSION, "fields": fields_of()}


if __name__ == "__main__":
    KEPT.write_text(f"{json.dumps(today(), indent=1)}\n")
