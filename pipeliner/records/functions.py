"""A function of a user's as a workload: what records know it by, and what processes are given.

A PrimFunc, or one of many schedules that a function of knobs makes. All compute the same; the first
of them, unpipelined, says what that is.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import tvm
from tvm.tirx.buffer import is_buffer_var

from ..errors import WorkloadError
from ..kernel.compiled import as_module, only_function
from ..passes.ir.nodes import const_int
from ..schedules.workloads import Spec

KIND: Final = "Function"
"""By which the key of a function says that it is none of our workloads."""

_DIGITS: Final = 16
"""Of the hash of a function's script: a changed function has records of its own."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """What a function of knobs was given, by name; of a PrimFunc nothing.

    ``made``: the hash of the schedule that it returned.
    """

    values: tuple[tuple[str, Any], ...] = ()
    made: str = ""

    @property
    def told(self) -> str:
        """As a person says it: ``rows 2, step 32``."""
        return ", ".join(f"{name} {value}" for name, value in self.values)


@dataclass(frozen=True, slots=True)
class FunctionWorkload:
    """A function to pipeline and measure. ``reference``, ``made``: PrimFuncs as TVM's JSON.

    What ``reference`` computes, unpipelined, is right. ``made``: of the candidate at hand; empty:
    the reference itself. ``key``: by which records know it.
    """

    name: str
    key: str
    reference: str = field(repr=False)
    made: str = field(default="", repr=False, compare=False)

    @property
    def title(self) -> str:
        """What a person calls it."""
        return self.name

    def flops(self) -> float:
        """0: nobody counts them."""
        return 0.0

    def function(self) -> Any:
        """The candidate at hand, as a PrimFunc."""
        return tvm.ir.load_json(self.made or self.reference)

    def source(self) -> Any:
        """The function that says what is right, as a PrimFunc."""
        return tvm.ir.load_json(self.reference)

    def with_schedule(self, function: Any) -> FunctionWorkload:
        """The same with the schedule of a candidate."""
        return replace(self, made=tvm.ir.save_json(function))

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of its parameters; WorkloadError: one is a number, or of an extent that is open."""
        return shapes_of(self.source())


AnyWorkload: TypeAlias = "Spec | FunctionWorkload"
"""What is tuned and measured: one of ours, or a function of the user's."""


def function_workload(func: Any, knobs: tuple[str, ...] = ()) -> FunctionWorkload:
    """``func``, a PrimFunc, a Schedule or an IRModule with one, as a workload.

    ``knobs``: names of what a function made it of. WorkloadError: it cannot be run by itself.
    """
    function = only_function(as_module(func))
    name = str(function.attrs["global_symbol"])
    shapes_of(function)
    key = {"kind": KIND, "name": name, "hash": hash_of(function)}
    text = json.dumps({**key, "knobs": list(knobs)} if knobs else key)
    return FunctionWorkload(name, text, tvm.ir.save_json(function))


def is_function(key: str) -> bool:
    """Whether ``key`` is a function's, rather than one of our workloads'."""
    return key.startswith(json.dumps({"kind": KIND}).removesuffix("}"))


def name_of(key: str) -> str:
    """What a person calls the function of ``key``: its name and hash, for others may have that."""
    data = json.loads(key)
    return f"{data['name']} {data['hash'][:4]}"


def hash_of(function: Any) -> str:
    """A short hash of a PrimFunc's script."""
    return hashlib.sha256(function.script().encode()).hexdigest()[:_DIGITS]


def shapes_of(function: Any) -> tuple[tuple[int, ...], ...]:
    """Shapes of a function's parameters; WorkloadError: one is not known beforehand."""
    name = str(function.attrs["global_symbol"])
    shapes = []
    for param in function.params:
        if not is_buffer_var(param):
            raise WorkloadError("function.scalar", function=name, parameter=str(param.name))
        shape = tuple(const_int(extent) for extent in param.shape)
        if None in shape:
            raise WorkloadError("function.symbolic", function=name, parameter=str(param.name))
        shapes.append(tuple(extent for extent in shape if extent is not None))
    return tuple(shapes)
