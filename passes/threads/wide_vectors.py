"""Vectors that are computed in a type of which they exceed the widest access, word by word.

    for v in T.vectorized(8):                 for q in T.unroll(2):
      C[v] = half(max(S[v], 0.0f))     =>       for v in T.vectorized(4):
                                                  row[q * 4 + v] = max(S[q * 4 + v], 0.0f)
                                              for v in T.vectorized(8): C[v] = half(row[v])

TVM represents eight floats as ``ulonglong4`` and loads, adds and converts them, but prints a
constant beside them as a constructor that CUDA does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from ...machine import VECTOR_BYTES
from ..ir.nodes import Expr, Stmt, TensorLoad, block, buffer, dtype_bytes, seq, unrolled, vectorized
from ..ir.patterns import strip_cast


def is_too_wide(store: Any, width: int) -> bool:
    """Whether ``width`` elements of ``store`` are computed in a type that is too wide for them."""
    value = store.value
    wide = isinstance(value, tirx.Cast) and not isinstance(strip_cast(value), TensorLoad)
    return wide and width * dtype_bytes(str(value.value.ty.dtype)) > VECTOR_BYTES


def in_words(store_at: Callable[[Expr], Any], width: int) -> Stmt:
    """Return a vector of ``width`` elements, computed in words of its type, converted at once.

    ``store_at``: the store of an element of the vector, a conversion of what is computed.
    """
    kind = str(store_at(tirx.const(0, "int32")).value.value.ty.dtype)
    each = VECTOR_BYTES // dtype_bytes(kind)
    row = buffer([width], kind, "row", "local")

    def word(q: Expr) -> Stmt:
        def one(v: Expr) -> Stmt:
            return tirx.BufferStore(row, store_at(q * each + v).value.value, [q * each + v])

        return vectorized("v", each, one)

    def converted(v: Expr) -> Stmt:
        store = store_at(v)
        value = tirx.Cast(str(store.buffer.dtype), tirx.BufferLoad(row, [v]))
        return tirx.BufferStore(store.buffer, value, list(store.indices))

    computed = unrolled("q", width // each, word)
    return block("row", seq(computed, vectorized("v", width, converted)), [row])
