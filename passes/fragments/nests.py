"""Rewrite nests over accumulator tiles for the elements that each thread holds of them.

    for i, j in T.grid(128, 128): C[bi * 128 + i, bj * 128 + j] = T.Cast("float16", acc[i, j])
 => for e0, e1, e2 in T.unroll: for v in T.vectorized(2): C[bi * 128 + row(..), ..] = Cast(reg[..])

Each nest that reads or writes tiles is solved for its loop variables. A nest that stores elsewhere
uses the widest vectors that its addresses allow. If a lane holds too few neighbours for those, lane
quads exchange elements first. ``combined.py`` says which tiles one nest may touch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tvm import tirx
from tvm.ir import Range, prim
from tvm.script import tirx as T

from ...machine import VECTOR_BYTES
from ..dependence.independence import check_independent
from ..ir.indexing import at_lane, conjunction, is_uniform, outside_quotients
from ..ir.nodes import (
    Buffer,
    Expr,
    Stmt,
    TensorLoad,
    Var,
    block,
    buffer,
    dtype_bytes,
    has,
    i32,
    is_global,
    seq,
    substitute,
    unrolled,
    uses,
    vectorized,
)
from ..ir.patterns import Nest
from ..threads.lanes import is_contiguous
from ..threads.spread import unproven_all
from ..threads.wide_vectors import in_words, is_too_wide
from . import quads
from .columns import reduce_columns, reduces_columns
from .combined import Combined
from .fragment import ElementIndex, Fragment, Quad, unrolled_over
from .lane_sums import added_up
from .lane_terms import terms_of_lane
from .pairs import computed_pair
from .row_reductions import reduce_rows, reduces_rows

NARROW: Final = {"float16": "cvt.rn.f16x2.f32", "bfloat16": "cvt.rn.bf16x2.f32"}
"""PTX instruction that converts two floats to a type; the first operand is the upper one (cvt)."""


def rewrite(nest: Nest, fragments: Sequence[Fragment], analyzer: Any) -> Stmt:
    """Return ``nest``, which touches the tiles of ``fragments``, for the elements of a thread.

    Raises LoweringError if it cannot run on the elements where they are.
    """
    sums, fragments, buffers = added_up(nest, fragments)
    made = _rewritten(nest, fragments, analyzer)
    return block("sums", seq(*sums, made), buffers) if sums else made


def _rewritten(nest: Nest, fragments: Sequence[Fragment], analyzer: Any) -> Stmt:
    """Return ``nest`` on ``fragments``, none of which it reads as partial sums."""
    if reduces_columns(nest, fragments):
        return reduce_columns(nest, fragments, analyzer)
    if reduces_rows(nest, fragments):
        return reduce_rows(nest, fragments, analyzer)
    tiles = Combined.of(nest, fragments, analyzer)
    free = [v for v in nest.vars if not any(uses(index, [v]) for index in tiles.access)]
    if not tiles.is_stored:
        check_independent(nest, [v for v in nest.vars if v not in free])
    position, body = _mapped(tiles, analyzer)
    by_lane = tiles.is_stored and (tiles.fragment.by_lane or tiles.fragment.part is not None)
    for var in reversed(free):
        extent = nest.extent_of[var]
        if by_lane and var.same_as(free[-1]):
            body = terms_of_lane(tiles.fragment, var, extent, body)
        else:
            body = tirx.For(var, i32(0), i32(extent), tirx.ForKind.SERIAL, body)
    return unrolled_over(position, body)


def _mapped(tiles: Combined, analyzer: Any) -> tuple[dict[Var, int], Stmt]:
    """Return loop variables over a thread's elements with extents, and the body of the loops."""
    fragment = tiles.fragment
    if fragment.quad is not None:
        position = _position(fragment.quad.loops, analyzer)
        wide = _exchange(tiles, fragment.quad, list(position), analyzer)
        if wide is not None:
            return _with_rest(position, wide, tiles, analyzer)
    position = _position(fragment.loops, analyzer)
    if not tiles.is_stored:
        return position, _consume(tiles, list(position), analyzer)
    *outer, last = position
    if fragment.packed and _is_shifted_by(tiles, position, last, analyzer):
        each = range(position.pop(last))
        return position, seq(*[_update(tiles, [*outer, i32(n)], analyzer) for n in each])
    return position, _update(tiles, list(position), analyzer)


