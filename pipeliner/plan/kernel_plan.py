"""The plan of a whole kernel, and how it becomes text and is read again."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ..diagnostics import Reason, Why
from ..errors import PlanError
from ..released import plan as translated
from .decoding import decode
from .lookup import named, put
from .loops import LoopPlan
from .roles import CONSUMER, MbarrierPair, RolePlan
from .tiles import CopyPlan, ElementwisePlan, MatmulPlan, StorePlan

PLAN_ATTR: Final = "pipeliner.plan"
"""The attribute by which a function carries its plan, as JSON."""

PLAN_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class SmemBuffer:
    """One shared buffer's place in the arena, in bytes from its start."""

    buffer: str
    offset: int
    bytes: int
    alignment: int
    shares_with: tuple[str, ...] = ()
    reason: Why = ""


@dataclass(frozen=True, slots=True)
class SmemPlan:
    """The shared memory arena of one kernel; ``budget`` is the most a CTA may have, in bytes."""

    bytes: int = 0
    budget: int = 0
    buffers: tuple[SmemBuffer, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What orders the function: how many barriers stand where, and each async wait count.

    ``by``: who places barriers and shared memory; TVM's own passes where ours cannot.
    """

    barriers: int = 0
    barriers_in_steady: int = 0
    waits: tuple[str, ...] = ()
    reasons: tuple[Why, ...] = ()
    by: Literal["pipeliner", "tvm"] = "pipeliner"


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How the kernels of a function follow each other, and what ran before them in their stream.

    ``pdl``: each may start while the one before it still runs (programmatic dependent launch), and
    waits for that one's end before it touches global memory. ``triggers``: numbers of the kernels
    that let the next one start as soon as their last loads are issued (launch_dependents); behind
    the others it starts when they end.
    """

    pdl: bool = False
    triggers: tuple[int, ...] = ()
    reason: Why = ""


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
    mbarriers: tuple[MbarrierPair, ...] = ()
    cluster: int = 1
    launch: LaunchPlan = field(default_factory=LaunchPlan)
    smem: SmemPlan = field(default_factory=SmemPlan)
    sync: SyncPlan = field(default_factory=SyncPlan)
    predicted_us: float = 0.0
    reasons: tuple[Why, ...] = ()

    @property
    def pipelined(self) -> bool:
        """Whether any loop of the kernel is pipelined."""
        return any(loop.pipelined for loop in self.loops)

    @property
    def mapped_threads(self) -> int:
        """Threads that tiles are mapped to: those of one ping-pong group where there are roles."""
        return self.role(CONSUMER).threads // self.ping_pong_groups if self.roles else self.threads

    @property
    def ping_pong_groups(self) -> int:
        """Ping-pong groups of consumer warpgroups; 1: they cooperate, or there are no roles."""
        return self.role(CONSUMER).ping_pong_groups if self.roles else 1

    def role(self, name: str) -> RolePlan:
        """The role called ``name``; PlanError names what exists."""
        return named(self.roles, name, "role", self.kernel)

    def loop(self, name: str) -> LoopPlan:
        """The loop called ``name``; PlanError names what exists."""
        return named(self.loops, name, "loop", self.kernel)

    def with_loop(self, loop: LoopPlan) -> KernelPlan:
        """This plan with the loop of that name replaced (appended when new)."""
        return dataclasses.replace(self, loops=put(self.loops, loop, "name"))

    def with_depth(self, buffer: str, depth: int) -> KernelPlan:
        """An edited plan that asks for ``depth`` slots of ``buffer``; checked when applied.

        PlanError: fewer than one, or no ring of that name.
        """
        if depth < 1:
            raise PlanError("plan.no_slot", ring=buffer, depth=depth)
        for loop in self.loops:
            if any(ring.buffer == buffer for ring in loop.rings):
                ring = dataclasses.replace(loop.ring(buffer), depth=depth, requested=True)
                rings = put(loop.rings, ring, "buffer")
                # Without edges the loop is scheduled anew.
                edited = dataclasses.replace(loop, rings=rings, edges=(), source="request")
                return self.with_loop(edited).without_derived()
        known = tuple(sorted(ring.buffer for loop in self.loops for ring in loop.rings))
        raise PlanError(
            "plan.no_ring", ring=buffer, kernel=self.kernel, known=known or Reason("plan.nothing")
        )

    def with_op(self, loop: str, name: str, *, stage: int, order: int) -> KernelPlan:
        """An edited plan that runs op ``name`` at ``stage`` and ``order``; checked when applied.

        PlanError: there is no such loop, or no such op in it.
        """
        old = self.loop(loop)
        op = dataclasses.replace(old.op(name), stage=stage, order=order)
        edited = dataclasses.replace(old, ops=put(old.ops, op, "name"), source="edited")
        return self.with_loop(edited).without_derived()

    def without_derived(self) -> KernelPlan:
        """This plan without channels, arena and barriers, which are made anew when it is applied.

        They follow from the rest: a plan that is edited otherwise than by ``with_`` has them as
        they were, and is refused.
        """
        return dataclasses.replace(self, mbarriers=(), smem=SmemPlan(), sync=SyncPlan())

    def to_json(self, *, indent: int | None = None) -> str:
        """This plan as JSON text; ``from_json`` gives an equal value back."""
        return json.dumps({"version": PLAN_VERSION, **_own(self)}, indent=indent, default=_own)

    @staticmethod
    def from_json(text: str) -> KernelPlan:
        """The plan in ``text``; PlanError says what is wrong with it."""
        return _read(text)

    def explain(self) -> str:
        """The plan in plain words and numbers."""
        from ..explain import explain

        return explain(self)


@functools.lru_cache(maxsize=64)
def _read(text: str) -> KernelPlan:
    """``from_json``: a plan is read again by each that meets its function, and never changes."""
    try:
        data = json.loads(text)
    except ValueError as err:  # no JSON, or a number longer than Python reads
        raise PlanError("plan.no_json", why=str(err)) from err
    except RecursionError as err:
        raise PlanError("plan.deep") from err
    version = data.pop("version", None) if isinstance(data, dict) else None
    if version not in (1, PLAN_VERSION):
        raise PlanError("plan.version", version=PLAN_VERSION)
    data = translated(data) if version == 1 else data
    plan: KernelPlan = decode(KernelPlan, data, "plan")
    return plan


def _own(value: Any) -> dict[str, Any]:
    """The fields of a dataclass; json asks for those inside it (``asdict`` would copy them all)."""
    return {
        field.name: _with_codes(getattr(value, field.name)) for field in dataclasses.fields(value)
    }


def _with_codes(value: Any) -> Any:
    """``value``, but reasons with their codes and arguments: to json they are text alone."""
    if isinstance(value, Reason):
        return value.as_dict()
    if isinstance(value, tuple) and any(isinstance(each, Reason) for each in value):
        return [_with_codes(each) for each in value]
    return value
