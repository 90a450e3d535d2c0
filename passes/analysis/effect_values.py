"""Define what a statement does to memory: its ``Effect``s, and the ``Effects`` of all of it.

    for i in range(8): S[i] = A[k, i]   =>   Effects([Effect(A, "r", [(k, 1), (i, 1)]),
                                                      Effect(S, "w", [(i, 1)])], locals={i: (0, 7)})

``effects`` finds them in a statement.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ...diagnostics import Reason
from ..ir.nodes import Buffer, Call, Expr, Var
from .operands import READ, WRITE, InstructionEffects


@dataclass(frozen=True, slots=True)
class Use:
    """How a call touches a buffer: by which of its operands, a ``pointer`` or an element.

    ``instruction``: what the call does; None if that is unknown.
    """

    call: Call
    instruction: InstructionEffects | None
    pointer: Expr


@dataclass(frozen=True, slots=True)
class Effect:
    """What a statement does to one buffer: it reads it, writes it, or both.

    ``box``: (first index, extent) for each dimension, None for the whole buffer. ``guards``: the
    conditions around it. ``bytes``: its first byte and length, if it is made through a view of the
    buffer; it has no box then. ``use``: the call that does it, if it is no load or store.
    """

    buffer: Buffer
    mode: str
    box: tuple[tuple[Expr, int], ...] | None
    guards: tuple[Expr, ...] = ()
    bytes: tuple[Expr, int] | None = None
    use: Use | None = None

    @property
    def reads(self) -> bool:
        """Whether it reads."""
        return READ in self.mode

    @property
    def writes(self) -> bool:
        """Whether it writes."""
        return WRITE in self.mode


@dataclass(slots=True)
class Effects:
    """Everything a statement does to memory.

    ``locals``: variables that it defines, with inclusive bounds if constant. ``allocated``: buffers
    that it allocates itself. ``viewed``: buffers that it declares views of. ``fence``: why nothing
    may move across it, or None. ``polled``: buffers that decide when a While in it ends.
    ``bounds``: buffers that its trip counts are loaded from. ``is_async``: it issues cp.async or
    bulk copies. ``is_mma``: it issues matrix instructions. ``in_flight``: some of these are in
    flight after it. ``is_mma_wait``: it waits for all that are. ``is_move``: every value stored is
    a loaded value, possibly masked or cast.
    """

    accesses: list[Effect] = field(default_factory=list)
    locals: dict[Var, tuple[int, int] | None] = field(default_factory=dict)
    allocated: set[Buffer] = field(default_factory=set)
    viewed: set[Buffer] = field(default_factory=set)
    fence: Reason | None = None
    polled: set[Buffer] = field(default_factory=set)
    bounds: set[Buffer] = field(default_factory=set)
    is_async: bool = False
    is_mma: bool = False
    in_flight: bool = False
    is_mma_wait: bool = False
    is_move: bool = True
    is_opaque: bool = False

    @property
    def is_fence(self) -> bool:
        """Whether nothing may move across it."""
        return self.why_fence() is not None

    def why_fence(self, own: Collection[Buffer] = ()) -> Reason | None:
        """Return why nothing may move across it, or None.

        ``own``: buffers that only ops of this iteration write.
        """
        names = sorted(str(buf.name) for buf in self.polled.difference(own, self.allocated))
        if self.fence is not None or not names:
            return self.fence
        return Reason("fence.polls", buffer=names[0])

    def buffers(self, mode: str) -> set[Buffer]:
        """Return the outer buffers that are read (``r``) or written (``w``)."""
        return {
            a.buffer for a in self.accesses if mode in a.mode and a.buffer not in self.allocated
        }
