"""Say what an instruction does through its operands, from TVM's PTX table and additions here.

    ldmatrix(R, &S[..])   =>   writes operand 0, reads operand 1
    wgmma(acc, desc A, desc B)   =>   reads and writes acc, reads by descriptor until a wait

``effects`` asks it for each call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tvm.backend.cuda.ptx.table import TABLE, mods, operand_layout

from ..ir.calls import (
    ADDRESS_OF,
    CP_ASYNC_COPY,
    MAP_LOADS,
    MAP_STORES,
    MBARRIERS,
    PTX,
    WGMMA_COMMIT,
    WGMMA_FENCE,
    WGMMA_WAIT,
    called,
    uncast,
)
from ..ir.nodes import const_int

READ: Final = "r"
WRITE: Final = "w"
BOTH: Final = "rw"

# Operand positions that are pointers, of the instructions TVM keeps outside its PTX table.
_POINTER_ROLES: Final[dict[str, dict[int, str]]] = {
    "tirx.ptx_legacy.ldmatrix": {3: WRITE, 5: READ},
    "tirx.ptx_legacy.mma": {6: READ, 8: READ, 10: BOTH},
    "tirx.mma_fill_legacy": {1: WRITE},
    "tirx.mma_store": {2: WRITE, 3: READ},
    "tirx.mma_store_legacy": {2: WRITE, 3: READ},
    "tirx.tvm_load_matrix_sync": {0: WRITE, 5: READ},
    "tirx.tvm_mma_sync": {0: WRITE, 2: READ, 4: READ, 6: READ},
    "tirx.tvm_fill_fragment": {0: WRITE},
    "tirx.tvm_store_matrix_sync": {0: READ, 5: WRITE},
}
_CP_ASYNC_RAW: Final = "tirx.s_tir.cp_async_raw"

_WGMMA_ORDER: Final = (WGMMA_FENCE, WGMMA_COMMIT, WGMMA_WAIT)
"""Instructions that order wgmmas of the same op, or earlier ones."""

_PREDICATED: Final = "pred"
"""Flag of a call that has one more operand, behind all others: the predicate that it runs under."""

_KEEPS_POSITIONS: Final = re.compile(rf"|p\d+|keep|{_PREDICATED}")
"""Flags that shift no operand; a register that is not there, for instance, does."""

_MMA_CALLS: Final = ("tirx.ptx_legacy.mma", "tirx.tvm_mma_sync")
_ATOMIC_CALLS: Final = ("tirx.atomic_add", "tirx.cuda.atomic_add", "tirx.cuda.atomic_cas")


@dataclass(frozen=True, slots=True)
class InstructionEffects:
    """What one instruction does through its operands.

    ``roles``: how it accesses what the operands at these positions point to; None if unknown.
    ``only_roles``: its other operands touch nothing. ``by_descriptor``: its pointers are in
    descriptors, by which it reads while the threads continue. ``is_async``: it is an asynchronous
    copy. ``is_mma``: it multiplies matrices. ``is_mma_wait``: it waits for all multiplications in
    flight. ``is_move``: it does not change the values. ``guard``: the position of the predicate
    that it runs under. ``in_rows``: at an address in shared memory it touches neighbours along the
    last dimension, ``width`` bytes in each thread (0: a warp shares what it touches).
    ``is_grouped``: what it touches is in flight until a wait for its group. ``is_atomic``: it is
    one access to what it reads and writes. ``orders_itself``: it works on an mbarrier.
    """

    roles: Mapping[int, str] | None = field(default_factory=dict)
    only_roles: bool = False
    by_descriptor: bool = False
    is_async: bool = False
    is_mma: bool = False
    is_mma_wait: bool = False
    is_move: bool = True
    guard: int | None = None
    in_rows: bool = False
    width: int = 0
    is_grouped: bool = False
    is_atomic: bool = False
    orders_itself: bool = False


@dataclass(frozen=True, slots=True)
class _Family:
    """What the instructions of a PTX family have in common.

    ``addresses``: how they access what each address operand points to, where that is known.
    """

    addresses: tuple[str, ...] = ()
    is_move: bool = False
    is_mma: bool = False
    by_descriptor: bool = False
    in_rows: bool = False
    is_atomic: bool = False


_FAMILIES: Final[dict[str, _Family]] = {
    "cp": _Family(is_move=True),
    "mov": _Family(is_move=True),
    "ld": _Family((READ,), is_move=True),
    "ldmatrix": _Family((READ,), is_move=True, in_rows=True),
    "st": _Family((WRITE,), is_move=True),
    "stmatrix": _Family((WRITE,), is_move=True, in_rows=True),
    "mma": _Family(is_mma=True),
    "wgmma": _Family(is_mma=True, by_descriptor=True),
    "atom": _Family(is_atomic=True),
    "red": _Family(is_atomic=True),
}
_NO_FAMILY: Final = _Family()


def instruction_of(call: Any) -> InstructionEffects | None:
    """Return what ``call`` does if it is an instruction with operands in memory or registers."""
    name = called(call)
    if name in _POINTER_ROLES:
        in_rows = name == "tirx.ptx_legacy.ldmatrix"
        return InstructionEffects(_POINTER_ROLES[name], is_mma=name in _MMA_CALLS, in_rows=in_rows)
    if name == _CP_ASYNC_RAW:
        return InstructionEffects({0: WRITE, 2: READ}, is_async=True, in_rows=True, is_grouped=True)
    if name in _ATOMIC_CALLS or name.startswith(MBARRIERS):
        ordered = name.startswith(MBARRIERS)
        return InstructionEffects(None, is_atomic=not ordered, orders_itself=ordered)
    entry = ptx_entry(name)
    return None if entry is None else _of_ptx(name, entry, call)


def ptx_entry(name: str) -> Any | None:
    """Return what TVM's table says of the PTX instruction called ``name``; None: it is none."""
    return TABLE.get(name.removeprefix(PTX)) if name.startswith(PTX) else None


