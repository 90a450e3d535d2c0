"""How a host uses symbolic extents: why its kernels can not be proved for all values of them.

A kernel may have such a value as an argument, in extents of the grid, and in what the host makes of
global memory. It may not decide which kernels are launched, how many threads and bytes they have,
or how much a copy by a tensor map moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tvm import ir, tirx
from tvm.ir import prim
from tvm.tirx.buffer import is_buffer_var

from ...diagnostics import Reason, Why
from ...passes.ir.kernels import bodies
from ...passes.ir.nodes import collect, const_int, uses, variables
from .reaching import GRID

_LAUNCH: Final = "tirx.call_ffi_kernel"
_PACKED: Final = "tirx.tvm_call_packed"
_ENCODE: Final = "runtime.cuTensorMapEncodeTiled"
_ENCODE_IM2COL: Final = "pipeliner_encode_im2col"


def obstacle(host: Any, kernels: Mapping[str, Any], names: set[str]) -> Why:
    """Why kernels are not the same for all values of the extents ``names``; empty: they are."""
    symbols, made = _symbols(host, names)
    for expr in _deciding(host.body, ()):
        if uses(expr, made):
            return Reason("proof.host_decides", condition=str(expr))
    for call in collect(host.body, ir.Call):
        name = str(getattr(call.op, "name", ""))
        first = str(getattr(call.args[0], "value", "")) if len(call.args) else ""
        sizes: list[Any] = []
        if name == _LAUNCH and first in kernels:
            func = kernels[first]
            split = 1 + len(func.params)
            passed = [_narrowed(arg) for arg in call.args[1:split] if not _is_handle(arg)]
            sizes = [arg for arg in passed if arg not in symbols]
            tags = [str(tag) for tag in func.attrs["tirx.kernel_launch_params"]]
            sizes += [
                size
                for tag, size in zip(tags, call.args[split:], strict=False)
                if not tag.startswith(GRID)
            ]
            for arg, param in zip(map(_narrowed, call.args[1:split]), func.params, strict=True):
                if arg in symbols and str(arg.name) != str(param.name):
                    return Reason("proof.renamed", name=str(arg.name), parameter=str(param.name))
        elif name == _PACKED and first == _ENCODE:
            rank = const_int(call.args[3]) or 0
            sizes = list(call.args[5 + 2 * rank - 1 :])
        elif first == _ENCODE_IM2COL:
            sizes = list(call.args[1:])
        for size in sizes:
            if variables(size):  # of extents, or of strides, which extents may be
                return Reason("proof.host_decides", condition=str(size))
    return ""


def of_grids(host: Any, kernels: Mapping[str, Any], names: set[str]) -> set[str]:
    """The kernels of whose grids the extents ``names`` decide how large they are."""
    _, made = _symbols(host, names)
    found = set()
    for call in collect(host.body, ir.Call):
        first = str(getattr(call.args[0], "value", "")) if len(call.args) else ""
        if str(getattr(call.op, "name", "")) != _LAUNCH or first not in kernels:
            continue
        if any(uses(size, made) for size in call.args[1 + len(kernels[first].params) :]):
            found.add(first)
    return found


def _symbols(host: Any, names: set[str]) -> tuple[set[Any], set[Any]]:
    """The variables of extents, and all values of a host that are made of these."""
    symbols = {var for param in host.params for var in _of(param) if str(var.name) in names}
    made = set(symbols)
    for stmt in collect(host.body, tirx.Bind):
        if uses(stmt.value, made):
            made.add(stmt.var)
    return symbols, made


def _of(param: Any) -> Iterator[Any]:
    """The variables that a parameter of a host has the values of."""
    if is_buffer_var(param):
        for extent in param.shape:
            yield from variables(extent)
    else:
        yield param


def _narrowed(arg: Any) -> Any:
    """An argument as the host has it, whose 64 bits a kernel may take 32 of: values fit these."""
    return arg.value if isinstance(arg, prim.Cast) else arg


def _is_handle(arg: Any) -> bool:
    return not isinstance(getattr(arg, "ty", None), ir.PrimType)


def _deciding(stmt: Any, around: tuple[Any, ...]) -> Iterator[Any]:
    """The conditions and extents around each launch."""
    if isinstance(stmt, tirx.Evaluate):
        calls = collect(stmt, ir.Call)
        if any(str(getattr(call.op, "name", "")) == _LAUNCH for call in calls):
            yield from around
        return
    if isinstance(stmt, tirx.For):
        around = (*around, stmt.min, stmt.extent)
    elif isinstance(stmt, tirx.IfThenElse):
        around = (*around, stmt.condition)
    for part in bodies(stmt):
        yield from _deciding(part, around)
