"""How the results of a tile reach global memory: directly from registers, or staged for TMA.

With a producer warp, warpgroups can stage results: they put a box of them into shared memory, TMA
writes it, and the next tile's arithmetic starts meanwhile. Whole lines are written, and no thread
computes addresses of elements.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from ...diagnostics import Reason, Value, Why, all_of
from ...errors import PlanError
from ...instructions.dtypes import element_bytes
from ...instructions.wgmma import consumer_groups
from ...instructions.wgmma_shapes import ROWS, SPANS, covering_span
from ...machine import Machine
from ...machine.constant import chosen, constant, derived, documented, measured
from ...plan import CopyPlan, MatmulPlan, StoreMechanism, StorePlan
from ...plan.request import Request
from ...values.facts import CopyInfo, KernelInfo, StoreInfo
from ..pinned import pinned_slots, pinned_store
from ..tma import MAX_BOX, MAX_RANK, stride_obstacle
from .case import LEAST_RING_DEPTH, StoreCase
from .cycles import uncoalesced
from .in_cluster import in_cluster
from .kinds import is_staged
from .sums import WARPGROUP_WARPS, extent

STORE_SLOTS: Final = constant(
    "STORE_SLOTS",
    2,
    "slots",
    "boxes of a warpgroup staged in shared memory: one is filled while the other is written",
    formula="slots <= STORE_SLOTS",
    source=derived("one is filled, one is written"),
    date="2026-11-21",
)

GOOD_RING_DEPTH: Final = constant(
    "GOOD_RING_DEPTH",
    4,
    "slots",
    "slots that rings keep rather than that there is a second box",
    formula="GOOD_RING_DEPTH * slot_bytes + boxes <= shared memory, first",
    source=chosen("a fourth slot is worth more than a second box"),
    date="2026-11-21",
)

FEW_UNCOALESCED_CYCLES: Final = constant(
    "FEW_UNCOALESCED_CYCLES",
    1000,
    "cycles",
    "uncoalesced cycles of a tile up to which direct stores cost less than staged boxes",
    formula="direct where uncoalesced <= FEW_UNCOALESCED_CYCLES",
    source=measured(
        "H100, direct and staged: 16x64x4096 (320 cycles) 18.0 and 18.3 us; 128x64x8192 with int8 "
        "weights (2560) 51.5 and 36.5; 256x128 at 4096 cubed (10240) 220 and 180; im2col 240x64 "
        "(4800) 392 and 361",
    ),
    date="2026-11-22",
)

STMATRIX_BYTES: Final = constant(
    "STMATRIX_BYTES",
    2,
    "bytes",
    "an element that stmatrix stores",
    formula="staged where element_bytes = STMATRIX_BYTES",
    source=documented("PTX ISA, stmatrix: .b16"),
    date="2026-11-21",
)


def plan_stores(
    info: KernelInfo,
    matmuls: tuple[MatmulPlan, ...],
    copies: tuple[CopyPlan, ...],
    machine: Machine,
    request: Request,
) -> tuple[StorePlan, ...]:
    """The plan of every store of an accumulator; raises PlanError for what cannot be had."""
    adds = any(store.partial_sums for store in info.stores)
    if adds and request.store == "direct":
        raise _cannot_add(info, Reason("partial_sums.direct"))
    if request.store == "tma" and not info.stores:
        raise PlanError("store.no_tile", kernel=info.name)
    return tuple(
        _plan(StoreCase(store, info, matmuls, copies, machine, pinned_store(request, store.op)))
        for store in info.stores
    )


def staged_bytes(stores: tuple[StorePlan, ...]) -> int:
    """Bytes of shared memory that stores are staged in."""
    return sum(store.bytes for store in stores)


def slot_waits(stores: tuple[StorePlan, ...], matmuls: tuple[MatmulPlan, ...]) -> int:
    """Boxes of a warpgroup's tile that wait until an earlier one has left their slot."""
    wide = max((extent(plan)[1] for plan in matmuls), default=0)
    staged = [store for store in stores if is_staged(store)]
    return sum(math.ceil(wide / store.box[1]) - store.slots for store in staged)


def filled_together(swap_ab: bool, dtype: str) -> int:
    """Boxes that the rows of one instruction fill: with A and B swapped several, side by side."""
    return ROWS * element_bytes(dtype) // max(SPANS) if swap_ab else 1


def _cannot_add(info: KernelInfo, why: Why) -> PlanError:
    return PlanError("partial_sums.refused", kernel=info.name, why=why)


def _plan(case: StoreCase) -> StorePlan:
    store, info, request = case.store, case.info, case.request
    if request.store == "direct" and store.partial_sums:
        raise _cannot_add(info, Reason("partial_sums.direct_store", store=store.op))
    if request.store == "direct":
        return case.planned("direct", reason=Reason("request.asked"))
    if request.store == "cluster":
        parts = in_cluster(case)
        if isinstance(parts, StorePlan):
            return parts
        raise PlanError("store.cluster", store=store.op, why=parts)
    if request.store == "coalesced":
        found = _staged(case, "coalesced")
        if isinstance(found, StorePlan):
            return found
        raise PlanError("store.coalesced", store=store.op, why=found)
    found = _staged(case, "tma")
    if isinstance(found, StorePlan):
        return found
    if store.partial_sums:
        raise _cannot_add(info, found)
    if request.store == "tma":
        raise PlanError("store.tma", store=store.op, why=found)
    declined = [found]
    if isinstance(found, Reason) and found.code == "box.stride":
        # On an H200 4096x50257x768 takes 1185 us from registers, 447 so; 4047x1353x231 38.8 and
        # 18.1; with pairs of elements in a word 2048x2050x2048 36.0 and 31.8, 2052 33.8 and 31.1.
        other = _staged(case, "coalesced")
        if isinstance(other, StorePlan):
            return replace(
                other, reason=all_of((Reason("store.not_by_tma", why=found), other.reason))
            )
        declined.append(other)
    return case.planned("direct", reason=Reason("store.direct", why=all_of(declined)))


