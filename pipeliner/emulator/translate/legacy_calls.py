"""Translate asynchronous copies and matrix operations in TVM's older forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...errors import EmulatorError
from ..base.dtypes import numpy_dtype, split_lanes
from . import ptx
from .buffers import Pointer
from .expressions import Expressions
from .operation import string


def _pointee_size(pointer_node: Any) -> int:
    """Bytes of the element a handle points to; 1 if it does not say."""
    element = getattr(getattr(pointer_node, "ty", None), "element_type", None)
    dtype = getattr(element, "dtype", None)
    if dtype is None:
        return 1
    base, lanes = split_lanes(dtype)
    return numpy_dtype(base).itemsize * lanes


def _cp_async_raw(c: Expressions, call: Any) -> None:
    dst_node, dst_offset, src_node, src_offset, size = call.args[:5]
    dst = c.advanced(c.pointer(dst_node), c.expr(dst_offset), _pointee_size(dst_node))
    src = c.advanced(c.pointer(src_node), c.expr(src_offset), _pointee_size(src_node))
    if len(call.args) == 5:
        ptx.emit_cp_async(c, dst, src, int(size.value), None)
        return
    # TVM prints `@p cp.async` and `@!p st.shared` of zeros: the zero fill is a plain store.
    predicate = c.settle(c.cast(c.expr(call.args[5]), "bool"), "pred")
    where = (predicate.text, f"~{predicate.text}")
    if not predicate.varying:
        where = (predicate.text, f"not {predicate.text}")
    with c.under(where[0]):
        ptx.emit_cp_async(c, dst, src, int(size.value), None)
    with c.under(where[1]):
        at = c.bytes_of(dst)
        target = f"{dst.memory.name!r}, {at.text}"
        c.writer.emit(f"warp.zero_shared(s, {target}, {size.value}, {c.mask})")


def _local_pointer(c: Expressions, node: Any, offset: Any) -> tuple[Pointer, str]:
    """A register array and offset, as a pointer and the text ``(view, byte offset)``."""
    base = c.pointer(node)
    size = numpy_dtype(base.dtype).itemsize
    pointer = c.advanced(base, c.expr(offset), size)
    if pointer.memory.space != "local":
        raise EmulatorError("emulator.fragment_space", space=pointer.memory.space)
    return pointer, f"({c.view(pointer.memory, 'uint8')}, {c.units(pointer, 1).text})"


def _mma_legacy(c: Expressions, call: Any) -> None:
    shape, a_layout, b_layout, a_type, b_type, c_type = (string(a) for a in call.args[:6])
    if (a_layout, b_layout) != ("row", "col"):
        raise EmulatorError("ptx.mma_layouts", a_layout=a_layout, b_layout=b_layout)
    spec = c.mma(shape, a_type, b_type, c_type)
    places = [_local_pointer(c, call.args[i], call.args[i + 1])[1] for i in (6, 8, 10)]
    saturate = bool(call.args[12].value)
    c.writer.emit(f"warp.mma_legacy(s, {spec}, {', '.join(places)}, {saturate}, {c.mask})")


def _ldmatrix_legacy(c: Expressions, call: Any) -> None:
    transposed, count = bool(call.args[0].value), int(call.args[1].value)
    dst, place = _local_pointer(c, call.args[3], call.args[4])
    base = c.pointer(call.args[5])
    offset = c.expr(call.args[6])
    size = numpy_dtype(base.dtype).itemsize
    if transposed and size == 1:
        c.note_shared(1)
        at = c.bytes_of(base)
        view = c.view(dst.memory, "uint8")
        target = f"({view}, {c.units(dst, 1).text})"
        c.writer.emit(
            f"warp.ldmatrix_legacy_int8_trans(s, {target}, {at.text}, {offset.text}, "
            f"{c.dtype(base.dtype)}, {c.mask})"
        )
        return
    c.note_shared(16)
    at = c.bytes_of(c.advanced(base, offset, size))
    c.writer.emit(
        f"warp.store_registers(s, {place}, "
        f"warp.ldmatrix(s, {at.text}, {count}, {transposed}, {c.mask}), {c.mask})"
    )


def _mma_fill(c: Expressions, call: Any) -> None:
    dtype, _ = split_lanes(call.ty)
    base, _ = _local_pointer(c, call.args[1], call.args[2])
    ref, at = c.element(base, dtype)
    zero = c.const(0, dtype)
    for i in range(int(call.args[0].value)):
        c.store_at(ref, c.add(at, c.const(i, at.dtype)), 1, zero)


def _mma_store(c: Expressions, call: Any) -> None:
    m, n = int(call.args[0].value), int(call.args[1].value)
    if (m, n) != (16, 16):
        raise EmulatorError("emulator.mma_store", m=m, n=n)
    dtype, _ = split_lanes(call.ty)
    target = c.pointer(call.args[2])
    ref, at = c.element(target, target.dtype)
    c.note_access(ref, 1, writes=True)
    source, _ = _local_pointer(c, call.args[3], call.args[4])
    local, first = c.element(source, source.dtype)
    stride = c.expr(call.args[5])
    c.writer.emit(
        f"warp.mma_store_legacy(s, {c.view(ref.memory, ref.dtype)}, {at.text}, {stride.text}, "
        f"({c.view(local.memory, local.dtype)}, {first.text}), {c.dtype(dtype)}, {c.mask})"
    )


HANDLERS: Final[dict[str, Callable[[Any, Any], None]]] = {
    "tirx.s_tir.cp_async_raw": _cp_async_raw,
    "tirx.ptx_legacy.mma": _mma_legacy,
    "tirx.ptx_legacy.ldmatrix": _ldmatrix_legacy,
    "tirx.mma_fill_legacy": _mma_fill,
    "tirx.mma_fill": _mma_fill,
    "tirx.mma_store_legacy": _mma_store,
}
