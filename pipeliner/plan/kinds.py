"""What sets one copy mechanism, store or instruction apart from another, property by property.

Whoever depends on a property asks for it by its name: no name of a mechanism or an instruction is
compared outside of their homes. Each record stands in the file that plans what it is of; the
tables in ``mechanisms/table.py`` and ``instructions/table.py`` have them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..machine import Machine, MmaRate
from .loops import Pipe
from .tiles import Mechanism, StoreMechanism

Completion = Literal["loads", "group", "mbarrier"]
"""What is waited for: the loads themselves, groups of copies in order, an mbarrier's bytes."""

Operands = Literal["elements", "vectors", "ldmatrix", "descriptor"]
"""How an instruction reads shared memory: lanes load one element, vectors, matrices, or none do."""


@dataclass(frozen=True, slots=True)
class CopyMechanism:
    """A way to move a tile from global memory.

    ``by_producer``: one thread of a producer warp issues it; else the threads that compute do.
    ``through_registers``: its loads and its stores are two ops, with registers between. ``blocks``:
    threads wait for what they loaded at once. ``moves_boxes``: of a tensor map, swizzled, also for
    a cluster. ``async_proxy``: what threads wrote is not ordered before its reads. ``names_cache``:
    it says which cache keeps what it read. ``pipe``: what it keeps busy.
    """

    name: Mechanism
    completion: Completion
    by_producer: bool = False
    through_registers: bool = False
    blocks: bool = False
    moves_boxes: bool = False
    async_proxy: bool = False
    names_cache: bool = False
    pipe: Pipe = "l2"

    @property
    def in_groups(self) -> bool:
        """Whether threads issue it, one access a vector, and wait for its groups, in order."""
        return self.completion == "group"


@dataclass(frozen=True, slots=True)
class StoreKind:
    """A way of the tile of an accumulator to global memory.

    ``staged``: through shared memory. ``moves_boxes``: TMA writes them from there, in the order of
    its groups, while threads go on. ``in_cluster``: to CTAs of a cluster, which put its parts
    together.
    """

    name: StoreMechanism
    staged: bool
    moves_boxes: bool = False
    in_cluster: bool = False


@dataclass(frozen=True, slots=True)
class MatmulInstruction:
    """What multiplies tiles, by the first word of a plan's ``instruction``.

    ``operands``: how it reads shared memory. ``rate``: what tensor cores do of it on a machine, by
    the operands' type; None: it does not use them. ``warpgroup_wide``: a warpgroup issues it, all
    k-steps as one op, which is in flight until it is waited for; else k-steps are ops of their own.
    ``thread_tile``: each thread has a rectangle of the result. ``skips_k_tail``: k-steps past the
    end of K are left out. ``mapped``: the result is a register tile.
    """

    name: str
    operands: Operands
    rate: Callable[[Machine, str], MmaRate | None] | None = None
    warpgroup_wide: bool = False
    thread_tile: bool = False
    skips_k_tail: bool = False
    mapped: bool = True
