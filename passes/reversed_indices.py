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

from .indexing import terms_of
from .ir import Expr, TensorLoad, const_int, has


def unreversed(func: Any) -> Any:
    """Return ``func`` without quotients and modulos of descending values in its indices."""

    def load(node: Any) -> Any:
        indices = list(node.indices)
        return tirx.BufferLoad(node.source, _upward(indices)) if _turned(indices) else node

    def store(node: Any) -> Any:
        indices = list(node.indices)
        if not _turned(indices):
            return node
        return tirx.BufferStore(node.buffer, node.value, _upward(indices))

    rewriters = [(TensorLoad, load), (tirx.BufferStore, store)]
    body = tvm_ffi.structural_map(func.body, rewriters, order="post")
    if body.same_as(func.body):
        return func
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _turned(indices: list[Expr]) -> bool:
    return any(has(index, (tirx.FloorDiv, tirx.FloorMod), _counts_down) for index in indices)


def _counts_down(node: Any) -> bool:
    """Whether anything divided by a constant in it is descending."""
    by = const_int(node.b)
    return by is not None and by > 0 and any(factor < 0 for factor, _ in terms_of(node.a)[0])


def _upward(indices: list[Expr]) -> list[Expr]:
    swap = [((tirx.FloorDiv, tirx.FloorMod), _counted_up)]
    return [tvm_ffi.structural_map(index, swap, order="post") for index in indices]


def _counted_up(node: Any) -> Any:
    if not _counts_down(node):
        return node
    node = sym.Analyzer().simplify(node)
    if not isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) or not _counts_down(node):
        return _within(node)
    terms, _ = terms_of(node.a)
    if any(factor > 0 for factor, _ in terms):
        return node
    by = const_int(node.b) or 1
    up = sym.Analyzer().simplify(-1 - node.a)
    if isinstance(node, tirx.FloorDiv):
        return -1 - tirx.floordiv(up, node.b)
    return by - 1 - tirx.floormod(up, node.b)


def _within(node: Any) -> Any:
    """Return what a quotient was simplified to, with the quotients left in it ascending."""
    swap = [((tirx.FloorDiv, tirx.FloorMod), _counted_up)]
    if isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) or not _turned([node]):
        return node
    return tvm_ffi.structural_map(node, swap, order="post")
