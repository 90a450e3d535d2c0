"""Name dynamic shared memory so that all kernels compiled together agree on each name.

    kernel f:  extern __shared__ half buf[];         extern __shared__ half buf[];
    kernel g:  extern __shared__ uchar buf[];   =>   extern __shared__ uchar buf_1[];

An ``extern`` array has linkage even if a function declares it (C++, [basic.link]), so kernels of
one translation unit cannot give one name two types or alignments. Under any name it is the start of
its own kernel's dynamic shared memory (CUDA C++ Programming Guide, ``__shared__``).
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from ..ir import nodes as ir
from ..ir.named_pass import named_pass
from .place import DYNAMIC


@named_pass("NameShared")
def name_shared(mod: Any) -> Any:
    """Return ``mod`` with one name in its device functions only for allocations that are alike.

    The first function with a name keeps it, in the order of the functions' names.
    """
    declared: dict[str, _Form] = {}
    done = dict(mod.functions.items())
    for var in sorted(done, key=lambda var: str(var.name_hint)):
        if isinstance(done[var], tirx.PrimFunc):
            done[var] = _named(done[var], declared)
    return tvm.IRModule(done, attrs=mod.attrs)


_Form = tuple[str, int]
"""What an allocation is declared with besides its name: the type and the alignment."""


def _named(func: Any, declared: dict[str, _Form]) -> Any:
    """Return ``func`` consistent with what is ``declared``, and add its own names there."""
    allocated: list[Any] = []
    ir.walk(func.body, tirx.AllocBuffer, lambda node: allocated.append(node.buffer))
    renamed: dict[Any, Any] = {}
    for buffer in (one for one in allocated if str(one.scope()) == DYNAMIC):
        name = _free(str(buffer.name), _form(buffer), declared)
        declared[name] = _form(buffer)
        if name != str(buffer.name):
            renamed[buffer] = ir.buffer(
                list(buffer.shape), buffer.dtype, name, DYNAMIC, buffer.ty.data_alignment
            )
    if not renamed:
        return func
    body = ir.substitute(func.body, renamed)
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _free(name: str, form: _Form, declared: dict[str, _Form]) -> str:
    """Return the first of ``name``, ``name_1``, ... that is declared alike, or not at all."""
    number, tried = 0, name
    while declared.get(tried, form) != form:
        number += 1
        tried = f"{name}_{number}"
    return tried


def _form(buffer: Any) -> _Form:
    return str(buffer.dtype), int(buffer.ty.data_alignment)
