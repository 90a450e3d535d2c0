"""Spread unbound nests over the threads of a CTA, in vectors where memory is contiguous.

    for i, j in T.grid(128, 32): S[i, j] = A[i, j]
 => for it in T.unroll(4):
      for v in T.vectorized(8):
        S[it * 32 + tx // 4, tx % 4 * 8 + v] = A[it * 32 + tx // 4, tx % 4 * 8 + v]

Neighbouring threads take neighbouring vectors of the stored row. Iterations that store the same
element, as those of a sum over a row, stay a loop of the thread that makes it. So do iterations
that are not proven to store different elements, if need be all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Range

from ...instructions.dtypes import SECTOR_BYTES
from ..dependence.independence import shareable
from ..ir.indexing import conjunction, unproven
from ..ir.nodes import (
    Buffer,
    Call,
    Expr,
    Stmt,
    TensorLoad,
    Var,
    block,
    buffer,
    collect,
    dtype_bytes,
    has,
    i32,
    loop,
    seq,
    substitute,
    unrolled,
    uses,
    vectorized,
)
from ..ir.patterns import Nest
from .lanes import load_lane, store_lane, widest
from .squares import LINE, Square, square_of
from .wide_vectors import in_words, is_too_wide

UNROLL_LIMIT: Final = 64
"""Most iterations per thread for which the loop is unrolled: registers and code bound it."""


@dataclass(frozen=True)
class Threads:
    """The CTA that a tile function is mapped to, and what is known of the variables in scope.

    ``count``: threads that share a tile; ``var`` numbers those of all ``groups``, which alternate
    on tiles (ping-pong).
    """

    var: Var
    count: int
    analyzer: Any
    groups: int = 1

    @property
    def index(self) -> Expr:
        """The number of a thread among those that share its tile."""
        return self.var if self.groups == 1 else tirx.floormod(self.var, self.count)


def spread(
    nest: Nest, threads: Threads, vector: int | None = None, *, in_register: bool = False
) -> Stmt:
    """Return ``nest`` shared out over the threads; ``vector``: elements at once (None: any legal).

    ``in_register``: keep an element that a thread stores repeatedly in a register.
    """
    shared, _ = shareable(nest)
    again = [var for var in nest.vars if var not in shared]
    repeats = any(nest.extent_of[var] > 1 for var in again)
    square = None if repeats else square_of(nest, vector)
    lane = store_lane(nest)
    lane = None if lane in again else lane
    width = 1 if lane is None else vector or widest(nest, lane)
    digits = _digits(nest, shared, lane, width) if square is None else _squares(square)
    total = math.prod(digit.extent for digit in digits)
    analyzer = threads.analyzer
    for var in again:
        analyzer.bind(var, Range(0, nest.extent_of[var]))
    rounds = -(-total // threads.count)
    bound, store = _bound(nest.store, [*again, *([] if lane is None else [lane])])

    def body(it: Expr) -> Stmt:
        start: dict[Var, Expr] = {}
        for digit, value in zip(
            digits, split_index(it, threads, [digit.extent for digit in digits])
        ):
            scaled = value * digit.scale
            start[digit.var] = start[digit.var] + scaled if digit.var in start else scaled
        inner = [part for part in nest.predicate if uses(part, again)]
        guards = [substitute(part, start) for part in nest.predicate if not uses(part, again)]
        if total % threads.count:
            guards.insert(0, it * threads.count + threads.index < total)

        def one(v: Expr) -> Stmt:
            here = start if lane is None else {**start, lane: start[lane] + v}
            return substitute(store, here)

        inside = unproven_all(substitute(inner, start), analyzer)
        sums = _Sums.of(one(i32(0)), again) if in_register and width == 1 else None
        if square is not None:
            moved = square.moved(start)
        elif sums is not None:
            moved = sums.step
        elif is_too_wide(store, width) and _has_constants(store.value):
            moved = in_words(one, width)
        else:
            moved = vectorized("v", width, one)
        moved = seq(*[tirx.Bind(name, substitute(value, start)) for name, value in bound], moved)
        moved = _under(moved, inside)
        for var in reversed(again):
            moved = tirx.For(var, i32(0), i32(nest.extent_of[var]), tirx.ForKind.SERIAL, moved)
        moved = moved if sums is None else sums.around(moved)
        return _under(moved, unproven_all(guards, analyzer))

    if rounds == 1:
        return body(i32(0))
    return unrolled("it", rounds, body) if rounds <= UNROLL_LIMIT else loop("it", rounds, body)


def _has_constants(value: Expr) -> bool:
    """Whether ``value`` has constants, or functions such as sigmoid, which TVM writes by some."""
    return has(value, tirx.FloatImm) or has(value, Call)


def _bound(store: Any, moving: Sequence[Var]) -> tuple[list[tuple[Var, Expr]], Any]:
    """Return what ``store`` binds to names around its value, but for what is ``moving``; the rest.

    A statement of its own binds it once, for all elements of a vector. TVM repeats what a value
    binds where it converts that bit by bit, and does not vectorise it then.
    """
    names: list[tuple[Var, Expr]] = []
    value = store.value
    while isinstance(value, tirx.Let) and not uses(value.value, moving):
        names.append((value.var, value.value))
        value = value.body
    return names, tirx.BufferStore(store.buffer, value, store.indices) if names else store


@dataclass(frozen=True)
class _Sums:
    """A store to one element, repeated, in a register; ``step``: what each iteration does."""

    store: Any
    register: Buffer
    step: Stmt

    @staticmethod
    def of(store: Any, again: Sequence[Var]) -> _Sums | None:
        """Return ``store`` in this form, if ``again`` does not move it and it reads no other."""
        loads = collect(store, TensorLoad)
        own = [load for load in loads if load.source.same_as(store.buffer)]
        here = list(store.indices)
        if not again or uses(here, again) or not own or any(has(i, TensorLoad) for i in here):
            return None
        if any(not tvm_ffi.structural_equal(list(load.indices), here) for load in own):
            return None
        register = buffer([1], str(store.buffer.dtype), f"{store.buffer.name}_held", "local")

        def loaded(load: Any) -> Any:
            mine = load.source.same_as(store.buffer)
            return tirx.BufferLoad(register, [i32(0)]) if mine else load

        value = tvm_ffi.structural_map(store.value, [(TensorLoad, loaded)], order="post")
        return _Sums(store, register, tirx.BufferStore(register, value, [i32(0)]))

    def around(self, loops: Stmt) -> Stmt:
        """Return ``loops`` of steps, with the element loaded before and stored after them."""
        there = list(self.store.indices)
        first = tirx.BufferLoad(self.store.buffer, there)
        return block(
            "in_register",
            seq(
                tirx.BufferStore(self.register, first, [i32(0)]),
                loops,
                tirx.BufferStore(
                    self.store.buffer, tirx.BufferLoad(self.register, [i32(0)]), there
                ),
            ),
            [self.register],
        )


def _under(stmt: Stmt, parts: Sequence[Expr]) -> Stmt:
    guard = conjunction(parts)
    return stmt if guard is None else tirx.IfThenElse(guard, stmt, None)


@dataclass(frozen=True)
class _Digit:
    """A digit of a vector's position, which counts ``scale`` steps of ``var``."""

    var: Var
    scale: int
    extent: int


