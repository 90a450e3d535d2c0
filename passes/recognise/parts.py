"""Find a kernel that only puts together what the CTAs along blockIdx.z have of each output.

    kernel 0: P[blockIdx.z, m + i, n + j] = acc[i, j]     CTAs differ in blockIdx.z: parts of K
    kernel 1: C[r, c] = f(P[0, r, c], P[1, r, c], ..)     each output, once
 => StoredParts(P, row=r, column=c, store=C[r, c] = f(..))

If the CTAs of one tile form a cluster, they can put their parts together themselves
(``map/cluster_sums.py``): no workspace, no second kernel. ``f`` may be anything that reads one
element of each part, as a sum with an epilogue does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range

from ...diagnostics import Reason
from ...mechanisms.stores import MOST_PARTS, PART_BYTES
from ..ir.kernels import kernels_of, thread_extents, thread_tag
from ..ir.linear import affine
from ..ir.nodes import (
    Buffer,
    Expr,
    SBlockRealize,
    Stmt,
    TensorLoad,
    Var,
    collect,
    const_int,
    dtype_bytes,
    variables,
    walk,
)
from ..ir.patterns import Nest
from .elementwise import nest_of


@dataclass(frozen=True)
class StoredParts:
    """The parts of outputs, and what is computed of those of one.

    ``buffer``: the workspace, [parts, rows, columns]. ``store``: of the output that belongs to
    ``row`` and ``column`` of it. ``kernel``: which makes it for all of them. ``around``: the loop
    over parts of the kernel that stores them.
    """

    buffer: Buffer
    row: Var
    column: Var
    store: Any
    kernel: Stmt
    around: Any

    @property
    def count(self) -> int:
        """How many parts an output has."""
        return const_int(self.buffer.shape[0]) or 0


def parts_stored_by(nest: Nest, body: Stmt) -> StoredParts | Reason:
    """Return the parts that ``nest`` stores in a kernel of ``body``; or why they are none."""
    buf = nest.store.buffer
    shape = [const_int(extent) for extent in buf.shape]
    kernels = kernels_of(body)
    if not _is_workspace(buf, body) or len(shape) != 3 or None in shape:
        return Reason("parts.none", buffer=str(buf.name))
    if dtype_bytes(buf.dtype) != PART_BYTES:
        return Reason("parts.dtype", buffer=str(buf.name), dtype=str(buf.dtype), nbytes=PART_BYTES)
    users = [number for number, kernel in enumerate(kernels) if buf in variables(kernel)]
    if users != [len(kernels) - 2, len(kernels) - 1] or thread_extents(kernels[-1]):
        return Reason("parts.none", buffer=str(buf.name))
    if not _is_tile(nest):
        return Reason("parts.tile", buffer=str(buf.name))
    around = _loop_over(nest.store.indices[0], kernels[-2])
    count = shape[0] or 0
    if around is None or const_int(around.extent) != count or not 1 < count <= MOST_PARTS:
        return Reason("parts.grid", buffer=str(buf.name), parts=count, most=MOST_PARTS)
    found = nest_of(kernels[-1])
    if found is None:
        return Reason("parts.none", buffer=str(buf.name))
    beside = [load.source for load in collect(found.store, TensorLoad)]
    for other in (found.store.buffer, *(one for one in beside if not one.same_as(buf))):
        if other in variables(kernels[-2]):
            return Reason("parts.read", buffer=str(other.name))
    return _of_each(found, buf, kernels[-1], around)


def _is_tile(nest: Nest) -> bool:
    """Whether ``nest`` stores a tile as it is, a variable along rows and another along columns."""
    walked = [affine(index, nest.vars) for index in list(nest.store.indices)[1:]]
    found = [known.coefficients for known in walked if known is not None]
    if not isinstance(nest.store.value, TensorLoad):
        return False
    alone = all(len(one) <= 1 and set(one.values()) <= {1} for one in found)
    return len(found) == 2 and alone and not set(found[0]) & set(found[1])


def _of_each(nest: Nest, buf: Buffer, kernel: Stmt, around: Any) -> StoredParts | Reason:
    """Return what ``nest``, all of ``kernel``, computes of one element of each part."""
    odd = Reason("parts.not_each", buffer=str(buf.name), block=nest.name)
    loads = [load for load in collect(nest.store, TensorLoad) if load.source.same_as(buf)]
    places = [list(load.indices)[1:] for load in loads]
    numbers = {const_int(load.indices[0]) for load in loads}
    if not places or None in numbers:
        return odd
    if not all(tvm_ffi.structural_equal(place, places[0]) for place in places):
        return odd
    at_row, at_column = places[0]
    if not _covers(nest, at_row, at_column, buf, kernel):
        return odd
    row, column = Var("row", "int32"), Var("column", "int32")

    def named(expr: Any) -> Any:
        if tvm_ffi.structural_equal(expr, at_row):
            return row
        return column if tvm_ffi.structural_equal(expr, at_column) else expr

    store = _replaced(nest.store, named)
    if variables(store) & frozenset({*nest.vars, *_grid(kernel)}):
        return odd
    return StoredParts(buf, row, column, store, kernel, around)


def _replaced(store: Any, named: Any) -> Any:
    """Return ``store`` with the indices of its loads and its own put in other words."""
    kinds = (Var, tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod)
    return tvm_ffi.structural_map(store, [(kind, named) for kind in kinds], order="pre")


def _covers(nest: Nest, row: Expr, column: Expr, buf: Buffer, kernel: Stmt) -> bool:
    """Whether ``kernel`` visits every element of a part, and each once.

    It may walk past the last row and the last column, and store nothing there.
    """
    extents = {**_grid(kernel), **nest.extent_of}
    if None in extents.values():
        return False
    ranges = {var: Range(0, extent or 1) for var, extent in extents.items()}
    analyzer = sym.Analyzer()
    for var, extent in ranges.items():
        analyzer.bind(var, extent)
    left = list(nest.predicate)
    walked = 1
    for index, size in zip((row, column), list(buf.shape)[1:], strict=True):
        bound = analyzer.const_int_bound(index)
        inside = tirx.LT(index, size)
        guards = [part for part in left if tvm_ffi.structural_equal(part, inside)]
        left = [part for part in left if not any(part.same_as(one) for one in guards)]
        end = int(bound.max_value) + 1
        enough = end >= (const_int(size) or 0) if guards else end == const_int(size)
        if int(bound.min_value) != 0 or not enough:
            return False
        walked *= end
    if left or walked != math.prod(extent or 1 for extent in extents.values()):
        return False
    return len(sym.detect_iter_map([row, column], ranges, True, "bijective").indices) == 2


def _grid(kernel: Stmt) -> dict[Var, int | None]:
    """Return the loops of ``kernel`` that are bound to blockIdx, with their extents."""
    found: dict[Var, int | None] = {}

    def visit(loop: Any) -> None:
        if (thread_tag(loop) or "").startswith("blockIdx"):
            found[loop.loop_var] = const_int(loop.extent)

    walk(kernel, tirx.For, visit)
    return found


def _loop_over(part: Expr, kernel: Stmt) -> Any | None:
    """Return the loop of ``kernel`` bound to blockIdx.z whose variable ``part`` is."""
    loops = collect(kernel, tirx.For, lambda loop: thread_tag(loop) == "blockIdx.z")
    alike = [loop for loop in loops if isinstance(part, Var) and part.same_as(loop.loop_var)]
    return alike[0] if len(alike) == 1 else None


def _is_workspace(buf: Buffer, body: Stmt) -> bool:
    """Whether the function allocates ``buf`` around its kernels."""
    root = body.block if isinstance(body, SBlockRealize) else None
    return root is not None and any(buf.same_as(one) for one in root.alloc_buffers)