def _with_rest(
    position: dict[Var, int], wide: Stmt, tiles: Combined, analyzer: Any
) -> tuple[dict[Var, int], Stmt]:
    """Return ``wide``, on what quads exchange, and the runs behind that, too few for a quad.

    A warpgroup's 144 columns are four exchanges of 32, and 16 that are stored two by two.
    """
    *outer, four = position
    count = position[four]
    first = count * quads.LANES
    rest = tiles.fragment.loops[-1] - first
    if not rest:
        return position, wide
    around = {var: position[var] for var in outer}
    last = Var("e_rest", "int32")
    analyzer.bind(last, Range(0, rest))
    narrow = _consume(tiles, [*outer, last + first], analyzer)
    both = seq(unrolled_over({four: count}, wide), unrolled_over({last: rest}, narrow))
    return around, both


def _is_shifted_by(tiles: Combined, position: Mapping[Var, int], last: Var, analyzer: Any) -> bool:
    """Whether ``last`` says where in a word the fields lie that elements are computed from.

    Two floats are computed at once where that is a constant.
    """
    values, _ = tiles.at(tiles.fragment.coordinates(list(position), i32(0)))
    value = substitute(tiles.nest.store.value, values)
    return has(value, prim.RShift, lambda shift: uses(analyzer.simplify(shift.b), [last]))


def _position(loops: Sequence[int], analyzer: Any) -> dict[Var, int]:
    """Return new variables for loops of these extents, known to ``analyzer``."""
    position = {Var(f"e{n}", "int32"): extent for n, extent in enumerate(loops)}
    for var, extent in position.items():
        analyzer.bind(var, Range(0, extent))
    return position


def _consume(tiles: Combined, position: ElementIndex, analyzer: Any) -> Stmt:
    """Return a nest that stores elsewhere what it computes from the tiles."""
    nest, fragment = tiles.nest, tiles.fragment

    def run(column: Expr) -> Sequence[Expr]:
        return fragment.coordinates(position, column)

    vector = _widest(tiles, run, fragment.run, analyzer)
    if fragment.holder is not None:
        parts = [fragment.holder, *([] if vector.guard is None else [vector.guard])]
        vector = replace(vector, guard=conjunction(parts))
    store = tiles.on_registers(nest.store, position, vector.column, vector.values)
    if fragment.swap_ab and vector.width == 1 and _narrows(nest.store):
        return _converted_together(store, fragment, position, vector)
    return _stored(store, vector)


def _narrows(store: Any) -> bool:
    """Whether the stored value is an element of a float tile, converted to 16 bits and no more."""
    kind, value = str(store.buffer.dtype), store.value
    if kind not in NARROW or not isinstance(value, tirx.Cast):
        return False
    return isinstance(value.value, TensorLoad) and str(value.value.ty.dtype) == "float32"


def _converted_together(
    store: Any, fragment: Fragment, position: ElementIndex, vector: _Vector
) -> Stmt:
    """Return a run of two columns, stored separately, that one instruction converts.

    ptxas would run some of the single conversions of a wgmma's sums while it is still in flight,
    and then make every wgmma wait for the one before (C7514, nvcc 13.0).
    """
    kind = str(store.buffer.dtype)
    word = buffer([1], "uint32", "word", "local")
    packed = tirx.BufferLoad(word, [i32(0)])
    low, high = (fragment.read(position, i32(v)) for v in range(quads.PAIR))
    both = tirx.Evaluate(T.ptx[NARROW[kind]](packed, high, low))
    half = tirx.shift_right(packed, tirx.Cast("uint32", vector.column * 16))
    value = tirx.reinterpret(kind, tirx.Cast("uint16", half))
    separate = _stored(tirx.BufferStore(store.buffer, value, store.indices), vector)
    return block("word", seq(both, separate), [word])


