"""How the tile of an accumulator reaches global memory.

Where another role copies, warpgroups can have their results stored too: a warpgroup puts a box of
them into shared memory, the tensor memory accelerator writes it, and the next tile's arithmetic
starts meanwhile. Whole lines are written, and nothing is computed for each element's address.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..errors import PlanError
from ..kernel import CopyInfo, KernelInfo, MatmulInfo, StoreInfo
from ..machine import WARP, Machine
from ..plan import CopyPlan, MatmulPlan, StorePlan
from ..request import Request
from .pinned import pinned_slots, pinned_store
from .sizes import SECTOR_BYTES, element_bytes
from .tma import MAX_BOX, MAX_RANK, panel_bytes, stride_obstacle
from .wgmma import ROWS, SPANS, teams_of

SLOTS: Final = 2
"""Boxes of a warpgroup in shared memory: one is filled while the other is written."""

LEAST_DEPTH: Final = 3
"""Slots that the loop's rings keep: fewer would cost more than plain stores do."""

GOOD_DEPTH: Final = 4
"""Slots that rings keep rather than that there is a second box."""

BARRIER_BYTES: Final = 1024
"""More than the barriers of every channel take."""

STRAY_STORE: Final = 10
"""Cycles of an SM for one store of a warp, of one 16-bit element a lane. Measured on an H100 with
32 images of 224 x 224 x 64: of tiles of 176, 208, 224 and 240 pixels by 64 channels, swapped, each
of these stores took 9.6 to 11 cycles more than tiles as large that store 16 bytes a lane."""

FEW_STRAYS: Final = 1000
"""Cycles of those stores of a tile up to which they cost less than its boxes. Measured on an H100:
16 x 64 x 4096 (320 cycles) 18.0 us from registers, 18.3 by boxes; 128 x 64 x 8192 with weights of 8
bits (2560) 51.5 and 36.5, of 256 x 128 (10240) at 4096 cubed 220 and 180, pixels and channels of
240 x 64 (4800) 392 and 361."""

_COLUMN_LANES: Final = 8
"""Lanes of a warp whose accumulators are neighbours in a column (PTX ISA, wgmma: layout of D)."""

_WORD: Final = 2
"""Bytes of an element that stmatrix stores (PTX ISA, stmatrix: .b16)."""

_SQUARE: Final = 16
"""Rows and columns of an accumulator that a warp puts into a box at once."""

_WARPS: Final = 4
"""Of a warpgroup."""


def plan_stores(
    info: KernelInfo,
    matmuls: tuple[MatmulPlan, ...],
    copies: tuple[CopyPlan, ...],
    machine: Machine,
    request: Request,
) -> tuple[StorePlan, ...]:
    """The plan of every store of an accumulator; PlanError for a request that cannot be had."""
    adds = any(store.adds for store in info.stores)
    if adds and request.store == "direct":
        raise PlanError(f"{_cannot_add(info)}: only tma adds, stores are to be direct")
    if request.store == "tma" and not info.stores:
        raise PlanError(f"cannot store '{info.name}' by tma: it stores no accumulator's tile")
    return tuple(
        _plan(store, info, matmuls, copies, machine, pinned_store(request, store.op))
        for store in info.stores
    )


def uncoalesced_cycles(
    info: KernelInfo, matmuls: tuple[MatmulPlan, ...], stores: tuple[StorePlan, ...]
) -> float:
    """Cycles that an SM takes for those stores of one tile whose lanes' elements lie apart.

    A swapped tile has the rows of the result in the columns of the instruction: a lane's two
    elements belong to different rows, and each is a store of its own.
    """
    return sum(
        _strays(found, info, matmuls)
        for found, plan in zip(info.stores, stores, strict=True)
        if plan.mechanism == "direct"
    )


