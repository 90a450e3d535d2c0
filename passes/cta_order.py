"""Global memory that one statement of a CTA writes and another touches: what barriers must order.

In a function without threads statements follow one another. Shared out over threads they do so only
where nothing passes between two of them, or a barrier stands between:

    for i, j in T.grid(64, 96): Y[bx, i, j] = X[bx, i, j] + 1
    for i, j in T.grid(64, 96): Z[bx, i, j] = Y[bx, 63 - i, 95 - j]     # of another thread

Shared memory has its barriers from whoever orders all of it (``sync``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx

from .accesses import event
from .effects import READ, WRITE, effects
from .ir import Buffer, Stmt, is_global
from .kernels import bodies, thread_tag
from .patterns import Nest, as_nest


@dataclass(frozen=True)
class Leaf:
    """A statement that is shared out as one, and the loops that all threads walk around it."""

    stmt: Stmt
    nest: Nest | None
    loops: tuple[Any, ...]

    @property
    def mark(self) -> Any:
        """The node by which the statement is known again: its store, or itself."""
        return self.stmt if self.nest is None else self.nest.store

    def follows(self, other: Leaf, later: bool) -> bool:
        """Whether it may run behind ``other``; ``later``: it stands behind it."""
        return later or any(a.same_as(b) for a in self.loops for b in other.loops)


def ordered(kernel: Stmt) -> dict[Buffer, list[Any]]:
    """The marks of statements of ``kernel`` that need a barrier before them, by global buffer."""
    touching: dict[Buffer, list[tuple[Leaf, bool]]] = defaultdict(list)
    anywhere = False
    for leaf in leaves(kernel):
        found = effects(leaf.stmt)
        writes = found.buffers(WRITE)
        anywhere |= found.is_fence and event(leaf.stmt) is None
        for buf in writes | found.buffers(READ):
            touching[buf].append((leaf, buf in writes))
    # Of a call that may touch any memory nothing is known.
    return {
        buf: [leaf.mark for leaf, _ in found] if anywhere else _behind_others(found)
        for buf, found in touching.items()
        if is_global(buf)
    }


def _behind_others(found: list[tuple[Leaf, bool]]) -> list[Any]:
    """Marks of those of ``found``, each with whether it writes, that may follow a conflict."""
    return [
        leaf.mark
        for n, (leaf, writes) in enumerate(found)
        if (writes and _meets_itself(leaf))
        or any(
            (writes or other_writes) and leaf.follows(other, later=m < n)
            for m, (other, other_writes) in enumerate(found)
            if m != n
        )
    ]


def leaves(stmt: Stmt, loops: tuple[Any, ...] = ()) -> Iterator[Leaf]:
    """The statements of a kernel that is not bound to threads, in order; ``loops``: around it."""
    nest = as_nest(stmt)
    inner = bodies(stmt)
    if nest is not None or not inner:
        yield Leaf(stmt, nest, loops)
        return
    if isinstance(stmt, (tirx.For, tirx.While)) and thread_tag(stmt) is None:
        loops = (*loops, stmt)
    if isinstance(stmt, (tirx.IfThenElse, tirx.While)):
        yield Leaf(stmt.condition, None, loops)
    for part in inner:
        yield from leaves(part, loops)


def _meets_itself(leaf: Leaf) -> bool:
    """Whether other threads may read in one iteration of a loop what some store in another.

    What is stored alone is stored once: the tiles of a grid that CTAs walk do not overlap.
    """
    return bool(leaf.loops) and (leaf.nest is None or _reads_elsewhere(leaf.nest))


def _reads_elsewhere(nest: Nest) -> bool:
    """Whether ``nest`` reads of what it stores into another place than the one it stores."""
    own = [load for load in (*nest.loads(), *nest.asked())
           if load.source.same_as(nest.store.buffer)]  # fmt: skip
    here = list(nest.store.indices)
    return any(not tvm_ffi.structural_equal(list(load.indices), here) for load in own)