def _exchange(tiles: Combined, quad: Quad, position: ElementIndex, analyzer: Any) -> Stmt | None:
    """Return a nest that stores 16-bit values, by lane quads; None if no vector gets wider.

    Values are computed where the elements of tiles lie, and then exchanged. Every lane must take
    part in the exchange, so guards stand around the values and around the store. A nest that reads
    what it stores is left alone, because the lane that reads an element is not the one that stores
    it.
    """
    nest, fragment = tiles.nest, tiles.fragment
    target, kind = nest.store.buffer, str(nest.store.buffer.dtype)
    if not is_global(target) or dtype_bytes(kind) != 2:
        return None
    if any(load.source.same_as(target) for load in nest.loads()):
        return None

    def run(column: Expr) -> Sequence[Expr]:
        return quad.coordinates(position, column)

    vector = _widest(tiles, run, quads.RUN, analyzer)
    if vector.width <= fragment.run:
        return None
    pairs, row = (buffer([quads.RUN], kind, name, "local") for name in ("pairs", "row"))
    *outer, four = position
    filled = [
        fill_pair(tiles, [*outer, four * quads.LANES + t], pairs, t, analyzer)
        for t in range(quads.LANES)
    ]
    indices = substitute(list(nest.store.indices), vector.values)
    store = tirx.BufferStore(target, tirx.BufferLoad(row, [vector.column]), indices)
    exchanged = quads.exchange(pairs, row, quad.lane)
    return block("exchange", seq(*filled, exchanged, _stored(store, vector)), [pairs, row])


def fill_pair(
    tiles: Combined,
    position: ElementIndex,
    pairs: Buffer,
    t: int,
    analyzer: Any,
    *,
    guard_each: bool = False,
) -> Stmt:
    """Return the stores of a run of two columns as pair ``t`` of ``pairs``.

    An element that is not stored is zero, because its other operands may not exist. The guard is
    the same for both columns, as ``_widest`` found for the wider vector that they belong to, unless
    ``guard_each`` asks for a guard for each.
    """
    lane = Var("v", "int32")
    analyzer.bind(lane, Range(0, quads.PAIR))
    values, inside = tiles.at(tiles.fragment.coordinates(position, lane))
    values = {var: analyzer.simplify(value) for var, value in values.items()}
    value = tiles.on_registers(tiles.nest.store, position, lane, values).value
    unproven = [] if tiles.is_all else _unproven(tiles.nest, inside, values, analyzer)
    if guard_each and unproven:
        return seq(
            *[_fill(pairs, value, unproven, lane, v, t, analyzer) for v in range(quads.PAIR)]
        )
    guard = _guard(unproven, lane, analyzer)
    if guard is not None:
        value = tirx.if_then_else(guard, value, tirx.const(0, str(pairs.dtype)))
    store = tirx.BufferStore(pairs, value, [lane + t * quads.PAIR])
    return vectorized("v", quads.PAIR, lambda v: at_lane(store, lane, v))


def _fill(
    pairs: Buffer, value: Expr, guards: Sequence[Expr], lane: Var, v: int, t: int, analyzer: Any
) -> Stmt:
    """Return the store of value ``v`` of pair ``t``: zero if that element is not stored."""
    own = conjunction([analyzer.simplify(at_lane(part, lane, v)) for part in guards])
    zero = tirx.const(0, str(pairs.dtype))
    one = tirx.if_then_else(own, at_lane(value, lane, v), zero)
    return tirx.BufferStore(pairs, one, [i32(v + t * quads.PAIR)])


@dataclass(frozen=True)
class _Vector:
    """A vector of ``width`` neighbouring elements of a run, stored at once under ``guard``.

    Element ``lane`` of vector ``base`` of ``rounds`` is ``column`` of the run; ``values``: the
    nest's variables there.
    """

    width: int
    rounds: int
    lane: Var
    base: Var
    column: Expr
    values: Mapping[Var, Expr]
    guard: Expr | None


