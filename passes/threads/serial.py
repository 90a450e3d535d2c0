"""Find loops of statements without work for a second thread: one thread runs all of such a loop.

    for i in range(96):                    if threadIdx.x == 0:
      if m[0] < X[i]:                        for i in range(96):
        m[0] = X[i]                  =>        if m[0] < X[i]:
        at[0] = i                                m[0] = X[i]
                                                 at[0] = i

Mapped one by one, the statements would need barriers between them, in every iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from tvm import tirx

from ...diagnostics import Reason
from ..analysis.accesses import event
from ..analysis.cta_order import Leaf, leaves
from ..dependence.independence import shareable
from ..ir.nodes import Buffer, SBlockRealize, Stmt, const_int, has, op_of, uses
from ..ir.patterns import Nest
from .reductions import threads_per_element, why_alone

_MANY = 1024
"""Most threads that a CTA may have."""


def sharing(nest: Nest) -> int:
    """Return how many threads may run iterations of ``nest`` at the same time."""
    count = threads_per_element(nest, _MANY)
    for var in shareable(nest)[0]:
        count *= nest.extent_of[var]
    return count


def is_serial(stmt: Stmt, fragments: Collection[Buffer]) -> bool:
    """Whether ``stmt`` is a loop that one thread may run, without work for a second one.

    ``fragments``: the tiles that are distributed over threads.
    """
    if not isinstance(stmt, (tirx.For, tirx.While)) or _has_own_parts(stmt):
        return False
    inside = list(leaves(stmt))
    if not any(leaf.nest is not None for leaf in inside):
        return False
    return not uses(stmt, fragments) and all(map(_is_one_threads, inside))


def why_serial(inside: Iterable[Leaf]) -> Reason:
    """Return why no second thread has work in a loop of the statements ``inside``."""
    nests = [leaf.nest for leaf in inside if leaf.nest is not None]
    whole = next((nest for nest in nests if nest.vars), nests[0])
    why = why_alone(whole) if whole.vars else Reason("share.one_element")
    return Reason("share.block", block=whole.name, why=shareable(whole)[1] or why)


def _has_own_parts(stmt: Stmt) -> bool:
    """Whether ``stmt`` contains ops of a pipelined loop, or allocates buffers."""
    if has(stmt, tirx.AttrStmt, lambda node: op_of(node) is not None):
        return True
    if has(stmt, tirx.AllocBuffer):
        return True
    return has(stmt, SBlockRealize, lambda node: bool(node.block.alloc_buffers))


def _is_one_threads(leaf: Leaf) -> bool:
    """Whether one thread alone runs ``leaf`` anyway; it can evaluate a condition by itself."""
    if leaf.nest is not None:
        return sharing(leaf.nest) == 1
    stmt: Any = leaf.stmt
    if isinstance(stmt, tirx.Evaluate):
        return const_int(stmt.value) is not None
    return not isinstance(stmt, tirx.Stmt) and event(stmt) is None
