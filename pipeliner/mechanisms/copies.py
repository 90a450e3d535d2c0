"""How each tile copy moves: its mechanism, the bytes at once, its shared layout.

``passes/copy/copies.py`` carries it out. What each mechanism requires stands in a file of its own:
``tma``, ``cp_async``, ``register``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ..diagnostics import Reason, Why, all_of, each_of
from ..errors import PlanError, TargetError
from ..instructions.dtypes import element_bytes
from ..instructions.table import multiplied_by
from ..machine import Machine
from ..plan import CopyPlan, MatmulPlan, Mechanism
from ..plan.request import Request
from ..values.facts import PIXEL_VIEWS, CopyInfo, LoopInfo, MatmulInfo
from ..values.op import Op
from .cp_async import cache_of, chunks_of, cp_async_obstacle, cp_async_reasons
from .layouts import converting, is_k_major, layout_of, may_have_room, readers, reads_matrices
from .register import staged
from .table import COPY_MECHANISMS, PRODUCED, moved_by
from .tma import box_reasons, tma_obstacle
from .vectors import width


class _Obstacle(Protocol):
    def __call__(self, copy: CopyInfo, machine: Machine, *, spare: bool = False) -> Why | None: ...


class _Reasons(Protocol):
    def __call__(self, copy: CopyInfo, *, spare: bool = False) -> tuple[Reason, ...]: ...


@dataclass(frozen=True, slots=True)
class ProducedCopy:
    """What a mechanism of a producer warp says of a copy: what it misses, and how it is made.

    ``spare``: whether the last column block of a row may have room to spare.
    """

    obstacle: _Obstacle
    reasons: _Reasons


PRODUCED_COPIES: Final[Mapping[str, ProducedCopy]] = {
    "tma": ProducedCopy(tma_obstacle, box_reasons)
}
"""By the names of ``PRODUCED``."""


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
    vector, width_reason = width(copy, machine, request)
    reading = readers(copy, loop, matmuls)
    mechanism, reasons = _mechanism(
        copy, vector, machine, request, reading or converting(copy, loop, matmuls)
    )
    multicast, ranks, multicast_reason = 1, 0, None
    by = COPY_MECHANISMS[mechanism]
    if by.by_producer:
        width_reason = None
    if by.moves_boxes and copy.shared_in(request.cluster):
        ranks = copy.shared_in(request.cluster)
        multicast = 1 << ranks.bit_count()
        multicast_reason = Reason(
            "mechanism.multicast_part", cluster=request.cluster, ctas=multicast
        )
        if multicast == request.cluster:
            ranks, multicast_reason = 0, Reason("mechanism.multicast", cluster=multicast)
    layout, layout_reason = layout_of(copy, loop, matmuls, mechanism, in_boxes=by.moves_boxes)
    chunks, chunks_reason = chunks_of(copy, vector, mechanism, loop, matmuls)
    cache, cache_reason = cache_of(copy, vector, mechanism, layout)
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
                *each_of(copy.note),
                layout_reason,
                chunks_reason,
            )
        ),
        chunks=chunks,
        cache=cache,
        multicast=multicast,
        ranks=ranks,
        view=copy.view if by.moves_boxes else "tensor",
    )


def copy_ops(plan: CopyPlan) -> tuple[Op, ...]:
    """The ops that a copy becomes when it is lowered, in program order."""
    if moved_by(plan).through_registers:
        return Op(plan.op, "load"), Op(plan.op, "store")
    if plan.chunks > 1:
        return tuple(Op(plan.op, chunk=chunk) for chunk in range(plan.chunks))
    return (Op(plan.op),)


def streamed_ops(statement: str) -> tuple[Op, Op]:
    """The ops of a statement that computes from global memory, if its loads have a ring."""
    return Op(statement, "load"), Op(statement)


def _mechanism(
    copy: CopyInfo,
    vector: int,
    machine: Machine,
    request: Request,
    reading: Sequence[tuple[MatmulInfo, MatmulPlan]],
) -> tuple[Mechanism, tuple[Reason, ...]]:
    """The mechanism that is asked for, or the first that can be had; and why.

    ``reading``: the mapped matmuls that read the tile.
    """
    asked = request.mechanism
    if copy.dst_scope == "local":
        return "direct", (Reason("mechanism.into_registers"),)
    if reading and multiplied_by(reading[0][1]).warpgroup_wide:
        spare = any(may_have_room(is_k_major(copy, op), plan) for op, plan in reading)
        return _warpgroup_mechanism(copy, vector, machine, request, spare=spare)
    if asked != "auto" and asked in PRODUCED:
        produced = PRODUCED_COPIES[asked]
        why = produced.obstacle(copy, machine) or _by_warp_obstacle(copy, reading, request)
        if why:
            error = PlanError if machine.has_tma else TargetError
            raise error("mechanism.refused", copy=copy.op, mechanism=asked, why=why)
        return asked, produced.reasons(copy)
    if asked == "register" or asked == "direct":
        return asked, (Reason("request.asked"),)
    obstacle = cp_async_obstacle(copy, vector, machine)
    if obstacle is None:
        return "cp_async", cp_async_reasons(copy)
    if asked == "cp_async":
        error = PlanError if machine.has_cp_async else TargetError
        raise error("mechanism.refused", copy=copy.op, mechanism=asked, why=obstacle)
    return staged(copy, obstacle)


def _warpgroup_mechanism(
    copy: CopyInfo, vector: int, machine: Machine, request: Request, *, spare: bool
) -> tuple[Mechanism, tuple[Reason, ...]]:
    """The mechanism for a tile that wgmma reads: a producer's, TMA's where none is asked for.

    Where that cannot make the copy, cp.async does. ``spare``: the last column block of a row may
    have room to spare.
    """
    asked = request.mechanism
    if asked not in ("auto", "cp_async", *PRODUCED):
        why = Reason("mechanism.read_by_wgmma")
        raise PlanError("mechanism.refused", copy=copy.op, mechanism=asked, why=why)
    mechanism: Mechanism = "tma" if asked == "auto" or asked == "cp_async" else asked
    produced = PRODUCED_COPIES[mechanism]
    obstacle = produced.obstacle(copy, machine, spare=spare)
    if request.roles == 0 and not obstacle:
        obstacle = Reason("mechanism.no_producer")
    if asked == mechanism and obstacle:
        error = PlanError if machine.has_tma else TargetError
        raise error("mechanism.refused", copy=copy.op, mechanism=asked, why=obstacle)
    if asked != "cp_async" and not obstacle:
        return mechanism, produced.reasons(copy, spare=spare)
    no_vectors = cp_async_obstacle(copy, vector, machine)
    if no_vectors:
        raise PlanError(
            "mechanism.for_wgmma",
            copy=copy.op,
            tma=obstacle or Reason("mechanism.not_asked"),
            cp_async=no_vectors,
        )
    why = Reason("mechanism.no_box", why=obstacle) if obstacle else Reason("request.asked")
    return "cp_async", (*cp_async_reasons(copy), why)


def _by_warp_obstacle(
    copy: CopyInfo, reading: Sequence[tuple[MatmulInfo, MatmulPlan]], request: Request
) -> Reason | None:
    """Why a producer warp cannot fill a tile that warps read, as far as it is theirs to read.

    A swizzled box keeps 8 rows of 16 bytes in different banks: what ldmatrix reads. Lanes that
    load words read another pattern, for which only other layouts keep banks apart.
    """
    if not reading:
        return Reason("mechanism.no_reader")
    if request.roles == 0:
        return Reason("mechanism.no_producer")
    for op, plan in reading:
        if reads_matrices(copy, plan, is_k_major(copy, op)):
            continue
        if multiplied_by(plan).operands != "ldmatrix":
            return Reason("mechanism.by_vectors", op=op.op)
        return Reason("mechanism.by_words", op=op.op, nbytes=element_bytes(copy.dtype))
    return None


def of_pixels(copy: CopyInfo) -> bool:
    """Whether the copy reads an implicit-GEMM operand A: other addresses in each step.

    Its rows go along no dimension of the source; those of a batch do, beside a fixed coordinate.
    """
    return copy.view in PIXEL_VIEWS or (copy.view == "tensor" and 0 not in copy.src_dims)
