"""Compute all of a store's guard, so that nvcc predicates the store and does not branch around it.

    if row < m && column < n: C[row, column] = x    =>    if (row < m) & (column < n): ...

What C's ``&&`` skips where the left side is false, nvcc skips by a branch as soon as it takes more
than a few instructions. Between branches nothing is moved: of 64 elements that a thread copies from
shared memory each is read when the one before is written. 5000x2505x200 by tiles of 128x112, whose
rows begin anywhere, is 1,600 instructions so and 880 without.

Only a guard that reads nothing is computed: it is the same whether or not its left side is true.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

from ..ir.indexing import conjuncts
from ..ir.named_pass import named_pass
from ..ir.nodes import Expr, walk

_ACTS: Final = (TensorLoad, Call)
"""What a guard may not hold: a read, or what an intrinsic does."""


@named_pass("JoinGuards")
def join_guards(func: Any) -> Any:
    """Return ``func``, a device function, whose guarded stores have guards without branches."""

    def joined(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if node.else_case is not None or not isinstance(node.then_case, tirx.BufferStore):
            return node
        parts = conjuncts(node.condition)
        if len(parts) < 2 or any(map(_acts, parts)):
            return node
        return tirx.IfThenElse(reduce(tirx.bitwise_and, parts), node.then_case, None)

    body = tvm_ffi.structural_mutate(func.body, [(tirx.IfThenElse, joined)])
    return func if body.same_as(func.body) else func.with_body(body)


def _acts(condition: Expr) -> bool:
    found: list[Any] = []
    walk(condition, _ACTS, found.append)
    return bool(found)
