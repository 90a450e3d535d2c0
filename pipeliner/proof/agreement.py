"""Whether the code does what its plan says: slots, threads, bytes, mbarriers, barriers, waits.

What is proved is read from the code. The plan is what people read, what predictions and drawings
are made of, so one that says otherwise is an error. The kernel is run for so many iterations that
each ring comes round: then it is seen which slots its copies write, and how many are to arrive at
its mbarriers. Threads, bytes, barriers and counts of waits stand in the code.

What is compared of a plan is what decides about synchronisation. Predictions cannot be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from tvm import ir, tirx

from ..diagnostics import Reason
from ..emulator.translate.operation import op_name
from ..passes.ir.nodes import collect
from ..plan import KernelPlan, RingPlan, SmemBuffer
from .execution import Abandoned, Execution, Head, Launched

_COUNT: Final = re.compile(r"wait_group (\d+)$")
_BARRIERS: Final = ("tirx.tvm_storage_sync", "tirx.cuda.cta_sync", "tirx.cuda.cluster_sync")
_WAITS: Final = ("tirx.ptx.cp_async_wait_group", "tirx.ptx.cp_async_wait_all")
_MBARRIER_BYTES: Final = 8


@dataclass
class CodeFacts:
    """What the code of all kernels does: bytes that each op writes, arrivals by mbarrier."""

    written: dict[str, list[np.ndarray[Any, Any]]] = field(default_factory=dict)
    arrivals: dict[int, int] = field(default_factory=dict)
    barriers: int = 0
    waits: set[int] = field(default_factory=set)

    def note(self, op: str, places: np.ndarray[Any, Any]) -> None:
        """Note bytes of the arena that an op writes."""
        self.written.setdefault(op, []).append(places)


def disagreements(plan: KernelPlan, kernels: Sequence[tuple[Any, Launched]]) -> tuple[Reason, ...]:
    """Return where the code of some kernels, each with a launch, does otherwise than their plan."""
    seen = CodeFacts()
    ops = {str(op.name) for loop in plan.loops if loop.pipelined for op in loop.ops}
    deepest = max((ring.depth for loop in plan.loops for ring in loop.rings), default=1)
    main: list[Launched] = []
    for func, launched in kernels:
        before = len(seen.written)
        _run(launched, deepest + 1, seen)
        _read(func, seen)
        if len(seen.written) > before and not ops.isdisjoint(seen.written):
            main.append(launched)
    found = [*_launches(plan, main or [launched for _, launched in kernels])]
    places = {buffer.buffer: buffer for buffer in plan.smem.buffers}
    for loop in plan.loops:
        for ring in loop.rings:
            if loop.pipelined and ring.buffer in places:
                found += _slots(ring, loop.trip, places[ring.buffer], seen)
    found += _mbarriers(plan, places, seen)
    found += _counts(plan, seen)
    return tuple(found)


def _run(launched: Launched, iterations: int, seen: CodeFacts) -> None:
    """Run a kernel for some iterations of each open loop, and note what it does."""

    def decide(_machine: Execution, _head: Head, iteration: int) -> bool:
        return iteration < iterations

    machine = Execution(launched.short(launched.families), decide, lambda: None)
    machine.observe(seen.note)
    with suppress(Abandoned):
        machine.run()
    for offset, count in machine.arrivals().items():
        seen.arrivals.setdefault(offset, count)


def _read(func: Any, seen: CodeFacts) -> None:
    """Note the barriers of a kernel, and how many groups its waits leave in flight."""
    for stmt in collect(func.body, tirx.Evaluate):
        if not isinstance(stmt.value, ir.Call):
            continue
        name = op_name(stmt.value)
        seen.barriers += name in _BARRIERS
        if name == _WAITS[0]:
            seen.waits.add(int(stmt.value.args[0].value))
        elif name == _WAITS[1]:
            seen.waits.add(0)


def _launches(plan: KernelPlan, kernels: Sequence[Launched]) -> Iterator[Reason]:
    """Threads, CTAs of a cluster, bytes of shared memory."""
    threads = {launched.threads for launched in kernels}
    if plan.threads not in threads:
        yield Reason("proof.plan_threads", planned=plan.threads, found=tuple(sorted(threads)))
    clusters = {len(launched.blocks) for launched in kernels}
    if plan.cluster not in clusters:
        yield Reason("proof.plan_cluster", planned=plan.cluster, found=tuple(sorted(clusters)))
    most = max(launched.dynamic for launched in kernels)
    if plan.smem.buffers and plan.smem.bytes != most:
        yield Reason("proof.plan_bytes", planned=plan.smem.bytes, found=most)


def _slots(ring: RingPlan, trip: str, place: SmemBuffer, seen: CodeFacts) -> Iterator[Reason]:
    """The slots that the copies of a ring fill: as many as a loop fills, and nothing else."""
    parts = [part for op in ring.producers for part in seen.written.get(str(op), ())]
    if not parts:
        return
    slots = np.unique((np.concatenate(parts) - place.offset) // ring.slot_bytes)
    least = min(ring.depth, int(trip)) if trip.isdecimal() else 1
    filled = slots.tolist()
    if filled != list(range(len(filled))) or not least <= len(filled) <= ring.depth:
        found = tuple(int(slot) for slot in slots)
        yield Reason("proof.plan_slots", buffer=ring.buffer, planned=ring.depth, found=found)


def _mbarriers(
    plan: KernelPlan, places: dict[str, SmemBuffer], seen: CodeFacts
) -> Iterator[Reason]:
    """How many arrive at the mbarriers that release slots."""
    for pair in plan.mbarriers:
        place = places.get(pair.empty)
        if place is None or not pair.arrivals:
            continue
        offsets = range(place.offset, place.offset + pair.depth * _MBARRIER_BYTES, _MBARRIER_BYTES)
        found = {seen.arrivals.get(offset, 0) for offset in offsets}
        if found != {pair.arrivals}:
            yield Reason(
                "proof.plan_arrivals",
                mbarrier=pair.empty,
                planned=pair.arrivals,
                found=tuple(sorted(found)),
            )


def _counts(plan: KernelPlan, seen: CodeFacts) -> Iterator[Reason]:
    """Barriers, of which TVM's lowering adds some, and the groups that waits leave in flight."""
    if plan.sync.by != "pipeliner":
        return
    if seen.barriers < plan.sync.barriers:
        yield Reason("proof.plan_barriers", planned=plan.sync.barriers, found=seen.barriers)
    planned = {int(match[1]) for wait in plan.sync.waits if (match := _COUNT.search(wait))}
    if planned != seen.waits:
        yield Reason(
            "proof.plan_waits", planned=tuple(sorted(planned)), found=tuple(sorted(seen.waits))
        )
