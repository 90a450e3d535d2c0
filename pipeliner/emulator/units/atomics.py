"""Atomic and strong accesses to memory, and fences, as the generated code calls them.

Each thread in turn. What they order, at the scope of the GPU, ``scoped.Scoped`` knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..memory.agents import WIDE
from ..memory.grid import SCOPES
from ..memory.spaces import GlobalView, SharedView, select
from ..memory.state import GroupState
from .warp import rows_of

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
"""What an atomic operation makes of the value found and its operand (PTX ISA, atom)."""


def update(
    group: GroupState,
    view: GlobalView | SharedView,
    index: Any,
    operation: str,
    value: Any,
    compare: Any,
    order: tuple[str, str],
    mask: Mask,
) -> Array:
    """Run a read-modify-write and return what each thread found.

    ``compare``: of a compare-and-swap, None for others.
    """
    at, outside = _places(group, view, index, mask)
    tids = group.active(mask)
    if isinstance(view, SharedView):
        step = group.cta.granule
        grains = at[~outside] * view.array.itemsize // step
        group.cta.shadow.update(tids[~outside], grains, group.event)
    else:
        _judge(group, view, at[~outside], tids[~outside], order[1], mask, writes=True)
    values = np.broadcast_to(select(np.asarray(value), mask, group.n), (len(tids),))
    compared = (
        None
        if compare is None
        else np.broadcast_to(select(np.asarray(compare), mask, group.n), (len(tids),))
    )
    found = np.zeros(group.n, view.array.dtype)
    rows = np.arange(group.n) if mask is None else np.flatnonzero(mask)
    apply = _OPERATIONS[operation]
    for i in np.flatnonzero(~outside):
        where, own = at[i], rows[i]
        found[own] = before = view.array[where]
        if compared is None:
            view.array[where] = apply(view.array[where], values[i])
        elif view.array[where] == compared[i]:
            view.array[where] = values[i]
        if isinstance(view, GlobalView):
            group.cta.cluster.grid.changes += bool(view.array[where] != before)
            _order(group, view, int(tids[i]), int(where), order, reads=True, writes=True)
    return found


def _places(
    group: GroupState, view: GlobalView | SharedView, index: Any, mask: Mask
) -> tuple[Array, Array]:
    """The element of each active thread, and whether it is out of bounds, which is reported."""
    at = rows_of(group, index, mask) + view.low
    outside = (at < view.low) | (at >= view.high)
    if outside.any():
        row = int(np.argmax(outside))
        group.hazard(
            "out-of-bounds",
            view.name,
            int(at[row]) * view.array.itemsize,
            thread=int(group.active(mask)[row]),
        )
    return at, outside


def _judge(
    group: GroupState,
    view: GlobalView,
    at: Array,
    tids: Array,
    scope: str,
    mask: Mask,
    *,
    writes: bool,
) -> None:
    """Judge a strong access to elements ``at``, one by each of ``tids``."""
    group.touch_global(view.name, mask)
    shadow = view.region.memory.shadow
    access = view.access(group, tids, at, reach=min(SCOPES.index(scope), WIDE))
    if shadow is None or access is None or not len(at):
        return
    if writes:
        shadow.write(access)
    else:
        shadow.read(access)


def load(
    group: GroupState, view: GlobalView, index: Any, order: tuple[str, str], mask: Mask
) -> Array:
    """Run a strong load: relaxed, volatile or acquire."""
    at, outside = _places(group, view, index, mask)
    inside, tids = at[~outside], group.active(mask)[~outside]
    _judge(group, view, inside, tids, order[1], mask, writes=False)
    found = np.zeros(group.n, view.array.dtype)
    rows = np.arange(group.n) if mask is None else np.flatnonzero(mask)
    found[rows[~outside]] = view.array[inside]
    for tid, where in zip(tids, inside, strict=True):
        _order(group, view, int(tid), int(where), order, reads=True, writes=False)
    return found


def store(
    group: GroupState, view: GlobalView, index: Any, value: Any, order: tuple[str, str], mask: Mask
) -> None:
    """Run a strong store: relaxed, volatile or release."""
    at, outside = _places(group, view, index, mask)
    inside, tids = at[~outside], group.active(mask)[~outside]
    _judge(group, view, inside, tids, order[1], mask, writes=True)
    values = np.broadcast_to(select(np.asarray(value), mask, group.n), (len(at),))
    group.cta.cluster.grid.changes += bool((view.array[inside] != values[~outside]).any())
    view.array[inside] = values[~outside]
    for tid, where in zip(tids, inside, strict=True):
        _order(group, view, int(tid), int(where), order, reads=False, writes=True)


def _order(
    group: GroupState,
    view: GlobalView,
    tid: int,
    where: int,
    order: tuple[str, str],
    *,
    reads: bool,
    writes: bool,
) -> None:
    """Note what a strong access by one thread orders."""
    semantics, scope = order[0], SCOPES.index(order[1])
    scoped = group.cta.cluster.scoped
    key = view.region.memory.number, view.region.start + where * view.array.itemsize
    if reads:
        scoped.read(tid, key, scope, acquire=semantics in ("acquire", "acq_rel"))
    if writes:
        release = semantics in ("release", "acq_rel")
        scoped.write(tid, group.event, key, scope, release=release, update=reads)


def fence(group: GroupState, scope: str, mask: Mask) -> None:
    """Run fence.acq_rel or fence.sc, __threadfence."""
    cluster = group.cta.cluster
    cluster.scoped.fence(group.active(mask), group.event, SCOPES.index(scope))
