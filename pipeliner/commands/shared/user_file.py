"""A function in a user's own Python file, as a command line names it: ``file.py:name``."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...diagnostics.formatting import nearest
from ...errors import WorkloadError
from . import specs

if TYPE_CHECKING:
    from ...plan.request import Request
    from ...records.recorded import Choice


def user_function(what: str) -> tuple[Any, Any]:
    """The function that ``file.py:name`` names or makes, and the file's ``reference`` if any."""
    from ...kernel.compiled import as_module, only_function
    from ...kernel.user_file import blaming
    from ...records.settings import is_function_of_knobs

    value, reference = named_value(what)
    with blaming(Path(file_and_name(what)[0]), what):
        if is_function_of_knobs(value):
            value = _in_first_setting(value)
        return only_function(as_module(value)), reference


def recorded_function(
    what: str, target: Any, request: Request, db: str | None
) -> tuple[Any, Choice, Any]:
    """The function ``file.py:name`` as records have it, the choice, and the file's ``reference``.

    Of a function of knobs it is the setting that was tuned.
    """
    from ...kernel.compiled import as_module, only_function
    from ...kernel.user_file import blaming
    from ...records.functions import function_workload
    from ...records.recorded import recorded
    from ...records.settings import is_function_of_knobs, recorded_setting

    value, reference = named_value(what)
    with blaming(Path(file_and_name(what)[0]), what):
        if is_function_of_knobs(value):
            return *recorded_setting(value, target, request, db), reference
    function = only_function(as_module(value))
    return function, recorded(function_workload(function), target, request, db), reference


def _in_first_setting(value: Any) -> Any:
    """What a function makes, each of its knobs at the first of its values, as ``tune`` has them."""
    space = dict(getattr(value, "space", {}))  # what ``autotune`` decorates
    made = getattr(value, "function", value) if space else value
    parameters = inspect.signature(made).parameters
    lists = {one.name: one.default for one in parameters.values() if isinstance(one.default, list)}
    knobs = {**lists, **{name: some for name, some in space.items() if name in parameters}}
    return made(**{name: values[0] for name, values in knobs.items() if values})


def named_value(what: str) -> tuple[Any, Any]:
    """What ``file.py:name`` names, and the file's ``reference`` if it has one."""
    from ...kernel.user_file import user_value

    return user_value(*file_and_name(what))


def file_and_name(what: str) -> tuple[str, str]:
    """The file and the name in it, empty where none is given; WorkloadError: it names none."""
    if what.endswith(".py"):
        return what, ""
    file, colon, name = what.rpartition(":")
    if not colon or not name:
        near = nearest(what, specs.KINDS)
        raise WorkloadError("command.workload", choices=tuple(specs.KINDS), value=what, near=near)
    return file, name
