"""A function in a user's own Python file, as a command line names it: ``file.py:name``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...diagnostics.formatting import nearest
from ...errors import WorkloadError
from . import specs


def user_function(what: str) -> tuple[Any, Any]:
    """The function that ``file.py:name`` names, and the file's ``reference`` if it has one."""
    from ...kernel.compiled import as_module, only_function
    from ...kernel.user_file import blaming

    value, reference = named_value(what)
    with blaming(Path(file_and_name(what)[0]), what):
        if callable(value) and not hasattr(value, "body"):
            value = value()
        return only_function(as_module(value)), reference


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
