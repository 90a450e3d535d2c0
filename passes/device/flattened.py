"""Flatten indices as TVM does, except where that would be another element.

    A[(p // 2 - 1) % 2, (p % 2 - 1) % 2]    =>    A[(p // 2 + 1) % 2 * 2 + (p % 2 + 1) % 2]

TVM 0.27's FlattenBuffer splits the indices of an access into iterators and fuses these again, and
loses offsets: it makes ``A[(p + 2) % 4]`` of the above, and ``p // -8`` of ``(7 - p) // 8``. So
each access that has quotients or modulos is computed from its own indices and from TVM's at drawn
points, and TVM's index is taken where they are the same. What cannot be computed is flattened here.
Accesses of several elements at once (a Ramp before TVM's VectorizeLoop) stay as TVM has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import tvm
import tvm_ffi
from tvm import sym, tirx

from ...errors import InternalError
from ..ir.indexing import evaluate
from ..ir.kernels import thread_tag
from ..ir.named_pass import named_pass
from ..ir.nodes import Expr, TensorLoad, Var, collect, has, variables, walk

POINTS: Final = 256
"""Drawn for each access: where two sums of quotients and modulos differ, they do periodically."""

_UNKNOWN: Final = 64
"""Values, from 1, of what no loop and no thread counts: a shape's, a parameter."""

_QUOTIENTS: Final = (tirx.FloorDiv, tirx.FloorMod)

_NUMBERS: Final = ("int32", "int64")
"""Types of an index, the narrower first."""

Points = Mapping[Var, Any]
"""Drawn values of each variable."""


@named_pass("FlattenIndices")
def flatten_indices(func: Any) -> Any:
    """Return ``func`` with one index for each access: FlattenBuffer's, where that is right."""
    flat = tirx.transform.FlattenBuffer()(tvm.IRModule({"main": func}))["main"]
    given, made = _accesses(func.body), _accesses(flat.body)
    if not any(map(_is_split, given)):
        return flat
    if len(given) != len(made):
        raise InternalError(f"FlattenBuffer made {len(made)} of {len(given)} accesses")
    points, pairs = _drawn(func.body), dict(zip(given, made, strict=True))
    wrong: dict[Any, Expr] = {}
    for access, one in zip(given, made, strict=True):
        if _is_split(access):
            index = _with_loads(_flattened(access), pairs)
            if not _agree(index, one.indices[0], points):
                wrong[one] = sym.Analyzer().simplify(index)
    return _replaced(flat, wrong) if wrong else flat


def _with_loads(expr: Expr, loads: Mapping[Any, Expr]) -> Expr:
    """Return ``expr`` with others in place of its ``loads``."""

    def load(node: Any, mutator: Any) -> Any:
        return loads.get(node, node)

    return tvm_ffi.structural_mutate(expr, [(TensorLoad, load)])


def _replaced(func: Any, indices: Mapping[Any, Expr]) -> Any:
    """Return ``func`` with other indices of some accesses."""

    def index(node: Any) -> Any:
        other = indices.get(node)
        return None if other is None else [tvm_ffi.structural_mutate(other, kinds)]

    def load(node: Any, mutator: Any) -> Any:
        done, other = mutator.default_mutate(node), index(node)
        return tirx.BufferLoad(done.source, other) if other else done

    def store(node: Any, mutator: Any) -> Any:
        done, other = mutator.default_mutate(node), index(node)
        return tirx.BufferStore(done.buffer, done.value, other) if other else done

    kinds = [(TensorLoad, load), (tirx.BufferStore, store)]
    return func.with_body(tvm_ffi.structural_mutate(func.body, kinds))


def _accesses(body: Any) -> list[Any]:
    """Return the loads and stores in ``body``, in order."""
    found: list[Any] = []
    walk(body, (TensorLoad, tirx.BufferStore), found.append)
    return found


def _is_split(access: Any) -> bool:
    """Whether an access of one element has a quotient or modulo in its indices."""
    indices = list(access.indices)
    if any(str(index.ty.dtype) not in _NUMBERS for index in indices):
        return False
    return any(has(index, _QUOTIENTS) for index in indices)


def _flattened(access: Any) -> Expr:
    """Return the sum of an access's indices, each times the elements between its neighbours."""
    buffer = access.buffer if isinstance(access, tirx.BufferStore) else access.source
    indices, rest = list(access.indices), [*buffer.shape, *buffer.strides]
    dtype = max((str(one.ty.dtype) for one in [*indices, *rest]), key=_NUMBERS.index)
    wide = [one if str(one.ty.dtype) == dtype else tirx.Cast(dtype, one) for one in indices]
    if len(buffer.strides):
        terms = [one * tirx.Cast(dtype, by) for one, by in zip(wide, buffer.strides, strict=True)]
        return sum(terms[1:], terms[0])
    total = wide[0]
    for one, extent in zip(wide[1:], buffer.shape[1:], strict=True):
        total = total * tirx.Cast(dtype, extent) + one
    return total


def _agree(one: Expr, other: Expr, points: Points) -> bool:
    """Whether two indices are the same at all drawn points; not if one cannot be computed.

    What is loaded may be anything.
    """
    loaded = {
        load: Var(f"loaded_{at}", load.ty)
        for at, load in enumerate(collect(one, TensorLoad) + collect(other, TensorLoad))
    }
    one, other = _with_loads(one, loaded), _with_loads(other, loaded)
    drawn = dict(points)
    for var in variables(one) | variables(other):
        drawn.setdefault(var, np.random.default_rng(len(drawn)).integers(1, _UNKNOWN, POINTS))
    with np.errstate(divide="ignore"):  # a quotient by what is not 0 where it is computed
        values = evaluate(one, drawn), evaluate(other, drawn)
    return all(value is not None for value in values) and bool(np.all(values[0] == values[1]))


def _drawn(body: Any) -> dict[Var, Any]:
    """Return drawn values of what loops, threads and names in ``body`` count."""
    rng, found = np.random.default_rng(0), dict[Var, Any]()

    def known(expr: Expr, otherwise: Any) -> Any:
        with np.errstate(divide="ignore"):
            value = evaluate(expr, found)
        return otherwise if value is None else value

    def among(var: Var, low: Any, extent: Any) -> None:
        found[var] = low + np.floor(rng.random(POINTS) * np.maximum(extent, 1)).astype(np.int64)

    def visit(node: Any) -> None:
        if isinstance(node, tirx.For):
            among(node.loop_var, known(node.min, 0), known(node.extent, _UNKNOWN))
        elif isinstance(node, tirx.AttrStmt) and thread_tag(node) is not None:
            among(node.node.var, 0, known(node.value, _UNKNOWN))
        elif isinstance(node, tirx.Bind):
            value = known(node.value, None)
            if value is not None:
                found[node.var] = np.broadcast_to(value, POINTS)

    walk(body, (tirx.For, tirx.AttrStmt, tirx.Bind), visit)
    return found
