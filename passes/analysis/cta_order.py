"""Find accesses to global memory, by statements of one CTA, that barriers must order.

    for i, j in T.grid(64, 96): Y[bx, i, j] = X[bx, i, j] + 1
    barrier
    for i, j in T.grid(64, 96): Z[bx, i, j] = Y[bx, 63 - i, 95 - j]     # of another thread

In a function without threads statements follow one another. Shared out over threads they do so only
if they exchange no data, or if a barrier stands between them. Barriers for shared memory are placed
later, for all of it (``sync``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range

from ..ir.kernels import bodies, thread_tag
from ..ir.nodes import Buffer, Stmt, is_buffer_var, is_global
from ..ir.patterns import Nest, as_nest
from .accesses import event
from .effects import READ, WRITE, effects
from .memory import Memories, memories


@dataclass(frozen=True)
class Leaf:
    """A statement that is shared out as one, and the loops around it that all threads run."""

    stmt: Stmt
    nest: Nest | None
    loops: tuple[Any, ...]

    @property
    def mark(self) -> Any:
        """The node that identifies the statement: its store, or itself."""
        return self.stmt if self.nest is None else self.nest.store

    def follows(self, other: Leaf, later: bool) -> bool:
        """Whether it may run after ``other``; ``later``: it stands behind it in the program."""
        return later or any(a.same_as(b) for a in self.loops for b in other.loops)


def ordered(kernel: Stmt) -> dict[Buffer, list[Any]]:
    """Return for each global buffer the marks of statements that need a barrier before them."""
    touching: dict[Buffer, list[tuple[Leaf, bool]]] = defaultdict(list)
    anywhere = False
    named = memories(kernel)
    for leaf in leaves(kernel):
        found = effects(leaf.stmt)
        writes = {_memory(named, buf) for buf in found.buffers(WRITE)}
        anywhere |= found.is_fence and event(leaf.stmt) is None
        for buf in writes | {_memory(named, buf) for buf in found.buffers(READ)}:
            touching[buf].append((leaf, buf in writes))
    # Of a call that may touch any memory nothing is known.
    return {
        buf: [leaf.mark for leaf, _ in found] if anywhere else _behind_others(buf, found)
        for buf, found in touching.items()
        if is_global(buf)
    }


def _memory(named: Memories, buf: Buffer) -> Buffer:
    """Return the buffer that ``buf`` is a view of; itself, if it is none."""
    root = named.place(buf).root
    return root if is_buffer_var(root) else buf


def _behind_others(buf: Buffer, found: list[tuple[Leaf, bool]]) -> list[Any]:
    """Return the marks of statements that may run after one that conflicts with them.

    ``found``: statements that touch ``buf``, each with whether it writes.
    """
    return [
        leaf.mark
        for n, (leaf, writes) in enumerate(found)
        if (writes and _meets_itself(leaf))
        or any(
            (writes or other_writes)
            and leaf.follows(other, later=m < n)
            and not _apart(buf, leaf, other)
            for m, (other, other_writes) in enumerate(found)
            if m != n
        )
    ]


def leaves(stmt: Stmt, loops: tuple[Any, ...] = ()) -> Iterator[Leaf]:
    """Yield the statements of a kernel without threads, in order; ``loops``: around ``stmt``."""
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
    """Whether one iteration of a loop may read what another thread stores in another one.

    A statement that only stores is no conflict: the tiles of a persistent kernel do not overlap.
    """
    return bool(leaf.loops) and (leaf.nest is None or _reads_elsewhere(leaf.nest))


def _apart(buf: Buffer, a: Leaf, b: Leaf) -> bool:
    """Whether two statements, neither in a loop, store into ``buf`` alone and nowhere the same.

    They do if in some dimension all indices of one lie below all of the other.
    """
    if a.loops or b.loops or a.nest is None or b.nest is None:
        return False
    nests = (a.nest, b.nest)
    if any(load.source.same_as(buf) for nest in nests for load in _loads(nest)):
        return False
    if not all(nest.store.buffer.same_as(buf) for nest in nests):
        return False  # a view, whose indices count otherwise
    prover = sym.Analyzer()
    for var, extent in (item for nest in nests for item in nest.extent_of.items()):
        prover.bind(var, Range(0, extent))
    gaps = [prover.simplify(x - y) for x, y in zip(a.nest.store.indices, b.nest.store.indices)]
    return any(prover.can_prove(gap > 0) or prover.can_prove(gap < 0) for gap in gaps)


def _loads(nest: Nest) -> list[Any]:
    return [*nest.loads(), *nest.deciding_loads()]


def _reads_elsewhere(nest: Nest) -> bool:
    """Whether ``nest`` reads the buffer that it stores into, at another place than it stores."""
    own = [load for load in _loads(nest) if load.source.same_as(nest.store.buffer)]
    here = list(nest.store.indices)
    return any(not tvm_ffi.structural_equal(list(load.indices), here) for load in own)
