"""Atomic and strong accesses to memory, and fences, as the generated code calls them.

Each thread in turn. What they order, at the scope of the GPU, ``grid.Scoped`` knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .agents import WIDE
from .grid import SCOPES
from .memory import GlobalView, SharedView, select
from .warp import rows_of

if TYPE_CHECKING:
    from .machine import Strand

Array = np.ndarray[Any, Any]
Mask = Array | None

_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": lambda old, value: old + value,
    "min": min,
    "max": max,
    "and": lambda old, value: old & value,
    "or": lambda old, value: old | value,
    "xor": lambda old, value: old ^ value,
    "exch": lambda old, value: value,
    "inc": lambda old, value: 0 if old >= value else old + 1,
    "dec": lambda old, value: value if old == 0 or old > value else old - 1,
}


def update(
    strand: Strand,
    view: GlobalView | SharedView,
    index: Any,
    operation: str,
    value: Any,
    compare: Any,
    order: tuple[str, str],
    mask: Mask,
) -> Array:
    """A read-modify-write; the value each thread found. ``order``: semantics and scope.

    ``compare``: of a compare-and-swap, None for others.
    """
    at, outside = _places(strand, view, index, mask)
    tids = strand.active(mask)
    if isinstance(view, SharedView):
        step = strand.cta.granule
        grains = at[~outside] * view.array.itemsize // step
        strand.cta.shadow.update(tids[~outside], grains, strand.event)
    else:
        _judge(strand, view, at[~outside], tids[~outside], order[1], mask, writes=True)
    values = np.broadcast_to(select(np.asarray(value), mask, strand.n), (len(tids),))
    swapped = (
        None
        if compare is None
        else np.broadcast_to(select(np.asarray(compare), mask, strand.n), (len(tids),))
    )
    found = np.zeros(strand.n, view.array.dtype)
    rows = np.arange(strand.n) if mask is None else np.flatnonzero(mask)
    apply = _OPERATIONS[operation]
    for i in np.flatnonzero(~outside):
        where, own = at[i], rows[i]
        found[own] = before = view.array[where]
        if swapped is None:
            view.array[where] = apply(view.array[where], values[i])
        elif view.array[where] == swapped[i]:
            view.array[where] = values[i]
        if isinstance(view, GlobalView):
            strand.cta.cluster.grid.changes += bool(view.array[where] != before)
            _order(strand, view, int(tids[i]), int(where), order, reads=True, writes=True)
    return found


def _places(
    strand: Strand, view: GlobalView | SharedView, index: Any, mask: Mask
) -> tuple[Array, Array]:
    """The element of each active thread, and whether it is out of bounds, which is reported."""
    at = rows_of(strand, index, mask) + view.low
    outside = (at < view.low) | (at >= view.high)
    if outside.any():
        row = int(np.argmax(outside))
        strand.hazard(
            "out-of-bounds",
            view.name,
            int(at[row]) * view.array.itemsize,
            thread=int(strand.active(mask)[row]),
        )
    return at, outside


def _judge(
    strand: Strand,
    view: GlobalView,
    at: Array,
    tids: Array,
    scope: str,
    mask: Mask,
    *,
    writes: bool,
) -> None:
    """Judge a strong access to elements ``at``, one by each of ``tids``."""
    strand.touch_global(view.name, mask)
    shadow = view.region.memory.shadow
    access = view.access(strand, tids, at, reach=min(SCOPES.index(scope), WIDE))
    if shadow is None or access is None or not len(at):
        return
    if writes:
        shadow.write(access)
    else:
        shadow.read(access)


def load(strand: Strand, view: GlobalView, index: Any, order: tuple[str, str], mask: Mask) -> Array:
    """A strong load: relaxed, volatile or acquire."""
    at, outside = _places(strand, view, index, mask)
    inside, tids = at[~outside], strand.active(mask)[~outside]
    _judge(strand, view, inside, tids, order[1], mask, writes=False)
    found = np.zeros(strand.n, view.array.dtype)
    rows = np.arange(strand.n) if mask is None else np.flatnonzero(mask)
    found[rows[~outside]] = view.array[inside]
    for tid, where in zip(tids, inside, strict=True):
        _order(strand, view, int(tid), int(where), order, reads=True, writes=False)
    return found


def store(
    strand: Strand, view: GlobalView, index: Any, value: Any, order: tuple[str, str], mask: Mask
) -> None:
    """A strong store: relaxed, volatile or release."""
    at, outside = _places(strand, view, index, mask)
    inside, tids = at[~outside], strand.active(mask)[~outside]
    _judge(strand, view, inside, tids, order[1], mask, writes=True)
    values = np.broadcast_to(select(np.asarray(value), mask, strand.n), (len(at),))
    strand.cta.cluster.grid.changes += bool((view.array[inside] != values[~outside]).any())
    view.array[inside] = values[~outside]
    for tid, where in zip(tids, inside, strict=True):
        _order(strand, view, int(tid), int(where), order, reads=False, writes=True)


def _order(
    strand: Strand,
    view: GlobalView,
    tid: int,
    where: int,
    order: tuple[str, str],
    *,
    reads: bool,
    writes: bool,
) -> None:
    """What a strong access by one thread orders."""
    semantics, scope = order[0], SCOPES.index(order[1])
    scoped = strand.cta.cluster.scoped
    key = view.region.memory.number, view.region.start + where * view.array.itemsize
    if reads:
        scoped.read(tid, key, scope, acquire=semantics in ("acquire", "acq_rel"))
    if writes:
        release = semantics in ("release", "acq_rel")
        scoped.write(tid, strand.event, key, scope, release=release, update=reads)


def fence(strand: Strand, scope: str, mask: Mask) -> None:
    """fence.acq_rel or fence.sc, __threadfence."""
    cluster = strand.cta.cluster
    cluster.scoped.fence(strand.active(mask), strand.event, SCOPES.index(scope))
