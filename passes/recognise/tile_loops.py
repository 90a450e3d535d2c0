"""End the tile loop of a persistent kernel where its tiles end, and drop the guards in its blocks.

    for blockIdx.x in 132:                          for blockIdx.x in 132:
      for t in ceil(tiles / 132):            =>       for t in (tiles - blockIdx.x + 131) // 132:
        A_shared = ..                                   A_shared = ..
        if t * 132 + blockIdx.x < tiles: B_shared = ..  B_shared = ..
        if t * 132 + blockIdx.x < tiles: acc = ..       acc = ..
        if t * 132 + blockIdx.x < tiles: C = ..         C = ..

A schedule splits the loop over tiles. TVM then puts a guard on each block that might leave the
tensors and none on others, and no two guards need be written alike. If the guard fails once, it
fails in every later iteration, and an iteration that writes nothing which outlives it need not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range

from ..ir.indexing import conjunction, conjuncts
from ..ir.kernels import bodies, thread_extents
from ..ir.linear import affine
from ..ir.nodes import (
    Buffer,
    Expr,
    ForKind,
    SBlockRealize,
    Stmt,
    Var,
    const_int,
    i32,
    is_among,
    is_global,
    uses,
    walk,
)
from ..ir.patterns import as_nest

_MANY: Final = 1 << 20
"""A bound on the number of tiles of a loop."""


def trim_tile_loops(body: Stmt) -> Stmt:
    """Return ``body`` of a tile function with its tile loops trimmed; itself without any."""
    if thread_extents(body):
        return body
    analyzer = sym.Analyzer()

    def bind(loop: Any) -> None:
        analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))

    walk(body, tirx.For, bind)

    def visit(loop: Any) -> Any:
        if loop.kind != ForKind.SERIAL or const_int(loop.min) != 0 or as_nest(loop) is not None:
            return loop
        return _trimmed(loop, analyzer)

    return tvm_ffi.structural_map(body, [(tirx.For, visit)], order="post")


@dataclass(frozen=True)
class _Guarded:
    """A statement that writes what outlives the loop, and the conjuncts around it."""

    stmt: Any
    guards: tuple[Expr, ...]


def _trimmed(loop: Any, analyzer: Any) -> Stmt:
    inner: set[Var] = set()
    own: set[Buffer] = set()
    walk(loop.body, tirx.For, lambda node: inner.add(node.loop_var))
    walk(loop.body, SBlockRealize, lambda node: own.update(node.block.alloc_buffers))
    writes = _writes(loop.body, (), own)
    if not writes:
        return loop
    for guard in writes[0].guards + tuple(_all_guards(loop.body)):
        end = _end(guard, loop.loop_var, inner)
        if end is None or not all(_needs(w, guard, loop.loop_var, analyzer) for w in writes):
            continue
        extent = end if _is_sure(end <= loop.extent, analyzer) else tirx.min(end, loop.extent)
        kept = _without(loop.body, guard, loop.loop_var, analyzer)
        return tirx.For(
            loop.loop_var, loop.min, analyzer.simplify(extent), loop.kind, kept, None,
            loop.annotations, loop.step,
        )  # fmt: skip
    return loop


def _writes(stmt: Stmt, guards: tuple[Expr, ...], own: set[Buffer]) -> list[_Guarded]:
    """Return the statements of ``stmt`` that change anything but its ``own`` buffers."""
    if isinstance(stmt, tirx.BufferStore):
        kept = stmt.buffer in own and not is_global(stmt.buffer)
        return [] if kept else [_Guarded(stmt, guards)]
    if isinstance(stmt, SBlockRealize):
        guards = (*guards, *conjuncts(stmt.predicate))
    if isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
        guards = (*guards, *conjuncts(stmt.condition))
    inner = bodies(stmt)
    if not inner:
        return [_Guarded(stmt, guards)]
    return [write for part in inner for write in _writes(part, guards, own)]


def _all_guards(body: Stmt) -> list[Expr]:
    found: list[Expr] = []
    walk(body, SBlockRealize, lambda node: found.extend(conjuncts(node.predicate)))
    return found


def _end(guard: Expr, var: Var, inner: set[Var]) -> Expr | None:
    """Return how many iterations satisfy ``guard`` before it fails for good; None if unknown."""
    if not isinstance(guard, tirx.LT) or not uses(guard, [var]) or uses(guard, inner):
        return None
    known = affine(guard.a - guard.b, [var])
    step = None if known is None else const_int(known.coefficients.get(var, 0))
    if known is None or not step or step < 0:
        return None
    return tirx.floordiv(step - 1 - known.base, step)


def _needs(write: _Guarded, guard: Expr, var: Var, analyzer: Any) -> bool:
    """Whether ``write`` happens only if ``guard`` holds; ``var``: of the tile loop."""
    if is_among(guard, write.guards):
        return True
    # Where it fails its left side is the right side or more: said so, the prover sees what follows.
    failed = _where(write.guards, guard, var, guard.b + _some(analyzer))
    return any(_is_sure(tirx.Not(part), analyzer) for part in failed)


def _some(analyzer: Any) -> Var:
    """Return a variable for any number from 0 on."""
    some = Var("some", "int32")
    analyzer.bind(some, Range(0, _MANY))
    return some


def _is_sure(condition: Expr, analyzer: Any) -> bool:
    return bool(analyzer.can_prove(condition, sym.ProofStrength.SYMBOLIC_BOUND))


def _replaced(guards: Sequence[Expr], old: Expr, new: Expr) -> list[Expr]:
    """Return ``guards`` with ``new`` in place of every expression equal to ``old``."""

    def visit(node: Any) -> Any:
        return new if tvm_ffi.structural_equal(node, old) else node

    return [tvm_ffi.structural_map(part, [(type(old), visit)], order="post") for part in guards]


def _where(given: Sequence[Expr], guard: Expr, var: Var, is_: Expr) -> list[Expr]:
    """Return the conjuncts ``given`` where the left side of ``guard`` is ``is_``."""
    return [
        _multiplied(part, guard, var, is_)
        for part in _replaced([_divided(part, var) for part in given], guard.a, is_)
    ]


def _multiplied(part: Expr, guard: Expr, var: Var, is_: Expr) -> Expr:
    """Return ``part`` with ``is_`` for the left side of ``guard`` where it has a multiple of it."""
    if not isinstance(part, tirx.LT) or not uses(part, [var]):
        return part
    value = part.a - part.b
    forms = [affine(one, [var]) for one in (value, guard.a)]
    times, by = (0 if one is None else const_int(one.coefficients.get(var, 0)) for one in forms)
    if not times or not by or times % by:
        return part
    rest = sym.Analyzer().simplify(value - guard.a * (times // by))
    return part if uses(rest, [var]) else is_ * (times // by) + rest < 0


def _divided(guard: Expr, var: Var) -> Expr:
    """Return ``guard`` with ``(t * 132 + blockIdx.x) // 2`` for ``t * 66 + blockIdx.x // 2``.

    TVM takes whole tiles out of the division where ``t`` (``var``) counts a multiple of it, as with
    two columns of tiles; the tile loop's own guard is of the sum.
    """
    known = affine(guard.a - guard.b, [var]) if isinstance(guard, tirx.LT) else None
    step = None if known is None else const_int(known.coefficients.get(var, 0))
    if known is None or not step:
        return guard
    parts: list[Any] = []
    walk(known.base, tirx.FloorDiv, parts.append)
    for part in parts:
        by, quotient = const_int(part.b), Var("quotient", "int32")
        (base,) = _replaced([known.base], part, quotient)
        found = affine(base, [quotient])
        times = 0 if found is None else const_int(found.coefficients.get(quotient, 0))
        if found is not None and by and times and min(by, times) > 0 and step % times == 0:
            whole = tirx.floordiv(var * (step // times * by) + part.a, i32(by))
            return whole * times + found.base < 0
    return guard


def _without(body: Stmt, guard: Expr, var: Var, analyzer: Any) -> Stmt:
    """Return ``body`` without the conditions that ``guard`` makes true."""
    less = guard.b - 1 - _some(analyzer)

    def left(condition: Expr) -> list[Expr]:
        parts = conjuncts(condition)
        inside = _where(parts, guard, var, less)
        return [part for part, now in zip(parts, inside) if not _is_sure(now, analyzer)]

    def realize(node: Any) -> Any:
        rest = left(node.predicate)
        if len(rest) == len(conjuncts(node.predicate)):
            return node
        always = tirx.const(True, "bool")
        return SBlockRealize(node.iter_values, conjunction(rest) if rest else always, node.block)

    return tvm_ffi.structural_map(body, [(SBlockRealize, realize)], order="post")
