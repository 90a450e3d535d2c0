"""Warp specialisation: the roles of a CTA's warps, and the mbarriers between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ..diagnostics import Why

Consumers = Literal["cooperative", "ping-pong"]

PRODUCER: Final = "producer"
"""The role that fills rings from global memory."""

CONSUMER: Final = "consumer"
"""The role that does everything else."""


@dataclass(frozen=True, slots=True)
class RolePlan:
    """What some of a CTA's threads do while others do something else (warp specialisation).

    ``first`` and ``threads``: the threads, whole warpgroups where wgmma multiplies, whole warps
    where mma.sync does. ``registers``: of each thread, set by setmaxnreg; 0: as compiled. ``ops``:
    what it carries out of the pipelined loops. ``ping_pong_groups``: groups of its warpgroups that
    alternate on the tiles of a persistent kernel (ping-pong); 1: all share every tile
    (cooperative).
    """

    name: str
    first: int
    threads: int
    registers: int
    ops: tuple[str, ...]
    reason: Why = ""
    ping_pong_groups: int = 1


@dataclass(frozen=True, slots=True)
class MbarrierPair:
    """A full and an empty mbarrier for each slot, by which two roles pass the slots of rings.

    ``full`` completes a phase when ``bytes`` have been copied into the slot. ``empty`` completes
    one when ``arrivals`` consumers have released the slot; 0: there is no ``empty``, because slots
    are released with those of a shallower ring, which the producer has waited for by then.
    ``rings``: the buffers that the pair covers; iteration ``i`` of the loop uses slot
    ``i % depth``, counted across tiles.
    """

    loop: str
    full: str
    empty: str
    rings: tuple[str, ...]
    depth: int
    bytes: int
    producer: str
    consumer: str
    arrivals: int
    reason: Why = ""
