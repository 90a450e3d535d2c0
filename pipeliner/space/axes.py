"""The axes of the plan space: what can be decided otherwise, and when that is worth it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from ..choice.depth import TOLERANCE
from ..diagnostics import Reason
from ..instructions.mapping import TENSOR
from ..instructions.table import may_be_warpgroup_wide
from ..machine import Machine
from ..machine.constant import chosen, constant
from ..mechanisms.launch import leaves_room
from ..mechanisms.tma import lines_of_row
from ..plan import Consumers, Mechanism, StoreMechanism
from ..plan.request import Auto, ClusterAsked, DepthAsked, Instruction, Request
from ..values.facts import CopyInfo, KernelInfo, MatmulInfo

AUTOMATIC_CLUSTERS: Final = constant(
    "AUTOMATIC_CLUSTERS",
    (2, 4, 8),
    "CTAs",
    "sizes of clusters that are compared by default",
    formula="cluster in AUTOMATIC_CLUSTERS",
    source=chosen(
        "pairs, two rows by two columns of tiles, and four by two; larger ones are not portable"
    ),
    date="2026-11-28",
)


@dataclass(frozen=True, slots=True)
class Combination:
    """One point of the space: what is decided of a kernel before its loops.

    ``"auto"`` is what needs nothing to be compared: the instruction that maps without wgmma, the
    mechanism that a copy can have, cooperative consumers, no cluster, TMA where it can store, and
    of the depths of each loop (``choice.depth.DepthAxis``) the one that is best.
    """

    instruction: Instruction = "auto"
    mechanism: Auto | Mechanism = "auto"
    consumers: Auto | Consumers = "auto"
    cluster: ClusterAsked = "auto"
    store: Auto | StoreMechanism = "auto"
    depth: DepthAsked = "auto"

    @staticmethod
    def of(request: Request) -> Combination:
        """What ``request`` decides itself."""
        return Combination(
            request.instruction,
            request.mechanism,
            request.consumers,
            request.cluster,
            request.store,
            request.depth,
        )

    def within(self, request: Request) -> Request:
        """``request`` with all that is decided here."""
        return replace(
            request,
            instruction=self.instruction,
            mechanism=self.mechanism,
            consumers=self.consumers,
            cluster=self.cluster,
            store=self.store,
            depth=self.depth,
        )


@dataclass(frozen=True, slots=True)
class PlanAxis:
    """A field of ``Combination`` that is compared, and the tie-break among its values.

    ``margin``: the relative time by which a later value must be predicted to be faster than an
    earlier one, which has less that can go wrong.
    """

    field: str
    margin: float = 0.0

    def value(self, decided: Combination) -> object:
        """What ``decided`` has on this axis."""
        return getattr(decided, self.field)


INSTRUCTION: Final = PlanAxis("instruction")
MECHANISM: Final = PlanAxis("mechanism", TOLERANCE)
CONSUMERS: Final = PlanAxis("consumers", TOLERANCE)
CLUSTER: Final = PlanAxis("cluster", TOLERANCE)
STORE: Final = PlanAxis("store", TOLERANCE)

AXES: Final = (INSTRUCTION, MECHANISM, CONSUMERS, CLUSTER, STORE)
"""From the outermost: the values of an inner axis are compared among ways that share the outer.

The innermost axis, the depth, is chosen in each plan: its tie-breaks are in ``choice/``.
"""


def matmuls_of(info: KernelInfo) -> list[MatmulInfo]:
    """The matmuls of all loops."""
    return [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]


def copies_of(info: KernelInfo) -> list[CopyInfo]:
    """The tile copies of all loops."""
    return [op for loop in info.loops for op in loop.ops if isinstance(op, CopyInfo)]


def wgmma_is_open(info: KernelInfo, machine: Machine, request: Request) -> bool:
    """Whether the instruction is open and the GPU has wgmma."""
    hints = {op.instruction for op in matmuls_of(info)}
    free = request.instruction == "auto" and hints <= {"auto", TENSOR}
    return free and bool(machine.wgmmas) and bool(hints)


def is_exact(info: KernelInfo) -> bool:
    """Whether products of float32 are to be float32's: tensor cores would round their operands."""
    matmuls = matmuls_of(info)
    return any(op.a_dtype == "float32" and op.instruction != TENSOR for op in matmuls)


