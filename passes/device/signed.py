"""Keep named values signed: convert them to unsigned only at their uses.

    n: uint32 = Cast(uint32, 120 - max(x, 26) * 4)         n: int32 = 120 - max(x, 26) * 4
    if x < 30: copy(.., n)                            =>   if x < 30: copy(.., Cast(uint32, n))

A common subexpression is named outside the condition under which it was simplified, where it may be
negative. TVM bounds named values, and fails on unsigned values with a negative bound.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from ..ir import nodes as ir
from ..ir.named_pass import named_pass


@named_pass("KeepSigned")
def keep_signed(func: Any) -> Any:
    """Return ``func`` with signed names for signed values that were converted, then named."""
    casts: dict[Any, Any] = {}

    def bind(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        value = node.value
        if not isinstance(value, tirx.Cast):
            return node
        if _kind(value) != "uint" or _kind(value.value) != "int":
            return node
        signed = ir.Var(str(node.var.name), value.value.ty)
        casts[node.var] = tirx.Cast(str(value.ty.dtype), signed)
        return tirx.Bind(signed, value.value)

    def use(node: Any) -> Any:
        return casts.get(node, node)

    body = tvm_ffi.structural_mutate(func.body, [(tirx.Bind, bind)])
    body = tvm_ffi.structural_map(body, [(ir.Var, use)], order="post") if casts else body
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _kind(value: Any) -> str:
    """Return ``int``, ``uint`` ... for a scalar."""
    return str(getattr(value.ty, "dtype", "")).rstrip("0123456789")
