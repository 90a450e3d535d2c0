"""Say whether two accesses to shared memory need an order: whether they may touch the same bytes.

    S[tx] = .. and .. = S[tx]                       =>  no: the same thread
    S[tx] = .. and .. = S[tx + 1]                   =>  yes
    S[k % 3, tx] = .. and .. = S[(k + 1) % 3, ty]   =>  no: different slots
    if tx < 20: { S[tx] = ..; S[tx + 20] = .. }     =>  no: no thread there has another's element

Two reads need none, nor do accesses by one thread. Otherwise indices are compared (``differences``,
``footprint``) under the conditions that both accesses are made under. Two buffers conflict if they
share bytes of the arena, compared slot by slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from tvm import sym

from ...machine import WARP
from ...plan import SmemBuffer
from ..dependence import footprint
from ..dependence.differences import Differences
from ..dependence.footprint import Guards, Index, Lanes
from ..ir import nodes as ir
from .ordering import Item


class Conflicts:
    """Compares accesses of one kernel.

    ``places``: where its buffers lie in the arena, by name. ``threads``: the thread axes.
    ``prover``: knows the bounds of all variables. ``root``: returns the memory that a buffer is a
    view of.
    """

    def __init__(
        self,
        places: Mapping[str, SmemBuffer],
        threads: Lanes,
        prover: sym.Analyzer,
        root: Callable[[Any], Any],
    ) -> None:
        self._places = places
        self._threads = threads
        self._prover = prover
        self._root = root
        self._differences = Differences(prover)
        self._meeting: dict[tuple[Any, Any], bool] = {}

    def assuming(self, condition: Any) -> AbstractContextManager[None]:
        """Compare under the assumption that ``condition`` holds."""
        return self._differences.assuming(condition)

    def between(
        self, a: Item, a_index: Index, b: Item, b_index: Index, guards: tuple[Guards, Guards]
    ) -> bool:
        """Whether ``a`` at ``a_index`` and ``b`` at ``b_index`` need an order.

        ``guards``: the conditions that each is made under.
        """
        first, second = a.access, b.access
        if first.mode == second.mode and first.mode in ("read", "atomic"):
            return False
        if not self.meet(first.buffer, second.buffer):
            return False
        own: tuple[list[Any], list[Any]] = [], []
        local = {**self._threads, **a.lanes, **b.lanes} if any(guards) else {}
        with ExitStack() as known:
            for guard, side in ((g, side) for of, side in zip(guards, own) for g in of):
                if ir.uses(guard, local):
                    side.append(guard)  # it says something of one side alone
                    continue
                if ir.const_int(self._prover.simplify(guard)) == 0:
                    return False  # they are not both made
                known.enter_context(self.assuming(guard))
            return self._conflict(a, a_index, b, b_index, own)

    def meet(self, a: Any, b: Any) -> bool:
        """Whether two buffers are in one memory object, or have bytes of the arena in common."""
        if a is b or a.same_as(b):
            return True
        if (a, b) not in self._meeting:
            x, y = self._place(a), self._place(b)
            self._meeting[a, b] = self._root(a).same_as(self._root(b)) or (
                x is not None
                and y is not None
                and x.offset < y.offset + y.bytes
                and y.offset < x.offset + x.bytes
            )
        return self._meeting[a, b]

    def _conflict(
        self, a: Item, a_index: Index, b: Item, b_index: Index, own: tuple[Guards, Guards]
    ) -> bool:
        one, other = a.access.buffer, b.access.buffer
        if one.same_as(other):
            return self._may_touch(a, a_index, b, b_index, own)
        if self._root(one).same_as(self._root(other)):
            return True
        return self._share_bytes(a, a_index, b, b_index)

    def _place(self, buffer: Any) -> SmemBuffer | None:
        """Return where the memory of ``buffer`` lies in the arena."""
        return self._places.get(str(self._root(buffer).name))

    def _may_touch(
        self, a: Item, a_index: Index, b: Item, b_index: Index, own: tuple[Guards, Guards]
    ) -> bool:
        """Whether two threads can touch one element of a buffer, each under its own guards."""
        first, second = a.access, b.access
        local = self._threads, a.lanes, b.lanes
        for x, y in zip(a_index, b_index):
            if self._differences.differ(x, y, local):
                return False
        if first.own and second.own:
            sides = (a_index, a.lanes, b_index, b.lanes)
            return not footprint.disjoint(*sides, self._threads, self._prover, guards=own)
        if first.region is None or second.region is None:
            return True
        # The lanes of a warp go through such an instruction together, so in program order.
        sides = (a_index[-1:], a.lanes, b_index[-1:], b.lanes)
        return not footprint.disjoint(*sides, self._threads, self._prover, unit=WARP)

    def _share_bytes(self, a: Item, a_index: Index, b: Item, b_index: Index) -> bool:
        x, y = self._bytes(a.access.buffer, a_index), self._bytes(b.access.buffer, b_index)
        return x is not None and y is not None and x[0] < y[1] and y[0] < x[1]

    def _bytes(self, buffer: Any, index: Index) -> tuple[int, int] | None:
        """Return the bytes of the arena that an access may touch: of one slot if that is known."""
        place = self._place(buffer)
        if place is None:
            return None
        if not self._root(buffer).same_as(buffer):
            return place.offset, place.offset + place.bytes
        slots = ir.const_int(buffer.shape[0]) if len(buffer.shape) > 1 else None
        slot = None if index[0] is None else ir.const_int(self._prover.simplify(index[0]))
        if slots is None or slot is None or not 0 <= slot < slots:
            return place.offset, place.offset + place.bytes
        size = place.bytes // slots
        return place.offset + slot * size, place.offset + (slot + 1) * size