def _of_ptx(name: str, entry: Any, call: Any) -> InstructionEffects:
    family = _FAMILIES.get(entry.family, _NO_FAMILY)
    is_move, flags = family.is_move, str(call.args[-1].value).split(",")
    guard = len(call.args) - len(entry.slots) - 2 if _PREDICATED in flags else None
    is_copy = name.startswith(CP_ASYNC_COPY)
    if not all(map(_KEEPS_POSITIONS.fullmatch, flags)) or (
        guard is not None and not is_copy and not family.addresses
    ):
        return InstructionEffects(None, is_atomic=family.is_atomic)
    if name == WGMMA_WAIT and const_int(call.args[0]) == 0:
        return InstructionEffects(only_roles=True, is_mma_wait=True)
    if name in _WGMMA_ORDER:
        return InstructionEffects(only_roles=True, is_mma=family.is_mma)
    if name.startswith(MAP_LOADS):
        return InstructionEffects({0: WRITE}, only_roles=True, is_async=True, is_move=is_move)
    if name.startswith(MAP_STORES):
        (source,) = [
            at for at, arg in enumerate(call.args) if at and called(uncast(arg)) == ADDRESS_OF
        ]
        return InstructionEffects({source: READ}, only_roles=True, is_async=True, is_move=is_move)
    roles = _roles(entry, call, (WRITE, READ) if is_copy else family.addresses)
    if guard is not None:  # a register keeps its value if the predicate is false
        roles = {at: BOTH if role == WRITE and not is_copy else role for at, role in roles.items()}
    return InstructionEffects(
        roles or None,
        by_descriptor=family.by_descriptor,
        is_async=is_copy,
        is_mma=family.is_mma,
        is_move=is_move,
        guard=guard,
        in_rows=is_copy or family.in_rows,
        width=(const_int(call.args[2]) or 0) if is_copy else 0,
        is_grouped=is_copy or family.by_descriptor,
        is_atomic=family.is_atomic,
    )


def _roles(entry: Any, call: Any, directions: tuple[str, ...]) -> dict[int, str]:
    """Return the roles of operands; none if ``directions`` do not cover an address."""
    tokens = [arg.value for arg in call.args[len(call.args) - len(entry.slots) - 1 : -1]]
    roles: dict[int, str] = {}
    addresses = iter(directions)
    for slot, first, lanes in operand_layout(entry, mods(entry, tokens)):
        if slot.kind in ("addr", "ptr"):
            direction = next(addresses, None)
            if direction is None:
                return {}
            roles[first] = direction
        elif slot.rw != READ:
            roles.update(dict.fromkeys(range(first, first + lanes), slot.rw))
    return roles
