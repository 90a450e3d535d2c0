"""Split reductions to few elements over threads: each makes a partial sum, a tree adds them.

    for j in range(4096): t[0] = t[0] + f(j)
 => for p in range(256): part[p] = 0
    for p in range(256): for q in range(16): part[p] = part[p] + f(q * 256 + p)
    for p in range(128): half[p] = part[p] + part[p + 128]        and so on, to one
    t[0] = t[0] + last[0]

This applies if there are fewer elements than threads of a warp. Each line is a nest like any other,
which ``spread`` maps to threads. The partial sums are in shared memory, so barriers are placed
between the nests. A floating-point sum is then made in another order, as by every matmul
instruction.

Does not handle: anything but a sum, product, minimum or maximum of other values; it stays in order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tvm import tirx
from tvm.ir import Range

from ...diagnostics import Reason
from ...machine import WARP
from ..dependence.independence import shareable
from ..ir.nodes import Buffer, Expr, Var, buffer, const_int, i32, substitute, uses
from ..ir.patterns import Nest, is_element_of

ROUNDS: Final = 2
"""Least iterations of a partial sum: fewer are not worth a step of the tree."""

_Combined = Callable[[Expr, Expr], Expr]


@dataclass(frozen=True)
class SplitReduction:
    """A reduction as nests, in order; ``parts`` threads make each of the ``elements``."""

    nests: tuple[Nest, ...]
    buffers: tuple[Buffer, ...]
    parts: int
    elements: int


@dataclass(frozen=True)
class ReductionNest:
    """A nest that combines its element with a value, repeated over the variables ``again``.

    ``combine``: of two values, of which ``identity`` changes none.
    """

    nest: Nest
    combine: _Combined
    identity: Expr
    value: Expr
    free: tuple[Var, ...]
    again: tuple[Var, ...]

    @property
    def elements(self) -> int:
        """The number of elements that the nest stores."""
        return math.prod(self.nest.extent_of[var] for var in self.free)

    @property
    def terms(self) -> int:
        """The number of iterations that make each element."""
        return math.prod(self.nest.extent_of[var] for var in self.again)

    def parts(self, threads: int) -> int:
        """Return the threads for each element, a power of two; 1 if a warp has an element each."""
        if self.elements >= WARP:
            return 1
        most = min(threads // max(1, self.elements), self.terms // ROUNDS)
        return 1 << (most.bit_length() - 1) if most > 0 else 1


def threads_per_element(nest: Nest, threads: int) -> int:
    """Return how many of ``threads`` may make each element of ``nest``; 1 without a reduction."""
    found = as_reduction(nest)
    return 1 if found is None else found.parts(threads)


def split_reduction(nest: Nest, threads: int, analyzer: Any) -> SplitReduction | None:
    """Return ``nest`` with each element made by several threads; None if one makes it."""
    found = as_reduction(nest)
    if found is None or found.parts(threads) == 1 or not _is_inside(found, analyzer):
        return None
    count = found.parts(threads)
    shape = [nest.extent_of[var] for var in found.free]
    levels: list[Buffer] = []
    width = count
    while width:
        levels.append(_parts(found, [*shape, width], width))
        width //= 2
    nests = [_cleared(found, levels[0], count), _summed(found, levels[0], count)]
    nests += [_halved(found, wide, half) for wide, half in itertools.pairwise(levels)]
    return SplitReduction(
        (*nests, _stored(found, levels[-1])), tuple(levels), count, found.elements
    )


def why_alone(nest: Nest) -> Reason:
    """Return why one thread runs ``nest``, all of whose iterations store one element."""
    return Reason("share.in_place", buffer=str(nest.store.buffer.name))


def as_reduction(nest: Nest) -> ReductionNest | None:
    """Return ``nest`` as a reduction; None if it is none, or if its order matters."""
    shared, why = shareable(nest)
    again = tuple(var for var in nest.vars if var not in shared)
    known = _combination(nest.store)
    if why or not again or known is None:
        return None
    combine, identity, value = known
    own = nest.store.buffer
    if any(uses(part, [own]) for part in (value, *nest.predicate, *nest.store.indices)):
        return None
    return ReductionNest(nest, combine, identity, value, tuple(shared), again)


def _combination(store: Any) -> tuple[_Combined, Expr, Expr] | None:
    """Return how ``store`` combines its element with a value, the identity, and the value."""
    value, dtype = store.value, str(store.buffer.dtype)
    kinds: dict[type, tuple[_Combined, Callable[[], Expr]]] = {
        tirx.Add: (lambda a, b: a + b, lambda: tirx.const(0, dtype)),
        tirx.Mul: (lambda a, b: a * b, lambda: tirx.const(1, dtype)),
        tirx.Max: (tirx.Max, lambda: tirx.min_value(dtype)),
        tirx.Min: (tirx.Min, lambda: tirx.max_value(dtype)),
    }
    if type(value) not in kinds or dtype == "bool":
        return None
    combine, identity = kinds[type(value)]
    for old, new in ((value.a, value.b), (value.b, value.a)):
        if is_element_of(old, store):
            return combine, identity(), new
    return None


def _is_inside(found: ReductionNest, analyzer: Any) -> bool:
    """Whether the element exists even where no iteration would read and store it."""
    nest = found.nest
    if not any(uses(part, found.again) for part in nest.predicate):
        return True
    for var in found.free:
        analyzer.bind(var, Range(0, nest.extent_of[var]))
    for index, extent in zip(nest.store.indices, nest.store.buffer.shape):
        bounds, size = analyzer.const_int_bound(index), const_int(extent)
        if size is None or bounds.min_value < 0 or bounds.max_value >= size:
            return False
    return True


def _parts(found: ReductionNest, shape: Sequence[int], width: int) -> Buffer:
    name = f"{found.nest.store.buffer.name}_of_{width}"
    return buffer(list(shape), str(found.nest.store.buffer.dtype), name, "shared")


def _cleared(found: ReductionNest, parts: Buffer, count: int) -> Nest:
    """Return ``part[.., p] = 0``."""
    nest, part = found.nest, Var("part", "int32")
    store = tirx.BufferStore(parts, found.identity, [*found.free, part])
    return _over(nest, found.free, (part,), (count,), (), store, "zero")


def _summed(found: ReductionNest, parts: Buffer, count: int) -> Nest:
    """Return ``part[.., p] = part[.., p] + f(q * count + p)``: neighbours read neighbours."""
    nest, part, step = found.nest, Var("part", "int32"), Var("turn", "int32")
    steps = -(-found.terms // count)
    flat = step * count + part
    values: dict[Var, Expr] = {}
    stride = found.terms
    for var in found.again:
        extent = nest.extent_of[var]
        stride //= extent
        digit = flat if stride == 1 else tirx.floordiv(flat, stride)
        values[var] = digit if var.same_as(found.again[0]) else tirx.floormod(digit, extent)
    predicate = [substitute(guard, values) for guard in nest.predicate]
    if steps * count > found.terms:
        predicate.insert(0, flat < i32(found.terms))
    at = [*found.free, part]
    value = found.combine(tirx.BufferLoad(parts, at), substitute(found.value, values))
    store = tirx.BufferStore(parts, value, at)
    return _over(nest, found.free, (part, step), (count, steps), predicate, store, "parts")


def _halved(found: ReductionNest, wide: Buffer, half: Buffer) -> Nest:
    """Return ``half[.., p] = wide[.., p] + wide[.., p + width]``."""
    part, width = Var("part", "int32"), const_int(half.shape[-1]) or 1
    first, second = (tirx.BufferLoad(wide, [*found.free, place]) for place in (part, part + width))
    store = tirx.BufferStore(half, found.combine(first, second), [*found.free, part])
    return _over(found.nest, found.free, (part,), (width,), (), store, f"of_{width}")


def _stored(found: ReductionNest, total: Buffer) -> Nest:
    """Return ``t = t + last[.., 0]``."""
    nest, at = found.nest, list(found.nest.store.indices)
    whole = tirx.BufferLoad(total, [*found.free, i32(0)])
    value = found.combine(tirx.BufferLoad(nest.store.buffer, at), whole)
    store = tirx.BufferStore(nest.store.buffer, value, at)
    guards = [guard for guard in nest.predicate if not uses(guard, found.again)]
    return _over(nest, found.free, (), (), guards, store, "total")


def _over(
    nest: Nest,
    free: Sequence[Var],
    more: Sequence[Var],
    extents: Sequence[int],
    predicate: Sequence[Expr],
    store: Any,
    name: str,
) -> Nest:
    """Return a nest of new variables, over the elements of ``nest`` and ``more``."""
    own = {var: Var(str(var.name), var.ty) for var in free}
    sizes = (*(nest.extent_of[var] for var in free), *extents)
    return replace(
        nest,
        name=f"{nest.name}.{name}",
        vars=(*own.values(), *more),
        extents=sizes,
        predicate=tuple(substitute(guard, own) for guard in predicate),
        store=substitute(store, own),
    )
