"""How the results of a tile reach global memory: directly from registers, or staged for TMA.

With a producer warp, warpgroups can stage results: they put a box of them into shared memory, TMA
writes it, and the next tile's arithmetic starts meanwhile. Whole lines are written, and no thread
computes addresses of elements.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Final

from ..diagnostics import Reason, Value, Why, all_of
from ..errors import PlanError
from ..instructions.dtypes import SECTOR_BYTES, element_bytes
from ..instructions.table import multiplied_by
from ..instructions.wgmma import consumer_groups
from ..instructions.wgmma_shapes import ROWS, SPANS, covering_span
from ..machine import VECTOR_BYTES, WARP, Machine
from ..machine.constant import chosen, constant, derived, documented, fitted, measured
from ..plan import CopyPlan, MatmulPlan, StoreMechanism, StorePlan
from ..plan.kinds import StoreKind
from ..plan.request import Request
from ..values.facts import CopyInfo, KernelInfo, MatmulInfo, StoreInfo
from .pinned import pinned_slots, pinned_store
from .table import have_producer
from .tma import MAX_BOX, MAX_RANK, stride_obstacle

DIRECT_STORE: Final = StoreKind("direct", staged=False)
STAGED_STORE: Final = StoreKind("tma", staged=True, moves_boxes=True)
COALESCED_STORE: Final = StoreKind("coalesced", staged=True)
CLUSTER_STORE: Final = StoreKind("cluster", staged=False, in_cluster=True)
STORES: Final = {
    one.name: one for one in (DIRECT_STORE, STAGED_STORE, COALESCED_STORE, CLUSTER_STORE)
}

MOST_PARTS: Final = constant(
    "MOST_PARTS",
    8,
    "CTAs",
    "CTAs of a cluster that put their parts of a tile together",
    formula="parts <= MOST_PARTS",
    source=documented("CUDA C++ Programming Guide, clusters: a portable size"),
    date="2026-11-28",
)

PART_BYTES: Final = constant(
    "PART_BYTES",
    4,
    "bytes",
    "a part of an element that is stored to another CTA",
    formula="stored to a cluster where element_bytes = PART_BYTES",
    source=documented("PTX ISA, st: .f32, .s32"),
    date="2026-11-28",
)

PART_PADDING: Final = constant(
    "PART_PADDING",
    8,
    "words",
    "words behind a row of parts: the rows that a warp stores at once begin in other banks",
    formula="row = columns + PART_PADDING",
    source=derived("four rows of eight words a half-warp, as wgmma's accumulators lie"),
    date="2026-11-28",
)

VECTOR_PARTS: Final = constant(
    "VECTOR_PARTS",
    4,
    "parts",
    "neighbouring parts that a thread reads at once, and outputs that it makes",
    formula="vector = min(VECTOR_PARTS, widest)",
    source=derived("16 bytes an access"),
    date="2026-11-28",
)

STORE_SLOTS: Final = constant(
    "STORE_SLOTS",
    2,
    "slots",
    "boxes of a warpgroup staged in shared memory: one is filled while the other is written",
    formula="slots <= STORE_SLOTS",
    source=derived("one is filled, one is written"),
    date="2026-11-21",
)

LEAST_RING_DEPTH: Final = constant(
    "LEAST_RING_DEPTH",
    3,
    "slots",
    "slots that rings keep beside staged boxes",
    formula="LEAST_RING_DEPTH * slot_bytes + boxes <= shared memory",
    source=chosen("fewer would cost more than direct stores do"),
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

BARRIER_BYTES: Final = constant(
    "BARRIER_BYTES",
    1024,
    "bytes",
    "more than the mbarriers of a kernel take",
    formula="room = smem_per_cta - BARRIER_BYTES",
    source=derived("8 bytes a mbarrier, two a slot, at most MAX_DEPTH slots a ring"),
    date="2026-11-21",
)

UNCOALESCED_STORE_CYCLES: Final = constant(
    "UNCOALESCED_STORE_CYCLES",
    10,
    "cycles",
    "time of an SM for one uncoalesced store of a warp, of one 16-bit element a lane",
    formula="uncoalesced = m * n / 32 * UNCOALESCED_STORE_CYCLES, A and B swapped",
    source=measured(
        "H100, 32 images of 224x224x64, tiles of 176, 208, 224 and 240 pixels by 64 channels, "
        "swap A/B, and as large ones that store 16 bytes a lane",
        "9.6 to 11 cycles",
    ),
    date="2026-11-21",
)

UNALIGNED_STORE_CYCLES: Final = constant(
    "UNALIGNED_STORE_CYCLES",
    28,
    "cycles",
    "time of an SM for what a warp stores from registers, an element a lane, of rows that begin "
    "anywhere",
    formula="uncoalesced = m * n / 32 * UNALIGNED_STORE_CYCLES / vector, rows of whole vectors of "
    "less than 16 bytes, no swap_ab",
    source=measured(
        "H200, 24 kernels of 8 products, 1300x1501x512 to 5000x2505x200, over what is predicted "
        "without",
        "29 with one element of 2 bytes, 13 with two, 7 with four, 0 with eight; 12 kernels whose "
        "parts of 4 bytes begin anywhere are 45 % too fast without, 15 % so",
    ),
    date="2026-11-29",
)

ODD_ROW_CYCLES: Final = constant(
    "ODD_ROW_CYCLES",
    2.7,
    "cycles",
    "the same of rows that are staged and then written by neighbouring threads, an element each",
    formula="uncoalesced = m * n / 32 * ODD_ROW_CYCLES, coalesced, an odd number of elements",
    source=fitted(
        "H200, 24 kernels of 4 products of odd rows and 23 of 4 others, over what is predicted "
        "without",
        "2.5 to 3 with and without A and B swapped, 6 % mean error; nothing with pairs or more",
    ),
    date="2026-11-29",
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

_RING_DEPTHS: Final = (GOOD_RING_DEPTH, LEAST_RING_DEPTH)

COLUMN_LANES: Final = constant(
    "COLUMN_LANES",
    8,
    "lanes",
    "lanes of a warp whose accumulators are neighbours in a column",
    formula="uncoalesced where COLUMN_LANES * element_bytes < SECTOR_BYTES",
    source=documented("PTX ISA, wgmma: layout of D"),
    date="2026-11-21",
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

STMATRIX_SQUARE: Final = constant(
    "STMATRIX_SQUARE",
    16,
    "rows",
    "rows and columns of an accumulator that a warp puts into a box at once",
    formula="columns % STMATRIX_SQUARE = 0",
    source=documented("PTX ISA, stmatrix: .x4"),
    date="2026-11-21",
)

WARPGROUP_WARPS: Final = constant(
    "WARPGROUP_WARPS",
    4,
    "warps",
    "warps of a warpgroup",
    formula="groups = warps / WARPGROUP_WARPS",
    source=documented("PTX ISA, warpgroup"),
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
        _plan(store, info, matmuls, copies, machine, pinned_store(request, store.op))
        for store in info.stores
    )


def is_staged(plan: StorePlan) -> bool:
    """Whether the store goes through shared memory."""
    return STORES[plan.mechanism].staged


def is_in_cluster(plan: StorePlan) -> bool:
    """Whether the CTAs of a cluster put the parts of the tile together."""
    return STORES[plan.mechanism].in_cluster


def put_together(info: KernelInfo, stores: tuple[StorePlan, ...]) -> KernelInfo:
    """``info`` without the kernel that puts parts together, where clusters do."""
    if not any(map(is_in_cluster, stores)):
        return info
    return replace(
        info, elementwise=info.elementwise[:-1], kernels=info.kernels - 1, ends_elementwise=False
    )


def is_by_tma(plan: StorePlan) -> bool:
    """Whether TMA writes boxes of the tile from shared memory."""
    return STORES[plan.mechanism].moves_boxes


def uncoalesced_cycles(
    info: KernelInfo, matmuls: tuple[MatmulPlan, ...], stores: tuple[StorePlan, ...]
) -> float:
    """Cycles that an SM takes for the uncoalesced stores of one tile.

    With A and B swapped the rows of the result lie in the columns of the instruction: a lane's two
    elements belong to different rows, and each is a store of its own. Otherwise a lane stores
    vectors as wide as all rows begin at. What is staged is written by neighbours, one by one where
    rows are an odd number of elements.
    """
    cycles = 0.0
    for found, plan in zip(info.stores, stores, strict=True):
        if not is_staged(plan):
            cycles += _uncoalesced(found, info, matmuls)
        if not is_by_tma(plan):
            cycles += _unaligned(found, plan, info, matmuls)
    return cycles


def _unaligned(
    store: StoreInfo, plan: StorePlan, info: KernelInfo, matmuls: tuple[MatmulPlan, ...]
) -> float:
    """Cycles of a tile of rows that begin inside 16 bytes: ``m * n / 32`` times those of a warp."""
    rows, widest = store.dst_strides[-2:-1], VECTOR_BYTES // element_bytes(store.dtype)
    if not store.by_rows or not rows or not rows[0]:
        return 0.0
    vector = math.gcd(rows[0], widest)
    if is_staged(plan):
        each = ODD_ROW_CYCLES if vector == 1 else 0.0
    else:
        each = UNALIGNED_STORE_CYCLES / vector if vector < widest else 0.0
    return sum(
        op.m * op.n / WARP * each
        for op, found in _stored(store, info, matmuls)
        if is_staged(plan) or not found.swap_ab  # from registers those are one by one anyway
    )


def _uncoalesced(store: StoreInfo, info: KernelInfo, matmuls: tuple[MatmulPlan, ...]) -> float:
    """Cycles of a tile's uncoalesced accesses: ``m * n / 32 * UNCOALESCED_STORE_CYCLES``."""
    if not store.by_rows:
        return 0.0
    return sum(
        op.m * op.n / WARP * UNCOALESCED_STORE_CYCLES
        for op, plan in _stored(store, info, matmuls)
        if plan.swap_ab and _is_partial(store.dtype, plan.transposed)
    )


