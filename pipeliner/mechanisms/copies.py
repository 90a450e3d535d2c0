"""How each tile copy moves: its mechanism, the bytes at once, its shared layout.

Layouts of a shared tile, by name. A row is the tile's last dimension; chunks are of 16 bytes.

- ``row-major``: as declared.
- ``padded-16B``: every row is followed by one unused chunk.
- ``swizzle-128B``, ``swizzle-64B``, ``swizzle-32B``: a row is cut into column blocks of that many
  bytes, and chunk ``c`` of row ``r`` of a block is stored at ``c ^ (r % 8)``, ``c ^ (r // 2 % 4)``
  and ``c ^ (r // 4 % 2)``: TMA's swizzles (PTX ISA, tensor swizzle modes). The chunks of one column
  of eight neighbouring rows then lie in different banks.
- ``rotated-128B``, a rotated swizzle: of the ``n`` chunks of row ``r``, chunk ``c`` is stored at
  ``(c + r % 2) % n ^ (r // 2 % 4 * 2)``. Where every other row of the source begins in the middle
  of a sector, the two halves of a sector lie side by side in the tile too, and are one read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..diagnostics import Reason, Why, all_of
from ..errors import PlanError, TargetError
from ..instructions.dtypes import LINE_BYTES, SECTOR_BYTES, element_bytes
from ..instructions.wgmma import SPANS
from ..machine import WARP, Machine
from ..machine.constant import constant, documented
from ..plan import Cache, CopyPlan, MatmulPlan, Mechanism
from ..plan.request import Request
from ..values.facts import PIXEL_VIEWS, CopyInfo, LoopInfo, MatmulInfo
from .pinned import pinned_width
from .tma import box_reasons, tma_obstacle

CHUNK: Final = constant(
    "CHUNK",
    16,
    "bytes",
    "the widest access of a thread, a row of ldmatrix and a swizzle's unit",
    formula="vector_bytes <= CHUNK",
    source=documented("PTX ISA, ld.v4, ldmatrix, tensor swizzle modes"),
    date="2026-11-21",
)

BF16_CAPABILITY: Final = constant(
    "BF16_CAPABILITY",
    80,
    "1",
    "compute capability before which TVM computes and stores bfloat16 as float32, in vectors of "
    "four",
    formula="slot_bytes * 2 where capability < BF16_CAPABILITY",
    source=documented("TVM 0.27, codegen of bfloat16"),
    date="2026-11-21",
)

PADDED: Final = "padded-16B"
"""The layout whose rows each end in one unused chunk."""

LDMATRIX_BYTES: Final = constant(
    "LDMATRIX_BYTES",
    2,
    "bytes",
    "an element that ldmatrix can transpose",
    formula="rotated swizzle where K is outermost and element_bytes = LDMATRIX_BYTES",
    source=documented("PTX ISA, ldmatrix: .trans, .b16"),
    date="2026-11-21",
)

ROTATED: Final = "rotated-128B"
"""The rotated swizzle: it keeps halves of a sector together where rows begin inside one."""

CP_ASYNC_BYTES: Final = constant(
    "CP_ASYNC_BYTES",
    (16, 8, 4),
    "bytes",
    "what one cp.async moves",
    formula="vector_bytes in CP_ASYNC_BYTES",
    source=documented("PTX ISA, cp.async: cp-size"),
    date="2026-11-21",
)


def plan_copy(
    copy: CopyInfo,
    loop: LoopInfo,
    matmuls: tuple[MatmulPlan, ...],
    machine: Machine,
    request: Request,
) -> CopyPlan:
    """The plan of one copy; raises TargetError or PlanError for a mechanism that cannot be had."""
    width_reason: Reason | None
    multicast_reason: Reason | None
    vector, width_reason = _width(copy, machine, request)
    mechanism, reasons = _mechanism(copy, vector, machine, request, _reader(copy, loop, matmuls))
    multicast, multicast_reason = 1, None
    if mechanism == "tma":
        width_reason = None
        if request.cluster in copy.multicast:
            multicast = request.cluster
            multicast_reason = Reason("mechanism.multicast", cluster=multicast)
    layout, layout_reason = _layout(copy, loop, matmuls, mechanism)
    chunks, chunks_reason = _chunks(copy, vector, mechanism, loop, matmuls)
    cache, cache_reason = _cache(copy, vector, mechanism, layout)
    return CopyPlan(
        op=copy.op,
        src=copy.src,
        dst=copy.dst,
        tile=copy.shape,
        mechanism=mechanism,
        vector_bytes=vector,
        layout=layout,
        reason=all_of(
            (
                *reasons,
                width_reason,
                cache_reason,
                multicast_reason,
                copy.note,
                layout_reason,
                chunks_reason,
            )
        ),
        chunks=chunks,
        cache=cache,
        multicast=multicast,
        view=copy.view if mechanism == "tma" else "tensor",
    )


def _width(copy: CopyInfo, machine: Machine, request: Request) -> tuple[int, Reason]:
    """Bytes that one thread moves at once: as many as it can, or fewer as a plan says.

    A copy that the schedule binds to threads has its own vectors, and a box has none.
    """
    widest, reason = _vector_bytes(copy, machine)
    given = pinned_width(request, copy.op)
    narrower = element_bytes(copy.dtype) <= given < widest and given & (given - 1) == 0
    if narrower and not copy.bound and request.mechanism != "tma":
        return given, Reason("vector.planned", nbytes=given)
    return widest, reason


def _vector_bytes(copy: CopyInfo, machine: Machine) -> tuple[int, Reason]:
    """Bytes that one thread moves at once, and what stops more."""
    size = element_bytes(copy.dtype)
    last = len(copy.shape) - 1
    contiguous = bool(copy.src_dims) and copy.src_dims[-1] == last and copy.src_strides[-1] == 1
    if not contiguous:
        return size, Reason("vector.scattered", nbytes=size)
    aligned, row = copy.aligned * size, copy.shape[-1] * size
    as_float32 = copy.dtype == "bfloat16" and machine.capability < BF16_CAPABILITY
    vector = widest = CHUNK // 2 if as_float32 else CHUNK
    while vector > size and (aligned % vector or row % vector):
        vector //= 2
    if vector == CHUNK:
        return vector, Reason("vector.widest", nbytes=vector)
    if vector == widest:
        return vector, Reason("vector.bfloat16", nbytes=vector, arch=machine.arch)
    if aligned % (2 * vector):
        return vector, Reason("vector.aligned", nbytes=vector, aligned=aligned)
    return vector, Reason("vector.row", nbytes=vector, row=row)


def _cache(
    copy: CopyInfo, vector: int, mechanism: Mechanism, layout: str
) -> tuple[Cache, Reason | None]:
    """The cache that 16-byte copies go through, and why it is not L2 alone.

    Past L1 each half of a sector is a read of the whole sector from L2. On an H100, rows of 8080
    bytes took 1.76 times the traffic of aligned ones so, through L1 1.23 times, and the GEMM of
    4000x4104x4040 8 % less time.
    """
    aligned = copy.aligned * element_bytes(copy.dtype)
    whole = aligned % SECTOR_BYTES == 0 or layout == ROTATED
    if mechanism != "cp_async" or vector != CHUNK or whole:
        return "L2", None
    return "L1", Reason("cache.l1", aligned=aligned, sector=SECTOR_BYTES)


def _reader(
    copy: CopyInfo, loop: LoopInfo, matmuls: tuple[MatmulPlan, ...]
) -> tuple[MatmulInfo, MatmulPlan] | None:
    """The first mapped matmul that reads the tile, if one does."""
    return next(iter(_readers(copy, loop, matmuls)), None)


def _readers(
    copy: CopyInfo, loop: LoopInfo, matmuls: tuple[MatmulPlan, ...]
) -> list[tuple[MatmulInfo, MatmulPlan]]:
    """The mapped matmuls of the loop that read the tile."""
    plans = {plan.op: plan for plan in matmuls}
    reading = (op for op in loop.ops if isinstance(op, MatmulInfo) and copy.dst in (op.a, op.b))
    return [(op, plans[op.op]) for op in reading if op.op in plans]


def _mechanism(
    copy: CopyInfo,
    vector: int,
    machine: Machine,
    request: Request,
    reader: tuple[MatmulInfo, MatmulPlan] | None,
) -> tuple[Mechanism, tuple[Reason, ...]]:
    asked = request.mechanism
    if copy.dst_scope == "local":
        return "direct", (Reason("mechanism.into_registers"),)
    if reader is not None and reader[1].instruction.startswith("wgmma"):
        return _warpgroup_mechanism(copy, vector, machine, request)
    if asked == "tma":
        error = PlanError if machine.has_tma else TargetError
        why = tma_obstacle(copy, machine) or Reason("mechanism.no_wgmma")
        raise error("mechanism.refused", copy=copy.op, mechanism=asked, why=why)
    if asked == "register" or asked == "direct":
        return asked, (Reason("request.asked"),)
    obstacle = _cp_async_obstacle(copy, vector, machine)
    if obstacle is None:
        return "cp_async", _past_registers(copy)
    if asked == "cp_async":
        error = PlanError if machine.has_cp_async else TargetError
        raise error("mechanism.refused", copy=copy.op, mechanism=asked, why=obstacle)
    if copy.no_register:
        why = Reason("mechanism.as_written", why=obstacle, register=copy.no_register)
        return "direct", (why,)
    return "register", (Reason("mechanism.staged", why=obstacle),)


def _warpgroup_mechanism(
    copy: CopyInfo, vector: int, machine: Machine, request: Request
) -> tuple[Mechanism, tuple[Reason, ...]]:
    """The mechanism for a tile that wgmma reads: TMA, or cp.async where no box fits."""
    asked = request.mechanism
    if asked not in ("auto", "tma", "cp_async"):
        why = Reason("mechanism.read_by_wgmma")
        raise PlanError("mechanism.refused", copy=copy.op, mechanism=asked, why=why)
    no_boxes = tma_obstacle(copy, machine)
    if request.roles == 0 and not no_boxes:
        no_boxes = Reason("mechanism.no_producer")
    if asked == "tma" and no_boxes:
        error = PlanError if machine.has_tma else TargetError
        raise error("mechanism.refused", copy=copy.op, mechanism=asked, why=no_boxes)
    if asked != "cp_async" and not no_boxes:
        return "tma", box_reasons(copy)
    no_vectors = _cp_async_obstacle(copy, vector, machine)
    if no_vectors:
        raise PlanError(
            "mechanism.for_wgmma",
            copy=copy.op,
            tma=no_boxes or Reason("mechanism.not_asked"),
            cp_async=no_vectors,
        )
    why = Reason("mechanism.no_box", why=no_boxes) if no_boxes else Reason("request.asked")
    return "cp_async", (*_past_registers(copy), why)


def _past_registers(copy: CopyInfo) -> tuple[Reason, ...]:
    """What a plan says of a copy by cp.async."""
    filled = (Reason("mechanism.zero_filled"),) if copy.masked else ()
    return Reason("mechanism.asynchronous"), *filled


def _cp_async_obstacle(copy: CopyInfo, vector: int, machine: Machine) -> Why | None:
    if not machine.has_cp_async:
        return Reason("cp_async.machine", machine=machine.name, arch=machine.arch)
    if not copy.dst_scope.startswith("shared"):
        return Reason("cp_async.scope", buffer=copy.dst, scope=copy.dst_scope)
    if vector not in CP_ASYNC_BYTES:
        return Reason("cp_async.vector", nbytes=vector)
    return copy.no_cp_async or None


def _layout(
    copy: CopyInfo,
    loop: LoopInfo,
    matmuls: tuple[MatmulPlan, ...],
    mechanism: Mechanism,
) -> tuple[str, Reason | None]:
    """The shared layout that the tile's reader reads without bank conflicts, and the reason."""
    readers = _readers(copy, loop, matmuls)
    if not readers:
        return "row-major", None
    op, plan = readers[0]
    k_major = op.a_k_major if copy.dst == op.a else op.b_k_major
    layout = _matmul_layout(copy, plan, k_major)
    patterns = {_pattern(copy, op, plan) for op, plan in readers}
    if op.a == op.b:
        return "row-major", Reason("layout.both_sides", op=op.op)
    if len(readers) > 1 and (len(patterns) > 1 or layout[0] == PADDED):
        return "row-major", Reason("layout.patterns", readers=len(readers))
    rows = _row_stride(copy)
    if (
        mechanism == "cp_async"
        and rows % SECTOR_BYTES == CHUNK
        and _may_rotate(copy, plan, k_major)
    ):
        return ROTATED, Reason("layout.rotated", stride=rows, sector=SECTOR_BYTES)
    return layout


