"""What is planned for a loop: its ops, what orders them, and the rings that they pass tiles by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..diagnostics import Why
from ..values.op import Op
from .lookup import named

Pipe = Literal["lsu", "l2", "tma", "tensor", "fma", "alu", "sfu", "sync"]
OpKind = Literal["copy", "load", "store", "wait", "mma", "mma_wait", "compute", "opaque"]
EdgeKind = Literal["RAW", "WAR", "WAW"]
Epilogue = Literal["rolled", "clamped", "peeled"]


@dataclass(frozen=True, slots=True)
class OpPlan:
    """An op of the body: where it runs in the modulo schedule, by whom, and what it costs.

    A ``wait`` waits for copies. An ``mma_wait`` waits for an ``mma`` that is in flight after its
    issue, and uses all that the ``mma`` uses until then; one of a later stage than its ``mma``
    leaves the steps between in flight.

    ``latency``: cycles from issue until a consumer may start. ``occupancy``: cycles of its pipe
    that one iteration takes on one SM. ``cycle``: issue time in the flat schedule of one iteration;
    ``stage == cycle // II`` after the frame has been rotated. ``skips_k_tail``: in the last
    iteration it works on padding alone; straight code for that iteration leaves it out.
    """

    name: Op
    kind: OpKind
    block: str
    pipe: Pipe
    latency: int
    occupancy: int
    cycle: int = 0
    stage: int = 0
    order: int = 0
    role: str = "all"
    reason: Why = ""
    skips_k_tail: bool = False


@dataclass(frozen=True, slots=True)
class EdgePlan:
    """``dst`` at iteration ``i + distance`` must come after ``src`` at iteration ``i``."""

    src: Op
    dst: Op
    kind: EdgeKind
    buffer: str
    distance: int
    sync: str = "none"


@dataclass(frozen=True, slots=True)
class RingPlan:
    """A buffer of the body with ``depth`` versions of ``slot_bytes`` bytes.

    Bytes are per CTA, for a local buffer per thread.
    """

    buffer: str
    scope: str
    depth: int
    slot_bytes: int
    producers: tuple[Op, ...]
    consumers: tuple[Op, ...]
    live_cycles: int = 0
    requested: bool = False
    reason: Why = ""

    @property
    def load(self) -> Op | None:
        """The load that the ring is named after, if it is of the registers that a load fills."""
        return next((op for op in self.producers if op.part == "load" and op == self.buffer), None)


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """One loop: pipelined, or left alone with the requirement that failed.

    ``trip``: iterations as text, an integer or an expression. ``ii``: initiation interval in
    cycles, ``max(res_mii, rec_mii)`` unless the reason says otherwise; ``limiter``: the pipe or the
    recurrence that sets it. ``unroll``: steady iterations unrolled so that register rings have
    constant indices (modulo variable expansion). ``epilogue``: ``rolled`` keeps one copy of the
    compute and guards the loads; ``clamped`` too, but its asynchronous copies past the end repeat
    the last tile instead; ``peeled`` copies the compute for each drain step.
    """

    name: str
    trip: str
    pipelined: bool
    ops: tuple[OpPlan, ...] = ()
    edges: tuple[EdgePlan, ...] = ()
    rings: tuple[RingPlan, ...] = ()
    ii: int = 0
    res_mii: int = 0
    rec_mii: int = 0
    limiter: str = ""
    unroll: int = 1
    epilogue: Epilogue = "rolled"
    source: Literal["auto", "request", "annotation", "edited"] = "auto"
    reasons: tuple[Why, ...] = ()

    @property
    def stages(self) -> int:
        """Number of pipeline stages: 1 means nothing overlaps."""
        return 1 + max((op.stage for op in self.ops), default=0)

    @property
    def ahead(self) -> int:
        """Steps before the first one that does all of an iteration: the prologue's.

        What only waits for arithmetic in flight may come later; it is of no iteration of its own.
        """
        return max((op.stage for op in self.ops if op.kind != "mma_wait"), default=0)

    def op(self, name: str) -> OpPlan:
        """The op called ``name``; PlanError names what exists."""
        return named(self.ops, name, "op", self.name)

    def ring(self, buffer: str) -> RingPlan:
        """The ring of ``buffer``; PlanError names what exists."""
        return named(self.rings, buffer, "ring", self.name, "buffer")
