"""Find which memory a buffer is a view of (an allocation, or a parameter's data), and where in it.

    Yv = T.decl_buffer((20, 128), "float32", data=Y.data, elem_offset=64)    a view of Y
    p = T.address_of(Y[3, 0]); Yp = T.decl_buffer((64,), "int32", data=p)     another, from 768 on

A buffer declared over another one's data is a *view* of the memory that the other one is or views.
Two parameters are two memories, and so are two allocations. A raw pointer parameter is one memory,
however many buffers are declared over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Var

from ..ir.calls import ACCESS_PTR, ADDRESS_OF, BUFFER_DATA, CASTS, called
from ..ir.indexing import offset, strides
from ..ir.nodes import (
    Buffer,
    Call,
    Expr,
    TensorLoad,
    const_int,
    dtype_bytes,
    i32,
    is_buffer_var,
    walk,
)

WIDE: Final = 1 << 31
"""Elements, or bytes, from which on an offset in a memory is computed in 64 bits."""


@dataclass(frozen=True, slots=True)
class Address:
    """A place ``start`` bytes into the memory ``root``, which is a buffer or a raw pointer."""

    root: Var
    start: Expr


@dataclass(slots=True)
class Memories:
    """Knows what the views and pointers declared so far point into; other buffers are memories."""

    places: dict[Var, Address] = field(default_factory=dict)
    roots: dict[Var, Buffer] = field(default_factory=dict)

    def declare(self, stmt: Any) -> bool:
        """Record a declared buffer or a named pointer; return whether it is a view of known memory.

        The first buffer over a raw pointer represents its memory.
        """
        is_bind = isinstance(stmt, tirx.Bind)
        if is_bind and not is_pointer(stmt.var):
            return False
        found = self.pointed(stmt.value if is_bind else stmt.data)
        if found is None:
            return False
        if is_bind:
            self.places[stmt.var] = found
            return True
        if not is_buffer_var(found.root):
            if found.root not in self.roots:
                if _is_plain(stmt.buffer) and const_int(found.start) == 0:
                    self.roots[found.root] = stmt.buffer
                return False
            found = Address(self.roots[found.root], found.start)
        self.places[stmt.buffer] = found
        return True

    def place(self, buf: Buffer) -> Address:
        """Return where the data of ``buf`` starts."""
        return self.places.get(buf, Address(buf, i32(0)))

    def pointed(self, pointer: Any) -> Address | None:
        """Return where an expression points; None if it is no pointer into a memory."""
        if isinstance(pointer, Var):
            if pointer in self.places:
                return self.places[pointer]
            raw = not is_buffer_var(pointer) and is_pointer(pointer)
            return Address(pointer, i32(0)) if raw else None
        if not isinstance(pointer, Call):
            return None
        name, args = called(pointer), pointer.args
        if name == BUFFER_DATA:
            return self.place(args[0])
        if name == ADDRESS_OF and isinstance(args[0], TensorLoad):
            load = args[0]
            start = flat(load.source, list(load.indices)) * dtype_bytes(load.source.dtype)
            return _further(self.place(load.source), start)
        if name == ACCESS_PTR:
            inner = self.pointed(args[1])
            unit = dtype_bytes(args[0].ty if hasattr(args[0], "ty") else "int8")
            return None if inner is None else _further(inner, args[2] * unit)
        if name == "tirx.ptr_byte_offset":
            inner = self.pointed(args[0])
            return None if inner is None else _further(inner, args[1])
        return self.pointed(args[-1]) if name in CASTS else None


def memories(body: Any) -> Memories:
    """Return what the declarations in ``body`` say, in order."""
    found = Memories()
    walk(body, (tirx.DeclBuffer, tirx.Bind), found.declare)
    return found


def pointed(body: Any) -> frozenset[Buffer]:
    """Return the buffers whose data calls get: their memory must be laid out as declared."""
    found: set[Buffer] = set()

    def taken(call: Any) -> None:
        addressed = called(call) == ADDRESS_OF
        for arg in call.args:
            if is_buffer_var(arg):
                found.add(arg)
            elif addressed and isinstance(arg, TensorLoad):
                found.add(arg.source)

    walk(body, Call, taken)
    return frozenset(found)


def flat(buf: Buffer, indices: Sequence[Expr]) -> Expr:
    """Return the elements from the data of ``buf`` to the one at ``indices``."""
    if is_wide(buf):
        indices = [tirx.Cast("int64", index) for index in indices]
    return offset(buf, [tvm_ffi.structural_map(index, _QUOTIENTS) for index in indices])


def _as_quotient(node: Any) -> Expr:
    """Return a modulo written with the quotient, so that the two cancel in a sum."""
    return node.a - tirx.floordiv(node.a, node.b) * node.b


_QUOTIENTS: Final = [(tirx.FloorMod, _as_quotient)]


def byte_span(
    named: Memories, buf: Buffer, box: Sequence[tuple[Expr, int]] | None
) -> tuple[Expr, int] | None:
    """Return the first byte of a region of ``buf`` in its memory, and its length; None if unknown.

    ``box``: first index and extent of each dimension.
    """
    if box is None:
        return None
    steps = [const_int(stride) for stride in strides(buf)]
    if None in steps:
        return None
    size = dtype_bytes(buf.dtype)
    first = flat(buf, [index for index, _ in box]) * size
    reach = sum((extent - 1) * (step or 0) for (_, extent), step in zip(box, steps))
    return _further(named.place(buf), first).start, (reach + 1) * size


def is_wide(buf: Buffer) -> bool:
    """Whether bytes of ``buf`` may lie beyond what 32 bits count."""
    total = dtype_bytes(buf.dtype)
    for extent in buf.shape:
        size = const_int(extent)
        if size is None:
            return False
        total *= size
    return total >= WIDE


def rooted(
    named: Memories, view: Buffer, indices: Sequence[Expr], ranges: sym.Analyzer
) -> list[Expr] | None:
    """Return the indices in its memory of ``view`` at ``indices``; None if they are unknown.

    Elements of both have one size. ``ranges``: an analyzer that knows the bounds of every variable.
    """
    root, start = named.place(view).root, first_element(named, view, ranges)
    if start is None:
        return None
    if const_int(start) == 0 and _has_rows_of(view, root):
        return list(indices)
    if is_wide(root):
        indices = [tirx.Cast("int64", index) for index in indices]
    return _unflattened(root, flat(view, indices) + start, ranges)


def first_element(named: Memories, view: Buffer, ranges: sym.Analyzer) -> Expr | None:
    """Return the elements before a view's data in its memory; None if that is not row-major.

    None also if their elements have different sizes.
    """
    place, size = named.place(view), dtype_bytes(view.dtype)
    if dtype_bytes(place.root.dtype) != size or not _is_plain(place.root):
        return None
    if any(const_int(extent) is None for extent in list(place.root.shape)[1:]):
        return None
    if const_int(ranges.simplify(tirx.floormod(place.start, size))) != 0:
        return None
    return ranges.simplify(tirx.floordiv(place.start, size))


def pointer_to(root: Buffer, element: Expr, ranges: sym.Analyzer) -> Expr:
    """Return the address of an ``element`` of a row-major memory."""
    if const_int(element) == 0:
        return root.data
    return tirx.address_of(tirx.BufferLoad(root, _unflattened(root, element, ranges)))


def _unflattened(root: Buffer, element: Expr, ranges: sym.Analyzer) -> list[Expr]:
    indices: list[Expr] = []
    for extent in reversed(list(root.shape)[1:]):
        indices.insert(0, ranges.simplify(tirx.floormod(element, extent)))
        element = tirx.floordiv(element, extent)
    return [ranges.simplify(element), *indices]


def _has_rows_of(view: Buffer, root: Buffer) -> bool:
    """Whether an index of ``view`` is the same index of ``root``."""
    inner, other = list(view.shape)[1:], list(root.shape)[1:]
    return _is_plain(view) and len(inner) == len(other) and all(map(_same, inner, other))


def _same(a: Expr, b: Expr) -> bool:
    return bool(tvm_ffi.structural_equal(a, b))


def _is_plain(buf: Buffer) -> bool:
    """Whether the elements of ``buf`` are row-major from its data on."""
    if const_int(buf.elem_offset) != 0:
        return False
    dense: Any = i32(1)
    for extent, stride in zip(reversed(list(buf.shape)), reversed(list(strides(buf)))):
        if const_int(sym.Analyzer().simplify(stride - dense)) != 0:
            return False
        dense = dense * extent
    return True


def is_pointer(var: Var) -> bool:
    """Whether ``var`` holds an address."""
    return type(var.ty).__name__ == "PointerType"


def _further(place: Address, start: Expr) -> Address:
    return Address(place.root, start if const_int(place.start) == 0 else place.start + start)