def _digits(nest: Nest, shared: Sequence[Var], lane: Var | None, width: int) -> list[_Digit]:
    """Return the digits of a vector's position in the variables ``shared``, the fastest last.

    Neighbouring threads store neighbouring vectors. If each moves one element and memory is
    contiguous along another variable (a transposing copy), eight threads first take one sector of
    that. Their loads then share the sector, and a swizzled tile takes their stores without bank
    conflicts.
    """
    sizes = nest.extent_of
    digits = [_Digit(var, 1, sizes[var]) for var in shared]
    if lane is None:
        return digits
    last = _Digit(lane, width, sizes[lane] // width)
    source = load_lane(nest) if width == 1 else None
    if source is None or source.same_as(lane) or source not in shared:
        return [digit for digit in digits if not digit.var.same_as(lane)] + [last]
    sector = max(1, SECTOR_BYTES // dtype_bytes(nest.store.buffer.dtype))
    while sizes[source] % sector:
        sector //= 2
    others = [d for d in digits if not d.var.same_as(lane) and not d.var.same_as(source)]
    outer = _Digit(source, sector, sizes[source] // sector)
    return [*others, outer, last, _Digit(source, 1, sector)]


def _squares(square: Square) -> list[_Digit]:
    """Return the digits of a square's position, the fastest last.

    Neighbouring threads load one line together, and the next ones store beside what those store.
    """
    sizes, side = square.nest.extent_of, square.side
    across, down = (sizes[var] // side for var in (square.loaded, square.stored))
    line = math.gcd(across, LINE)
    own = (square.stored, square.loaded)
    others = [_Digit(var, 1, size) for var, size in sizes.items() if var not in own]
    return [
        *others,
        _Digit(square.loaded, side * line, across // line),
        _Digit(square.stored, side, down),
        _Digit(square.loaded, side, line),
    ]


def unproven_all(parts: Sequence[Expr], analyzer: Any) -> list[Expr]:
    """Return the conjuncts of all ``parts`` that ``analyzer`` cannot prove."""
    return [rest for part in parts for rest in unproven(part, analyzer)]


def split_index(it: Expr, threads: Threads, sizes: Sequence[int]) -> list[Expr]:
    """Return the position of vector ``it * threads + thread`` in a tile of ``sizes``.

    What does not depend on ``it`` is a separate term, so nvcc keeps one address and adds constants.
    """
    if not sizes:
        return []
    step, thread = threads.count, threads.index
    high: Expr = it  # the flat index is high * step + low
    low: Expr = thread
    digits: list[Expr] = []
    for size in reversed(sizes[1:]):
        if step % size == 0:
            digits.append(tirx.floormod(low, size))
            low, step = tirx.floordiv(low, size), step // size
        elif size % step == 0:
            ratio = size // step
            digits.append(tirx.floormod(high, ratio) * step + low)
            high, low, step = tirx.floordiv(high, ratio), i32(0), 1
        else:
            flat = high * step + low
            digits.append(tirx.floormod(flat, size))
            high, low, step = tirx.floordiv(flat, size), i32(0), 1
    digits.append(high * step + low)
    return [threads.analyzer.simplify(digit) for digit in reversed(digits)]
