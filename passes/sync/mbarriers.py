"""Emit the mbarriers between roles: a full and an empty one for each slot of a ring.

A ``full`` mbarrier completes its phase when the producer has said how many bytes to expect and all
of them have been copied. An ``empty`` one completes it when every consumer warpgroup has released
the slot (PTX ISA, mbarrier). Each side counts slots and phases for itself:

    producer                                     consumer
    wait empty[slot], phase ^ 1                  wait full[slot], phase
    expect bytes at full[slot]                   use the slot
    copy, arriving at full[slot]                 arrive at empty[slot]
    next slot; behind the last, next phase       next slot; behind the last, next phase

A new mbarrier counts as having completed phase 1, so the producer does not wait the first time that
it fills each slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tvm import tirx
from tvm.script import tirx as T

from ...errors import InternalError
from ...plan import MbarrierPair
from ..ir.nodes import Buffer, Expr, Stmt, buffer, i32, loop, seq

ROLES_ATTR: Final = "pipeliner.roles"
"""Key of the AttrStmt around the branches of all roles; its value names the buffers that mbarriers
order, the mbarriers themselves included."""

ROLE_ATTR: Final = "pipeliner.role"
"""Key of the AttrStmt around what one role does; its value is the role's name."""

BEHIND_ROLES: Final = "pipeliner.behind_roles"
"""Key of the AttrStmt around what consumers do when the roles of all CTAs of a cluster are done."""

MBARRIER_BYTES: Final = 8


def full_barrier(pair: MbarrierPair) -> Buffer:
    """Return the ``full`` mbarrier of one slot, as copies refer to it before they have slots."""
    return buffer([1], "uint64", pair.full, "shared", MBARRIER_BYTES)


@dataclass(frozen=True)
class Barriers:
    """The full and empty mbarriers of one pair: one of each for every slot.

    ``empty``: None if the empty mbarriers of another pair say when these slots are free.
    """

    plan: MbarrierPair
    full: Buffer
    empty: Buffer | None

    @staticmethod
    def of(plan: MbarrierPair) -> Barriers:
        """New barriers for ``plan``."""
        shape = [plan.depth, 1]

        def barriers(name: str) -> Buffer:
            return buffer(shape, "uint64", name, "shared", MBARRIER_BYTES)

        full, empty = barriers(plan.full), barriers(plan.empty) if plan.empty else None
        return Barriers(plan, full, empty)

    @property
    def released(self) -> Buffer:
        """The ``empty`` mbarriers; raises InternalError if there are none to arrive at."""
        if self.empty is None:
            raise InternalError(
                f"mbarriers '{self.plan.full}' have no empty ones that release slots"
            )
        return self.empty

    @property
    def buffers(self) -> list[Buffer]:
        """The mbarriers that exist."""
        return [self.full] if self.empty is None else [self.full, self.empty]

    def initialise(self) -> Stmt:
        """Return the initialisation, which one thread runs before anything else.

        It is a loop over the slots, which nvcc unrolls.
        """

        def slot(s: Expr) -> Stmt:
            init = T.ptx.mbarrier.init.shared.b64
            arrivals = (1, self.plan.arrivals)
            return seq(
                *[
                    tirx.Evaluate(init(_at(barriers, s), T.uint32(count)))
                    for barriers, count in zip(self.buffers, arrivals)
                ]
            )

        return loop("s", self.plan.depth, slot)

    def wait_empty(self, at: Position) -> Stmt | None:
        """Return the producer's wait until it may fill the slot; None if it knows that already."""
        if self.empty is None:
            return None
        parity = tirx.bitwise_xor(at.phase, i32(1))
        return tirx.Evaluate(T.cuda.mbarrier_wait(_at(self.empty, at.slot), parity))

    def expect(self, at: Position) -> Stmt:
        """Return the producer's only arrival, which says how many bytes will come."""
        call = T.ptx.mbarrier.arrive.expect_tx.shared.b64
        return tirx.Evaluate(call(_at(self.full, at.slot), T.uint32(self.plan.bytes)))

    def wait_full(self, at: Position) -> Stmt:
        """Return the consumer's wait until it may use the slot."""
        return tirx.Evaluate(T.cuda.mbarrier_wait(_at(self.full, at.slot), at.phase))

    def release(self, slot: Expr) -> Stmt:
        """Return the release of the slot, by one thread for its warpgroup."""
        return tirx.Evaluate(T.ptx.mbarrier.arrive.shared.b64(_at(self.released, slot)))

    def release_to(self, slot: Expr, rank: Expr, remote: Buffer) -> Stmt:
        """Return the release of the slot to CTA ``rank`` of the cluster, which fills it too.

        ``remote``: a register for the address of the mbarrier in that CTA.
        """
        here = T.cuda.cvta_generic_to_shared(_at(self.released, slot))
        there = _value(remote)
        return seq(
            tirx.Evaluate(T.ptx.mapa.shared__cluster.u32(there, here, tirx.Cast("uint32", rank))),
            tirx.Evaluate(T.ptx.mbarrier.arrive.shared__cluster.b64(there)),
        )


