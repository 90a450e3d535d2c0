"""Count what an expression computes: operations, and functions that special units compute.

x * sigmoid(x) * y    =>   Computed(flops=2, transcendentals=2)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

from .calls import called
from .nodes import Expr, walk

_OPERATIONS: Final = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)

_FUNCTIONS: Final[Mapping[str, int]] = {
    "cos": 1,
    "cosh": 2,
    "erf": 1,
    "exp": 1,
    "exp10": 1,
    "exp2": 1,
    "log": 1,
    "log10": 1,
    "log2": 1,
    "pow": 2,
    "rsqrt": 1,
    "sigmoid": 2,
    "sin": 1,
    "sinh": 2,
    "sqrt": 1,
    "tan": 2,
    "tanh": 2,
}
"""MUFU instructions of each: of a sigmoid an exponential and a reciprocal."""


class Computed(NamedTuple):
    """What one evaluation computes, of all lanes of a vector."""

    flops: int = 0
    """Operations on floating-point values, without those below."""
    transcendentals: int = 0
    """Functions, and reciprocals for divisions, of the special function units.

    Not for a division by what is loaded, such as the sum of a row: many are by the same.
    """


def computed(value: Expr) -> Computed:
    """Return what ``value`` computes; what stands twice in it counts once."""
    found = [0, 0]
    seen: list[Any] = []

    def visit(node: Any) -> None:
        if any(tvm_ffi.structural_equal(node, other) for other in seen):
            return
        seen.append(node)
        if isinstance(node, Call):
            found[1] += _FUNCTIONS.get(called(node).split(".")[-1], 0) * lanes(node)
        elif str(node.ty).startswith(("float", "bfloat")):
            found[0] += lanes(node)
            inverts = isinstance(node, tirx.Div) and not isinstance(node.b, TensorLoad)
            found[1] += lanes(node) if inverts else 0

    walk(value, (Call, *_OPERATIONS), visit)
    return Computed(*found)


def lanes(expr: Expr) -> int:
    """Return the elements of a vector value; 1 for a pointer."""
    kind = getattr(expr.ty, "dtype", None)
    return 1 if kind is None else max(1, int(tvm.DataType(str(kind)).lanes))
