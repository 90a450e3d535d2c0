"""A function of knobs: the values that it may be given, and the schedules that it makes of them."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..diagnostics import Reason, Why
from ..errors import WorkloadError
from ..kernel.compiled import as_module, only_function
from ..plan.request import OPTIONS, Request
from ..values.failure import why_called
from .functions import Knobs, function_workload, hash_of, shapes_of
from .recorded import Choice, recorded

KnobValues: TypeAlias = "Mapping[str, Sequence[Any]]"
"""Names of knobs, or of options of ``pipeliner.pipeline``, and the values to try."""

MOST: Final = 4096
"""Settings of a function's knobs, each of which is scheduled and ranked."""


def is_function_of_knobs(value: Any) -> bool:
    """Whether it makes a schedule, rather than is one."""
    return callable(value) and not hasattr(value, "body") and not hasattr(value, "trace")


def name_of(value: Any) -> str:
    """What a person calls a function."""
    return str(getattr(value, "__name__", type(value).__name__))


def knobs_of(
    function: Callable[..., Any], space: KnobValues, given: Mapping[str, Any]
) -> dict[str, tuple[Any, ...]]:
    """The knobs of ``function``: names in ``space``, and parameters that default to lists.

    WorkloadError: a parameter has no value, or a knob is none of its parameters and no option.
    """
    name, parameters = name_of(function), inspect.signature(function).parameters
    check_names(name, space, tuple(parameters))
    knobs: dict[str, tuple[Any, ...]] = {}
    for one in parameters.values():
        if one.name in given or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        if one.name in space:
            knobs[one.name] = listed(one.name, space[one.name])
        elif isinstance(one.default, list):
            knobs[one.name] = listed(one.name, one.default)
        elif one.default is one.empty:
            raise WorkloadError("tune.no_value", function=name, parameter=one.name)
    if math.prod(map(len, knobs.values())) > MOST:
        count = math.prod(map(len, knobs.values()))
        raise WorkloadError("tune.settings", function=name, count=count, most=MOST)
    return knobs


def settings_of(
    function: Callable[..., Any], knobs: Mapping[str, Sequence[Any]], given: Mapping[str, Any]
) -> Iterator[tuple[Knobs, Any | None, Why]]:
    """Each setting of the knobs with its PrimFunc, or with None and why there is none.

    WorkloadError: what is made is no schedule.
    """
    for values in itertools.product(*knobs.values()):
        setting = dict(zip(knobs, values))
        told = tuple((knob, _frozen(value)) for knob, value in setting.items())
        try:
            made = function(**given, **setting)
        except Exception as err:  # what does not divide, TVM refuses in ways of its own
            yield Knobs(told), None, why_called(err)
            continue
        function_made = scheduled_function(name_of(function), made)
        yield Knobs(told, hash_of(function_made)), function_made, ""


def all_settings(
    function: Callable[..., Any], knobs: Mapping[str, Sequence[Any]], given: Mapping[str, Any]
) -> tuple[dict[Knobs, Any], dict[Knobs, Why]]:
    """The PrimFunc of each setting that has one, and why others have none.

    WorkloadError: none has, or they differ.
    """
    found: dict[Knobs, Any] = {}
    unmade: dict[Knobs, Why] = {}
    for setting, made, why in settings_of(function, knobs, given):
        if made is None:
            unmade[setting] = why
            continue
        found[setting] = made
        if _signature(made) != _signature(next(iter(found.values()))):
            raise WorkloadError(
                "tune.settings_differ", function=name_of(function), setting=setting.told
            )
    if not found:
        why = next(iter(unmade.values()))
        raise WorkloadError("tune.no_setting", function=name_of(function), why=why)
    return found, unmade


def recorded_setting(
    value: Any, target: Any, request: Request, db: str | Path | None
) -> tuple[Any, Choice]:
    """The PrimFunc to build of a function of knobs, and the candidate that it is of.

    The fastest that the records have, as for ``recorded``; without one, the first setting that
    makes a schedule, as ``tune`` begins with.
    """
    function, space = knobbed(value, None)
    knobs = knobs_of(function, space or {}, {})
    unmade: list[Why] = []
    for _, first, why in settings_of(function, knobs, {}):
        if first is not None:
            break
        unmade.append(why)
    else:
        raise WorkloadError("tune.no_setting", function=name_of(function), why=unmade[0])
    choice = recorded(function_workload(first, tuple(knobs)), target, request, db)
    chosen = choice.candidate.tile
    if not isinstance(chosen, Knobs) or not chosen.values:
        return first, choice
    tuned = scheduled_function(name_of(function), function(**dict(chosen.values)))
    if hash_of(tuned) != chosen.made:
        raise WorkloadError("tune.no_such_setting", function=name_of(function), setting=chosen.told)
    return tuned, replace(
        choice, why=Reason("recorded.setting", setting=chosen.told, why=choice.why)
    )


def knobbed(value: Any, space: KnobValues | None) -> tuple[Any, KnobValues | None]:
    """``value`` and ``space``; those that it holds where ``autotune`` decorates it."""
    if space is None and isinstance(getattr(value, "space", None), Mapping):
        return value.function, value.space
    return value, space


def scheduled_function(name: str, value: Any) -> Any:
    """The PrimFunc that ``value`` is or holds; WorkloadError: none."""
    known = hasattr(value, "body") or hasattr(value, "trace") or hasattr(value, "functions")
    if not known:
        raise WorkloadError("tune.no_schedule", function=name, type=type(value).__name__)
    return only_function(as_module(value))


def _signature(function: Any) -> tuple[Any, ...]:
    return shapes_of(function), tuple(str(param.dtype) for param in function.params)


def check_names(name: str, space: KnobValues, parameters: Sequence[str]) -> None:
    """WorkloadError: a name in ``space`` is none of the parameters, and no option."""
    options = tuple(option for option in OPTIONS if option != "plan")
    for knob in space:
        if knob not in parameters and knob not in options:
            raise WorkloadError(
                "tune.unknown_knob",
                function=name,
                knob=knob,
                parameters=tuple(parameters),
                options=options,
            )


def listed(name: str, values: Any) -> tuple[Any, ...]:
    """The values of a knob; WorkloadError: they are no list, or empty."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise WorkloadError("tune.knob_list", knob=name, value=repr(values))
    if not values:
        raise WorkloadError("tune.knob_empty", knob=name)
    return tuple(values)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value