def _at(barriers: Buffer, slot: Expr) -> Expr:
    return T.address_of(tirx.BufferLoad(barriers, [slot, i32(0)]))


@dataclass(frozen=True)
class Position:
    """The position of one role in the rings of an mbarrier pair, in registers.

    The registers live across tiles. ``depth``: slots. ``before``: the slot of the step before, for
    a role that releases slots one step late.
    """

    depth: int
    counters: tuple[Buffer, Buffer]
    before: Buffer | None = None

    @staticmethod
    def of(role: str, plan: MbarrierPair, *, late: bool = False) -> Position:
        """Return the start position of ``role`` in ``plan``."""
        name = role + plan.full.removeprefix("full")

        def register(what: str) -> Buffer:
            return buffer([1], "int32", f"{name}_{what}", "local")

        return Position(
            plan.depth,
            (register("slot"), register("phase")),
            register("held") if late else None,
        )

    @property
    def slot(self) -> Expr:
        """The slot of this step; constant where there is only one."""
        return _value(self.counters[0]) if self.depth > 1 else i32(0)

    @property
    def phase(self) -> Expr:
        """How often all slots have been used, modulo 2."""
        return _value(self.counters[1])

    def skip(self, steps: Expr) -> Stmt:
        """Return the advance past ``steps`` that others make."""
        slot, phase = self.counters
        reached = self.slot + steps
        laps = _set(phase, tirx.bitwise_xor(self.phase, _odd(tirx.truncdiv(reached, self.depth))))
        if self.depth == 1:
            return laps
        return seq(laps, _set(slot, tirx.truncmod(reached, self.depth)))

    @property
    def previous(self) -> Expr:
        """The slot of the step before."""
        return self.slot if self.before is None else _value(self.before)

    def register(self, *, behind: bool) -> Buffer:
        """The register with the slot of this step, or where ``behind`` of the step before."""
        return self.before if behind and self.before is not None else self.counters[0]

    def at(self, *, behind: bool) -> Expr:
        """The slot of this step, or where ``behind`` of the step before."""
        return self.previous if behind else self.slot

    @property
    def buffers(self) -> list[Buffer]:
        """The registers."""
        used = [self.counters[1]] if self.depth == 1 else list(self.counters)
        return used if self.before is None else [*used, self.before]

    def start(self) -> Stmt:
        """Return the initialisation to slot 0 of phase 0."""
        return seq(*[_set(counter, i32(0)) for counter in self.buffers])

    def advance(self) -> Stmt:
        """Return the advance to the next step."""
        slot, phase = self.counters
        flip = _set(phase, tirx.bitwise_xor(self.phase, i32(1)))
        if self.depth == 1:
            return flip
        keep = None if self.before is None else _set(self.before, self.slot)
        wrap = tirx.IfThenElse(
            tirx.EQ(_value(slot), i32(self.depth)), seq(_set(slot, i32(0)), flip), None
        )
        return seq(keep, _set(slot, self.slot + 1), wrap)


def _odd(count: Expr) -> Expr:
    return tirx.bitwise_and(count, i32(1))


def _value(register: Buffer) -> Expr:
    return tirx.BufferLoad(register, [i32(0)])


def _set(register: Buffer, value: Expr) -> Stmt:
    return tirx.BufferStore(register, value, [i32(0)])
