"""Make the host check its arguments at each call, before it launches anything.

    launch kernel(A, C)    =>    assert A and C do not overlap
                                 assert address of A % 16 == 0, address of C % 8 == 0
                                 launch kernel(A, C)

What is checked:

    extents      a 32-bit variable of a shape or stride must hold its value, which TVM truncates
    overlap      a written parameter must not overlap another, if the function does not promise it
    alignment    a pointer is as aligned as the widest access through it, or the GPU faults

The checks are assertions in the host function, between SplitHostDevice and MakePackedAPI. TVM's own
checks of shapes and strides come before them; a compiled library has them without pipeliner; the
emulator evaluates them. They compare a few addresses. TVM 0.27 has an alignment check of its own
and leaves it off.

The usual cause is a view that begins inside an array: ``x[1:]`` of torch or numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, StringImm, Var
from tvm.script import tirx as T
from tvm.tirx.buffer import is_buffer_var

from ...diagnostics import Reason, Value
from ...machine import VECTOR_BYTES
from ..analysis.widths import widths
from ..dependence.overlap import ENCODERS, OVERLAP
from ..ir.calls import called, passed_buffer
from ..ir.marks import is_marked
from ..ir.named_pass import named_pass
from ..ir.nodes import (
    Buffer,
    Expr,
    Stmt,
    collect,
    const_int,
    dtype_bytes,
    has,
    seq,
    substitute,
    walk,
)
from ..ir.wide_indices import ELEMENTS

ADDRESS: Final = "pipeliner_address"
"""Function that host code calls for an address, until TVM's last passes have run."""

_LAUNCH: Final = "tirx.call_ffi_kernel"
_DEVICE_KERNEL: Final = 2
"""TVM's CallingConv of a function that is launched on the device."""

_ERROR: Final = "ValueError"


@named_pass("CheckArguments")
def check_arguments(mod: Any) -> Any:
    """Return ``mod``, split into host and device functions, with checks in our host functions."""
    kernels = {str(var.name_hint): func for var, func in mod.functions.items() if _is_kernel(func)}
    known: dict[str, list[int]] = {}
    functions = dict(mod.functions.items())
    for var, func in mod.functions.items():
        if isinstance(func, tirx.PrimFunc) and is_marked(func) and not _is_kernel(func):
            for call in _launches(func):
                kernel = str(call.args[0].value)
                if kernel in kernels and kernel not in known:
                    known[kernel] = widths(kernels[kernel])
            name = str(var.name_hint)
            host = _with_whole_extents(func, name)
            checks = [*_overlaps(host, name), *_alignments(host, known, name)]
            functions[var] = _checked(host, checks) if checks else host
    return tvm.IRModule(functions, attrs=mod.attrs)


def _with_whole_extents(func: Any, name: str) -> Any:
    """Return ``func`` with 32-bit extents and strides read in 64 bits, and checked to fit.

    An array's extents have 64 bits. TVM gives a 32-bit variable the lower half: of 2^32 + 7 rows,
    7.
    """
    whole: dict[Any, Any] = {}
    checks: list[Stmt] = []
    for at, param in enumerate(func.params):
        if not is_buffer_var(param):
            continue
        for extent in (*param.shape, *param.strides):
            if type(extent) is not Var or str(extent.ty.dtype) != "int32" or extent in whole:
                continue
            if any(extent.same_as(given) for given in func.params):  # which the caller has as 32
                continue
            whole[extent] = Var(str(extent.name), "int64")
            said = Reason(
                "call.extent",
                function=name,
                extent=str(extent.name),
                at=at,
                name=str(param.name),
                most=ELEMENTS,
            )
            checks.append(_asserted(whole[extent] <= tirx.const(ELEMENTS, "int64"), said))
    if not whole:
        return func
    cut = {var: tirx.Cast("int32", wide) for var, wide in whole.items()}

    def read(extent: Expr, *, wide: bool) -> Expr:
        if type(extent) is Var and extent in whole:
            return whole[extent]
        found = substitute(extent, cut)
        return tirx.Cast("int64", found) if wide and str(found.ty.dtype) == "int32" else found

    def read_all(param: Any) -> tuple[list[Expr], list[Expr]]:
        # TVM compares a stride with the product of extents behind it, of one type with it.
        wide = any(type(stride) is Var and stride in whole for stride in param.strides)
        shape, strides = param.shape, param.strides
        return [read(e, wide=wide) for e in shape], [read(s, wide=wide) for s in strides]

    params = {
        param: _declared(param, *read_all(param), param.data_alignment)
        for param in func.params
        if is_buffer_var(param)
    }
    body = seq(*checks, substitute(func.body, {**cut, **params}))
    new = [params.get(param, param) for param in func.params]
    return tirx.PrimFunc(new, body, func.ret_type, func.attrs)


def _checked(func: Any, checks: Sequence[Stmt]) -> Any:
    """Return ``func`` with ``checks`` before everything else, its parameters of any alignment.

    TVM tells LLVM that arguments are as aligned as their parameters say, 64 bytes by default, and
    LLVM then removes the checks. So the parameters say nothing.
    """
    params = {param: _as_it_comes(param) for param in func.params if is_buffer_var(param)}
    body = substitute(seq(*checks, func.body), params)
    new = [params.get(param, param) for param in func.params]
    return tirx.PrimFunc(new, body, func.ret_type, func.attrs)


def _as_it_comes(param: Buffer) -> Buffer:
    """Return ``param`` with no alignment declared."""
    return _declared(param, list(param.shape), list(param.strides), 1)