def _may_rotate(copy: CopyInfo, plan: MatmulPlan, k_major: bool) -> bool:
    """Whether ldmatrix reads the tile and its rows are whole lines of shared memory."""
    size = element_bytes(copy.dtype)
    by_ldmatrix = plan.instruction.startswith("mma.") and (k_major or size == LDMATRIX_BYTES)
    whole = copy.aligned * size % CHUNK == 0 and copy.shape[-1] * size % LINE_BYTES == 0
    return by_ldmatrix and whole


def _row_stride(copy: CopyInfo) -> int:
    """Bytes between rows of the tile in the source; 0 where they are not known or not equal."""
    if len(copy.shape) != 2 or 0 not in copy.src_dims:
        return 0
    return (copy.src_strides[copy.src_dims.index(0)] or 0) * element_bytes(copy.dtype)


def _pattern(copy: CopyInfo, op: MatmulInfo, plan: MatmulPlan) -> tuple[object, ...]:
    """What decides which elements of the tile the threads of a matmul read at once."""
    left = copy.dst == op.a
    side = left, op.a_k_major if left else op.b_k_major
    return *side, plan.instruction, plan.warps, plan.warp_tile, plan.thread_tile, plan.k_step


def _chunks(
    copy: CopyInfo,
    vector: int,
    mechanism: Mechanism,
    loop: LoopInfo,
    matmuls: tuple[MatmulPlan, ...],
) -> tuple[int, Reason | None]:
    """Chunks that the copy is split into, with the reason: several where accesses are narrow.

    Many copies at once keep the warp's other instructions from issuing; a few behind the fragments
    of each k-step fit in the gaps between multiply-adds.
    """
    used = {op.op for op in loop.ops if isinstance(op, MatmulInfo)}
    plan = next((p for p in matmuls if p.op in used and p.instruction == "simt"), None)
    if mechanism != "cp_async" or vector == CHUNK or plan is None or copy.bound or plan.steps < 3:
        return 1, None
    threads = plan.warps[0] * plan.warps[1] * WARP
    rounds = -(-copy.elements * element_bytes(copy.dtype) // (vector * threads))
    if rounds == 1:
        return 1, None
    return rounds, Reason("vector.chunks", chunks=rounds, nbytes=vector)


def _matmul_layout(copy: CopyInfo, plan: MatmulPlan, k_major: bool) -> tuple[str, Reason]:
    size = element_bytes(copy.dtype)
    row = copy.shape[-1] * size
    reason = Reason("layout.ldmatrix")
    if plan.instruction == "simt":
        if k_major:
            reason = Reason("layout.lanes")
        elif copy.src_dims[-1] != len(copy.shape) - 1:
            reason = Reason("layout.columns")
            if row % (2 * CHUNK) == 0:
                return PADDED, Reason("layout.padded")
        else:
            return "row-major", Reason("layout.neighbours")
    if plan.instruction.startswith("wgmma"):
        reason = Reason("layout.descriptor")
    for column_block in SPANS:
        if row % column_block == 0:
            return f"swizzle-{column_block}B", reason
    return "row-major", Reason("layout.short", nbytes=row)


def shared_bytes(copy: CopyInfo) -> int:
    """Bytes of the tile in shared memory."""
    return copy.elements * element_bytes(copy.dtype)


def laid_out(loop: LoopInfo, plans: tuple[CopyPlan, ...], machine: Machine) -> LoopInfo:
    """``loop`` with the bytes of a slot of each ring in its layout, padding included.

    TVM holds bfloat16 as float32 on GPUs without it.
    """
    extra = {
        plan.dst: _extra_bytes(op, plan, machine)
        for op in loop.ops
        for plan in plans
        if isinstance(op, CopyInfo) and op.op == plan.op
    }
    return replace(
        loop,
        rings=tuple((name, scope, size + extra.get(name, 0)) for name, scope, size in loop.rings),
    )


def _extra_bytes(copy: CopyInfo, plan: CopyPlan, machine: Machine) -> int:
    widened = copy.dtype == "bfloat16" and machine.capability < BF16_CAPABILITY
    padding = CHUNK * (copy.elements // copy.shape[-1]) if plan.layout == PADDED else 0
    return shared_bytes(copy) * widened + padding * (1 + widened)


def of_pixels(copy: CopyInfo) -> bool:
    """Whether the copy reads an implicit-GEMM operand A: other addresses in each step."""
    return copy.view in PIXEL_VIEWS or (copy.view == "tensor" and copy.src_dims[0] is None)