def _widest(
    tiles: Combined,
    coordinates: Callable[[Expr], Sequence[Expr]],
    run: int,
    analyzer: Any,
) -> _Vector:
    """Return the widest vectors of a run, at ``coordinates``, that the nest can store."""
    nest = tiles.nest
    width = min(run, max(1, VECTOR_BYTES // dtype_bytes(nest.store.buffer.dtype)))
    while True:
        lane, base = Var("v", "int32"), Var("u", "int32")
        analyzer.bind(lane, Range(0, width))
        analyzer.bind(base, Range(0, run // width))
        column = base * width + lane
        values, inside = tiles.at(coordinates(column))
        values = {var: analyzer.simplify(value) for var, value in values.items()}
        indices = substitute(list(nest.store.indices), values)
        indices = [outside_quotients(index, lane, width) for index in indices]
        guards = _unproven(nest, inside, values, analyzer)
        if width == 1 or (
            is_contiguous(nest.store.buffer, indices, lane, width)
            and all(is_uniform(part, lane, width) for part in guards)
        ):
            guard = _guard(guards, lane, analyzer)
            return _Vector(width, run // width, lane, base, column, values, guard)
        width //= 2


def _stored(store: Any, vector: _Vector) -> Stmt:
    """Return ``store``, of one element of a run, for every vector of the run."""
    lane, base = vector.lane, vector.base
    indices = [outside_quotients(index, lane, vector.width) for index in store.indices]
    store = tirx.BufferStore(store.buffer, store.value, indices)
    if is_too_wide(store, vector.width):
        moved = in_words(lambda v: at_lane(store, lane, v), vector.width)
    else:
        moved = vectorized("v", vector.width, lambda v: at_lane(store, lane, v))
    body = moved if vector.guard is None else tirx.IfThenElse(vector.guard, moved, None)
    if vector.rounds == 1:
        return substitute(body, {base: i32(0)})
    return unrolled("u", vector.rounds, lambda u: substitute(body, {base: u}))


def _guard(parts: Sequence[Expr], lane: Var, analyzer: Any) -> Expr | None:
    """Return the conjunction of ``parts``, which are the same for every ``lane``."""
    return conjunction([analyzer.simplify(at_lane(part, lane, 0)) for part in parts])


def _unproven(
    nest: Nest, inside: Sequence[Expr], values: Mapping[Var, Expr], analyzer: Any
) -> list[Expr]:
    """Return what of ``inside`` and of the nest's predicate is not proven for ``values``."""
    return unproven_all(
        [analyzer.simplify(part) for part in inside]
        + [substitute(part, values) for part in nest.predicate],
        analyzer,
    )


def _update(tiles: Combined, position: ElementIndex, analyzer: Any) -> Stmt:
    """Return a nest that stores into a tile: initialisation, scaling, a bias."""
    nest, fragment = tiles.nest, tiles.fragment
    step = 2 if fragment.packed else 1
    parts: list[Stmt] = []
    for start in range(0, fragment.run, step):
        new: list[Expr] = []
        for v in range(start, start + step):
            values, inside = tiles.at(fragment.coordinates(position, i32(v)))
            old = fragment.read(position, i32(v))
            value = tiles.on_registers(nest.store, position, i32(v), values).value
            guard = conjunction(_unproven(nest, inside, values, analyzer))
            new.append(value if guard is None else tirx.if_then_else(guard, value, old))
        parts.append(_written(fragment, position, start, new, analyzer))
    return seq(*parts)


def _written(
    fragment: Fragment, position: ElementIndex, start: int, new: Sequence[Expr], analyzer: Any
) -> Stmt:
    """Return the store of ``new``; two floats that share a register by instructions on both."""
    if fragment.packed and len(new) == 2:
        pair = computed_pair(fragment.word(position, start), new[0], new[1], analyzer)
        if pair is not None:
            return pair
    narrowed = [value for value in new if _is_narrowed(fragment, value)]
    if not fragment.packed or len(narrowed) < len(new):
        return fragment.write(position, start, new)
    low, high = (value.value for value in new)
    return tirx.Evaluate(T.ptx[NARROW[fragment.dtype]](fragment.word(position, start), high, low))


def _is_narrowed(fragment: Fragment, value: Any) -> bool:
    """Whether ``value`` is a float that is converted to the elements' 16 bits."""
    if fragment.dtype not in NARROW or not isinstance(value, tirx.Cast):
        return False
    return str(value.value.ty.dtype) == "float32"
