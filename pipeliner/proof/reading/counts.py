"""Trip counts that a text skips at once, as parameters of the launch.

    for t in range(tiles):                      for t in range(tiles):
        if t % 2 == mine:                           if t % 2 == mine:
            for k in range(128): ...                    for k in range(128): ...
        else:                              =>       else:
            slot = (slot + 128) % 4                     slot = (slot + n) % 4

Where groups of threads alternate on tiles, each skips what others do. A text that was made for one
trip count is read as one for any: with the value 128 of n it does the same. A walk that leaves the
trip count open launches it with one that decides alike.

Does not handle: numbers that several loops make as iterations, and loops of which some make more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, prim

from ...passes.ir.nodes import has, literal
from .deciding import Deciding, is_common
from .loops import Family


def with_counts(
    func: Any, deciding: Deciding, families: Sequence[Family]
) -> tuple[Any, Mapping[Any, Family]]:
    """Return a function with parameters for trip counts that are added to registers that decide.

    Also, by parameter, the family whose trip count it is.
    """
    numbers = [family.extent for family in families]
    alone = {
        family.extent: family
        for family in families
        if family.extent and not family.more and numbers.count(family.extent) == 1
    }
    found: dict[Any, Any] = {}

    def added(node: Any) -> Any:
        for one, other in ((node.a, node.b), (node.b, node.a)):
            number = literal(other)
            if number in alone and has(one, TensorLoad, _is_register):
                name = f"{alone[number].name}_count"
                var = found.setdefault(number, tirx.Var(name, other.ty))
                return one + var if var.ty == other.ty else node
        return node

    def changed(stmt: Any) -> Any:
        is_bind = isinstance(stmt, tirx.Bind)
        name = str((stmt.var if is_bind else stmt.buffer).name)
        if name not in (deciding.named if is_bind else deciding.buffers):
            return stmt
        value = tvm_ffi.structural_map(stmt.value, (prim.Add, added), order="post")
        if is_bind:
            return tirx.Bind(stmt.var, value)
        return tirx.BufferStore(stmt.buffer, value, stmt.indices)

    changes = [(kind, changed) for kind in (tirx.BufferStore, tirx.Bind)]
    body = tvm_ffi.structural_map(func.body, changes, order="post")
    if not found:
        return func, {}
    params = [*func.params, *found.values()]
    made = tirx.PrimFunc(params, body, func.ret_type, func.attrs)
    return made, {var: alone[number] for number, var in found.items()}


def _is_register(load: Any) -> bool:
    return not is_common(load.source)
