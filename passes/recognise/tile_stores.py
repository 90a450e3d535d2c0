"""Match nests that store an accumulator's tile, and say which of them are boxes of their target.

    for i, j in T.grid(128, 256): C[m * 128 + i, n * 256 + j] = T.Cast("float16", acc[i, j])
 => Box(row=i, column=j, down=0, view=C)

TMA writes a box of a tensor and leaves out what is outside; so a guard must say exactly that. Any
computation may be applied to the accumulator before it is stored. Pixels counted over rows and
images are rows of one dimension (``views``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import Range

from ...diagnostics import Reason
from ...values.facts import ADDS, StoreInfo
from ..copy.tensor_views import View, beyond, flattened, inside, joined, tensor_obstacle
from ..ir.arithmetic import computed
from ..ir.indexing import conjunction, row_major, strides
from ..ir.linear import affine
from ..ir.nodes import Buffer, Expr, Stmt, Var, const_int, i32, is_global, substitute, uses
from ..ir.patterns import Copy, Matmul, Nest, nests_of
from .parts import StoredParts, parts_stored_by


@dataclass(frozen=True)
class Box:
    """The box of ``view`` that a nest stores.

    ``row`` and ``column`` index dimension ``down`` and the last.
    """

    row: Var
    column: Var
    down: int
    view: View

    def is_other(self, target: Buffer) -> bool:
        """Whether the view has other dimensions than ``target``."""
        shapes = [[const_int(extent) for extent in of.shape] for of in (self.view, target)]
        return shapes[0] != shapes[1]

    def is_joined(self, target: Buffer) -> bool:
        """Whether the last dimension of the view is several of ``target``'s."""
        last = const_int(self.view.shape[-1])
        return last is not None and last != const_int(target.shape[-1])


def store_infos(body: Stmt, ops: Mapping[str, Copy | Matmul], ranges: Any) -> tuple[StoreInfo, ...]:
    """Return the descriptions of the nests in ``body`` that store accumulators of ``ops``."""
    matmuls = {op.acc: op for op in ops.values() if isinstance(op, Matmul)}
    return tuple(
        _with_parts(_info(nest, matmul, ranges), parts_stored_by(nest, body))
        for nest in nests_of(body)
        for matmul in [_stored(nest, matmuls)]
        if matmul is not None
    )


def _with_parts(info: StoreInfo, found: StoredParts | Reason) -> StoreInfo:
    """Return ``info`` with how many parts an element of what is stored has, or why it has none."""
    if isinstance(found, Reason):
        return replace(info, no_parts=found)
    return replace(info, parts=found.count)


def adds(nest: Nest) -> int:
    """Return how many CTAs add to one element of the target of ``nest``; 0 if it stores."""
    return int(nest.annotations.get(ADDS, 0))


def added(nest: Nest) -> Nest:
    """Return what ``nest`` adds to its target as if it stored that; itself if it stores."""
    if not adds(nest):
        return nest
    store = nest.store
    sides = store.value.a, store.value.b
    part = next(side for side in sides if not uses(side, [store.buffer]))
    return replace(nest, store=tirx.BufferStore(store.buffer, part, store.indices))


def box_of(nest: Nest, matmul: Matmul, ranges: Any) -> Box | Reason:
    """Return the box of its target that ``nest`` stores ``matmul``'s tile to, or why it is none.

    ``ranges``: an analyzer that knows the bounds of the loops around it.
    """
    target = nest.store.buffer
    if len(matmul.m) > 1 or len(matmul.n) > 1:
        return Reason("store.dimensions")
    places = [load.indices for load in nest.loads() if load.source.same_as(matmul.acc)]
    row, column = _row_and_column(places[0], matmul, nest)
    if row is None or column is None or len({str(list(place)) for place in places}) > 1:
        return Reason("store.walk")
    if any(load.source.same_as(target) for load in added(nest).loads()):
        return Reason("store.reads", buffer=str(target.name))
    unreached = tensor_obstacle(target)
    if unreached is not None:
        return unreached
    for var, extent in nest.extent_of.items():
        ranges.bind(var, Range(0, extent))
    declared = View(tuple(target.shape), tuple(nest.store.indices))
    found = _indexed(declared, row, column, nest)
    if found is None:
        guard = conjunction(nest.predicate)
        with ranges.constraint_scope(tirx.const(True, "bool") if guard is None else guard):
            merged = flattened(declared, nest.vars, ranges)
            last = list(joined(declared, nest.extent_of, ranges))
        views = [*([] if merged is None else [merged]), *last]
        boxes = (_indexed(view, row, column, nest) for view in views)
        found = next((box for box in boxes if box is not None), None)
    if found is None:
        return Reason("store.scattered", buffer=str(target.name))
    short = _left_out(nest, matmul, found, ranges)
    if short is not None:
        return short
    if nest.predicate:
        bounds = inside(found.view.shape, found.view.indices, list(nest.extent_of), ranges)
        for part in beyond(nest.predicate, bounds, ranges):
            return Reason("store.mask", buffer=str(target.name), condition=str(part))
    return found