def _strays(store: StoreInfo, info: KernelInfo, matmuls: tuple[MatmulPlan, ...]) -> float:
    """What ``uncoalesced_cycles`` counts of one store from registers."""
    if not store.by_rows:
        return 0.0
    return sum(
        op.m * op.n / WARP * STRAY_STORE
        for op in _matmuls(info)
        for plan in matmuls
        if op.acc == store.acc and plan.op == op.op and plan.swapped
        if _is_partial(store.dtype, plan.turned)
    )


def _is_partial(dtype: str, paired: bool) -> bool:
    """Whether what the eight lanes of a column of fragments store is less than a sector."""
    return _COLUMN_LANES * (2 if paired else 1) * element_bytes(dtype) < SECTOR_BYTES


def staged_bytes(stores: tuple[StorePlan, ...]) -> int:
    """Shared memory that stores take, in bytes."""
    return sum(store.bytes for store in stores)


def slot_waits(stores: tuple[StorePlan, ...], matmuls: tuple[MatmulPlan, ...]) -> int:
    """Boxes of a warpgroup's tile whose slot holds an earlier one of it, which must have left."""
    wide = max((_extent(plan)[1] for plan in matmuls), default=0)
    return sum(wide // store.box[1] - store.slots for store in stores if store.mechanism == "tma")


def filled_together(swapped: bool, dtype: str) -> int:
    """Boxes that the rows of one instruction fill: swapped, they lie side by side in a row."""
    return ROWS * element_bytes(dtype) // max(SPANS) if swapped else 1


def _extent(matmul: MatmulPlan) -> tuple[int, int]:
    """Rows and columns of a warpgroup's part of the tile."""
    rows, columns = matmul.warp_tile
    return (rows, columns * _WARPS) if matmul.swapped else (rows * _WARPS, columns)


def _cannot_add(info: KernelInfo) -> str:
    return f"cannot add parts of '{info.name}' by reduce_add"


def _plan(
    store: StoreInfo,
    info: KernelInfo,
    matmuls: tuple[MatmulPlan, ...],
    copies: tuple[CopyPlan, ...],
    machine: Machine,
    request: Request,
) -> StorePlan:
    direct = StorePlan(
        op=store.op, acc=store.acc, dst=store.dst, mechanism="direct", adds=store.adds
    )
    if request.store == "direct" and store.adds:
        raise PlanError(
            f"{_cannot_add(info)}: only tma adds to what others add to at the same time, "
            f"'{store.op}' is to be direct"
        )
    if request.store == "direct":
        return replace(direct, reason="asked for")
    found = _staged(direct, store, info, matmuls, copies, machine, request)
    if not isinstance(found, str):
        return found
    if store.adds:
        raise PlanError(f"{_cannot_add(info)}: {found}")
    if request.store == "tma":
        raise PlanError(f"cannot store '{store.op}' by tma: {found}")
    return replace(direct, reason=f"from registers, not by tma: {found}")


def _staged(
    direct: StorePlan,
    store: StoreInfo,
    info: KernelInfo,
    matmuls: tuple[MatmulPlan, ...],
    copies: tuple[CopyPlan, ...],
    machine: Machine,
    request: Request,
) -> StorePlan | str:
    """``store`` by way of shared memory, or the requirement that it misses."""
    by_op = {op.op: op.acc for op in _matmuls(info)}
    matmul = next((plan for plan in matmuls if by_op.get(plan.op) == store.acc), None)
    if matmul is None or not any(copy.mechanism == "tma" for copy in copies):
        return "no role of its own copies for what computes it"
    if matmul.swapped and matmul.turned:
        return "stmatrix does not transpose rows that lie in pairs"
    if matmul.swapped and request.store != "tma" and not store.adds:
        strays = _strays(store, info, matmuls)
        if strays <= FEW_STRAYS:
            return f"{strays:.0f} cycles for what lies apart in a tile are fewer than boxes take"
    obstacle = _obstacle(store, matmul, info)
    if obstacle:
        return obstacle
    rows, columns = _extent(matmul)
    size = element_bytes(store.dtype)
    groups = matmul.warps[0] * matmul.warps[1] // _WARPS * teams_of(request.consumers)
    span = panel_bytes(columns * size)
    boxes = columns * size // span
    together = filled_together(matmul.swapped, store.dtype)
    one = groups * rows * span
    slots = together * _slots(together * one, boxes // together, info, machine, request)
    if request.plan is not None:  # its own number, where the boxes can be dealt out to them
        own = pinned_slots(request, store.op)
        whole = 0 < own <= together * SLOTS and own % together == 0
        slots = own if whole and boxes % own == 0 else slots
    if slots == 0:
        return (
            f"a box of {rows}x{span // size} for each of {groups} warpgroups, {one} bytes, leaves "
            f"too little shared memory for {LEAST_DEPTH} slots"
        )
    filled = "stmatrix fills 8 rows without bank conflicts" if size == _WORD else ""
    done = "added" if store.adds else "written"
    counted = f"{boxes} box{'es' * (boxes > 1)} a warpgroup, {done} while it computes on"
    return replace(
        direct,
        mechanism="tma",
        box=(rows, span // size),
        slots=slots,
        bytes=slots * one,
        layout=f"swizzle-{span}B",
        reason="; ".join(filter(None, (counted, filled, _order(store)))),
    )


def _matmuls(info: KernelInfo) -> list[MatmulInfo]:
    return [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]


def _order(store: StoreInfo) -> str:
    """What it does to a sum that its parts are added as they come."""
    if not store.adds:
        return ""
    if store.dtype.startswith("int"):
        return "parts are added as they come, which changes no sum of integers"
    return (
        f"{store.adds} parts are rounded to {store.dtype} and added as they come: the last bits "
        "differ from run to run"
    )


def _obstacle(store: StoreInfo, matmul: MatmulPlan, info: KernelInfo) -> str:
    """What about the store, apart from room, speaks against boxes; empty when nothing does."""
    if store.no_tma:
        return store.no_tma
    read = {op.src for loop in info.loops for op in loop.ops if isinstance(op, CopyInfo)}
    if store.dst in read:
        return f"'{store.dst}' is copied from too"
    if element_bytes(store.dtype) != _WORD and not store.adds:
        return f"stmatrix stores elements of {_WORD} bytes, '{store.dst}' has {store.dtype}"
    if matmul.accumulator == "float16":
        return "the accumulator lies in registers in pairs of halves"
    if not 2 <= len(store.dst_strides) <= MAX_RANK:
        rank = len(store.dst_strides)
        return f"it takes tensors of 2 to {MAX_RANK} dimensions, '{store.dst}' has {rank}"
    rows, columns = _extent(matmul)
    size = element_bytes(store.dtype)
    if columns % _SQUARE:
        return f"a row of {columns * size} bytes is no multiple of {_SQUARE * size}"
    if rows > MAX_BOX or rows % (_SQUARE if matmul.swapped else ROWS):
        return f"a box has at most {MAX_BOX} rows, whole squares of {_SQUARE}, a warpgroup {rows}"
    return stride_obstacle(store.dst, store.dtype, store.dst_strides)


def _slots(one: int, boxes: int, info: KernelInfo, machine: Machine, request: Request) -> int:
    """Boxes that fit beside the rings; ``one`` box of all warpgroups has so many bytes."""
    tiles = [sum(size for _, _, size in loop.rings) for loop in info.loops]
    trips = [loop.trip for loop in info.loops if loop.trip is not None]
    longest = max(trips, default=GOOD_DEPTH)
    asked = [d for loop in info.loops for name, _, _ in loop.rings if (d := request.depth_of(name))]
    depths = [max(asked)] if asked else [min(GOOD_DEPTH, longest), min(LEAST_DEPTH, longest)]
    room = machine.smem_per_cta - BARRIER_BYTES
    for depth in depths:
        for slots in range(min(SLOTS, boxes), 0, -1):
            if boxes % slots == 0 and depth * sum(tiles) + slots * one <= room:
                return slots
    return 0
