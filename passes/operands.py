"""What instructions do through their operands, from TVM's PTX table and what it keeps beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tvm.backend.cuda.ptx.table import TABLE, mods, operand_layout
from tvm.ir import Call, Op

from .ir import const_int

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
_WGMMA_ORDER: Final = ("wgmma_fence", "wgmma_commit_group", "wgmma_wait_group")
"""What orders the asynchronous instructions of the op that it stands in, or of those before it."""

_WGMMA_WAIT: Final = "wgmma_wait_group"

_BULK_LOADS: Final = "cp_async_bulk_tensor_g2s"
"""Copies by tensor map. The map hides the source; a barrier counts the bytes."""

_BULK_STORES: Final = ("cp_async_bulk_tensor_s2g", "cp_reduce_async_bulk_tensor")
"""The same the other way, or added there: the map, its first operand, hides the target."""

_KEEPS_POSITIONS: Final = re.compile(r"(p\d+)?(,p\d+)*")
"""Flags of a call that say no more than which of its operands are predicates."""

_MMA_CALLS: Final = ("tirx.ptx_legacy.mma", "tirx.tvm_mma_sync")
# PTX memory instructions whose address operands are one-directional; in operand order.
_ADDRESS_ROLES: Final[dict[str, tuple[str, ...]]] = {
    "ld": (READ,),
    "ldmatrix": (READ,),
    "st": (WRITE,),
    "stmatrix": (WRITE,),
}
_MOVES: Final = ("cp", "ld", "st", "ldmatrix", "stmatrix", "mov")
_PTX: Final = "tirx.ptx."
_TO_SHARED: Final = "tirx.cuda.cvta_generic_to_shared"


@dataclass(frozen=True, slots=True)
class Instruction:
    """What one instruction does.

    ``roles``: how it accesses what the operands at these positions point to; None: who knows.
    ``only_roles``: its other operands touch nothing. ``by_descriptor``: pointers among them are
    parts of descriptors, by which it reads, while the threads go on. ``is_async``: an
    asynchronous copy. ``is_mma``: it multiplies matrices. ``is_mma_wait``: it waits for all
    multiplications in flight. ``is_move``: values arrive as they left.
    """

    roles: Mapping[int, str] | None = field(default_factory=dict)
    only_roles: bool = False
    by_descriptor: bool = False
    is_async: bool = False
    is_mma: bool = False
    is_mma_wait: bool = False
    is_move: bool = True


def instruction_of(call: Any) -> Instruction | None:
    """What ``call`` does where it is an instruction with operands in memory or registers."""
    name = called(call)
    if name in _POINTER_ROLES:
        return Instruction(_POINTER_ROLES[name], is_mma=name in _MMA_CALLS)
    if name.startswith(_PTX) and name[len(_PTX) :] in TABLE:
        return _of_ptx(TABLE[name[len(_PTX) :]], call)
    return None


def _of_ptx(entry: Any, call: Any) -> Instruction:
    if not _KEEPS_POSITIONS.fullmatch(str(call.args[-1].value)):
        return Instruction(None)  # predicated or sunk operands: positions shift
    is_mma = entry.family in ("mma", "wgmma")
    if entry.name == _WGMMA_WAIT and const_int(call.args[0]) == 0:
        return Instruction(only_roles=True, is_mma_wait=True)
    if entry.name in _WGMMA_ORDER:
        return Instruction(only_roles=True, is_mma=is_mma)
    is_move = entry.family in _MOVES
    if entry.name.startswith(_BULK_LOADS):
        return Instruction({0: WRITE}, only_roles=True, is_async=True, is_move=is_move)
    if entry.name.startswith(_BULK_STORES):
        (source,) = [at for at, arg in enumerate(call.args) if at and _is_pointer(arg)]
        return Instruction({source: READ}, only_roles=True, is_async=True, is_move=is_move)
    is_copy = entry.name.startswith(("cp_async_ca", "cp_async_cg"))
    roles = _roles(entry, call, (WRITE, READ) if is_copy else _ADDRESS_ROLES.get(entry.family, ()))
    return Instruction(
        roles or None,
        by_descriptor=entry.family == "wgmma",
        is_async=is_copy,
        is_mma=is_mma,
        is_move=is_move,
    )


def _roles(entry: Any, call: Any, directions: tuple[str, ...]) -> dict[int, str]:
    """The roles of operands; none where there is an address that ``directions`` do not tell of."""
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


def _is_pointer(arg: Any) -> bool:
    while called(arg) == _TO_SHARED:
        arg = arg.args[0]
    return called(arg) == "tirx.address_of"


def called(expr: Any) -> str:
    """The name of the operator that ``expr`` calls; empty for anything else."""
    if type(expr) is Call and type(expr.op) is Op:
        return str(expr.op.name)
    return ""
