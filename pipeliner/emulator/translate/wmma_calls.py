"""Translate the calls of the wmma API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...errors import EmulatorError
from .expressions import Expressions
from .operation import op_name, string


def _fragment(c: Expressions, node: Any) -> tuple[str, str, str]:
    """View, dtype and role (matrix_a, matrix_b, accumulator) of a fragment."""
    pointer = c.pointer(node)
    role = str(node.ty.storage_scope).removeprefix("wmma.")
    if pointer.memory.space != "wmma":
        raise EmulatorError("emulator.fragment_space", space=pointer.memory.space)
    return c.view(pointer.memory, pointer.dtype), pointer.dtype, role


def _tile(role: str, shape: tuple[int, int, int]) -> tuple[int, int]:
    m, n, k = shape
    return {"matrix_a": (m, k), "matrix_b": (k, n), "accumulator": (m, n)}[role]


def _shape(c: Expressions, call: Any) -> tuple[int, int, int]:
    m, n, k = (int(a.value) for a in call.args[1:4])
    c.wmma_shape = (m, n, k)
    return m, n, k


def _wmma_fill(c: Expressions, call: Any) -> None:
    view, _, role = _fragment(c, call.args[0])
    tile = _tile(role, _shape(c, call))
    index, value = c.expr(call.args[4]), c.expr(call.args[5])
    c.writer.emit(f"wmma.fill(s, {view}, {index.text}, {tile}, {value.text}, {c.mask})")


def _wmma_move(c: Expressions, call: Any) -> None:
    view, dtype, role = _fragment(c, call.args[0])
    tile = _tile(role, _shape(c, call))
    index = c.expr(call.args[4])
    ref, at = c.element(c.pointer(call.args[5]), dtype)
    stride = c.expr(call.args[6])
    row_major = string(call.args[7]) == "row_major"
    move = "load" if "load" in op_name(call) else "store"
    c.note_access(ref, 1, reads=move == "load", writes=move == "store")
    c.writer.emit(
        f"wmma.{move}(s, {view}, {index.text}, {tile}, {c.view(ref.memory, dtype)}, {at.text}, "
        f"{stride.text}, {row_major}, {c.mask})"
    )


def _wmma_mma(c: Expressions, call: Any) -> None:
    if c.wmma_shape is None:
        raise EmulatorError("emulator.wmma_shape")
    parts = []
    for i in range(0, 8, 2):
        view, _, _ = _fragment(c, call.args[i])
        parts.append(f"({view}, {c.expr(call.args[i + 1]).text})")
    c.writer.emit(f"wmma.mma(s, {', '.join(parts)}, {c.wmma_shape}, {c.mask})")


HANDLERS: Final[dict[str, Callable[[Any, Any], None]]] = {
    "tirx.tvm_fill_fragment": _wmma_fill,
    "tirx.tvm_load_matrix_sync": _wmma_move,
    "tirx.tvm_store_matrix_sync": _wmma_move,
    "tirx.tvm_mma_sync": _wmma_mma,
}
