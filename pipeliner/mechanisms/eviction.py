"""Which copies ask L2 to evict their lines first: tiles of a large operand that are read once.

``passes/copy/eviction.py`` emits the hint.

L2 keeps what was used last. Operands that stream through push out what others still want, and what
they push out may have to be written back first. TMA's copies can say so (PTX ISA, Cache Eviction
Priority Hints: evict_first).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ..diagnostics import Reason, all_of, each_of
from ..errors import PlanError
from ..machine import Machine
from ..machine.constant import chosen, constant, measured
from ..plan import CopyPlan, Eviction
from ..values.facts import PIXEL_VIEWS, CopyInfo, KernelInfo, LoopInfo
from .layouts import shared_bytes

EVICT_FIRST_SHARE: Final = constant(
    "EVICT_FIRST_SHARE",
    4,
    "1",
    "an operand beyond one part of L2 in so many is large: a smaller one may be there from the "
    "last kernel, or wait there for the next",
    formula="evict-first where operand_bytes * EVICT_FIRST_SHARE > l2_bytes",
    source=chosen("what else a kernel works on needs the rest"),
    date="2026-11-21",
)

EVICT_FIRST_READERS: Final = constant(
    "EVICT_FIRST_READERS",
    4,
    "CTAs",
    "CTAs of one wave that may read the same tile, at about the same time",
    formula="evict-first where readers <= EVICT_FIRST_READERS in one wave, or < 2",
    source=measured(
        "H100 whose L2 was full of another kernel's writes",
        "9 to 12 % less time with one reader (16x4096x4096), 7 % with two (128x8192x8192), 5 % "
        "with four (256x256x65536)",
    ),
    date="2026-11-21",
)

EVICT_FIRST_MOST: Final = constant(
    "EVICT_FIRST_MOST",
    2.6,
    "1",
    "an operand of more than L2 so many times drives out what is dirty all the same, more slowly "
    "where each of its lines takes the place of another",
    formula="evict-first where operand_bytes <= EVICT_FIRST_MOST * l2_bytes",
    source=measured(
        "H200 whose L2 was full of another kernel's writes, three tiles for each of ten products",
        "7 to 12 % less time with 98 to 134 MB, none with 160, 3 to 5 % more with 180, 2 to 5 % "
        "with 223, 3 to 12 % with 335; back to back none anywhere. 2.6 times an H200's L2 is 164",
    ),
    date="2026-11-28",
)

HINTED: Final = "tma"
"""The mechanism that takes an eviction hint.

cp.async does too, but ptxas 13.0.88 then takes the base and the descriptor of some copies from
uniform registers that it never set: ``LDGSTS [R50+UR0], desc[UR1]`` for 16x64x64 with 4 slots by
mma.sync, and for 128x128x64 with 2 and 4 by wgmma; an illegal instruction on an H100."""


def with_eviction(
    info: KernelInfo, loop: LoopInfo, plans: tuple[CopyPlan, ...], machine: Machine
) -> tuple[CopyPlan, ...]:
    """``plans`` of the copies of ``loop``, with evict-first on those that nobody reads again."""
    copies = {op.op: op for op in loop.ops if isinstance(op, CopyInfo)}
    return tuple(_with_hint(info, loop, copies[plan.op], plan, machine) for plan in plans)


def _with_hint(
    info: KernelInfo, loop: LoopInfo, copy: CopyInfo, plan: CopyPlan, machine: Machine
) -> CopyPlan:
    readers = _readers(info, loop, copy, plan)
    if (
        plan.mechanism != HINTED
        or readers is None
        or copy.src_bytes * EVICT_FIRST_SHARE <= machine.l2_bytes
        or not (
            readers < 2 or (readers <= EVICT_FIRST_READERS and _is_one_wave(info, loop, machine))
        )
    ):
        return plan
    megabytes = copy.src_bytes / 1e6
    why = Reason("eviction.once", megabytes=megabytes)
    if readers >= 2:
        why = Reason("eviction.one_wave", megabytes=megabytes, times=readers)
    eviction: Eviction = "evict_first"
    if copy.src_bytes > EVICT_FIRST_MOST * machine.l2_bytes:
        why = Reason("eviction.too_large", megabytes=megabytes, most=EVICT_FIRST_MOST)
        eviction = "evict_normal"
    return replace(plan, eviction=eviction, reason=all_of((*each_of(plan.reason), why)))


def _readers(info: KernelInfo, loop: LoopInfo, copy: CopyInfo, plan: CopyPlan) -> float | None:
    """Times that the grid reads the source, all of whose bytes the boxes cover; None: not known.

    Boxes that reach past the source's ends add less than one. Windows may read some pixels more
    often than others: not known.
    """
    if copy.bound or copy.no_tma or not copy.src_bytes or None in (*info.grid, loop.trip):
        return None
    if copy.view in PIXEL_VIEWS:
        return None
    entered = math.prod(extent or 0 for extent in info.grid) * (loop.outer or 0)
    copied = entered * (loop.trip or 0) * shared_bytes(copy) / plan.multicast
    return copied / copy.src_bytes or None


def _is_one_wave(info: KernelInfo, loop: LoopInfo, machine: Machine) -> bool:
    """Whether all CTAs run at once, one tile each: those that read the same do so together."""
    return loop.outer == 1 and math.prod(extent or 0 for extent in info.grid) <= machine.sms


def check_eviction(plans: Iterable[CopyPlan]) -> None:
    """Raise PlanError for an eviction hint on a mechanism that takes none."""
    for plan in plans:
        if plan.eviction != "evict_normal" and plan.mechanism != HINTED:
            raise PlanError(
                "eviction.refused", copy=plan.op, mechanism=plan.mechanism, expected=HINTED
            )
