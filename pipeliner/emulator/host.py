"""Evaluate the host side of a lowered module: bind shapes, follow launches, size grids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import ir, tirx
from tvm.ir import prim
from tvm.tirx.buffer import is_buffer_var

from ..errors import EmulatorError
from .arith import floor_div, floor_mod, trunc_div, trunc_mod
from .dtypes import is_int, numpy_dtype, poison, split_lanes
from .im2col_map import ARRAYS, Im2colMap, from_driver
from .sparse import copy_of
from .tensor_map import TensorMap, from_encode_args

Array = np.ndarray[Any, Any]

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    prim.Add: lambda a, b: a + b, prim.Sub: lambda a, b: a - b, prim.Mul: lambda a, b: a * b,
    prim.Div: trunc_div, prim.Mod: trunc_mod, prim.FloorDiv: floor_div, prim.FloorMod: floor_mod,
    prim.Min: min, prim.Max: max, prim.LShift: lambda a, b: a << b,
    prim.RShift: lambda a, b: a >> b, prim.BitwiseAnd: lambda a, b: a & b,
    prim.BitwiseOr: lambda a, b: a | b, prim.BitwiseXor: lambda a, b: a ^ b,
    prim.EQ: lambda a, b: a == b, prim.NE: lambda a, b: a != b, prim.LT: lambda a, b: a < b,
    prim.LE: lambda a, b: a <= b, prim.GT: lambda a, b: a > b, prim.GE: lambda a, b: a >= b,
    prim.And: lambda a, b: a and b, prim.Or: lambda a, b: a or b,
}  # fmt: skip


_ENCODE: Final = "runtime.cuTensorMapEncodeTiled"
_EARLY: Final = "tirx.use_programtic_dependent_launch"
_ENCODE_IM2COL: Final = "pipeliner_encode_im2col"
_ADDRESS: Final = "pipeliner_address"


@dataclass(frozen=True)
class Launch:
    """One kernel launch: arguments by device parameter, dimensions by launch tag.

    ``early``: it may start while the kernel before it still runs (programmatic dependent launch).
    """

    kernel: str
    args: tuple[Any, ...]
    dims: Mapping[str, int]
    early: bool = False

    def extent(self, tag: str) -> int:
        return self.dims.get(tag, 1)


@dataclass(frozen=True)
class GlobalMap:
    """A tensor map and the elements of the array that it maps."""

    map: TensorMap | Im2colMap
    elements: Array


def evaluate(expr: Any, env: Mapping[Any, Any]) -> Any:
    """Value of a host-side scalar expression under ``env`` (Var -> value).

    EmulatorError: a variable without one, or an expression that hosts are not known to have.
    """
    if isinstance(expr, int | float):
        return expr
    if isinstance(expr, prim.IntImm | prim.FloatImm):
        return expr.value
    if isinstance(expr, ir.Var):
        if expr not in env:
            raise EmulatorError(f"cannot evaluate host variable {expr.name!r}: it has no value")
        return env[expr]
    binary = _BINARY.get(type(expr))
    if binary is not None:
        return binary(evaluate(expr.a, env), evaluate(expr.b, env))
    if isinstance(expr, prim.Cast):
        value = evaluate(expr.value, env)
        return int(value) if is_int(split_lanes(expr.ty)[0]) else float(value)
    if isinstance(expr, prim.Not):
        return not evaluate(expr.a, env)
    if isinstance(expr, prim.Let):
        return evaluate(expr.body, {**env, expr.var: evaluate(expr.value, env)})
    if isinstance(expr, prim.Select):
        taken = expr.true_value if evaluate(expr.condition, env) else expr.false_value
        return evaluate(taken, env)
    if isinstance(expr, ir.Call):
        return _evaluate_call(expr, env)
    raise EmulatorError(f"cannot evaluate host expression {type(expr).__name__}: {expr}")


def _evaluate_call(call: Any, env: Mapping[Any, Any]) -> Any:
    name = getattr(call.op, "name", "")
    if name == "tirx.buffer_data":
        return evaluate(call.args[0], env)
    if name == "prim.if_then_else":
        return evaluate(call.args[1] if evaluate(call.args[0], env) else call.args[2], env)
    if name == "prim.likely":
        return evaluate(call.args[0], env)
    if _is_call(call, "tirx.call_pure_extern", _ADDRESS):
        return env[_ADDRESS, id(evaluate(call.args[1], env))]
    if name == "tirx.tvm_stack_alloca" and str(call.args[0].value) == "tensormap":
        return None  # until it is encoded
    raise EmulatorError(f"cannot evaluate host call {name!r}")


def parameter_names(params: Sequence[Any]) -> list[str]:
    """A name for each parameter: its own, with a number behind it where an earlier one has it."""
    found: list[str] = []
    for param in params:
        name = own = str(param.name)
        count = 0
        while name in found:
            count += 1
            name = f"{own}_{count}"
        found.append(name)
    return found


def bind_arguments(func: Any, args: Sequence[Any] | Mapping[str, Any]) -> dict[Any, Any]:
    """Parameters and symbolic shape variables of the host function -> values (arrays copied).

    EmulatorError: arguments by other names, of another number, type or shape.
    """
    params = list(func.params)
    if isinstance(args, Mapping):
        names = parameter_names(params)
        unknown = sorted(set(args) - set(names))
        missing = [n for n in names if n not in args]
        if unknown or missing:
            raise EmulatorError(f"expected arguments {names}: missing {missing}, {unknown=}")
        args = [args[n] for n in names]
    if len(args) != len(params):
        raise EmulatorError(f"expected {len(params)} arguments, got {len(args)}")
    env: dict[Any, Any] = {}
    arrays = []
    for param, value in zip(params, args, strict=True):
        if is_buffer_var(param):
            env[param] = _as_array(param, value)
            env[_ADDRESS, id(env[param])] = _address(value)
            arrays.append(param)
        else:
            env[param] = _as_scalar(param, value)
    for param in arrays:
        _bind_shape(param, env)
    return env


def _as_scalar(param: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim:
        raise EmulatorError(f"expected a scalar for parameter {param.name!r}, got an array")
    return int(value) if is_int(split_lanes(param.ty)[0]) else float(value)


def _as_array(param: Any, value: Any) -> Array:
    dtype = numpy_dtype(split_lanes(param.dtype)[0])
    array = copy_of(np.asarray(value))
    # bfloat16 is often carried as its bits, by numpy code that lacks the dtype.
    if array.dtype == np.uint16 and dtype.name == "bfloat16":
        array = array.view(dtype)
    if array.dtype != dtype:
        raise EmulatorError(f"expected {dtype} for parameter {param.name!r}, got {array.dtype}")
    return array


def _address(value: Any) -> int:
    """Where an argument lies; what is copied to lie compactly lies on its own."""
    array = np.asarray(value)
    given = array if array.flags.c_contiguous else np.empty(array.nbytes, np.uint8)
    return int(given.ctypes.data)


def _bind_shape(param: Any, env: dict[Any, Any]) -> None:
    array, shape = env[param], list(param.shape)
    if len(shape) != array.ndim:
        raise EmulatorError(
            f"expected rank {len(shape)} for parameter {param.name!r}, got {array.ndim}"
        )
    for axis, (dim, extent) in enumerate(zip(shape, array.shape, strict=True)):
        if isinstance(dim, ir.Var) and dim not in env:
            env[dim] = int(extent)
            continue
        expected = evaluate(dim, env)
        if expected != extent:
            raise EmulatorError(
                f"expected extent {expected} in axis {axis} of parameter {param.name!r}, "
                f"got {extent}"
            )


def run_host(func: Any, kernels: Mapping[str, Any], env: dict[Any, Any]) -> list[Launch]:
    """Launches of a host function in order; fills ``env`` with its bindings and workspaces."""
    launches: list[Launch] = []
    _run(func.body, kernels, env, launches)
    return launches


def _run(stmt: Any, kernels: Mapping[str, Any], env: dict[Any, Any], out: list[Launch]) -> None:
    if isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            _run(part, kernels, env, out)
    elif isinstance(stmt, tirx.AttrStmt):
        _run(stmt.body, kernels, env, out)
    elif isinstance(stmt, tirx.Bind):
        if _is_call(stmt.value, "tirx.call_extern", _ENCODE_IM2COL):
            env[stmt.var] = _encode_im2col(stmt.value.args[1:], env)
        else:
            env[stmt.var] = evaluate(stmt.value, env)
    elif isinstance(stmt, tirx.DeclBuffer):
        env[stmt.buffer] = evaluate(stmt.data, env)
    elif isinstance(stmt, tirx.AllocBuffer):
        shape = tuple(int(evaluate(dim, env)) for dim in stmt.buffer.shape)
        base, lanes = split_lanes(stmt.buffer.dtype)
        env[stmt.buffer] = poison(numpy_dtype(base), (*shape[:-1], shape[-1] * lanes))
    elif isinstance(stmt, tirx.IfThenElse):
        if evaluate(stmt.condition, env):
            _run(stmt.then_case, kernels, env, out)
        elif stmt.else_case is not None:
            _run(stmt.else_case, kernels, env, out)
    elif isinstance(stmt, tirx.For):
        start, extent = evaluate(stmt.min, env), evaluate(stmt.extent, env)
        for value in range(start, start + extent):
            env[stmt.loop_var] = value
            _run(stmt.body, kernels, env, out)
    elif isinstance(stmt, tirx.AssertStmt):
        if not evaluate(stmt.condition, env):
            said = "".join(str(part.value) for part in stmt.message_parts)
            raise EmulatorError(said or f"host assertion failed: {stmt.condition}")
    elif isinstance(stmt, tirx.Evaluate):
        _run_call(stmt.value, kernels, env, out)
    else:
        raise EmulatorError(f"cannot emulate host statement {type(stmt).__name__}: {stmt}")


def _run_call(
    call: Any, kernels: Mapping[str, Any], env: dict[Any, Any], out: list[Launch]
) -> None:
    if isinstance(call, prim.IntImm):
        return
    name = getattr(getattr(call, "op", None), "name", type(call).__name__)
    if _is_call(call, "tirx.tvm_call_packed", _ENCODE):
        _encode_map(call.args[1:], env)
        return
    if name != "tirx.call_ffi_kernel":
        raise EmulatorError(f"cannot emulate host call {name!r}")
    kernel = str(call.args[0].value)
    if kernel not in kernels:
        raise EmulatorError(f"cannot launch {kernel!r}: the module has no such device function")
    func = kernels[kernel]
    values = tuple(evaluate(arg, env) for arg in call.args[1:])
    split = len(func.params)
    tags = [str(tag) for tag in func.attrs["tirx.kernel_launch_params"]]
    early = _EARLY in tags
    named = [tag for tag in tags if tag != _EARLY]  # a flag: no argument says how much
    dims = {tag: int(v) for tag, v in zip(named, values[split:], strict=True)}
    out.append(Launch(kernel, values[:split], dims, early))


def _encode_map(args: Sequence[Any], env: dict[Any, Any]) -> None:
    """runtime.cuTensorMapEncodeTiled(map, dtype, rank, data, *shape, *strides, ...)."""
    target, dtype, rank, data, *rest = args
    array = evaluate(data, env)
    tmap = from_encode_args(str(dtype.value), int(evaluate(rank, env)),
                            [int(evaluate(arg, env)) for arg in rest])  # fmt: skip
    env[target] = _over(tmap, array)


def _is_call(call: Any, op: str, name: str) -> bool:
    """Whether ``call`` calls function ``name`` by ``op``."""
    return isinstance(call, ir.Call) and call.op.name == op and str(call.args[0].value) == name


def _encode_im2col(args: Sequence[Any], env: dict[Any, Any]) -> int:
    """The driver's cuTensorMapEncodeIm2col, its arrays one number after the other; its result."""
    target, kind, rank, data, *rest = args
    values = [int(evaluate(arg, env)) for arg in rest]
    arrays = []
    for length in ARRAYS:
        arrays.append(values[:length])
        values = values[length:]
    tmap = from_driver(int(evaluate(kind, env)), int(evaluate(rank, env)), arrays, values)
    env[target] = _over(tmap, evaluate(data, env))
    return 0


def _over(tmap: TensorMap | Im2colMap, array: Array) -> GlobalMap:
    """``tmap`` over the elements of ``array``, which it must not reach beyond."""
    elements = array.reshape(-1).view(numpy_dtype(tmap.dtype))
    reach = 1 + sum(
        (size - 1) * stride // tmap.itemsize
        for size, stride in zip(tmap.shape, (tmap.itemsize, *tmap.strides), strict=True)
    )
    if reach > elements.size:
        raise EmulatorError(
            f"cannot encode a tensor map of {reach} elements over an array of {elements.size}"
        )
    return GlobalMap(tmap, elements)