def _staged(case: StoreCase, mechanism: StoreMechanism) -> StorePlan | Why:
    """The plan of a store staged for TMA or for threads, or the requirement that it misses."""
    store, info, request = case.store, case.info, case.request
    found = case.by_consumers()
    if isinstance(found, Reason):
        return found
    _, matmul = found
    if matmul.swap_ab and matmul.transposed:
        return Reason("store.pairs")
    if mechanism == "coalesced" and store.partial_sums:
        return Reason("partial_sums.direct")
    if matmul.swap_ab and request.store == "auto" and not store.partial_sums:
        cycles = uncoalesced(store, info, case.matmuls)
        if cycles <= FEW_UNCOALESCED_CYCLES:
            return Reason("store.few", cycles=cycles)
    obstacle = _obstacle(store, matmul, info, mechanism)
    if obstacle:
        return obstacle
    rows, columns = extent(matmul)
    size = element_bytes(store.dtype)
    groups = matmul.warps[0] * matmul.warps[1] // WARPGROUP_WARPS
    groups *= consumer_groups(request.consumers)
    span = covering_span(columns * size)
    boxes = math.ceil(columns * size / span)
    wide = min(columns, span // size)
    together = filled_together(matmul.swap_ab, store.dtype)
    one = groups * rows * span
    slots = together * _slots(together * one, boxes // together, case)
    if request.plan is not None:  # its own number, where the boxes can be dealt out to them
        own = pinned_slots(request, store.op)
        whole = 0 < own <= together * STORE_SLOTS and own % together == 0
        slots = own if whole and boxes % own == 0 else slots
    if slots == 0:
        box: dict[str, Value] = {"box": (rows, wide), "groups": groups, "nbytes": one}
        return Reason("store.no_room", slots=LEAST_RING_DEPTH, **box)
    filled = Reason("store.stmatrix") if size == STMATRIX_BYTES else None
    counted = Reason("store.boxes_added" if store.partial_sums else "store.boxes", boxes=boxes)
    if mechanism == "coalesced":
        counted = Reason("store.by_rows", boxes=boxes)
    return case.planned(
        mechanism,
        box=(rows, wide),
        slots=slots,
        bytes=slots * one,
        layout=f"swizzle-{span}B",
        reason=all_of((counted, filled, _order(store))),
    )


def _order(store: StoreInfo) -> Reason | None:
    """What the order of atomic accumulation does to a sum of split-K."""
    if not store.partial_sums:
        return None
    if store.dtype.startswith("int"):
        return Reason("partial_sums.integers")
    return Reason("partial_sums.rounded", parts=store.partial_sums, dtype=store.dtype)


def _obstacle(
    store: StoreInfo, matmul: MatmulPlan, info: KernelInfo, mechanism: StoreMechanism
) -> Why | None:
    """Why the store cannot be staged, apart from room; None where it can."""
    if store.no_tma:
        return store.no_tma
    read = {op.src for loop in info.loops for op in loop.ops if isinstance(op, CopyInfo)}
    if store.dst in read:
        return Reason("store.copied", buffer=store.dst)
    if element_bytes(store.dtype) != STMATRIX_BYTES and not store.partial_sums:
        size = STMATRIX_BYTES
        return Reason("store.dtype", nbytes=size, buffer=store.dst, dtype=store.dtype)
    if matmul.accumulator == "float16":
        return Reason("store.halves")
    if not 2 <= len(store.dst_strides) <= MAX_RANK:
        rank = len(store.dst_strides)
        return Reason("box.rank", most=MAX_RANK, buffer=store.dst, rank=rank)
    rows, _ = extent(matmul)
    if rows > MAX_BOX:
        return Reason("store.rows", most=MAX_BOX, rows=rows)
    if mechanism == "coalesced":
        return Reason("store.joined", buffer=store.dst) if store.viewed else None
    return stride_obstacle(store.dst, store.dtype, store.dst_strides)


def _slots(one: int, boxes: int, case: StoreCase) -> int:
    """Slots that fit beside the rings; ``one``: bytes of a box of every warpgroup."""
    loops, request = case.info.loops, case.request
    trips = [loop.trip * (loop.outer or 1) for loop in loops if loop.trip is not None]
    longest = max(trips, default=GOOD_RING_DEPTH)
    asked = [d for loop in loops for name, _, _ in loop.rings if (d := request.depth_of(name))]
    depths = (
        [max(asked)] if asked else [min(GOOD_RING_DEPTH, longest), min(LEAST_RING_DEPTH, longest)]
    )
    for depth in depths:
        for slots in range(min(STORE_SLOTS, boxes), 0, -1):
            if boxes % slots == 0 and slots * one <= case.room(depth):
                return slots
    return 0
