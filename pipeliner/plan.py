"""The KernelPlan: every decision about one kernel as one immutable, printable value.

Passes make and obey it, the cost model fills it, the emulator checks against it, a user may edit it
and hand it back. It travels on the function as the attribute ``pipeliner.plan`` (a JSON string: a
plain Python attribute is lost in an IRModule).

Vocabulary: an *op* is one statement of a pipelined loop's body. At step ``t`` of the pipelined loop
an op of stage ``s`` works on iteration ``t - s``; ops of one step run by ``order``. A *ring* is a
buffer with ``depth`` slots; iteration ``i`` uses slot ``i % depth``.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from .errors import PlanError
from .kernel import TmaView

PLAN_ATTR: Final = "pipeliner.plan"
PLAN_VERSION: Final = 1

PRODUCER: Final = "producer"
"""The role that fills rings from global memory."""

CONSUMER: Final = "consumer"
"""The role that does everything else."""

Pipe = Literal["lsu", "l2", "tma", "tensor", "fma", "alu", "sfu", "sync"]
OpKind = Literal["copy", "load", "store", "wait", "mma", "compute", "opaque"]
EdgeKind = Literal["RAW", "WAR", "WAW"]
Mechanism = Literal["direct", "register", "cp_async", "tma"]
StoreMechanism = Literal["direct", "tma"]
Cache = Literal["L1", "L2"]
Eviction = Literal["normal", "first"]
Epilogue = Literal["rolled", "clamped", "peeled"]


@dataclass(frozen=True, slots=True)
class OpPlan:
    """One statement of the body: where it runs in the modulo schedule, and what it costs.

    ``latency``: cycles from issue until a consumer may start. ``occupancy``: cycles of its pipe
    that one iteration takes on one SM. ``cycle``: issue time in the flat schedule of one iteration;
    ``stage == cycle // II`` after the frame has been rotated. ``skips_last``: all that it works on
    in the last iteration is padding; straight code for that iteration leaves it out.
    """

    name: str
    kind: OpKind
    block: str
    pipe: Pipe
    latency: int
    occupancy: int
    cycle: int = 0
    stage: int = 0
    order: int = 0
    role: str = "all"
    reason: str = ""
    skips_last: bool = False


@dataclass(frozen=True, slots=True)
class EdgePlan:
    """``dst`` at iteration ``i + distance`` must come after ``src`` at iteration ``i``."""

    src: str
    dst: str
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
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    live_cycles: int = 0
    requested: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How one tile copy from global memory moves: mechanism, bytes moved at once, layout.

    ``parts``: ops that it is split into, ``X.0``, ``X.1``, ..., for the schedule to spread over a
    step. ``cache``: the nearest cache that a cp.async of 16 bytes leaves what it reads in; narrower
    ones always go through L1. ``shared``: CTAs of a cluster of which each copies a part for all.
    ``eviction``: when L2 lets go of what it read, ``first``: before everything else.
    ``view``: what the tensor memory accelerator sees in the source.
    """

    op: str
    src: str
    dst: str
    tile: tuple[int, ...]
    mechanism: Mechanism
    vector_bytes: int
    layout: str
    reason: str = ""
    parts: int = 1
    cache: Cache = "L2"
    shared: int = 1
    eviction: Eviction = "normal"
    view: TmaView = "tensor"

    @property
    def way(self) -> str:
        """The mechanism, and the accelerator's mode where that is not the usual one."""
        return f"{self.mechanism} (im2col)" if self.view == "im2col" else self.mechanism


@dataclass(frozen=True, slots=True)
class MatmulPlan:
    """How one unbound matmul tile maps to threads.

    ``instruction``: ``simt`` or the PTX shape and types, such as ``mma.m16n8k16.f16.f32`` or
    ``wgmma.m64n256k16.f16.f32``. ``warps``: warps along (M, N); for wgmma four along M are a
    warpgroup. ``warp_tile``: rows and columns of C that one warp owns. ``thread_tile``: rows and
    columns a SIMT thread owns ((0, 0) for others). ``k_step``: K depth of one fragment step;
    ``steps``: how many make up the tile. ``in_flight``: steps of the loop whose arithmetic may
    still run when the next one's starts (wgmma groups). ``swapped``: the instruction computes the
    transposed tile, so that its M (and the four warps of a warpgroup) runs along N.
    """

    op: str
    m: int
    n: int
    k: int
    dtype: str
    accumulator: str
    instruction: str
    warps: tuple[int, int]
    warp_tile: tuple[int, int]
    thread_tile: tuple[int, int]
    k_step: int
    steps: int
    reason: str = ""
    in_flight: int = 0
    swapped: bool = False


