"""Translate bulk copies: boxes of tensor maps, and plain ranges of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tvm import ir

from ...errors import EmulatorError
from ..base.dtypes import PTX_TYPES
from ..units.mbarrier import SIZE
from .expressions import Expressions
from .operation import PtxInstruction, op_name
from .ptx_hopper import address

_BULK_GRANULE: Final = 16
"""Bytes to which bulk copies are aligned."""

_ADD_TYPES: Final = {**PTX_TYPES, "s64": "int64", "u64": "uint64"}
"""Dtype of each type that a bulk reduction adds."""


def _map(c: Expressions, node: Any, *, store: bool = False, add: bool = False) -> str:
    """Name of the kernel parameter that is a tensor map."""
    while isinstance(node, ir.Call):
        node = node.args[0] if op_name(node) == "tirx.address_of" else node.args[-1]
    memory = c.pointers.get(node)
    if memory is None:
        raise EmulatorError("ptx.tensor_map", expression=str(node))
    use = {"writes": store, "reads": not store, "atomic": add}
    c.note_global(memory, 0, engine=True, **use)
    return memory.param


def _coords(c: Expressions, ins: PtxInstruction) -> str:
    return "[" + ", ".join(c.expr(node).text for node in ins.operands["coords"]) + "]"


def _multicast(c: Expressions, ins: PtxInstruction) -> str:
    return c.expr(ins.one("cta_mask")).text if "cta_mask" in ins.operands else "None"


def _tensor_load(c: Expressions, ins: PtxInstruction) -> None:
    ins.expect(load_mode=("", "tile", "im2col"), cta_group=("",))
    name, to = address(c, ins.one("dst_mem"), _BULK_GRANULE)
    _, bar = address(c, ins.one("mbar"), SIZE)
    offsets = "None"
    if ins.modifiers.get("load_mode") == "im2col":
        offsets = "[" + ", ".join(c.expr(node).text for node in ins.operands["im2col_info"]) + "]"
    c.writer.emit(
        f"tma.tensor_load(s, {name!r}, {to}, {_map(c, ins.one('tmap'))}, "
        f"{_coords(c, ins)}, {bar}, {offsets}, {_multicast(c, ins)}, "
        f"{c.mask})"
    )


def _tensor_store(c: Expressions, ins: PtxInstruction) -> None:
    ins.expect(load_mode=("", "tile"), redop=("", "add"))
    name, at = address(c, ins.one("src_mem"), _BULK_GRANULE)
    add = "redop" in ins.modifiers
    tmap = _map(c, ins.one("tmap"), store=True, add=add)
    c.writer.emit(
        f"tma.tensor_store(s, {name!r}, {at}, {tmap}, {_coords(c, ins)}, {add}, {c.mask})"
    )


def _global(c: Expressions, node: Any, **use: bool) -> tuple[str, str]:
    """View of a global array as bytes, and the text of an offset in it."""
    pointer = c.pointer(node)
    if pointer.memory.space != "global":
        raise EmulatorError("ptx.address_space", expected="global", space=pointer.memory.space)
    c.note_global(pointer.memory, _BULK_GRANULE, engine=True, **use)
    return c.view(pointer.memory, "uint8"), c.units(pointer, 1).text


def _bulk_load(c: Expressions, ins: PtxInstruction) -> None:
    ins.expect(ignore_oob=("",))
    name, to = address(c, ins.one("dst_mem"), _BULK_GRANULE)
    _, bar = address(c, ins.one("mbar"), SIZE)
    view, start = _global(c, ins.one("src_mem"), reads=True)
    c.writer.emit(
        f"tma.bulk_load(s, {name!r}, {to}, {view}, {start}, "
        f"{c.expr(ins.one('size')).text}, {bar}, {_multicast(c, ins)}, "
        f"{c.mask})"
    )


def _bulk_share(c: Expressions, ins: PtxInstruction) -> None:
    name, at = address(c, ins.one("src_mem"), _BULK_GRANULE)
    _, to = address(c, ins.one("dst_mem"), _BULK_GRANULE)
    _, bar = address(c, ins.one("mbar"), SIZE)
    size = c.expr(ins.one("size"))
    c.writer.emit(f"tma.bulk_share(s, {name!r}, {to}, {at}, {size.text}, {bar}, {c.mask})")


def _bulk_store(c: Expressions, ins: PtxInstruction) -> None:
    ins.expect(redop=("", "add"), cp_mask=("",))
    name, at = address(c, ins.one("src_mem"), _BULK_GRANULE)
    view, to = _global(c, ins.one("dst_mem"), writes=True, atomic="redop" in ins.modifiers)
    add = "None"
    if "redop" in ins.modifiers:
        ins.expect(type=tuple(_ADD_TYPES))
        add = c.dtype(_ADD_TYPES[ins.modifiers["type"]])
    c.writer.emit(
        f"tma.bulk_store(s, {name!r}, {view}, {to}, {at}, "
        f"{c.expr(ins.one('size')).text}, {add}, {c.mask})"
    )


def _bulk_commit(c: Expressions, ins: PtxInstruction) -> None:
    c.writer.emit(f"tma.bulk_commit(s, {c.mask})")


def _bulk_wait(c: Expressions, ins: PtxInstruction) -> None:
    read = bool(ins.modifiers["read"])
    c.writer.emit(f"tma.bulk_wait(s, {c.expr(ins.one('group')).text}, {read}, {c.mask})")


HANDLERS: Final[dict[str, Callable[[Any, PtxInstruction], None]]] = {
    **dict.fromkeys(
        (
            "cp_async_bulk_tensor_g2s_cluster",
            "cp_async_bulk_tensor_g2s_cta",
            "cp_async_bulk_tensor_g2s_cluster_im2col",
            "cp_async_bulk_tensor_g2s_cta_im2col",
            "cp_async_bulk_tensor_g2s_cluster_multicast16",
        ),
        _tensor_load,
    ),
    "cp_async_bulk_tensor_s2g": _tensor_store,
    "cp_reduce_async_bulk_tensor": _tensor_store,
    **dict.fromkeys(
        (
            "cp_async_bulk_g2s_cluster",
            "cp_async_bulk_g2s_cta",
            "cp_async_bulk_g2s_cluster_multicast16",
        ),
        _bulk_load,
    ),
    "cp_async_bulk_s2c": _bulk_share,
    "cp_async_bulk_s2g": _bulk_store,
    "cp_reduce_async_bulk_s2g": _bulk_store,
    "cp_async_bulk_commit_group": _bulk_commit,
    "cp_async_bulk_wait_group": _bulk_wait,
}
