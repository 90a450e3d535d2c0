"""Run the host side of a lowered module: follow launches, size grids, encode tensor maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from ...errors import EmulatorError
from ..base.dtypes import numpy_dtype, poison, split_lanes
from ..memory.global_memory import GlobalMemory, Region
from ..memory.im2col_map import ARRAYS, GlobalMap, Im2colMap, from_driver
from ..memory.tensor_map import ALIGNMENT, TensorMap, from_encode_args
from .evaluate import evaluate

Array = np.ndarray[Any, Any]

_ENCODE: Final = "runtime.cuTensorMapEncodeTiled"
"""The packed function of TVM that encodes a tiled tensor map."""

_LAUNCH: Final = "tirx.call_ffi_kernel"

_PDL: Final = "tirx.use_programtic_dependent_launch"
"""Launch tag of programmatic dependent launch, as TVM spells it."""

_COOPERATIVE: Final = "tirx.use_cooperative_launch"
"""Launch tag of a cooperative launch."""

_ENCODE_IM2COL: Final = "pipeliner_encode_im2col"


@dataclass(frozen=True)
class Launch:
    """One kernel launch: arguments by device parameter, dimensions by launch tag.

    ``dependent``: it may start while the preceding kernel runs (programmatic dependent launch).
    ``cooperative``: its CTAs are resident together, or it is refused.
    """

    kernel: str
    args: tuple[Any, ...]
    dims: Mapping[str, int]
    dependent: bool = False
    cooperative: bool = False

    def extent(self, tag: str) -> int:
        return self.dims.get(tag, 1)


def kernel_names(func: Any) -> list[str]:
    """Names of the kernels that a host function launches, each once, in the order of its text."""
    found: list[str] = []

    def visit(call: Any) -> None:
        if getattr(call.op, "name", "") == _LAUNCH:
            found.append(str(call.args[0].value))

    tvm_ffi.structural_walk(func.body, (ir.Call, visit))
    return list(dict.fromkeys(found))


def run_host(func: Any, kernels: Mapping[str, Any], env: dict[Any, Any]) -> list[Launch]:
    """Return the launches of a host function in order; fills ``env`` with its bindings."""
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
        nbytes = prod(shape) * lanes * numpy_dtype(base).itemsize
        memory = GlobalMemory(poison(np.dtype(np.uint8), (nbytes,)))
        env[stmt.buffer] = Region(stmt.buffer.name, memory, 0, nbytes)
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
            raise EmulatorError("emulator.host_check", says=said or str(stmt.condition))
    elif isinstance(stmt, tirx.Evaluate):
        _run_call(stmt.value, kernels, env, out)
    else:
        raise EmulatorError(
            "emulator.host_statement", kind=type(stmt).__name__, statement=str(stmt)
        )


def _run_call(
    call: Any, kernels: Mapping[str, Any], env: dict[Any, Any], out: list[Launch]
) -> None:
    if isinstance(call, prim.IntImm):
        return
    name = getattr(getattr(call, "op", None), "name", type(call).__name__)
    if _is_call(call, "tirx.tvm_call_packed", _ENCODE):
        _encode_map(call.args[1:], env)
        return
    if name != _LAUNCH:
        raise EmulatorError("emulator.host_call", name=name)
    kernel = str(call.args[0].value)
    if kernel not in kernels:
        raise EmulatorError("emulator.unknown_kernel", kernel=kernel)
    func = kernels[kernel]
    values = tuple(evaluate(arg, env) for arg in call.args[1:])
    split = len(func.params)
    tags = [str(tag) for tag in func.attrs["tirx.kernel_launch_params"]]
    dependent = _PDL in tags
    cooperative = _COOPERATIVE in tags
    # Flags: no argument says how much.
    named = [tag for tag in tags if tag not in (_PDL, _COOPERATIVE)]
    dims = {tag: int(v) for tag, v in zip(named, values[split:], strict=True)}
    out.append(Launch(kernel, values[:split], dims, dependent, cooperative))


def _encode_map(args: Sequence[Any], env: dict[Any, Any]) -> None:
    """Run runtime.cuTensorMapEncodeTiled(map, dtype, rank, data, *shape, *strides, ...)."""
    target, dtype, rank, data, *rest = args
    tmap = from_encode_args(
        str(dtype.value), int(evaluate(rank, env)), [int(evaluate(arg, env)) for arg in rest]
    )
    env[target] = _over(tmap, evaluate(data, env))


def _is_call(call: Any, op: str, name: str) -> bool:
    """Whether ``call`` calls function ``name`` by ``op``."""
    return isinstance(call, ir.Call) and call.op.name == op and str(call.args[0].value) == name


def _encode_im2col(args: Sequence[Any], env: dict[Any, Any]) -> int:
    """Run the driver's cuTensorMapEncodeIm2col, whose arrays come one number after the other."""
    target, kind, rank, data, *rest = args
    values = [int(evaluate(arg, env)) for arg in rest]
    arrays = []
    for length in ARRAYS:
        arrays.append(values[:length])
        values = values[length:]
    tmap = from_driver(int(evaluate(kind, env)), int(evaluate(rank, env)), arrays, values)
    env[target] = _over(tmap, evaluate(data, env))
    return 0


def _over(tmap: TensorMap | Im2colMap, region: Region) -> GlobalMap:
    """Return ``tmap`` over the elements of ``region``, which it must not reach beyond."""
    if region.shift % ALIGNMENT:
        raise EmulatorError(
            "tensor_map.address", multiple=ALIGNMENT, offset=region.shift % ALIGNMENT
        )
    dtype = numpy_dtype(tmap.dtype)
    elements = region.bytes[: (region.end - region.start) // dtype.itemsize * dtype.itemsize]
    elements = elements.view(dtype)
    reach = 1 + sum(
        (size - 1) * stride // tmap.itemsize
        for size, stride in zip(tmap.shape, (tmap.itemsize, *tmap.strides), strict=True)
    )
    if reach > elements.size:
        raise EmulatorError("tensor_map.reach", elements=int(reach), size=elements.size)
    return GlobalMap(tmap, region, elements)
