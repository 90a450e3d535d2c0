"""Warp specialisation: the producer warp, the consumer warpgroups, and their mbarriers.

One warp issues every TMA copy; the others compute. Each slot has a full and an empty mbarrier:
consumers wait on ``full`` until the bytes are there, the producer on ``empty`` until they have been
used.

For consumers that are warpgroups (wgmma), the producer is one too: only warpgroups exchange
registers, and their accumulators need what the producer gives up. Consumers that are warps
(mma.sync) keep the registers that they are launched with, beside a producer of one warp, and so run
on every GPU with TMA, without what is of one architecture alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Literal

from ..diagnostics import Reason, all_of
from ..errors import PlanError
from ..instructions.registers import PRODUCER_REGISTERS
from ..instructions.table import multiplied_by
from ..instructions.warpgroup_registers import consumer_registers, launch_registers
from ..instructions.wgmma import consumer_groups
from ..instructions.wgmma_shapes import WARPGROUP
from ..machine import WARP, Machine
from ..plan import (
    CONSUMER,
    PRODUCER,
    Consumers,
    CopyPlan,
    LoopPlan,
    MatmulPlan,
    MbarrierPair,
    RolePlan,
)
from ..values.facts import CopyInfo, KernelInfo, LoopInfo, MatmulInfo, StatementInfo
from .layouts import shared_bytes
from .ping_pong import ping_pong_obstacle, why_cooperative
from .table import moved_by

FULL: Final = "full"
EMPTY: Final = "empty"

BEFORE: Final = ""
"""The loop of what is copied once, before the loops."""

ONCE: Final = Reason("release.never")
"""Why a tile that is copied once has no empty mbarrier."""

TOGETHER: Final = Reason("release.together")
"""Why a deeper ring has no empty mbarrier of its own."""

_WARPS: Final = WARPGROUP // WARP


def reads_by_lane(matmuls: tuple[MatmulPlan, ...]) -> bool:
    """Whether lanes load operands from the slots: each warp then releases a slot by itself."""
    return any(plan.operand == "registers" for plan in matmuls) or not by_warpgroup(matmuls)


def by_warpgroup(matmuls: tuple[MatmulPlan, ...]) -> bool:
    """Whether warpgroups multiply, and consumers are warpgroups."""
    return any(multiplied_by(plan).warpgroup_wide for plan in matmuls)


def producer_threads(matmuls: tuple[MatmulPlan, ...]) -> int:
    """Threads beside the consumers, of which one issues every copy."""
    return WARPGROUP if by_warpgroup(matmuls) else WARP


def plan_roles(
    info: KernelInfo,
    loops: tuple[LoopPlan, ...],
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    machine: Machine,
    cluster: int = 1,
    consumers: Literal["auto"] | Consumers = "auto",
) -> tuple[tuple[RolePlan, ...], tuple[MbarrierPair, ...]]:
    """The roles and mbarrier pairs of a kernel that TMA copies for; empty for any other.

    ``cluster``: CTAs that fill each other's slots, and release them to those that do. Raises
    PlanError where ``consumers`` cannot ping-pong.
    """
    by_tma = _by_tma(copies)
    obstacle = ping_pong_obstacle(info, matmuls, copies)
    if consumers == "ping-pong" and obstacle is not None:
        raise PlanError("consumers.refused", kernel=info.name, why=obstacle)
    if not by_tma:
        return (), ()
    if not by_warpgroup(matmuls):
        return _of_warps(info, loops, copies, matmuls, cluster)
    ping_pong = consumer_groups(consumers)
    why = why_cooperative(info, matmuls, copies) if consumers == "auto" else None
    each = max(plan.warps[0] * plan.warps[1] for plan in matmuls) * 32 // WARPGROUP
    groups = each * ping_pong
    arrivals = each * (_WARPS if reads_by_lane(matmuls) else 1)
    launched = launch_registers(machine, groups)
    kept = consumer_registers(machine, groups)
    consumer = RolePlan(
        name=CONSUMER,
        first=0,
        threads=groups * WARPGROUP,
        registers=kept,
        ops=_computed(info),
        reason=all_of(
            (
                Reason("consumers.registers", groups=groups, registers=kept, launched=launched),
                _sharing(ping_pong, each, why),
            )
        ),
        ping_pong_groups=ping_pong,
    )
    producer = RolePlan(
        name=PRODUCER,
        first=groups * WARPGROUP,
        threads=WARPGROUP,
        registers=PRODUCER_REGISTERS,
        ops=by_tma,
        reason=Reason("producer.one_thread"),
    )
    pairs = _all_pairs(info, loops, copies, arrivals, matmuls, cluster)
    return (consumer, producer), pairs


def _of_warps(
    info: KernelInfo,
    loops: tuple[LoopPlan, ...],
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    cluster: int,
) -> tuple[tuple[RolePlan, ...], tuple[MbarrierPair, ...]]:
    """The roles and mbarrier pairs of consumers that are warps, beside a producer of one warp."""
    warps = max(plan.warps[0] * plan.warps[1] for plan in matmuls)
    consumer = RolePlan(
        name=CONSUMER,
        first=0,
        threads=warps * WARP,
        registers=0,
        ops=_computed(info),
        reason=Reason("consumers.warps", warps=warps),
    )
    producer = RolePlan(
        name=PRODUCER,
        first=warps * WARP,
        threads=producer_threads(matmuls),
        registers=0,
        ops=_by_tma(copies),
        reason=Reason("producer.one_warp"),
    )
    return (consumer, producer), _all_pairs(info, loops, copies, warps, matmuls, cluster)


def _by_tma(copies: tuple[CopyPlan, ...]) -> tuple[str, ...]:
    """The copies of a producer."""
    return tuple(copy.op for copy in copies if moved_by(copy).by_producer)


def released_to(pair: MbarrierPair, copies: Iterable[CopyPlan], cluster: int) -> tuple[int, ...]:
    """The CTAs of a cluster that a consumer releases slots of ``pair`` to: those that fill them.

    As what their ranks differ in from its own, in bits. To others it may not release: nothing that
    it waits for says which step they are in, and an mbarrier could count it in the phase before.
    """
    filled = {
        differing
        for copy in copies
        if copy.dst in pair.rings and copy.multicast > 1
        for bits in [copy.ranks or cluster - 1]
        for differing in range(cluster)
        if not differing & ~bits
    }
    return tuple(sorted(filled | {0}))


def _computed(info: KernelInfo) -> tuple[str, ...]:
    """The ops that are no copies."""
    return tuple(op.op for loop in info.loops for op in loop.ops if not isinstance(op, CopyInfo))


def _all_pairs(
    info: KernelInfo,
    loops: tuple[LoopPlan, ...],
    copies: tuple[CopyPlan, ...],
    arrivals: int,
    matmuls: tuple[MatmulPlan, ...],
    cluster: int,
) -> tuple[MbarrierPair, ...]:
    """The mbarrier pairs of every pipelined loop, and of what is copied before them.

    ``arrivals``: of the consumers of a CTA.
    """
    several, by_warp, late = len(info.loops) > 1, reads_by_lane(matmuls), by_warpgroup(matmuls)
    by_tma = _by_tma(copies)
    infos = {op.op: op for loop in info.loops for op in loop.ops if isinstance(op, CopyInfo)}
    infos |= {op.op: op for op in info.before}
    arriving = {plan.op: shared_bytes(infos[plan.op]) for plan in copies if plan.op in by_tma}

    def released(pair: MbarrierPair) -> MbarrierPair:
        ctas = len(released_to(pair, copies, cluster))
        return replace(pair, arrivals=pair.arrivals * ctas)

    return (
        *(
            _pair_before(copy, arriving[copy.op], arrivals)
            for copy in info.before
            if copy.op in by_tma
        ),
        *(
            released(pair)
            for found, plan in zip(info.loops, loops)
            if plan.pipelined
            for pair in _mbarrier_pairs(
                found, plan, arriving, arrivals, several, by_warp, late, alone=cluster > 1
            )
        ),
    )


def _begins_with_operand(loop: LoopInfo) -> bool:
    """Whether a step first computes, from tiles, what its matmuls read from registers."""
    first = next((op for op in loop.ops if not isinstance(op, CopyInfo)), None)
    computed = any(op.computed for op in loop.ops if isinstance(op, MatmulInfo))
    return computed and isinstance(first, StatementInfo) and bool(first.reads)


def _sharing(ping_pong: int, each: int, why: Reason | None) -> Reason:
    """Which consumers have which tiles; ``why``: why they do not ping-pong."""
    if ping_pong > 1:
        return Reason("consumers.ping_pong", groups=ping_pong, each=each)
    if why is not None:
        return Reason("consumers.not_ping_pong", why=why)
    return Reason("consumers.cooperative")


def _pair_before(copy: CopyInfo, nbytes: int, arrivals: int) -> MbarrierPair:
    """The mbarriers of a tile that is copied before the loops, once or for each tile.

    ``nbytes``: that arrive; ``arrivals``: of the consumers of a CTA.
    """
    again = copy.around != BEFORE
    return MbarrierPair(
        loop=copy.around,
        full=f"{FULL}_{copy.dst}",
        empty=f"{EMPTY}_{copy.dst}" if again else "",
        rings=(copy.dst,),
        depth=1,
        bytes=nbytes,
        producer=PRODUCER,
        consumer=CONSUMER,
        arrivals=arrivals if again else 0,
        reason=Reason("release.by_tile", loop=copy.around) if again else ONCE,
    )


def _mbarrier_pairs(
    loop: LoopInfo,
    plan: LoopPlan,
    arriving: Mapping[str, int],
    arrivals: int,
    several: bool,
    by_warp: bool,
    late: bool,
    *,
    alone: bool,
) -> list[MbarrierPair]:
    """A full/empty mbarrier pair for each depth among the rings: slots of one depth share it.

    ``arriving``: bytes of each copy of a producer. ``by_warp``: each warp releases slots, not each
    warpgroup. ``late``: what reads them is in flight when the step ends. ``alone``: slots of each
    depth are released for themselves. In a cluster a deeper ring's copies say nothing of the steps
    in which others fill the shallower one.
    """
    depths = {ring.buffer: ring.depth for ring in plan.rings}
    moved = [op for op in loop.ops if isinstance(op, CopyInfo) and op.op in arriving]
    release = _released_at(loop)
    lanes = {release[name] for name in _read_by_lanes(loop) if name in release}
    groups: dict[tuple[int, int], list[CopyInfo]] = {}
    for op in moved:
        groups.setdefault((release.get(op.dst, 0), depths[op.dst]), []).append(op)
    least = {at: min(depth for other, depth in groups if other == at) for at, _ in groups}
    pairs: list[MbarrierPair] = []
    for (at, depth), own in sorted(groups.items(), key=lambda item: item[0]):
        name = f"_{own[0].dst}" if several or len(own) < len(moved) else ""
        first = alone or depth == least[at]
        by_lane = by_warp or at in lanes
        each = arrivals * _WARPS if by_lane and not by_warp else arrivals
        pairs.append(
            MbarrierPair(
                loop=loop.name,
                full=FULL + name,
                empty=EMPTY + name if first else "",
                rings=tuple(dict.fromkeys(op.dst for op in own)),
                depth=depth,
                bytes=sum(arriving[op.op] for op in own),
                producer=PRODUCER,
                consumer=CONSUMER,
                arrivals=each if first else 0,
                reason=_release_reason(loop, depth, by_lane, late) if first else TOGETHER,
            )
        )
    return pairs


def _released_at(loop: LoopInfo) -> dict[str, int]:
    """Behind how many statements of a step that are no matmul the last reader of each tile stands.

    Matmuls with nothing between them release what they read together, also what other statements
    read of it: those do not wait for the matmuls.
    """
    matmuls = [op for op in loop.ops if isinstance(op, MatmulInfo)]
    operands = {name for op in matmuls for name in (op.a, op.b)}
    found: dict[str, int] = {}
    behind = 0
    for op in loop.ops:
        if isinstance(op, MatmulInfo):
            found |= dict.fromkeys((op.a, op.b), behind)
        elif not isinstance(op, CopyInfo):
            behind += 1
            found |= {name: behind for name in op.reads if name not in operands}
    return found


def _read_by_lanes(loop: LoopInfo) -> set[str]:
    """The tiles that statements read which are no matmuls."""
    others = (op for op in loop.ops if isinstance(op, StatementInfo))
    return {name for op in others for name in op.reads}


def _release_reason(loop: LoopInfo, depth: int, by_warp: bool, late: bool) -> Reason:
    arrival = Reason("release.by_warp" if by_warp else "release.by_warpgroup")
    reads = any(isinstance(op, MatmulInfo) for op in loop.ops)
    if not late:
        return Reason("release.fragments", arrival=arrival)
    reads = reads and not _begins_with_operand(loop)
    return Reason("release.late", arrival=arrival) if depth > 1 and reads else arrival
