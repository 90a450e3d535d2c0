"""The ring indices of a lowered kernel, and each of them shifted by one slot.

A statement that the passes emitted says in its origin which slot of which ring it touches; the plan
says where the ring lies, in the arena or in registers of its own. The mutant reads or writes the
next slot instead, the first after the last: the access stays inside its ring, and only the ring's
arithmetic is wrong. Slots of a ring in registers are constants, by modulo variable expansion; each
unrolled statement is an index of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import TensorLoad

from ..emulator.launch.evaluate import evaluate
from ..emulator.translate.operation import op_name
from ..errors import EmulatorError
from ..passes.expand.rings import FRAGMENT_OFFSETS, fragment_elements
from ..passes.ir.calls import ACCESS_PTR, data_of
from ..passes.ir.nodes import dtype_bytes, is_private, is_shared, origin_of, walk
from ..plan import KernelPlan
from ..values.origin import Origin
from .operations import numbered, replace_nth

_FRAGMENT_SHAPE: Final = "fragment_shape"
"""Key of the attribute in which TVM notes the m, n, k of a wmma buffer's instruction."""


@dataclass(frozen=True, slots=True)
class PlacedRing:
    """Where a ring lies: ``slots`` of ``slot_bytes`` bytes from ``offset``, in the arena.

    ``registers``: the name of the buffer that holds it where that is each thread's own, or a
    warp's: then a slot is ``fragments`` of wmma.
    """

    offset: int
    slots: int
    slot_bytes: int
    registers: str = ""
    fragments: int = 0

    def holds(self, buf: Any) -> bool:
        """Whether ``buf`` is what the ring lies in."""
        if not self.registers:
            return is_shared(buf)
        return is_private(buf) and str(buf.name) == self.registers


@dataclass(frozen=True, slots=True)
class SlotUse:
    """One statement's use of one ring.

    ``marked``: its number among those with an origin, from 0; ``statement``: among all, as
    ``Operation`` has it. ``slot``: as the origin has it, an expression of the loop's variable.
    """

    marked: int
    statement: int
    origin: Origin
    buffer: str
    slot: str