def _is_partial(dtype: str, paired: bool) -> bool:
    """Whether the eight lanes of a column of accumulators store less than a sector."""
    return COLUMN_LANES * (2 if paired else 1) * element_bytes(dtype) < SECTOR_BYTES


def staged_bytes(stores: tuple[StorePlan, ...]) -> int:
    """Bytes of shared memory that stores are staged in."""
    return sum(store.bytes for store in stores)


def slot_waits(stores: tuple[StorePlan, ...], matmuls: tuple[MatmulPlan, ...]) -> int:
    """Boxes of a warpgroup's tile that wait until an earlier one has left their slot."""
    wide = max((_extent(plan)[1] for plan in matmuls), default=0)
    staged = [store for store in stores if is_staged(store)]
    return sum(math.ceil(wide / store.box[1]) - store.slots for store in staged)


def filled_together(swap_ab: bool, dtype: str) -> int:
    """Boxes that the rows of one instruction fill: with A and B swapped several, side by side."""
    return ROWS * element_bytes(dtype) // max(SPANS) if swap_ab else 1


def _extent(matmul: MatmulPlan) -> tuple[int, int]:
    """Rows and columns of a warpgroup's part of the tile."""
    rows, columns = matmul.warp_tile
    return (
        (rows, columns * WARPGROUP_WARPS) if matmul.swap_ab else (rows * WARPGROUP_WARPS, columns)
    )


