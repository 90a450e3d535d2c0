"""JSON as values of a plan's dataclasses: by their types, refusing what they do not have."""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import Any, Literal

from ..diagnostics import Reason, Why
from ..errors import PlanError
from ..values.op import Op


def decode(kind: Any, data: Any, where: str) -> Any:
    """``data`` (JSON) as a value of ``kind``, the type of a plan's field; PlanError: it is none.

    ``where``: the place in the plan that the error names, such as ``plan.loops[0].ops``.
    """
    if type(data) is kind:  # most of a plan: words and numbers
        return data
    if kind == Why:
        return _why(data, where)
    if dataclasses.is_dataclass(kind):
        return _object(typing.cast(Any, kind), data, where)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return _tuple(args, data, where)
    if origin is Literal:
        if data not in args:
            raise PlanError("plan.choice", choices=args, where=where, value=repr(data))
        return data
    if kind is Op and isinstance(data, str):
        return Op.parse(data)
    if kind is float and isinstance(data, int):
        return float(data)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise PlanError("plan.type", expected=kind.__name__, where=where, value=repr(data))
    return data


def _object(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise PlanError("plan.type", expected="an object", where=where, value=repr(data))
    hints = _hints(kind)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise PlanError("plan.unknown_field", name=unknown[0], where=where)
    values = {key: decode(hints[key], value, f"{where}.{key}") for key, value in data.items()}
    try:
        return kind(**values)
    except TypeError as err:
        raise PlanError("plan.fields", why=str(err), where=where) from err


def _why(data: Any, where: str) -> Why:
    """A reason, or words that somebody wrote in its place."""
    if isinstance(data, str):
        return data
    if not isinstance(data, dict) or not isinstance(data.get("args", {}), dict):
        raise PlanError("plan.type", expected="a reason", where=where, value=repr(data))
    try:
        return Reason.from_dict(data, any_version=True)
    except (LookupError, TypeError, ValueError) as err:
        raise PlanError("plan.reason", where=where, why=str(err)) from err


def _tuple(kinds: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise PlanError("plan.type", expected="a list", where=where, value=repr(data))
    items = [kinds[0]] * len(data) if kinds[-1] is Ellipsis else list(kinds)
    if len(items) != len(data):
        raise PlanError("plan.count", count=len(items), where=where, found=len(data))
    return tuple(decode(t, v, f"{where}[{i}]") for i, (t, v) in enumerate(zip(items, data)))


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields: slow to find, and the same for every value."""
    return typing.get_type_hints(kind)
