"""A function of knobs: the values that it may be given, and the schedules that it makes of them."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ..diagnostics import Why
from ..errors import PipelinerError, WorkloadError
from ..kernel.compiled import as_module, only_function
from ..plan.request import OPTIONS, Request, asked
from ..records.candidate import is_workload
from ..records.functions import Knobs, function_workload, hash_of, shapes_of
from ..values.failure import why_called
from .subjects import FunctionSubject, TuningSubject, WorkloadSubject

KnobValues: TypeAlias = "Mapping[str, Sequence[Any]]"
"""Names of knobs, or of options of ``pipeliner.pipeline``, and the values to try."""

MOST: Final = 4096
"""Settings of a function's knobs, each of which is scheduled and ranked."""


def subject_of(
    workload: Any,
    target: Any,
    space: KnobValues | None = None,
    given: Mapping[str, Any] | None = None,
) -> TuningSubject:
    """What is to be tuned, whatever it is: see ``tune``. ``given``: what is no knob.

    WorkloadError: it cannot be; or ``space`` has no values, or those of a knob that there is not.
    """
    if is_workload(workload):
        if space is not None:
            raise WorkloadError("tune.space_of_workload", workload=workload.name)
        return WorkloadSubject(workload, target)
    if space is None and isinstance(getattr(workload, "space", None), Mapping):
        workload, space = workload.function, workload.space  # what ``autotune`` decorates
    values = {name: _listed(name, some) for name, some in (space or {}).items()}
    if not is_function_of_knobs(workload):
        _check_names(name_of(workload), values, ())
        function = _scheduled(name_of(workload), workload)
        made = {Knobs(): function}
        return FunctionSubject(function_workload(function), made, target, _requests(values), {})
    knobs = knobs_of(workload, values, given or {})
    requests = _requests({name: some for name, some in values.items() if name not in knobs})
    made, unmade = _made(workload, knobs, dict(given or {}))
    first = function_workload(next(iter(made.values())), tuple(knobs))
    return FunctionSubject(first, made, target, requests, unmade)


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
    _check_names(name, space, tuple(parameters))
    knobs: dict[str, tuple[Any, ...]] = {}
    for one in parameters.values():
        if one.name in given or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        if one.name in space:
            knobs[one.name] = _listed(one.name, space[one.name])
        elif isinstance(one.default, list):
            knobs[one.name] = _listed(one.name, one.default)
        elif one.default is one.empty:
            raise WorkloadError("tune.no_value", function=name, parameter=one.name)
    if math.prod(map(len, knobs.values())) > MOST:
        count = math.prod(map(len, knobs.values()))
        raise WorkloadError("tune.settings", function=name, count=count, most=MOST)
    return knobs


def _made(
    function: Callable[..., Any], knobs: Mapping[str, Sequence[Any]], given: Mapping[str, Any]
) -> tuple[dict[Knobs, Any], dict[Knobs, Why]]:
    """The PrimFunc of each setting that has one, and why others have none.

    WorkloadError: none has, or they differ.
    """
    found: dict[Knobs, Any] = {}
    unmade: dict[Knobs, Why] = {}
    name = name_of(function)
    signature: tuple[Any, ...] | None = None
    for values in itertools.product(*knobs.values()):
        setting = dict(zip(knobs, values))
        values_of = tuple((knob, _frozen(value)) for knob, value in setting.items())
        try:
            made = function(**given, **setting)
        except Exception as err:  # what does not divide, TVM refuses in ways of its own
            unmade[Knobs(values_of)] = why_called(err)
            continue
        scheduled = _scheduled(name, made)
        own = _signature(scheduled)
        signature = own if signature is None else signature
        if own != signature:
            raise WorkloadError("tune.settings_differ", function=name, setting=_told(setting))
        found[Knobs(values_of, hash_of(scheduled))] = scheduled
    if not found:
        raise WorkloadError("tune.no_setting", function=name, why=next(iter(unmade.values())))
    return found, unmade


def _scheduled(name: str, value: Any) -> Any:
    """The PrimFunc that ``value`` is or holds; WorkloadError: none."""
    known = hasattr(value, "body") or hasattr(value, "trace") or hasattr(value, "functions")
    if not known:
        raise WorkloadError("tune.no_schedule", function=name, type=type(value).__name__)
    return only_function(as_module(value))


def _signature(function: Any) -> tuple[Any, ...]:
    return shapes_of(function), tuple(str(param.dtype) for param in function.params)


def _requests(values: KnobValues) -> list[Request] | None:
    """Every combination of the options' values; None: none is given."""
    if not values:
        return None
    try:
        return [asked(dict(zip(values, some))) for some in itertools.product(*values.values())]
    except PipelinerError as err:
        raise WorkloadError(err.reason) from err


def _check_names(name: str, space: KnobValues, parameters: Sequence[str]) -> None:
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


def _listed(name: str, values: Any) -> tuple[Any, ...]:
    """The values of a knob; WorkloadError: they are no list, or empty."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise WorkloadError("tune.knob_list", knob=name, value=repr(values))
    if not values:
        raise WorkloadError("tune.knob_empty", knob=name)
    return tuple(values)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _told(setting: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items())