def _cannot_add(info: KernelInfo, why: Why) -> PlanError:
    return PlanError("partial_sums.refused", kernel=info.name, why=why)


def _plan(
    store: StoreInfo,
    info: KernelInfo,
    matmuls: tuple[MatmulPlan, ...],
    copies: tuple[CopyPlan, ...],
    machine: Machine,
    request: Request,
) -> StorePlan:
    direct = StorePlan(
        op=store.op,
        acc=store.acc,
        dst=store.dst,
        mechanism="direct",
        partial_sums=store.partial_sums,
    )
    if request.store == "direct" and store.partial_sums:
        raise _cannot_add(info, Reason("partial_sums.direct_store", store=store.op))
    if request.store == "direct":
        return replace(direct, reason=Reason("request.asked"))
    if request.store == "cluster":
        parts = _in_cluster(direct, store, info, matmuls, copies, machine, request)
        if isinstance(parts, StorePlan):
            return parts
        raise PlanError("store.cluster", store=store.op, why=parts)
    staged = partial(_staged, direct, store, info, matmuls, copies, machine, request)
    if request.store == "coalesced":
        found = staged("coalesced")
        if isinstance(found, StorePlan):
            return found
        raise PlanError("store.coalesced", store=store.op, why=found)
    found = staged("tma")
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
        other = staged("coalesced")
        if isinstance(other, StorePlan):
            return replace(
                other, reason=all_of((Reason("store.not_by_tma", why=found), other.reason))
            )
        declined.append(other)
    return replace(direct, reason=Reason("store.direct", why=all_of(declined)))


