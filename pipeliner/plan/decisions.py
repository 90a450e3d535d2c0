"""Every decision about one kernel: its tiles, loops, roles, memory, barriers and launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..diagnostics import Why
from .lookup import named
from .loops import LoopPlan
from .roles import CONSUMER, MbarrierPair, RolePlan
from .tiles import CopyPlan, ElementwisePlan, MatmulPlan, StorePlan


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
class Decisions:
    """Every decision about one kernel. ``cluster``: neighbouring CTAs that share what they copy.

    ``predicted_within``: the interval of ``predicted_us`` to each side, as a fraction of it, within
    which four of five measured kernels took their time; 0: that is not known.
    """

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
    predicted_within: float = 0.0
    reasons: tuple[Why, ...] = ()

    @property
    def pipelined(self) -> bool:
        """Whether any loop of the kernel is pipelined."""
        return any(loop.pipelined for loop in self.loops)

    @property
    def predicted_interval(self) -> tuple[float, float] | None:
        """Microseconds between which four of five such kernels were measured; None: not known."""
        if not self.predicted_within:
            return None
        less, more = 1 - self.predicted_within, 1 + self.predicted_within
        return self.predicted_us * less, self.predicted_us * more

    @property
    def predicted(self) -> str:
        """``predicted 165.1 us +- 13 %``; empty where nothing is predicted."""
        if not self.predicted_us:
            return ""
        within = f" +- {self.predicted_within:.0%}".replace("%", " %")
        return f"predicted {self.predicted_us:.1f} us{within if self.predicted_within else ''}"

    @property
    def pairs_before(self) -> dict[str, MbarrierPair]:
        """The mbarriers of tiles that are copied before the pipelined loops, by their names."""
        planned = {loop.name for loop in self.loops if loop.pipelined}
        return {pair.rings[0]: pair for pair in self.mbarriers if pair.loop not in planned}

    @property
    def mapped_threads(self) -> int:
        """Threads that tiles are mapped to: those of one ping-pong group where there are roles."""
        return self.role(CONSUMER).threads // self.ping_pong_groups if self.roles else self.threads

    @property
    def ping_pong_groups(self) -> int:
        """Ping-pong groups of consumer warpgroups; 1: they cooperate, or there are no roles."""
        return self.role(CONSUMER).ping_pong_groups if self.roles else 1

    @property
    def ctas_that_meet(self) -> int:
        """CTAs of a cluster that copy for each other, or put parts of a tile together; 1: none."""
        return max(self.cluster, *(store.parts for store in self.stores), 1)

    def role(self, name: str) -> RolePlan:
        """The role called ``name``; PlanError names what exists."""
        return named(self.roles, name, "role", self.kernel)

    def loop(self, name: str) -> LoopPlan:
        """The loop called ``name``; PlanError names what exists."""
        return named(self.loops, name, "loop", self.kernel)
