"""Translate atomic operations, strong loads and stores, and fences of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...errors import EmulatorError
from .expressions import Expressions
from .operation import PtxInstruction
from .source import Val

_TYPES: Final = {
    "u8": "uint8",
    "s8": "int8",
    "u16": "uint16",
    "s16": "int16",
    "u32": "uint32",
    "s32": "int32",
    "u64": "uint64",
    "s64": "int64",
    "f32": "float32",
    "f64": "float64",
    "b8": "uint8",
    "b16": "uint16",
    "b32": "uint32",
    "b64": "uint64",
}
"""Dtype of each type of memory instructions."""

_DEFAULT: Final = ("relaxed", "gpu")
"""Semantics and scope of an atomic operation that states none, as of CUDA's atomicAdd."""


def update(
    c: Expressions,
    target: Any,
    operation: str,
    value: Val,
    *,
    compare: Val | None = None,
    order: tuple[str, str] = _DEFAULT,
) -> Val:
    """Emit a read-modify-write of the element at an address; return what it finds there."""
    ref, at = c.element(c.pointer(target), value.dtype)
    c.note_access(ref, 1, writes=True, atomic=True)
    view = c.view(ref.memory, ref.dtype)
    found = c.writer.fresh("found")
    compared = "None" if compare is None else compare.text
    c.writer.emit(
        f"{found} = atomics.update(s, {view}, {at.text}, {operation!r}, {value.text}, "
        f"{compared}, {order!r}, {c.mask})"
    )
    return Val(found, value.dtype, 1, True, c.writer.depth, False)


def _dtype(ins: PtxInstruction) -> str:
    ins.expect(type=tuple(_TYPES))
    return _TYPES[ins.modifiers["type"]]


def _order(ins: PtxInstruction, default: str) -> tuple[str, str]:
    semantics = ins.modifiers.get("sem", "") or default
    if semantics == "volatile":
        return "relaxed", "sys"
    return semantics, ins.modifiers.get("scope", "") or "gpu"


def _atom(c: Expressions, ins: PtxInstruction) -> None:
    operation = ins.modifiers["op"]
    compare = c.cast(c.expr(ins.one("compare")), _dtype(ins)) if operation == "cas" else None
    value = c.cast(c.expr(ins.one("value")), _dtype(ins))
    found = update(
        c,
        ins.one("addr"),
        "exch" if operation == "cas" else operation,
        value,
        compare=compare,
        order=_order(ins, "relaxed"),
    )
    if "d" in ins.operands:
        c.assign(ins.one("d"), found)


def _global(c: Expressions, ins: PtxInstruction, **use: bool) -> tuple[str, str]:
    """View and index of an access, which must be to global memory."""
    ref, at = c.element(c.pointer(ins.one("addr")), _dtype(ins))
    if ref.memory.space != "global":
        raise EmulatorError("ptx.space", instruction=ins.name, space=ref.memory.space)
    c.note_access(ref, 1, **use)
    return c.view(ref.memory, ref.dtype), at.text


def _load(c: Expressions, ins: PtxInstruction) -> None:
    order = _order(ins, "weak")
    weak = order[0] == "weak"
    view, at = _global(c, ins, reads=True, atomic=not weak)
    text = (
        f"np.broadcast_to({view}.load(s, {at}, {c.mask}, 1), s.n)"
        if weak
        else f"atomics.load(s, {view}, {at}, {order!r}, {c.mask})"
    )
    name = c.writer.fresh("loaded")
    c.writer.emit(f"{name} = {text}")
    c.assign(ins.one("d"), Val(name, _dtype(ins), 1, True, c.writer.depth, False))


def _store(c: Expressions, ins: PtxInstruction) -> None:
    if ins.modifiers["space"] == "shared::cluster":
        _store_cluster(c, ins)
        return
    order = _order(ins, "weak")
    weak = order[0] == "weak"
    value = c.cast(c.expr(ins.one("value")), _dtype(ins))
    view, at = _global(c, ins, writes=True, atomic=not weak)
    c.writer.emit(
        f"{view}.store(s, {at}, {value.text}, {c.mask}, 1)"
        if weak
        else f"atomics.store(s, {view}, {at}, {value.text}, {order!r}, {c.mask})"
    )


def _store_cluster(c: Expressions, ins: PtxInstruction) -> None:
    """Emit a store into the shared memory of a CTA of the cluster, at an address from mapa."""
    ins.expect(sem=("", "weak"), cop=("",), l1ev=("",), cache=("",), type=("f32", "s32", "b32"))
    dtype = _dtype(ins)
    values = [c.cast(c.expr(value), dtype).text for value in ins.operands["value"]]
    c.note_shared(4 * len(values))
    at = c.expr(ins.one("addr")).text
    listed = ", ".join(values)
    c.writer.emit(f"hopper.store_cluster(s, {at}, [{listed}], {dtype!r}, {c.mask})")


def _store_vector(c: Expressions, ins: PtxInstruction) -> None:
    ins.expect(space=("shared::cluster",))
    _store_cluster(c, ins)


def _fence(c: Expressions, ins: PtxInstruction) -> None:
    c.writer.emit(f"atomics.fence(s, {ins.modifiers['scope']!r}, {c.mask})")


HANDLERS: Final[dict[str, Callable[[Any, Any], None]]] = {
    **dict.fromkeys(("atom", "red", "atom_cas", "atom_exch"), _atom),
    "ld": _load,
    "st": _store,
    "st_vec": _store_vector,
    "fence": _fence,
}
