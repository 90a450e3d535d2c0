"""Addresses: which memory an expression points into, and where."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm.ir import prim
from tvm.tirx.buffer import is_buffer_var

from ...errors import EmulatorError
from ..base.dtypes import numpy_dtype, split_lanes
from ..base.intervals import combined
from .access import Translation
from .buffers import BufferRef, Pointer
from .operation import ADDRESSES, is_address, op_name
from .source import Val


class Pointers(Translation):
    """Translation of addresses."""

    def units(self, pointer: Pointer, size: int) -> Val:
        """Index of a pointer in elements of ``size`` bytes."""
        if pointer.unit % size == 0:
            return self.scale(pointer.index, pointer.unit // size)
        total = self.scale(pointer.index, pointer.unit)
        if total.const is not None:
            return self.const(int(total.const) // size, total.dtype)
        known = combined("floor_div", total.span, (size, size))
        return self.make(f"({total.text} // {size})", total.dtype, [total], known=known)

    def bytes_of(self, pointer: Pointer) -> Val:
        """Byte offset in the memory; in the shared window for shared memory."""
        offset = self.units(pointer, 1)
        if pointer.memory.space == "shared":
            return self.add(offset, self.const(pointer.memory.base, offset.dtype))
        return offset

    def element(self, pointer: Pointer, dtype: str) -> tuple[BufferRef, Val]:
        """A pointer as a buffer of ``dtype`` and an element index."""
        size = numpy_dtype(dtype).itemsize
        ref = BufferRef(pointer.memory, pointer.memory.name, dtype, 1, self.const(0, "int32"))
        return ref, self.units(pointer, size)

    def pointer(self, node: Any) -> Pointer:
        """The memory and offset an address expression denotes."""
        if isinstance(node, ir.Var):
            return self._pointer_var(node)
        if isinstance(node, ir.Call):
            return self._pointer_call(node)
        if isinstance(node, prim.Cast):
            return self.pointer(node.value)
        if isinstance(node, prim.Add):
            first = is_address(node.a) or isinstance(self.env.get(node.a), Pointer)
            base, offset = (node.a, node.b) if first else (node.b, node.a)
            return self.shifted(self.pointer(base), self.expr(offset))
        raise EmulatorError("emulator.address", kind=type(node).__name__, expression=str(node))

    def _pointer_call(self, call: Any) -> Pointer:
        name, args = op_name(call), call.args
        if name == "tirx.address_of":
            load = args[0]
            ref = self.buffer(load.source)
            at, _ = self.index(ref, load.indices)
            return Pointer(ref.memory, at, numpy_dtype(ref.dtype).itemsize, ref.dtype)
        if name == "tirx.buffer_data":
            return self.pointer(args[0])
        if name == "tirx.tvm_access_ptr":
            dtype, lanes = split_lanes(args[0].ty)
            size = numpy_dtype(dtype).itemsize * lanes
            return self.advanced(self.pointer(args[1]), self.expr(args[2]), size)
        if name == "tirx.cuda.cvta_generic_to_shared":
            return self.pointer(args[0])
        if name in ADDRESSES:
            return self.shifted(self.pointer(args[0]), self.expr(args[1]))
        raise EmulatorError("emulator.address", kind=name, expression=str(call))

    def _pointer_var(self, var: Any) -> Pointer:
        zero = self.const(0, "int32")
        if var in self.pointers:
            return Pointer(self.pointers[var], zero, 1, "uint8")
        known = self.env.get(var)
        if isinstance(known, Pointer):
            return known
        if is_buffer_var(var):
            ref = self.buffer(var)
            size = numpy_dtype(ref.dtype).itemsize * ref.lanes
            return Pointer(ref.memory, ref.offset, size, ref.dtype)
        raise EmulatorError("emulator.pointer", name=var.name)

    def shifted(self, pointer: Pointer, offset: Val) -> Pointer:
        """Return a pointer moved by bytes."""
        self.use(offset)
        moved = self.add(self.units(pointer, 1), offset)
        return Pointer(pointer.memory, moved, 1, pointer.dtype)

    def advanced(self, pointer: Pointer, elements: Val, size: int) -> Pointer:
        """Return a pointer moved by elements of ``size`` bytes."""
        self.use(elements)
        return Pointer(
            pointer.memory, self.add(self.units(pointer, size), elements), size, pointer.dtype
        )
