"""What the threads of a CTA do apart from each other, and how they pass on what they made."""

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
    """What some of a CTA's threads do while others do something else.

    ``first`` and ``threads``: the threads, whole warpgroups. ``registers``: of each thread, set by
    setmaxnreg; 0: as compiled. ``ops``: what it carries out of the pipelined loops. ``teams``:
    equal parts of its threads, which take the tiles of a persistent grid by turns, each whole ones
    (ping-pong); 1: all of them share every tile (cooperative).
    """

    name: str
    first: int
    threads: int
    registers: int
    ops: tuple[str, ...]
    reason: Why = ""
    teams: int = 1


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
    reason: Why = ""
