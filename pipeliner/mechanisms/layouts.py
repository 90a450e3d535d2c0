"""The layout of each shared tile, which its reader reads without bank conflicts.

``passes/copy/layouts.py`` computes addresses by them. Their names, where a row is the tile's last
dimension and a chunk has 16 bytes:

- ``row-major``: as declared.
- ``padded-16B``: every row is followed by one unused chunk.
- ``swizzle-128B``, ``swizzle-64B``, ``swizzle-32B``: a row is cut into column blocks of that many
  bytes, and chunk ``c`` of row ``r`` of a block is stored at ``c ^ (r % 8)``, ``c ^ (r // 2 % 4)``
  and ``c ^ (r // 4 % 2)``: TMA's swizzles (PTX ISA, tensor swizzle modes). The chunks of one column
  of eight neighbouring rows then lie in different banks. The last block may have room to spare.
- ``rotated-128B``, a rotated swizzle: of the ``n`` chunks of row ``r``, chunk ``c`` is stored at
  ``(c + r % 2) % n ^ (r // 2 % 4 * 2)``. Where every other row of the source begins in the middle
  of a sector, the two halves of a sector lie side by side in the tile too, and are one read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..diagnostics import Reason
from ..instructions.dtypes import LINE_BYTES, SECTOR_BYTES, element_bytes
from ..instructions.table import multiplied_by
from ..instructions.wgmma_shapes import SPANS, covering_span
from ..machine import Machine
from ..machine.constant import constant, documented
from ..plan import CopyPlan, MatmulPlan, Mechanism
from ..values.facts import CopyInfo, LoopInfo, MatmulInfo, StatementInfo
from .vectors import BF16_CAPABILITY, CHUNK

PADDED: Final = "padded-16B"
"""The layout whose rows each end in one unused chunk."""

ROTATED: Final = "rotated-128B"
"""The rotated swizzle: it keeps halves of a sector together where rows begin inside one."""

LDMATRIX_BYTES: Final = constant(
    "LDMATRIX_BYTES",
    2,
    "bytes",
    "an element that ldmatrix can transpose",
    formula="rotated swizzle where K is outermost and element_bytes = LDMATRIX_BYTES",
    source=documented("PTX ISA, ldmatrix: .trans, .b16"),
    date="2026-11-21",
)


def layout_of(
    copy: CopyInfo,
    loop: LoopInfo,
    matmuls: tuple[MatmulPlan, ...],
    mechanism: Mechanism,
    *,
    in_boxes: bool = False,
) -> tuple[str, Reason | None]:
    """The shared layout that the tile's reader reads without bank conflicts, and the reason.

    ``in_boxes``: ``mechanism`` moves boxes, which can be swizzled by row, and no other way.
    """
    reading = readers(copy, loop, matmuls)
    if not reading and in_boxes:
        return _swizzled(copy, Reason("layout.boxes"))
    if not reading:
        return "row-major", None
    op, plan = reading[0]
    k_major = is_k_major(copy, op)
    if in_boxes and multiplied_by(plan).operands == "ldmatrix":
        return _swizzled(copy, Reason("layout.ldmatrix"))
    layout = _matmul_layout(copy, plan, k_major)
    patterns = {_pattern(copy, op, plan) for op, plan in reading}
    if op.a == op.b:
        return "row-major", Reason("layout.both_sides", op=op.op)
    if len(reading) > 1 and (len(patterns) > 1 or layout[0] == PADDED):
        return "row-major", Reason("layout.patterns", readers=len(reading))
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
    whole = copy.aligned * size % CHUNK == 0 and copy.shape[-1] * size % LINE_BYTES == 0
    return reads_matrices(copy, plan, k_major) and whole


def reads_matrices(copy: CopyInfo, plan: MatmulPlan, k_major: bool) -> bool:
    """Whether the matmul reads the tile by ldmatrix, and not in words of its lanes."""
    transposable = k_major or element_bytes(copy.dtype) == LDMATRIX_BYTES
    return multiplied_by(plan).operands == "ldmatrix" and transposable


def is_k_major(copy: CopyInfo, op: MatmulInfo) -> bool:
    """Whether K lies innermost in the tile, as the matmul reads it."""
    return op.a_k_major if copy.dst == op.a else op.b_k_major


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


def readers(
    copy: CopyInfo, loop: LoopInfo, matmuls: tuple[MatmulPlan, ...]
) -> list[tuple[MatmulInfo, MatmulPlan]]:
    """The mapped matmuls of the loop that read the tile."""
    plans = {plan.op: plan for plan in matmuls}
    reading = (op for op in loop.ops if isinstance(op, MatmulInfo) and copy.dst in (op.a, op.b))
    return [(op, plans[op.op]) for op in reading if op.op in plans]


def converting(
    copy: CopyInfo, loop: LoopInfo, matmuls: tuple[MatmulPlan, ...]
) -> list[tuple[MatmulInfo, MatmulPlan]]:
    """The matmuls by warpgroups whose first operand is computed in registers from the tile."""
    plans = {
        plan.op: plan
        for plan in matmuls
        if plan.operand == "computed" and multiplied_by(plan).warpgroup_wide
    }
    read = {name for op in loop.ops if isinstance(op, StatementInfo) for name in op.reads}
    if copy.dst not in read:
        return []
    reading = (op for op in loop.ops if isinstance(op, MatmulInfo) and op.computed)
    return [(op, plans[op.op]) for op in reading if op.op in plans]


def _matmul_layout(copy: CopyInfo, plan: MatmulPlan, k_major: bool) -> tuple[str, Reason]:
    size = element_bytes(copy.dtype)
    row = copy.shape[-1] * size
    reason = Reason("layout.ldmatrix")
    operands = multiplied_by(plan).operands
    if operands == "vectors":
        if k_major:
            reason = Reason("layout.lanes")
        elif copy.src_dims[-1] != len(copy.shape) - 1:
            reason = Reason("layout.columns")
            if row % (2 * CHUNK) == 0:
                return PADDED, Reason("layout.padded")
        else:
            return "row-major", Reason("layout.neighbours")
    if operands == "descriptor":
        reason = Reason("layout.descriptor")
        if may_have_room(k_major, plan):
            return f"swizzle-{covering_span(row)}B", reason
    return _swizzled(copy, reason)


def may_have_room(k_major: bool, plan: MatmulPlan) -> bool:
    """Whether the last column block of a row may have room to spare, which nothing reads.

    wgmma reads columns one by one where K lies outermost; along K it reads whole blocks. A block
    half full is a request of L2 for each row less than blocks half as wide: 2048x2560x4096 by
    128x176 with K outermost takes 100 us in eleven blocks of 32 bytes on an H200, and 65 with K
    innermost.
    """
    return multiplied_by(plan).operands == "descriptor" and not k_major


def _swizzled(copy: CopyInfo, reason: Reason) -> tuple[str, Reason]:
    """The widest of TMA's swizzles that rows of the tile divide into, for ``reason``."""
    row = copy.shape[-1] * element_bytes(copy.dtype)
    for column_block in SPANS:
        if row % column_block == 0:
            return f"swizzle-{column_block}B", reason
    return "row-major", Reason("layout.short", nbytes=row)


def shared_bytes(copy: CopyInfo) -> int:
    """Bytes of the tile in shared memory."""
    return copy.elements * element_bytes(copy.dtype)


def swizzle_span(layout: str) -> int:
    """Bytes of a row of a column block; 0 where a layout has none."""
    return next((span for span in SPANS if layout == f"swizzle-{span}B"), 0)


def stored_bytes(copy: CopyInfo, plan: CopyPlan) -> int:
    """Bytes of the tile's column blocks, with the room that the last of a row has to spare."""
    row, span = copy.shape[-1] * element_bytes(copy.dtype), swizzle_span(plan.layout)
    return shared_bytes(copy) // row * (-(-row // span) * span if span else row)


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
    padding += stored_bytes(copy, plan) - shared_bytes(copy)
    return shared_bytes(copy) * widened + padding * (1 + widened)
