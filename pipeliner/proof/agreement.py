"""Whether the code does what its plan says: slots, threads, bytes, mbarriers, barriers, waits.

What is proved is read from the code. The plan is what people read, what predictions and drawings
are made of, so one that says otherwise is an error. The kernel is run for so many iterations that
each ring comes round: then it is seen which slots its copies write, and how many are to arrive at
its mbarriers. Threads, bytes, barriers and counts of waits stand in the code.

What is compared of a plan is what decides about synchronisation. Predictions cannot be compared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from tvm import ir, tirx

from ..diagnostics import Reason
from ..emulator.translate.operation import op_name
from ..passes.ir.calls import CLUSTER_WAIT
from ..passes.ir.kernels import bodies
from ..passes.ir.nodes import collect, origin_of
from ..plan import KernelPlan, RingPlan, SmemBuffer
from ..values.origin import Origin
from .running.execution import Abandoned, Execution, Head
from .running.launched import Launched

_COUNT: Final = re.compile(r"wait_group (\d+)$")
_BARRIERS: Final = (
    "tirx.tvm_storage_sync",
    "tirx.cuda.cta_sync",
    "tirx.cuda.cluster_sync",
    CLUSTER_WAIT,
)
_WAITS: Final = ("tirx.ptx.cp_async_wait_group", "tirx.ptx.cp_async_wait_all")
_MBARRIER_BYTES: Final = 8
_REDUCES: Final = "red_"
"""Beginning of the names of buffers by which TVM reduces over threads."""


@dataclass
class CodeFacts:
    """What the code of all kernels does: bytes that each op writes, arrivals by mbarrier.

    ``placed``: barriers that the passes placed, by origin, so that copies by an unrolled loop are
    one. ``own``: those without an origin, which the function had, or TVM's lowering of reductions
    over threads added (``reduces``). ``granules``: bytes of a place that an op writes.
    ``is_partial``: symbolic extents have values, which may be too small to fill each slot.
    """

    written: dict[str, list[np.ndarray[Any, Any]]] = field(default_factory=dict)
    arrivals: dict[int, int] = field(default_factory=dict)
    placed: set[str] = field(default_factory=set)
    own: int = 0
    reduces: bool = False
    granules: dict[str, int] = field(default_factory=dict)
    is_partial: bool = False
    waits: set[int] = field(default_factory=set)

    def note(self, granule: int, op: str, places: np.ndarray[Any, Any]) -> None:
        """Note where in the arena an op writes so many bytes each."""
        self.written.setdefault(op, []).append(places)
        self.granules[op] = granule


def disagreements(
    plan: KernelPlan, kernels: Sequence[tuple[Any, Launched]], *, is_partial: bool = False
) -> tuple[Reason, ...]:
    """Return where the code of some kernels, each with a launch, does otherwise than their plan."""
    seen = CodeFacts(is_partial=is_partial)
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
    machine.observe(partial(seen.note, launched.kernel.granule))
    with suppress(Abandoned):
        machine.run()
    for offset, count in machine.arrivals().items():
        seen.arrivals.setdefault(offset, count)


def _read(func: Any, seen: CodeFacts) -> None:
    """Note the barriers of a kernel, and how many groups its waits leave in flight."""
    seen.reduces |= any(
        str(stmt.buffer.name).startswith(_REDUCES) for stmt in collect(func.body, tirx.AllocBuffer)
    )

    def visit(stmt: Any, origin: Origin | None) -> None:
        origin = origin_of(stmt) or origin
        if isinstance(stmt, tirx.Evaluate) and isinstance(stmt.value, ir.Call):
            _note(stmt.value, origin, seen)
        for part in bodies(stmt):
            visit(part, origin)

    visit(func.body, None)


def _note(call: Any, origin: Origin | None, seen: CodeFacts) -> None:
    """Note a call that is a barrier or a wait."""
    name = op_name(call)
    if name in _BARRIERS and origin is not None and origin.kind == "barrier":
        seen.placed.add(repr(origin))
    elif name in _BARRIERS:
        seen.own += 1
    elif name == _WAITS[0]:
        seen.waits.add(int(call.args[0].value))
    elif name == _WAITS[1]:
        seen.waits.add(0)


def _launches(plan: KernelPlan, kernels: Sequence[Launched]) -> Iterator[Reason]:
    """Threads, CTAs of a cluster, bytes of shared memory."""
    threads = {launched.threads for launched in kernels}
    if plan.threads not in threads:
        yield Reason("proof.plan_threads", planned=plan.threads, found=tuple(sorted(threads)))
    clusters = {len(launched.blocks) for launched in kernels}
    if plan.ctas_that_meet not in clusters:
        yield Reason(
            "proof.plan_cluster", planned=plan.ctas_that_meet, found=tuple(sorted(clusters))
        )
    most = max(launched.dynamic for launched in kernels)
    if plan.smem.buffers and plan.smem.bytes != most:
        yield Reason("proof.plan_bytes", planned=plan.smem.bytes, found=most)


def _slots(ring: RingPlan, trip: str, place: SmemBuffer, seen: CodeFacts) -> Iterator[Reason]:
    """The slots that the copies of a ring fill: as many as a loop fills, within their buffer."""
    parts = [part for op in ring.producers for part in seen.written.get(str(op), ())]
    if not parts:
        return
    written = np.unique(np.concatenate(parts)) - place.offset
    granule = max(seen.granules.get(str(op), 1) for op in ring.producers)
    filled = math.ceil(len(written) * granule / ring.slot_bytes)  # rows may be padded
    least = min(ring.depth, int(trip)) if trip.isdecimal() and not seen.is_partial else 1
    is_inside = written[0] >= 0 and written[-1] < place.bytes
    if not is_inside or not least <= filled <= ring.depth:
        found = tuple(range(filled))
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
    """Barriers and the groups that waits leave in flight.

    There are as many barriers as are planned, not more and not fewer: the passes placed those with
    a reason, the function had the others. TVM's lowering adds to these where it reduces over
    threads.
    """
    if plan.sync.by != "pipeliner":
        return
    had = plan.sync.barriers - len(plan.sync.reasons)
    fewer, more = seen.own < had, seen.own > had and not seen.reduces
    if fewer or more or len(seen.placed) != len(plan.sync.reasons):
        found = seen.own + len(seen.placed)
        yield Reason("proof.plan_barriers", planned=plan.sync.barriers, found=found)
    planned = {int(match[1]) for wait in plan.sync.waits if (match := _COUNT.search(wait))}
    if planned != seen.waits:
        yield Reason(
            "proof.plan_waits", planned=tuple(sorted(planned)), found=tuple(sorted(seen.waits))
        )