def _declared(
    param: Buffer, shape: Sequence[Expr], strides: Sequence[Expr], alignment: int
) -> Buffer:
    """Return ``param`` with another shape, strides or alignment."""
    return tirx.decl_buffer(
        list(shape),
        param.dtype,
        str(param.name),
        None,
        list(strides),
        param.elem_offset,
        str(param.scope()),
        alignment,
        param.ty.offset_factor,
        layout=param.ty.layout,
    )


def _is_kernel(func: Any) -> bool:
    return int((func.attrs or {}).get("calling_conv", 0)) == _DEVICE_KERNEL


def _launches(func: Any) -> list[Any]:
    return collect(func.body, Call, lambda call: called(call) == _LAUNCH)


def _overlaps(func: Any, name: str) -> list[Stmt]:
    """Return assertions that no other parameter lies in one that is written."""
    params = list(func.params)
    checks: list[Stmt] = []
    for pair in (func.attrs or {}).get(OVERLAP, []):
        at, beside, may_be_one = (int(number) for number in pair)
        written, other = params[at], params[beside]
        (start, end), (first, last) = _span(written), _span(other)
        disjoint = tirx.Or(end <= first, last <= start)
        both: dict[str, Value] = {
            "other_at": beside,
            "other": str(other.name),
            "at": at,
            "name": str(written.name),
        }
        if may_be_one:
            said = Reason("call.partial_overlap", function=name, **both)
            checks.append(_asserted(tirx.Or(disjoint, tirx.EQ(start, first)), said))
        else:
            checks.append(_asserted(disjoint, Reason("call.overlap", function=name, **both)))
    return checks


def _span(param: Buffer) -> tuple[Expr, Expr]:
    """Return the addresses of the first byte of a parameter's array and of the first behind it."""
    size = dtype_bytes(param.dtype)
    start = _address(param)
    if const_int(param.elem_offset) != 0:
        start = start + tirx.Cast("uint64", param.elem_offset) * _u64(size)
    return start, start + tirx.Cast("uint64", _elements(param)) * _u64(size)


def _elements(param: Buffer) -> Expr:
    """Return how many elements lie between the first of an array and the one behind its last."""
    shape = [tirx.Cast("int64", extent) for extent in param.shape]
    if not list(param.strides):
        count: Expr = tirx.const(1, "int64")
        for extent in shape:
            count = count * extent
        return count
    reach: Expr = tirx.const(1, "int64")
    empty: Expr = tirx.const(False, "bool")
    for extent, stride in zip(shape, param.strides):
        reach = reach + (extent - 1) * tirx.Cast("int64", stride)
        empty = tirx.Or(empty, extent <= 0)
    return tirx.Select(empty, tirx.const(0, "int64"), reach)


def _alignments(func: Any, needed: Mapping[str, Sequence[int]], name: str) -> list[Stmt]:
    """Return assertions that each parameter is as aligned as the widest access through it."""
    roots: dict[Any, Any] = {param: param for param in func.params if is_buffer_var(param)}

    def declared(node: Any) -> None:
        source = passed_buffer(node.data)
        if source in roots:
            roots[node.buffer] = roots[source]

    walk(func.body, tirx.DeclBuffer, declared)
    least: dict[Any, int] = {}

    def need(arg: Any, size: int) -> None:
        param = roots.get(passed_buffer(arg))
        if param is not None:
            least[param] = max(size, least.get(param, 1))

    for call in _launches(func):
        for arg, size in zip(call.args[1:], needed.get(str(call.args[0].value), ())):
            need(arg, size)

    def encode(call: Any) -> None:
        if str(getattr(call.args[0], "value", "")) in ENCODERS:
            for arg in call.args[1:]:
                need(arg, VECTOR_BYTES)  # the map's address has to be aligned so

    walk(func.body, Call, lambda call: encode(call) if len(call.args) else None)
    checks: list[Stmt] = []
    for at, param in enumerate(func.params):
        size = least.get(param, 1)
        if size > 1:
            said = Reason("call.alignment", function=name, at=at, name=str(param.name), nbytes=size)
            start, _ = _span(param)
            checks.append(_asserted(tirx.EQ(tirx.truncmod(start, _u64(size)), _u64(0)), said))
    return checks


def _asserted(condition: Expr, said: Reason) -> Stmt:
    return tirx.AssertStmt(condition, StringImm(_ERROR), [StringImm(str(said))])


def _address(param: Buffer) -> Expr:
    """Return the address of a parameter's data, by the name that ``take_addresses`` knows."""
    return T.call_pure_extern("uint64", ADDRESS, param.data)


@named_pass("TakeAddresses")
def take_addresses(func: Any) -> Any:
    """Put the addresses that checks name in their places, once TVM's bfloat16 passes have run.

        assert pipeliner_address(A.data) % 16 == 0  =>  assert reinterpret(uint64, A.data) % 16 == 0

    Until then a name hides the addresses from those passes.
    """

    def address(call: Any, mutator: Any) -> Any:
        call = mutator.default_mutate(call)
        if called(call) != "tirx.call_pure_extern" or str(call.args[0].value) != ADDRESS:
            return call
        return T.reinterpret("uint64", call.args[1])

    if not has(func.body, tirx.AssertStmt):
        return func
    body = tvm_ffi.structural_mutate(func.body, [(Call, address)])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _u64(value: int) -> Expr:
    return tirx.const(value, "uint64")