def _indexed(view: View, row: Var, column: Var, nest: Nest) -> Box | None:
    """Return the box of ``view`` that ``row`` and ``column`` index, each its own dimension."""
    walked = [affine(index, nest.vars) for index in view.indices]
    down = [n for n, known in enumerate(walked[:-1]) if known and known.coefficients == {row: 1}]
    fixed = [n for n, known in enumerate(walked[:-1]) if known and not known.coefficients]
    last = walked[-1]
    if (
        len(down) != 1
        or len(down) + len(fixed) + 1 != len(walked)
        or last is None
        or last.coefficients != {column: 1}
    ):
        return None
    return Box(row, column, down[0], view)


def _info(nest: Nest, matmul: Matmul, ranges: Any) -> StoreInfo:
    target = nest.store.buffer
    found = box_of(nest, matmul, ranges)
    steps, made = strides(target), computed(added(nest).store.value)
    if isinstance(found, Box) and found.is_joined(target):
        steps = row_major(found.view.shape)
    return StoreInfo(
        op=nest.name,
        acc=str(matmul.acc.name),
        dst=str(target.name),
        dtype=str(target.dtype),
        dst_strides=tuple(const_int(stride) for stride in steps),
        by_rows=_is_column_last(nest, matmul, ranges),
        no_tma=found if isinstance(found, Reason) else "",
        viewed=isinstance(found, Box) and found.is_other(target),
        partial_sums=adds(nest),
        flops=made.flops,
        transcendentals=made.transcendentals,
    )


def _is_column_last(nest: Nest, matmul: Matmul, ranges: Any) -> bool:
    """Whether only the tile's last column variable indexes the target's last dimension.

    The last ones count as one, where they are indexed together.
    """
    places = [load.indices for load in nest.loads() if load.source.same_as(matmul.acc)]
    at = next((n for n, index in enumerate(matmul.acc_indices) if _is(index, matmul.n[-1])), None)
    if at is None:
        return False
    column = affine(places[0][at], nest.vars)
    view = View(tuple(nest.store.buffer.shape), tuple(nest.store.indices))
    for var, extent in nest.extent_of.items():
        ranges.bind(var, Range(0, extent))
    for one in (view, *joined(view, nest.extent_of, ranges)):
        last = affine(one.indices[-1], nest.vars)
        if column is not None and last is not None and column.coefficients == last.coefficients:
            return True
    return False


def _stored(nest: Nest, matmuls: Mapping[Buffer, Matmul]) -> Matmul | None:
    """Return the matmul whose accumulator ``nest`` stores to global memory."""
    if not is_global(nest.store.buffer):
        return None
    return next((matmuls[load.source] for load in nest.loads() if load.source in matmuls), None)


def _row_and_column(place: Any, matmul: Matmul, nest: Nest) -> tuple[Var | None, Var | None]:
    """Return the loop variables of ``nest`` for rows and columns of the accumulator."""

    def variable(of: Var) -> Var | None:
        at = next(n for n, index in enumerate(matmul.acc_indices) if _is(index, of))
        index = place[at]
        return index if isinstance(index, Var) and index in nest.extent_of else None

    if not all(any(_is(index, of) for index in matmul.acc_indices) for of in matmul.m + matmul.n):
        return None, None
    return variable(matmul.m[0]), variable(matmul.n[0])


def _left_out(nest: Nest, matmul: Matmul, box: Box, ranges: Any) -> Reason | None:
    """Return why ``nest`` leaves out elements inside the target that a box would write, or None.

    A tile that reaches beyond the target is stored up to the target's end; TMA leaves out the rest
    of the box too.
    """
    dims = ((box.row, box.down, matmul.m, "rows"), (box.column, -1, matmul.n, "columns"))
    for var, dim, tile, name in dims:
        walked, whole = nest.extent_of[var], matmul.extent(tile)
        past = substitute(box.view.indices[dim], {var: i32(walked)})
        if walked < whole and not ranges.can_prove(past >= box.view.shape[dim]):
            return Reason("store.part", stored=walked, whole=whole, lines=name)
    return None


def _is(index: Expr, var: Var) -> bool:
    return isinstance(index, Var) and index.same_as(var)
