"""The rings of a loop: which tiles have slots, and how many at most."""

from __future__ import annotations

from ..diagnostics import Reason, all_of
from ..mechanisms.copies import streamed_ops
from ..mechanisms.table import have_producer, moved_by
from ..plan import CopyPlan, RingPlan
from ..values.facts import CopyInfo, LoopInfo, MatmulInfo, StatementInfo
from ..values.op import Op
from .depth import MAX_DEPTH, REGISTER_DEPTH, DepthChoice


def why_no_ring(loop: LoopInfo) -> Reason:
    """Why ``loop`` has nothing that could have slots."""
    filled = tuple(dict.fromkeys(op.dst for op in loop.ops if isinstance(op, CopyInfo)))
    return Reason("depth.not_allocated", buffers=filled) if filled else Reason("depth.no_load")


def ring_buffers(loop: LoopInfo, copies: tuple[CopyPlan, ...]) -> list[tuple[str, str, int]]:
    """Name, scope and slot bytes of each ring: the tiles that the loop's copies fill.

    A loop without tiles gets a register ring for each of its loads, named after the load: the
    buffer itself is made when the load is split off its statement.
    """
    filled = {plan.dst for plan in copies}
    rings = [ring for ring in loop.rings if ring[0] in filled or ring[1].startswith("shared")]
    if rings:
        return rings
    return [
        (str(streamed_ops(op.op)[0]), "local", op.global_bytes)
        for op in loop.ops
        if isinstance(op, StatementInfo) and op.global_bytes and op.loads and op.kind != "store"
    ]


def ring_plan(
    loop: LoopInfo,
    buffer: str,
    scope: str,
    size: int,
    choice: DepthChoice,
    *,
    requested: bool,
) -> RingPlan:
    """The ring of ``buffer`` with the slots of ``choice``; ``size``: bytes of a slot."""
    filling = tuple(Op(op.op) for op in loop.ops if isinstance(op, CopyInfo) and op.dst == buffer)
    loads = (streamed_ops(op.op)[0] for op in loop.ops if isinstance(op, StatementInfo))
    producers = filling or tuple(load for load in loads if load == buffer)
    consumers = tuple(
        Op(op.op) for op in loop.ops if isinstance(op, MatmulInfo) and buffer in (op.a, op.b)
    )
    asked = Reason("request.asked") if requested else None
    return RingPlan(
        buffer=buffer,
        scope=scope,
        depth=choice.of(buffer),
        slot_bytes=size,
        producers=producers,
        consumers=consumers,
        requested=requested,
        reason=all_of((asked, *choice.reasons, choice.why.get(buffer))),
    )


def most_slots(loop: LoopInfo, copies: tuple[CopyPlan, ...]) -> int:
    """The deepest ring worth considering: no deeper than the trip count, 1 without a ring.

    A producer warp copies on from one tile of a persistent CTA to the next: all that the CTA ever
    does are then the steps of one ring.
    """
    through_registers = all(moved_by(plan).through_registers for plan in copies)
    if not ring_buffers(loop, copies) and not (copies and through_registers):
        return 1
    most = REGISTER_DEPTH if copies and through_registers else MAX_DEPTH
    tiles = (loop.outer or MAX_DEPTH) if have_producer(copies) else 1
    return most if loop.trip is None else max(1, min(most, loop.trip * tiles))


def ring_names(loop: LoopInfo, copies: tuple[CopyPlan, ...]) -> list[str]:
    """The names that a depth can be asked for: buffers, or loads of a loop without tiles."""
    rings = (*loop.rings, *ring_buffers(loop, copies))
    return list(dict.fromkeys(name for name, _, _ in rings))
