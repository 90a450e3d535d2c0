"""Spread nests over threads that touch shared memory through views of another element size.

    for j in T.grid(256):                         V = decl_buffer(.., "uint8", data=S.data)
      V = decl_buffer(.., "uint8", data=S.data)
      V[j] = C[j]                            =>   V[tx] = C[tx]

If each iteration touches its own bytes, threads share the iterations as those of any other nest.
Otherwise one thread runs all, without barriers between them.

Does not handle: a nest that touches a tile in registers or in another layout, or global memory
through a view, or in a warp-specialised loop; it is mapped statement by statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import sym, tirx

from ...diagnostics import Reason
from ..analysis.memory import Memories, flat
from ..copy.layouts import ROW_MAJOR
from ..dependence.independence import shareable
from ..ir.kernels import bodies, with_bodies
from ..ir.linear import affine
from ..ir.nodes import Expr, Stmt, Var, const_int, dtype_bytes, i32, is_shared, seq, uses
from ..ir.patterns import Nest, as_nest
from ..threads.reductions import why_alone
from ..threads.spread import spread
from .mapped_nests import behind
from .scope import Scope


def map_viewed(stmt: Stmt, scope: Scope) -> Stmt | None:
    """Return a nest that declares views beside its store as threads run it; None if it is none."""
    declared: list[Any] = []
    nest = as_nest(_without_views(stmt, declared))
    if nest is None or not nest.vars or not _is_handled(nest, declared, scope):
        return None
    shared, why = shareable(nest)
    if shared and not _own_bytes(nest, declared, shared):
        shared = []
        why = Reason("share.viewed", buffer=str(nest.store.buffer.name))
    if not shared:
        scope.notes.append(Reason("mapped.by_one", block=nest.name, why=why or why_alone(nest)))
        alone = tirx.IfThenElse(tirx.EQ(scope.threads.index, i32(0)), stmt, None)
        return behind([nest.store], alone, scope)
    if why is not None:
        axes = tuple(str(var.name) for var in shared)
        scope.notes.append(Reason("mapped.along", block=nest.name, axes=axes, why=why))
    return behind([nest.store], seq(*declared, spread(nest, scope.threads, 1)), scope)


def _without_views(stmt: Any, declared: list[Any]) -> Stmt:
    """Return ``stmt`` without the declarations beside its only other statement.

    ``declared`` receives them.
    """
    if isinstance(stmt, tirx.SeqStmt):
        *first, last = stmt.seq
        if not all(isinstance(part, tirx.DeclBuffer) for part in first):
            return stmt
        declared.extend(first)
        return _without_views(last, declared)
    inner = bodies(stmt)
    if len(inner) != 1:
        return stmt
    return with_bodies(stmt, [_without_views(inner[0], declared)])


def _is_handled(nest: Nest, declared: Sequence[Any], scope: Scope) -> bool:
    """Whether the views are of shared memory that is row-major, however it is mapped."""
    if not declared or scope.plan.roles or uses(list(declared), nest.vars):
        return False
    named = _named(declared)
    roots = [named.place(stmt.buffer).root for stmt in declared]
    touched = [access.source for access in (*nest.loads(), *nest.deciding_loads())]
    buffers = [*roots, *touched, nest.store.buffer]
    return (
        all(map(is_shared, roots))
        and not any(buf in scope.fragments for buf in buffers)
        and not any(scope.layouts.get(buf, ROW_MAJOR).moves for buf in buffers)
    )


def _named(declared: Sequence[Any]) -> Memories:
    found = Memories()
    for stmt in declared:
        found.declare(stmt)
    return found


def _own_bytes(nest: Nest, declared: Sequence[Any], variables: Sequence[Var]) -> bool:
    """Whether values of ``variables`` provably touch no byte that another one stores.

    ``shareable`` knows that already of reads through the same buffer that is stored through.
    """
    named = _named(declared)
    stored = named.place(nest.store.buffer)
    loads = [*nest.loads(), *nest.deciding_loads()]
    others = [load for load in loads if named.place(load.source).root.same_as(stored.root)]
    if all(load.source.same_as(nest.store.buffer) for load in others):
        return True
    spans = [_bytes(named, nest.store.buffer, nest.store.indices, nest.vars)]
    spans += [_bytes(named, load.source, load.indices, nest.vars) for load in others]
    first = spans[0]
    if first is None:
        return False
    low, high = 0, 0
    analyzer = sym.Analyzer()
    for span in spans:
        if span is None or any(span[1].get(v, 0) != first[1].get(v, 0) for v in variables):
            return False
        start = const_int(analyzer.simplify(span[0] - first[0]))
        if start is None:
            return False
        rest = [
            step * (nest.extent_of[var] - 1)
            for var, step in span[1].items()
            if not any(var.same_as(other) for other in variables)
        ]
        low = min(low, start + sum(min(0, step) for step in rest))
        high = max(high, start + sum(max(0, step) for step in rest) + span[2])
    reach = high - low - 1
    steps = [(abs(first[1].get(var, 0)), nest.extent_of[var]) for var in variables]
    for step, extent in sorted(steps):
        if step <= reach:
            return False
        reach += step * (extent - 1)
    return True


def _bytes(
    named: Memories, buf: Any, indices: Sequence[Expr], variables: Sequence[Var]
) -> tuple[Expr, dict[Var, int], int] | None:
    """Return the first byte of an access without ``variables``, their steps, and its length."""
    size = dtype_bytes(buf.dtype)
    start = named.place(buf).start + flat(buf, list(indices)) * size
    found = affine(start, variables)
    return None if found is None else (found.base, dict(found.coefficients), size)