@dataclass(frozen=True, slots=True)
class StorePlan:
    """How the tile of an accumulator reaches global memory.

    ``direct``: from registers. ``tma``: by way of shared memory, from where boxes are written.
    ``box``: rows and columns of one, in layout ``layout``; ``slots``: boxes of a warpgroup that
    shared memory holds at once, ``bytes`` for all warpgroups.
    """

    op: str
    acc: str
    dst: str
    mechanism: StoreMechanism
    box: tuple[int, int] = (0, 0)
    slots: int = 0
    bytes: int = 0
    layout: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ElementwisePlan:
    """How a kernel of outputs that are each made on its own is shared out over threads.

    ``ctas``: its grid as text, an integer or ``symbolic``. ``elements``: outputs of a CTA;
    ``vector``: of a thread at once.
    """

    op: str
    ctas: str
    elements: int
    threads: int
    vector: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RolePlan:
    """What some of a CTA's threads do while others do something else.

    ``first`` and ``threads``: the threads, whole warpgroups. ``registers``: of each thread, set by
    setmaxnreg; 0: as compiled. ``ops``: what it carries out of the pipelined loops.
    """

    name: str
    first: int
    threads: int
    registers: int
    ops: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """How two roles pass the slots of rings to and fro: a pair of mbarriers for each slot.

    ``full`` completes a phase when ``bytes`` have been copied into the slot, ``empty`` when
    ``releases`` arrivals have given it back; 0: there is no ``empty``, slots are given back with
    those of a shallower ring, which the producer has waited for by then. ``rings``: the buffers
    that it covers; iteration ``i`` of the loop uses slot ``i % depth``, counted across tiles.
    """

    loop: str
    full: str
    empty: str
    rings: tuple[str, ...]
    depth: int
    bytes: int
    producer: str
    consumer: str
    releases: int
    reason: str = ""


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
    reasons: tuple[str, ...] = ()

    @property
    def stages(self) -> int:
        """Number of pipeline stages: 1 means nothing overlaps."""
        return 1 + max((op.stage for op in self.ops), default=0)

    def op(self, name: str) -> OpPlan:
        """The op called ``name``; PlanError names what exists."""
        return _named(self.ops, name, "op", self.name)

    def ring(self, buffer: str) -> RingPlan:
        """The ring of ``buffer``; PlanError names what exists."""
        return _named(self.rings, buffer, "ring", self.name, "buffer")


