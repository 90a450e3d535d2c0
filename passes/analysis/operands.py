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
    "tirx.mma_store_legacy": {2: WRITE, 3: READ},
    "tirx.tvm_load_matrix_sync": {0: WRITE, 5: READ},
    "tirx.tvm_mma_sync": {0: WRITE, 2: READ, 4: READ, 6: READ},
    "tirx.tvm_fill_fragment": {0: WRITE},
    "tirx.tvm_store_matrix_sync": {0: READ, 5: WRITE},
}
_WGMMA_ORDER: Final = (WGMMA_FENCE, WGMMA_COMMIT, WGMMA_WAIT)
"""Instructions that order wgmmas of the same op, or earlier ones."""

_KEEPS_POSITIONS: Final = re.compile(r"(p\d+)?(,p\d+)*")
"""Flags of a call that only say which of its operands are predicates."""

_MMA_CALLS: Final = ("tirx.ptx_legacy.mma", "tirx.tvm_mma_sync")


@dataclass(frozen=True, slots=True)
class InstructionEffects:
    """What one instruction does through its operands.

    ``roles``: how it accesses what the operands at these positions point to; None if unknown.
    ``only_roles``: its other operands touch nothing. ``by_descriptor``: its pointers are in
    descriptors, by which it reads while the threads continue. ``is_async``: it is an asynchronous
    copy. ``is_mma``: it multiplies matrices. ``is_mma_wait``: it waits for all multiplications in
    flight. ``is_move``: it does not change the values.
    """

    roles: Mapping[int, str] | None = field(default_factory=dict)
    only_roles: bool = False
    by_descriptor: bool = False
    is_async: bool = False
    is_mma: bool = False
    is_mma_wait: bool = False
    is_move: bool = True


@dataclass(frozen=True, slots=True)
class _Family:
    """What the instructions of a PTX family have in common.

    ``addresses``: how they access what each address operand points to, where that is known.
    """

    addresses: tuple[str, ...] = ()
    is_move: bool = False
    is_mma: bool = False
    by_descriptor: bool = False


_FAMILIES: Final[dict[str, _Family]] = {
    "cp": _Family(is_move=True),
    "mov": _Family(is_move=True),
    "ld": _Family((READ,), is_move=True),
    "ldmatrix": _Family((READ,), is_move=True),
    "st": _Family((WRITE,), is_move=True),
    "stmatrix": _Family((WRITE,), is_move=True),
    "mma": _Family(is_mma=True),
    "wgmma": _Family(is_mma=True, by_descriptor=True),
}
_NO_FAMILY: Final = _Family()


def instruction_of(call: Any) -> InstructionEffects | None:
    """Return what ``call`` does if it is an instruction with operands in memory or registers."""
    name = called(call)
    if name in _POINTER_ROLES:
        return InstructionEffects(_POINTER_ROLES[name], is_mma=name in _MMA_CALLS)
    entry = ptx_entry(name)
    return None if entry is None else _of_ptx(name, entry, call)


def ptx_entry(name: str) -> Any | None:
    """Return what TVM's table says of the PTX instruction called ``name``; None: it is none."""
    return TABLE.get(name.removeprefix(PTX)) if name.startswith(PTX) else None


def _of_ptx(name: str, entry: Any, call: Any) -> InstructionEffects:
    if not _KEEPS_POSITIONS.fullmatch(str(call.args[-1].value)):
        return InstructionEffects(None)  # predicated or sunk operands: positions shift
    family = _FAMILIES.get(entry.family, _NO_FAMILY)
    is_move = family.is_move
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
    is_copy = name.startswith(CP_ASYNC_COPY)
    roles = _roles(entry, call, (WRITE, READ) if is_copy else family.addresses)
    return InstructionEffects(
        roles or None,
        by_descriptor=family.by_descriptor,
        is_async=is_copy,
        is_mma=family.is_mma,
        is_move=is_move,
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
