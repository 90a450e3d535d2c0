"""Bind the arguments of a call: what is copied, what shares memory, which strides hold.

A GPU function takes pointers, and its host code checks the shapes and strides around them. Here an
argument is an array: its values are copied, so that nobody's array is written, and laid out as the
buffer of its parameter says:

    a buffer without strides     compactly
    strides that are variables   as the array is: its own strides bind them
    constant strides             as they say; an array that is neither compact nor laid out so is
                                 refused, as the host code does
    an elem_offset               counts back from the first element to the pointer

Arrays that share memory are copied together and still share it. An address is as aligned as the
array is within the array that it was cut out of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from tvm import ir
from tvm.tirx.buffer import is_buffer_var

from ...errors import EmulatorError
from ..base.dtypes import is_int, numpy_dtype, poison, split_lanes
from ..base.sparse import address, copy_of, memory_at, outermost
from ..memory.global_memory import ALIGNMENT, GlobalMemory, Region
from .evaluate import evaluate

Array = np.ndarray[Any, Any]


@dataclass
class _Given:
    """An array argument: where its elements are to be, and its strides (in elements)."""

    param: Any
    array: Array
    strides: tuple[int, ...]
    offset: int  # elements from the pointer to the first

    @property
    def as_it_is(self) -> bool:
        """Whether the array is laid out as the parameter wants."""
        pairs = [
            (s, t)
            for s, t, size in zip(self.strides, _strides(self.array), self.array.shape, strict=True)
            if size > 1
        ]
        return all(wanted == found for wanted, found in pairs)

    @property
    def reach(self) -> int:
        """Elements from the first to one past the last."""
        if not self.array.size:
            return 0
        extents = zip(self.array.shape, self.strides, strict=True)
        return 1 + sum((int(size) - 1) * stride for size, stride in extents)


def parameter_names(func: Any) -> list[str]:
    """Names of the parameters, each its own: a second ``x`` is ``x_1``."""
    names: list[str] = []
    for param in func.params:
        name, count = str(param.name), 0
        while name in names:
            count += 1
            name = f"{param.name}_{count}"
        names.append(name)
    return names


def bind_arguments(
    func: Any, args: Sequence[Any] | Mapping[str, Any]
) -> tuple[dict[Any, Any], dict[str, Array]]:
    """Parameters and symbolic variables of the host function -> values, and the arrays by name.

    An array is bound to its ``Region``. EmulatorError: arguments by other names, of another
    number, type, shape or layout.
    """
    params, names = list(func.params), parameter_names(func)
    if isinstance(args, Mapping):
        unknown = sorted(set(args) - set(names))
        missing = [n for n in names if n not in args]
        if unknown or missing:
            raise EmulatorError(
                "emulator.argument_names",
                expected=tuple(names),
                missing=tuple(missing),
                unknown=tuple(unknown),
            )
        args = [args[n] for n in names]
    if len(args) != len(params):
        raise EmulatorError("emulator.argument_count", expected=len(params), count=len(args))
    env: dict[Any, Any] = {}
    arrays: dict[Any, Array] = {}
    for param, value in zip(params, args, strict=True):
        if is_buffer_var(param):
            arrays[param] = _as_array(param, value)
        else:
            env[param] = _as_scalar(param, value)
    for param, array in arrays.items():
        _bind_shape(param, array, env)
    given = [_given(param, array, env) for param, array in arrays.items()]
    copies: dict[Any, Array] = {}
    for group in _sharing(given):
        for one, (copy, region) in zip(group, _copied(group), strict=True):
            copies[one.param], env[one.param] = copy, region
    named = zip(names, params, strict=True)
    return env, {name: copies[param] for name, param in named if param in copies}


def _as_scalar(param: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim:
        raise EmulatorError("emulator.argument_scalar", name=param.name, shape=value.shape)
    return int(value) if is_int(split_lanes(param.ty)[0]) else float(value)


def _as_array(param: Any, value: Any) -> Array:
    dtype = numpy_dtype(split_lanes(param.dtype)[0])
    array = np.asarray(value)
    # bfloat16 is often carried as its bits, by numpy code that lacks the dtype.
    if array.dtype == np.uint16 and dtype.name == "bfloat16":
        array = array.view(dtype)
    if array.dtype != dtype:
        raise EmulatorError(
            "emulator.argument_dtype", name=param.name, expected=str(dtype), dtype=str(array.dtype)
        )
    return array


def _bind_shape(param: Any, array: Array, env: dict[Any, Any]) -> None:
    shape = list(param.shape)
    if len(shape) != array.ndim:
        raise EmulatorError(
            "emulator.argument_rank", name=param.name, expected=len(shape), rank=array.ndim
        )
    for axis, (dim, extent) in enumerate(zip(shape, array.shape, strict=True)):
        if isinstance(dim, ir.Var) and dim not in env:
            env[dim] = int(extent)
            continue
        expected = evaluate(dim, env)
        if expected != extent:
            raise EmulatorError(
                "emulator.argument_extent",
                name=param.name,
                axis=axis,
                expected=int(expected),
                extent=extent,
            )


def _strides(array: Array) -> tuple[int, ...]:
    """Return the strides of an array in elements."""
    return tuple(stride // array.itemsize for stride in array.strides)


def _compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _given(param: Any, array: Array, env: dict[Any, Any]) -> _Given:
    """Return how a parameter wants its array; binds the variables of strides and offset."""
    if any(stride % array.itemsize for stride in array.strides):
        raise EmulatorError(
            "emulator.argument_whole_strides", name=param.name, strides=array.strides
        )
    start = getattr(param, "elem_offset", None)
    if isinstance(start, ir.Var):
        # A tensor that is passed on by its data pointer begins there.
        env.setdefault(start, 0)
    offset = 0 if start is None else int(evaluate(start, env))
    wanted = list(getattr(param, "strides", None) or ())
    if not wanted:
        return _Given(param, array, _compact(array.shape), offset)
    for stride, own in zip(wanted, _strides(array), strict=True):
        if isinstance(stride, ir.Var):
            env.setdefault(stride, own)
    given = _Given(param, array, tuple(int(evaluate(s, env)) for s in wanted), offset)
    fits = given.as_it_is or array.flags.c_contiguous
    if not fits or any(stride < 0 for stride in given.strides):
        raise EmulatorError(
            "emulator.argument_strides",
            name=param.name,
            expected=given.strides,
            strides=_strides(array),
        )
    return given


def _sharing(given: list[_Given]) -> list[list[_Given]]:
    """Group the arguments whose arrays share bytes."""
    groups: list[list[_Given]] = []
    reached = 0
    for one in sorted(given, key=lambda one: address(one.array)):
        low, high = byte_bounds(one.array)
        if groups and low < reached and one.array.size:
            groups[-1].append(one)
        else:
            groups.append([one])
        reached = max(reached, high) if one.array.size else reached
    return groups


def _copied(group: list[_Given]) -> list[tuple[Array, Region]]:
    """Copy arrays that share bytes to one memory."""
    first = group[0]
    if len(group) == 1 and not (first.as_it_is and first.array.size):
        return [_laid_out(first)]
    for one in group:
        if not one.as_it_is:
            raise EmulatorError(
                "emulator.argument_shared_strides",
                name=one.param.name,
                expected=one.strides,
                strides=_strides(one.array),
            )
    low = min(address(one.array) for one in group)
    high = max(address(one.array) + one.reach * one.array.itemsize for one in group)
    starts = [address(one.array) - one.offset * one.array.itemsize for one in group]
    pad = max(0, low - min(starts))  # what lies before the arrays is not theirs
    data = copy_of(memory_at(first.array, low, high))
    if pad:
        data = np.concatenate([poison(data.dtype, (pad,)), data])
    memory = GlobalMemory(data, (low - pad - address(outermost(first.array))) % ALIGNMENT)
    made = []
    for one, start in zip(group, starts, strict=True):
        begin = start - low + pad
        at = begin + one.offset * one.array.itemsize
        copy = np.ndarray(one.array.shape, one.array.dtype, data, at, one.array.strides)
        made.append(
            (copy, Region(one.param.name, memory, begin, at + one.reach * one.array.itemsize))
        )
    return made


def _laid_out(one: _Given) -> tuple[Array, Region]:
    """Copy an array to memory of its own, laid out as the parameter wants it."""
    dtype, shape = one.array.dtype, one.array.shape
    data = poison(np.dtype(np.uint8), ((one.offset + one.reach) * dtype.itemsize,))
    steps = [stride * dtype.itemsize for stride in one.strides]
    copy = np.ndarray(shape, dtype, data, one.offset * dtype.itemsize, steps)
    copy[...] = one.array
    return copy, Region(one.param.name, GlobalMemory(data), 0, len(data))