@dataclass(frozen=True, slots=True)
class SmemBuffer:
    """One shared buffer's place in the arena, in bytes from its start."""

    buffer: str
    offset: int
    bytes: int
    alignment: int
    shares_with: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SmemPlan:
    """The shared memory arena of one kernel; ``budget`` is the most a CTA may have, in bytes."""

    bytes: int = 0
    budget: int = 0
    buffers: tuple[SmemBuffer, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What orders the function: how many barriers stand where, and each async wait count."""

    barriers: int = 0
    barriers_in_steady: int = 0
    waits: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How the kernels of a function follow each other, and what ran before them in their stream.

    ``early``: each may start while the one before it still runs (programmatic dependent launch),
    and waits for that one's end before it touches global memory. ``releases``: numbers of the
    kernels that let the next one start as soon as their last loads are issued; behind the others
    it starts when they end.
    """

    early: bool = False
    releases: tuple[int, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """Every decision about one kernel. ``cluster``: neighbouring CTAs that share what they copy."""

    kernel: str
    target: str
    machine: str
    threads: int = 0
    loops: tuple[LoopPlan, ...] = ()
    copies: tuple[CopyPlan, ...] = ()
    matmuls: tuple[MatmulPlan, ...] = ()
    elementwise: tuple[ElementwisePlan, ...] = ()
    stores: tuple[StorePlan, ...] = ()
    roles: tuple[RolePlan, ...] = ()
    channels: tuple[ChannelPlan, ...] = ()
    cluster: int = 1
    launch: LaunchPlan = field(default_factory=LaunchPlan)
    smem: SmemPlan = field(default_factory=SmemPlan)
    sync: SyncPlan = field(default_factory=SyncPlan)
    predicted_us: float = 0.0
    reasons: tuple[str, ...] = ()

    @property
    def pipelined(self) -> bool:
        """Whether any loop of the kernel is pipelined."""
        return any(loop.pipelined for loop in self.loops)

    @property
    def mapped_threads(self) -> int:
        """Threads that tiles are mapped to: those of the consumer where there are roles."""
        return self.role(CONSUMER).threads if self.roles else self.threads

    def role(self, name: str) -> RolePlan:
        """The role called ``name``; PlanError names what exists."""
        return _named(self.roles, name, "role", self.kernel)

    def loop(self, name: str) -> LoopPlan:
        """The loop called ``name``; PlanError names what exists."""
        return _named(self.loops, name, "loop", self.kernel)

    def with_loop(self, loop: LoopPlan) -> KernelPlan:
        """This plan with the loop of that name replaced (appended when new)."""
        return dataclasses.replace(self, loops=_put(self.loops, loop, "name"))

    def with_depth(self, buffer: str, depth: int) -> KernelPlan:
        """An edited plan that asks for ``depth`` slots of ``buffer``; checked when applied."""
        if depth < 1:
            raise PlanError(f"cannot give ring '{buffer}' {depth} slots: expected at least 1")
        for loop in self.loops:
            if any(ring.buffer == buffer for ring in loop.rings):
                ring = dataclasses.replace(loop.ring(buffer), depth=depth, requested=True)
                rings = _put(loop.rings, ring, "buffer")
                # Without edges the loop is scheduled anew.
                edited = dataclasses.replace(loop, rings=rings, edges=(), source="request")
                return self.with_loop(edited)
        known = sorted(ring.buffer for loop in self.loops for ring in loop.rings)
        raise PlanError(f"cannot find ring '{buffer}' in kernel '{self.kernel}': it has {known}")

    def with_op(self, loop: str, name: str, *, stage: int, order: int) -> KernelPlan:
        """An edited plan that runs op ``name`` at ``stage`` and ``order``; checked when applied."""
        old = self.loop(loop)
        op = dataclasses.replace(old.op(name), stage=stage, order=order)
        edited = dataclasses.replace(old, ops=_put(old.ops, op, "name"), source="edited")
        return self.with_loop(edited)

    def to_json(self, *, indent: int | None = None) -> str:
        """This plan as JSON text; ``from_json`` gives an equal value back."""
        return json.dumps({"version": PLAN_VERSION, **dataclasses.asdict(self)}, indent=indent)

    @staticmethod
    def from_json(text: str) -> KernelPlan:
        """The plan in ``text``; PlanError says what is wrong with it."""
        return _read(text)

    def explain(self) -> str:
        """The plan in plain words and numbers."""
        from .explain import explain

        return explain(self)


_T = TypeVar("_T")


def _named(items: tuple[_T, ...], name: str, what: str, where: str, key: str = "name") -> _T:
    for item in items:
        if getattr(item, key) == name:
            return item
    known = [getattr(item, key) for item in items]
    raise PlanError(f"cannot find {what} '{name}' in '{where}': it has {known}")


def _put(items: tuple[_T, ...], new: _T, key: str) -> tuple[_T, ...]:
    name = getattr(new, key)
    if all(getattr(item, key) != name for item in items):
        return (*items, new)
    return tuple(new if getattr(item, key) == name else item for item in items)


@functools.lru_cache(maxsize=64)
def _read(text: str) -> KernelPlan:
    """``from_json``: a plan is read again by each that meets its function, and never changes."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as err:
        raise PlanError(f"cannot read plan: not JSON ({err})") from err
    if not isinstance(data, dict) or data.pop("version", None) != PLAN_VERSION:
        raise PlanError(f"cannot read plan: expected an object of version {PLAN_VERSION}")
    plan: KernelPlan = _decode(KernelPlan, data, "plan")
    return plan


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields: slow to find, and the same for every value."""
    return typing.get_type_hints(kind)


def _decode(kind: Any, data: Any, where: str) -> Any:
    """``data`` (JSON) as a value of ``kind``, a type used in the dataclasses above."""
    if dataclasses.is_dataclass(kind):
        if not isinstance(data, dict):
            raise PlanError(f"cannot read plan: expected an object at {where}")
        hints = _hints(typing.cast(Any, kind))
        unknown = sorted(set(data) - set(hints))
        if unknown:
            raise PlanError(f"cannot read plan: unknown field {unknown[0]!r} at {where}")
        values = {key: _decode(hints[key], value, f"{where}.{key}") for key, value in data.items()}
        try:
            return typing.cast(Any, kind)(**values)
        except TypeError as err:
            raise PlanError(f"cannot read plan: {err} at {where}") from err
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        if not isinstance(data, list):
            raise PlanError(f"cannot read plan: expected a list at {where}")
        items = [args[0]] * len(data) if args[-1] is Ellipsis else list(args)
        if len(items) != len(data):
            raise PlanError(f"cannot read plan: expected {len(items)} values at {where}")
        return tuple(_decode(t, v, f"{where}[{i}]") for i, (t, v) in enumerate(zip(items, data)))
    if origin is Literal:
        if data not in args:
            raise PlanError(f"cannot read plan: expected one of {list(args)} at {where}")
        return data
    if origin is types.UnionType:
        return data
    if kind is float and isinstance(data, int):
        return float(data)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise PlanError(f"cannot read plan: expected {kind.__name__} at {where}, not {data!r}")
    return data