def why_not_wgmma(info: KernelInfo, request: Request, *, accelerated: bool) -> Reason | None:
    """Why wgmma is not compared by default where it is open; None: it is."""
    if not accelerated:
        return Reason("choice.sm_90")
    found = matmuls_of(info)
    if is_exact(info):
        return Reason("mapping.exact")
    if request.warps is not None or any(op.warps or op.thread_tile for op in found):
        return Reason("choice.warps_asked")
    return None


def may_gain_from_clusters(copies: Iterable[CopyInfo]) -> bool:
    """Whether clusters that multicast ``copies`` are worth a comparison.

    CTAs that wait for each other are slower wherever L2 keeps up, as it does with rows that begin
    with lines: 1280x768x1664 by 64x128 takes 9.9 us, 11.9 in pairs, 11.3 in two rows by two columns
    and 11.2 in four by two on an H200. Other rows lie in a line more. Of 1656 along K it takes 15.5
    us, 13.2, 12.4, and 12.1; 719x1592x4560 by 128x80 29.8, 27.9 in a row of two and 24.7 in a row
    of four.
    """
    return any(lines_of_row(copy) > 1 for copy in copies)


def worthwhile_clusters(info: KernelInfo) -> Iterator[int]:
    """Sizes of clusters that are compared by default, larger ones first, which ask L2 for less.

    Of equals they were not slower: 64x7680x1640 takes 8.9 us hot in pairs, 7.8 in fours and 7.5 in
    eights on an H200, 1360x1224x8376 66 us in pairs, 47 in eights. None where as many CTAs share
    each tile in a smaller one: in eights 142x4064x3288 by 72x64 takes 30.6 us, in pairs 21.6.
    """
    copies = copies_of(info)
    if not may_gain_from_clusters(copies):
        return
    found: list[int] = []
    most = [1] * len(copies)
    for size in sorted(AUTOMATIC_CLUSTERS):
        shared = [1 << op.shared_in(size).bit_count() for op in copies]
        if any(now > before for now, before in zip(shared, most, strict=True)):
            found.append(size)
            most = list(map(max, shared, most))
    yield from reversed(found)


def may_be_put_together(info: KernelInfo, machine: Machine, request: Request) -> bool:
    """Whether clusters that put parts of tiles together are compared by default.

    Not where a workspace is asked for, and only where CTAs leave half of the SMs. 2x384x2240 in 48
    CTAs takes 6.0 us for 6.8 with a second kernel, 8x400x3280 in 56 6.9 for 7.6, 16x280x8736 in 40
    8.1 for 8.9 (H200). What fills the SMs waits for memory, and not for the second kernel:
    4x10256x4824 in 82 takes 37.7 us for 33.9, 353x392x8992 in 84 16.8 for 14.9.
    """
    parts = any(store.parts for store in info.stores)
    return parts and request.reduction == "auto" and leaves_room(info.grid, machine)


def clusters_considered(info: KernelInfo, machine: Machine, request: Request) -> tuple[int, ...]:
    """Sizes of clusters that a candidate may have; proving what CTAs share takes a while."""
    if request.plan is not None:
        return () if request.plan.cluster == 1 else (request.plan.cluster,)
    if not machine.wgmmas or not may_be_warpgroup_wide(request.instruction):
        return ()
    if request.cluster != "auto":
        return () if request.cluster == 1 else (request.cluster,)
    return AUTOMATIC_CLUSTERS if may_gain_from_clusters(copies_of(info)) else ()


def multicast(info: KernelInfo, size: int) -> tuple[str, ...]:
    """The copies whose tile the CTAs of a cluster of ``size`` share."""
    return tuple(op.op for op in copies_of(info) if op.shared_in(size))
