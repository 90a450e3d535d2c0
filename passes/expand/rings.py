"""Make rings: the buffer with slots, and statements rewritten to use one slot of it.

    A[i, j], depth 3, iteration k   =>   A[k % 3, i, j]

Pointers follow: ``access_ptr`` and the (pointer, offset) pairs of TVM's older intrinsics get the
slot's offset; any other pointer becomes the address of the slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Range, Var

from ...errors import LoweringError
from ..ir.calls import called, data_of
from ..ir.moved import MovedWhole, Mover
from ..ir.nodes import Buffer, Expr, Stmt, const_int, variables, walk

# Position of each pointer argument and of the offset beside it. Offsets count elements, except in
# wmma, where they count fragments.
_OFFSETS: Final[dict[str, dict[int, int]]] = {
    "tirx.ptx_legacy.ldmatrix": {3: 4, 5: 6},
    "tirx.ptx_legacy.mma": {6: 7, 8: 9, 10: 11},
    "tirx.mma_fill_legacy": {1: 2},
    "tirx.mma_store_legacy": {3: 4},
}
FRAGMENT_OFFSETS: Final[dict[str, dict[int, int]]] = {
    "tirx.tvm_load_matrix_sync": {0: 4},
    "tirx.tvm_mma_sync": {0: 1, 2: 3, 4: 5, 6: 7},
    "tirx.tvm_fill_fragment": {0: 4},
    "tirx.tvm_store_matrix_sync": {0: 4},
}
"""Of the wmma calls: position of each fragment buffer, and of the fragment's number in it."""


@dataclass(frozen=True, slots=True)
class Ring:
    """A ``buffer`` with slots: ``slots`` is the new buffer, ``elements`` are those of one slot.

    ``fragments``: how many one slot has, for wmma buffers.
    """

    buffer: Buffer
    slots: Buffer
    depth: int
    elements: int
    fragments: int = 0


def make_ring(buf: Buffer, depth: int, body: Stmt) -> Ring:
    """Return ``buf`` with ``depth`` slots. ``body``: the statements that use it.

    Raises LoweringError for a buffer whose shape is not constant.
    """
    shape = [const_int(extent) for extent in buf.shape]
    if any(extent is None for extent in shape):
        raise LoweringError("ring.shape", buffer=str(buf.name), slots=depth)
    strides = [const_int(stride) or 0 for stride in buf.strides]
    elements = 1
    for extent in shape:
        elements *= extent or 1
    if strides:
        elements = (shape[0] or 1) * strides[0]
    slots = tirx.decl_buffer(
        [depth, *buf.shape],
        buf.dtype,
        buf.name,
        strides=[elements, *strides] if strides else None,
        scope=str(buf.scope()),
        layout=None,
        data_alignment=buf.data_alignment,
    )
    return Ring(buf, slots, depth, elements, _fragments(buf, elements, body))


def _fragments(buf: Buffer, elements: int, body: Stmt) -> int:
    """Return the fragments in ``buf``, from m, n, k of the calls that fill it; 0 unless wmma's."""
    if not str(buf.scope()).startswith("wmma"):
        return 0
    sizes: list[int] = []

    def visit(call: Any) -> None:
        name = called(call)
        if name not in FRAGMENT_OFFSETS or name == "tirx.tvm_mma_sync":
            return
        target = data_of(call.args[0])
        if target is not None and target.same_as(buf):
            sizes.append(fragment_elements(buf, [const_int(arg) or 1 for arg in call.args[1:4]]))

    walk(body, Call, visit)
    if not sizes:
        raise LoweringError("ring.fragments", buffer=str(buf.name))
    return elements // sizes[0]


def fragment_elements(buf: Buffer, shape: Sequence[int]) -> int:
    """Return the elements of one fragment in a wmma buffer, from m, n, k of its instruction."""
    m, n, k = shape
    role = str(buf.scope()).rsplit(".", 1)[1]
    return {"matrix_a": m * k, "matrix_b": n * k}.get(role, m * n)


def definitions(stmt: Stmt) -> list[Var]:
    """Return the variables and buffers that ``stmt`` defines: a copy of it must have its own."""
    return definitions_and_uses(stmt)[0]


def definitions_and_uses(stmt: Stmt) -> tuple[list[Var], set[Var]]:
    """Return what ``stmt`` defines, and all variables and buffers in it."""
    defined: list[Var] = []
    found: set[Var] = set()

    def visit(var: Any, kind: Any) -> None:
        found.add(var)
        if kind != tvm_ffi.DefRegionKind.NONE and var.name:
            defined.append(var)

    tvm_ffi.structural_walk(stmt, [], with_def_region_kind=(Var, visit))
    return defined, found


def instantiate(
    stmt: Stmt,
    values: Mapping[Var, Expr],
    fresh: Sequence[Var],
    slots: Mapping[Buffer, tuple[Ring, Expr]],
) -> Stmt:
    """Return ``stmt`` with ``values`` substituted, ``fresh`` renewed, and rings at their slot."""
    mapping: dict[Var, Any] = {var: Var(var.name, var.ty) for var in fresh}
    mapping.update(values)
    callbacks: list[Any] = [(Var, lambda var: mapping.get(var, var))] if mapping else []
    if slots:
        callbacks += Mover({buf: _Slot(*at) for buf, at in slots.items()}).rules
    if not callbacks:
        return stmt
    result = tvm_ffi.structural_map(stmt, callbacks, order="post")
    _check_complete(result, slots)
    return result


def _check_complete(stmt: Stmt, slots: Mapping[Buffer, Any]) -> None:
    if not slots:
        return
    left = [var for var in variables(stmt) if var in slots]
    if left:
        raise LoweringError("ring.form", buffer=str(left[0].name))


@dataclass(frozen=True, slots=True)
class _Slot(MovedWhole):
    """A slot of a ring, in which an iteration has its elements."""

    ring: Ring
    slot: Expr

    @property
    def buffer(self) -> Buffer:
        """The ring."""
        return self.ring.slots

    def at(self, indices: Sequence[Expr]) -> Sequence[Expr]:
        return [self.slot, *indices]

    def region(self, region: Any) -> Any:
        return tirx.BufferRegion(self.buffer, [Range.from_min_extent(self.slot, 1), *region.region])

    def ahead(self, unit: Any) -> Expr:
        return self.slot * self.ring.elements

    def beside(self, name: str, position: int) -> tuple[int, Expr] | None:
        if position in _OFFSETS.get(name, {}):
            return _OFFSETS[name][position], self.slot * self.ring.elements
        if position in FRAGMENT_OFFSETS.get(name, {}):
            return FRAGMENT_OFFSETS[name][position], self.slot * self.ring.fragments
        return None