def rings_of(plan: KernelPlan, fragments: Mapping[str, int]) -> dict[str, PlacedRing]:
    """The rings that have more than one slot, barriers' too, by buffer.

    ``fragments``: bytes of one fragment of each wmma buffer (``fragment_bytes``).
    """
    places = {place.buffer: place for place in plan.smem.buffers}
    found = {}
    for loop in plan.loops:
        for ring in loop.rings:
            place = places.get(ring.buffer)
            if ring.depth == 1:
                continue
            if place is not None and ring.scope.startswith("shared"):
                found[ring.buffer] = PlacedRing(place.offset, ring.depth, place.bytes // ring.depth)
            elif ring.scope == "local":
                found[ring.buffer] = PlacedRing(0, ring.depth, ring.slot_bytes, ring.buffer)
            elif ring.buffer in fragments:
                each = ring.slot_bytes // fragments[ring.buffer]
                found[ring.buffer] = PlacedRing(0, ring.depth, ring.slot_bytes, ring.buffer, each)
    for pair in plan.mbarriers:
        for name in filter(None, (pair.full, pair.empty)):
            place = places.get(name)
            if place is not None and pair.depth > 1:
                found[name] = PlacedRing(place.offset, pair.depth, place.bytes // pair.depth)
    return found


def fragment_bytes(func: Any) -> dict[str, int]:
    """Bytes of one fragment of every wmma buffer of a lowered device function, by name."""
    found: dict[str, int] = {}

    def visit(stmt: Any) -> None:
        if stmt.attr_key == _FRAGMENT_SHAPE:
            shape = [int(extent) for extent in str(stmt.value.value).split(",")]
            size = dtype_bytes(stmt.node.dtype) * fragment_elements(stmt.node, shape)
            found[str(stmt.node.name)] = size

    walk(func.body, tirx.AttrStmt, visit)
    return found


def slot_uses(func: Any, rings: Mapping[str, PlacedRing]) -> tuple[SlotUse, ...]:
    """Every use of a slot of ``rings`` in a lowered device function, in program order."""
    marked = [(stmt, number) for stmt, _, number in numbered(func.body) if origin_of(stmt)]
    found: list[SlotUse] = []
    for at, (stmt, number) in enumerate(marked):
        origin = origin_of(stmt)
        assert origin is not None
        found += [
            SlotUse(at, number, origin, place.buffer, place.slot)
            for place in origin.places
            if place.slot
            and place.buffer in rings
            # waits and barriers name the slots that they are for
            and touches(stmt, rings[place.buffer])
        ]
    return tuple(found)


def shift(func: Any, use: SlotUse, ring: PlacedRing) -> Any:
    """Return ``func`` with the statement of ``use`` one slot further in its ring."""
    return replace_nth(
        func,
        (tirx.AttrStmt,),
        lambda stmt: origin_of(stmt) is not None,
        use.marked,
        lambda stmt: _shifted(stmt, ring),
    )


def touches(stmt: Any, ring: PlacedRing) -> bool:
    """Whether anything in ``stmt`` reads, writes or addresses ``ring``."""
    found: list[tuple[Any, Any]] = []

    def access(buf: Any, indices: Any) -> None:
        if ring.holds(buf):
            found.extend((index, buf.dtype) for index in indices)

    def address(call: Any) -> None:
        if _is_address(call, ring):
            found.append((call.args[2], call.args[0].ty))

    walk(stmt, TensorLoad, lambda load: access(load.source, load.indices))
    walk(stmt, tirx.BufferStore, lambda store: access(store.buffer, store.indices))
    walk(stmt, ir.Call, address)
    numbers: list[Any] = []
    walk(stmt, ir.Call, lambda call: numbers.extend(_fragment_numbers(call, ring)))
    if numbers:
        return True
    return any(_may_be_inside(index, dtype_bytes(kind), ring) for index, kind in found)


def _may_be_inside(index: Any, size: int, ring: PlacedRing) -> bool:
    """Return whether ``index``, of elements of ``size`` bytes, may lie in ``ring``.

    Where everything that varies is zero an index is in its own ring's first slot, or unknown.
    """
    if ring.registers:
        return True
    if isinstance(index, tirx.Ramp):
        index = index.base
    nothing = tvm_ffi.structural_map(
        index,
        [
            (TensorLoad, lambda load: tirx.const(0, str(load.ty.dtype))),
            (ir.Var, lambda var: tirx.const(0, str(var.ty.dtype))),
        ],
        order="post",
    )
    try:
        first = int(evaluate(nothing, {}))
    except EmulatorError:
        return True
    return 0 <= first * size - ring.offset < ring.slots * ring.slot_bytes


def _shifted(stmt: Any, ring: PlacedRing) -> Any:
    """Return the statement with every address in ``ring`` moved to the next slot."""

    def load(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if not ring.holds(node.source):
            return node
        return tirx.BufferLoad(node.source, _moved(node.indices, node.source.dtype, ring))

    def store(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if not ring.holds(node.buffer):
            return node
        indices = _moved(node.indices, node.buffer.dtype, ring)
        return tirx.BufferStore(node.buffer, node.value, indices)

    def call(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        args = list(node.args)
        if _is_address(node, ring):
            args[2] = _rotated(args[2], dtype_bytes(args[0].ty), ring)
        for at in _fragment_numbers(node, ring):
            args[at] = _rotated(args[at], ring.slot_bytes // ring.fragments, ring)
        return ir.Call(node.op, args, node.attrs, ret_ty=node.ty)

    rules: list[tuple[Any, Callable[[Any, Any], Any]]] = [
        (TensorLoad, load),
        (tirx.BufferStore, store),
        (ir.Call, call),
    ]
    body = tvm_ffi.structural_mutate(stmt.body, rules)
    return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, body)


def _moved(indices: Any, dtype: Any, ring: PlacedRing) -> list[Any]:
    (index,) = indices  # TVM flattens every buffer
    size = dtype_bytes(dtype)
    if isinstance(index, tirx.Ramp):
        return [tirx.Ramp(_rotated(index.base, size, ring), index.stride, index.lanes)]
    return [_rotated(index, size, ring)]


def _rotated(index: Any, size: int, ring: PlacedRing) -> Any:
    """Return ``index``, of elements of ``size`` bytes, one slot further where in ``ring``."""

    def elements(count: int) -> Any:
        return tirx.const(count // size, str(index.ty.dtype))

    low, slot = elements(ring.offset), elements(ring.slot_bytes)
    total = elements(ring.slots * ring.slot_bytes)
    inside = tirx.And(index >= low, index < low + total)
    last = index >= low + total - slot
    following = tirx.Select(last, index - (total - slot), index + slot)
    return tirx.Select(inside, following, index)  # nothing that only LowerIntrin can print


def _fragment_numbers(call: Any, ring: PlacedRing) -> list[int]:
    """The arguments of a call that are numbers of fragments of ``ring``."""
    if not ring.fragments:
        return []
    return [
        number
        for at, number in FRAGMENT_OFFSETS.get(op_name(call), {}).items()
        if str(getattr(data_of(call.args[at]), "name", "")) == ring.registers
    ]


def _is_address(call: Any, ring: PlacedRing) -> bool:
    """Whether a call is an address, as a base and an offset, of what ``ring`` lies in."""
    if op_name(call) != ACCESS_PTR:
        return False
    if ring.registers:
        return str(getattr(call.args[1], "name", "")) == ring.registers
    return str(getattr(call.args[1].ty, "storage_scope", "")).startswith("shared")
