"""Calls of relax operators: their names, the shapes of what they read, what takes their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from tvm import relax

from ..errors import WorkloadError
from ..schedules.workloads import Spec

Bound: TypeAlias = "Callable[[Any], Any]"
"""What a variable is bound to; None: it is a parameter."""


@dataclass(frozen=True, eq=False)
class Fused:
    """A workload that takes the place of ``last`` and of all that it alone reads.

    ``operands``: what the workload reads, in its order, of as many elements as it has them.
    ``heads``: the calls that nothing else may take.
    """

    spec: Spec
    operands: tuple[Any, ...]
    last: Any
    heads: tuple[Any, ...]


def name_of(call: Any) -> str:
    """The name of the operator that ``call`` calls; empty: it is no such call."""
    return str(getattr(call.op, "name", "")) if isinstance(call, relax.Call) else ""


def bindings_of(function: Any) -> list[Any]:
    """The bindings of a function, in their order."""
    return [binding for block in function.body.blocks for binding in block.bindings]


def bound_in(function: Any) -> Bound:
    """What variables of ``function`` are bound to."""
    found = {binding.var: binding.value for binding in bindings_of(function)}
    return lambda value: found.get(value) if isinstance(value, relax.Var) else value


def tensor_of(value: Any) -> Any:
    """The type of a tensor; WorkloadError: its shape is not known."""
    if not isinstance(value.ty, relax.TensorType) or value.ty.shape is None:
        raise WorkloadError("relax.shape")
    return value.ty


def extents_of(tensor: Any, open_at: int | None = None) -> list[int | None]:
    """Extents of a tensor; None: symbolic, which only axis ``open_at`` may be."""
    return list(_each_extent(tensor, open_at))


def _each_extent(tensor: Any, open_at: int | None) -> Iterator[int | None]:
    for at, extent in enumerate(tensor.shape.values):
        value = getattr(extent, "value", None)
        if value is None and at != open_at:
            raise WorkloadError("relax.axis", axis=at)
        yield None if value is None else int(value)
