"""Make the alignment of vector accesses visible to TVM's CUDA printer.

    base = x * 64 + y * 8                         base = x * 64 + y * 8
    v = S[Ramp(base + 512, 1, 4)]           =>    v = S[Ramp(x * 64 + y * 8 + 512, 1, 4)]

TVM prints a vector access as one access only if it sees that the index of the first element is a
multiple of the lanes. A name that stands for a common subexpression hides that, and the vector is
loaded element by element. nvcc computes the subexpression once, with or without a name.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from ..ir import nodes as ir
from ..ir.named_pass import named_pass


@named_pass("ShowAlignment")
def show_alignment(func: Any) -> Any:
    """Return ``func`` with named subexpressions written out where a vector access starts."""
    values: dict[Any, Any] = {}

    def bind(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if _is_arithmetic(node.value):
            values[node.var] = ir.substitute(node.value, values)
        return node

    def ramp(node: Any, mutator: Any) -> Any:
        return tirx.Ramp(ir.substitute(node.base, values), node.stride, node.lanes)

    body = tvm_ffi.structural_mutate(func.body, [(tirx.Bind, bind), (tirx.Ramp, ramp)])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _is_arithmetic(value: Any) -> bool:
    """Whether ``value`` is the same wherever it stands: an index that nothing is loaded for."""
    if ir.has(value, ir.TensorLoad):
        return False
    return str(getattr(value.ty, "dtype", "")) in ("int32", "int64")
