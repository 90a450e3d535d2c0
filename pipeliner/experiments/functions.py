"""Functions of a user's own file as workloads of an experiment: ``kind = "file.py:function"``."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..errors import WorkloadError
from ..kernel.user_file import user_value
from ..records.functions import FunctionWorkload, function_workload
from ..records.settings import is_function_of_knobs
from ..values.failure import why_called

FUNCTION: Final = "function"
"""What the ``for`` of a variant calls them."""


def is_named(kind: Any) -> bool:
    """Whether ``kind`` names a function in a file."""
    return isinstance(kind, str) and ".py:" in kind


def named_functions(
    kind: str, many: Mapping[str, Sequence[Any]], folder: Path
) -> Iterator[tuple[str, FunctionWorkload]]:
    """Labels and workloads of ``file.py:function``, one for each combination of its parameters.

    ``folder``: of the experiment's file, which names others from there. WorkloadError: there is no
    such function, or it does not take these values.
    """
    file, _, name = kind.rpartition(":")
    value, _ = user_value(str(folder / file), name)
    if not is_function_of_knobs(value):
        if many:
            raise WorkloadError("experiment.no_parameters", kind=kind, names=tuple(many))
        yield name, function_workload(value)
        return
    made = getattr(value, "function", value)  # what ``autotune`` decorates
    known = inspect.signature(made).parameters
    for parameter in many:
        if parameter not in known:
            raise WorkloadError(
                "experiment.unknown_field", what=kind, known=tuple(known), name=parameter
            )
    lists = {one.name: one.default for one in known.values() if isinstance(one.default, list)}
    first = {name: some[0] for name, some in lists.items() if some}  # of knobs, as ``tune`` begins
    for values in itertools.product(*many.values()):
        setting = dict(zip(many, values))
        try:
            workload = function_workload(made(**{**first, **setting}))
        except Exception as err:  # whatever a user's function raises is what is wrong with the file
            raise WorkloadError("experiment.function", kind=kind, why=why_called(err)) from err
        told = [f"{one} {setting[one]}" for one in many if len(many[one]) > 1]
        yield " ".join([name, *told]), workload
