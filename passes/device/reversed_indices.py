"""Rewrite quotients and modulos of descending values by ascending ones, before TVM flattens.

    S[(63 - tx) // 8, (7 - tx) % 8]    =>    S[7 - tx // 8, 7 - tx % 8]

TVM's FlattenBuffer splits indices into iterators, and a descending one loses its offset there: ``(7
- tx) // 8`` becomes ``tx // -8``, another number. The identities, for d > 0:

    e // d == -1 - (-1 - e) // d        e % d == d - 1 - (-1 - e) % d
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import sym, tirx

from ..ir.linear import terms_of
from ..ir.named_pass import named_pass
from ..ir.nodes import Expr, TensorLoad, const_int, has


@named_pass("CountUp")
def unreversed(func: Any) -> Any:
    """Return ``func`` without quotients and modulos of descending values in its indices."""

    def load(node: Any) -> Any:
        indices = list(node.indices)
        return (
            tirx.BufferLoad(node.source, _ascending(indices)) if _has_descending(indices) else node
        )

    def store(node: Any) -> Any:
        indices = list(node.indices)
        if not _has_descending(indices):
            return node
        return tirx.BufferStore(node.buffer, node.value, _ascending(indices))

    rewriters = [(TensorLoad, load), (tirx.BufferStore, store)]
    body = tvm_ffi.structural_map(func.body, rewriters, order="post")
    if body.same_as(func.body):
        return func
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _has_descending(indices: list[Expr]) -> bool:
    """Whether an index has a quotient or modulo of a descending value."""
    return any(has(index, (tirx.FloorDiv, tirx.FloorMod), _is_descending) for index in indices)


def _is_descending(node: Any) -> bool:
    """Whether a quotient or modulo by a constant has a descending term."""
    by = const_int(node.b)
    return by is not None and by > 0 and any(factor < 0 for factor, _ in terms_of(node.a).terms)


def _ascending(indices: list[Expr]) -> list[Expr]:
    rewriters = [((tirx.FloorDiv, tirx.FloorMod), _made_ascending)]
    return [tvm_ffi.structural_map(index, rewriters, order="post") for index in indices]


def _made_ascending(node: Any) -> Any:
    if not _is_descending(node):
        return node
    node = sym.Analyzer().simplify(node)
    if not isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) or not _is_descending(node):
        return _within(node)
    if any(factor > 0 for factor, _ in terms_of(node.a).terms):
        return node
    by = const_int(node.b) or 1
    up = sym.Analyzer().simplify(-1 - node.a)
    if isinstance(node, tirx.FloorDiv):
        return -1 - tirx.floordiv(up, node.b)
    return by - 1 - tirx.floormod(up, node.b)


def _within(node: Any) -> Any:
    """Return what a quotient was simplified to, with the quotients left in it ascending."""
    rewriters = [((tirx.FloorDiv, tirx.FloorMod), _made_ascending)]
    if isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) or not _has_descending([node]):
        return node
    return tvm_ffi.structural_map(node, rewriters, order="post")