def _staged(
    direct: StorePlan,
    store: StoreInfo,
    info: KernelInfo,
    matmuls: tuple[MatmulPlan, ...],
    copies: tuple[CopyPlan, ...],
    machine: Machine,
    request: Request,
    mechanism: StoreMechanism,
) -> StorePlan | Why:
    """The plan of ``store`` staged for TMA or for threads, or the requirement that it misses."""
    found = _by_consumers(store, info, matmuls, copies)
    if isinstance(found, Reason):
        return found
    _, matmul = found
    if matmul.swap_ab and matmul.transposed:
        return Reason("store.pairs")
    if mechanism == "coalesced" and store.partial_sums:
        return Reason("partial_sums.direct")
    if matmul.swap_ab and request.store == "auto" and not store.partial_sums:
        uncoalesced = _uncoalesced(store, info, matmuls)
        if uncoalesced <= FEW_UNCOALESCED_CYCLES:
            return Reason("store.few", cycles=uncoalesced)
    obstacle = _obstacle(store, matmul, info, mechanism)
    if obstacle:
        return obstacle
    rows, columns = _extent(matmul)
    size = element_bytes(store.dtype)
    groups = matmul.warps[0] * matmul.warps[1] // WARPGROUP_WARPS
    groups *= consumer_groups(request.consumers)
    span = covering_span(columns * size)
    boxes = math.ceil(columns * size / span)
    wide = min(columns, span // size)
    together = filled_together(matmul.swap_ab, store.dtype)
    one = groups * rows * span
    slots = together * _slots(together * one, boxes // together, info, machine, request)
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
    return replace(
        direct,
        mechanism=mechanism,
        box=(rows, wide),
        slots=slots,
        bytes=slots * one,
        layout=f"swizzle-{span}B",
        reason=all_of((counted, filled, _order(store))),
    )


def _in_cluster(
    direct: StorePlan,
    store: StoreInfo,
    info: KernelInfo,
    matmuls: tuple[MatmulPlan, ...],
    copies: tuple[CopyPlan, ...],
    machine: Machine,
    request: Request,
) -> StorePlan | Why:
    """The plan of ``store`` to the CTAs of a cluster, or the requirement that it misses."""
    if not store.parts:
        return Reason("parts.none", buffer=store.dst)
    found = _by_consumers(store, info, matmuls, copies)
    if isinstance(found, Reason):
        return found
    tile, _ = found
    if request.reduction == "workspace":
        return Reason("parts.workspace")
    if request.cluster not in ("auto", 1):
        return Reason("parts.multicast", ctas=request.cluster)
    if any(loop.outer != 1 for loop in info.loops) or consumer_groups(request.consumers) > 1:
        return Reason("parts.persistent")
    if tile.m % store.parts:
        return Reason("parts.rows", rows=tile.m, parts=store.parts)
    rows = tile.m // store.parts
    size = store.parts * rows * (tile.n + PART_PADDING) * PART_BYTES
    slots = [sum(each for _, _, each in loop.rings) for loop in info.loops]
    room = machine.smem_per_cta - BARRIER_BYTES
    if LEAST_RING_DEPTH * sum(slots) + size > room:
        return Reason("parts.no_room", slots=LEAST_RING_DEPTH, nbytes=size)
    return replace(
        direct,
        mechanism="cluster",
        box=(rows, tile.n),
        bytes=size,
        parts=store.parts,
        reason=Reason("parts.taken", parts=store.parts, rows=rows),
    )


def _by_consumers(
    store: StoreInfo,
    info: KernelInfo,
    matmuls: tuple[MatmulPlan, ...],
    copies: tuple[CopyPlan, ...],
) -> tuple[MatmulInfo, MatmulPlan] | Reason:
    """The matmul whose sums are stored, by warpgroups beside a producer; or why it is not so."""
    found = next(iter(_stored(store, info, matmuls)), None)
    if found is None or not have_producer(copies):
        return Reason("store.no_producer")
    if not multiplied_by(found[1]).warpgroup_wide:
        return Reason("store.by_warp", instruction=found[1].instruction)
    return found


def _stored(
    store: StoreInfo, info: KernelInfo, matmuls: tuple[MatmulPlan, ...]
) -> list[tuple[MatmulInfo, MatmulPlan]]:
    """The matmuls whose sums are stored, with their plans, in the order of the plans."""
    by_op = {op.op: op for op in _matmuls(info) if op.acc == store.acc}
    return [(by_op[plan.op], plan) for plan in matmuls if plan.op in by_op]


def _matmuls(info: KernelInfo) -> list[MatmulInfo]:
    return [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]


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
    rows, columns = _extent(matmul)
    size = element_bytes(store.dtype)
    if columns % STMATRIX_SQUARE:
        return Reason("store.row", nbytes=columns * size, multiple=STMATRIX_SQUARE * size)
    if rows > MAX_BOX or rows % (STMATRIX_SQUARE if matmul.swap_ab else ROWS):
        return Reason("store.rows", most=MAX_BOX, square=STMATRIX_SQUARE, rows=rows)
    if mechanism == "coalesced":
        return Reason("store.joined", buffer=store.dst) if store.viewed else None
    return stride_obstacle(store.dst, store.dtype, store.dst_strides)


def _slots(one: int, boxes: int, info: KernelInfo, machine: Machine, request: Request) -> int:
    """Slots that fit beside the rings; ``one``: bytes of a box of every warpgroup."""
    tiles = [sum(size for _, _, size in loop.rings) for loop in info.loops]
    trips = [loop.trip * (loop.outer or 1) for loop in info.loops if loop.trip is not None]
    longest = max(trips, default=GOOD_RING_DEPTH)
    asked = [d for loop in info.loops for name, _, _ in loop.rings if (d := request.depth_of(name))]
    depths = (
        [max(asked)] if asked else [min(GOOD_RING_DEPTH, longest), min(LEAST_RING_DEPTH, longest)]
    )
    room = machine.smem_per_cta - BARRIER_BYTES
    for depth in depths:
        for slots in range(min(STORE_SLOTS, boxes), 0, -1):
            if boxes % slots == 0 and depth * sum(tiles) + slots * one <= room:
                return slots
    return 0
