"""A function in a user's own Python file: ``file.py:name``, with errors in the file's lines."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import textwrap
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ..diagnostics import Reason
from ..diagnostics.formatting import nearest
from ..errors import PipelinerError, WorkloadError

_SCHEDULE_SAYS: Final = "Error message: "
"""What stands before the reason in TVM's errors of schedules, behind the whole function."""

_LONGEST: Final = 500
"""Characters of a user's error that are shown."""


def user_value(file: str, name: str) -> tuple[Any, Any]:
    """What ``name`` is in ``file``, and the file's ``reference`` if it has one.

    WorkloadError: there is no such file or name, or the file fails.
    """
    what, path = f"{file}:{name}" if name else file, Path(file)
    if not path.is_file():
        raise WorkloadError("user_file.missing", what=what, path=file)
    module = _import(path)
    if not name:
        raise WorkloadError("user_file.no_name", path=str(path), defined=_defined(module))
    value = getattr(module, name, None)
    if value is None:
        raise WorkloadError(
            "user_file.not_defined",
            what=what,
            path=str(path),
            name=name,
            defined=_defined(module),
            near=nearest(name, vars(module)),
        )
    return value, getattr(module, "reference", None)


def _defined(module: Any) -> tuple[str, ...] | Reason:
    """Names of the functions in a user's file, and of what makes one; or that there is none."""
    from tvm import IRModule
    from tvm.s_tir import Schedule
    from tvm.tirx import PrimFunc

    def is_one(value: Any) -> bool:
        if isinstance(value, PrimFunc | Schedule | IRModule):
            return True
        if not inspect.isfunction(value) or value.__module__ != module.__name__:
            return False
        needed = inspect.signature(value).parameters.values()
        return all(one.default is not one.empty for one in needed)

    names = tuple(name for name, value in vars(module).items() if is_one(value))
    return names or Reason("user_file.empty")


def _import(path: Path) -> Any:
    """The module in ``path``; WorkloadError is one line with the line of the file at fault."""
    spec = importlib.util.spec_from_file_location(f"pipeliner_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise WorkloadError("user_file.not_python", path=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # TVMScript and dataclasses look their module up
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with contextlib.redirect_stdout(sys.stderr), blaming(path, str(path)):
            spec.loader.exec_module(module)  # stdout is the command's, JSON perhaps
    finally:
        sys.path.pop(0)
    return module


@contextlib.contextmanager
def blaming(path: Path, what: str) -> Iterator[None]:
    """Errors of what a user's file does, as one line: theirs, with the line of the file."""
    try:
        yield
    except PipelinerError:
        raise
    except Exception as err:
        frames = traceback.extract_tb(err.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename) == path]
        if isinstance(err, SyntaxError):
            lines = [err.lineno]
        where = f"{path}:{lines[-1]}: " if lines else ""
        message = str(err)
        said = message.rpartition(_SCHEDULE_SAYS)[2] if _SCHEDULE_SAYS in message else message
        text = textwrap.shorten(" ".join(said.split()), _LONGEST, placeholder=" ...")
        kind = type(err).__name__
        raise WorkloadError(
            "user_file.failed", what=what, where=where, error=kind, text=text
        ) from err
