"""Accumulator tiles in registers: which thread holds which element, and nests over them.

The tile buffer of a tile function (``acc[128, 128]`` in scope local) becomes registers of each
thread. Every nest that reads or writes the tile is rewritten for the elements a thread holds, by
solving for the nest's loop variables:

    for i, j in T.grid(128, 128): C[bi * 128 + i, bj * 128 + j] = T.Cast("float16", acc[i, j])
    =>
    for e0, e1, e2 in T.unroll: for v in T.vectorized(2): C[bi * 128 + row(..), ..] = Cast(reg[..])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Range

from ..errors import LoweringError
from .indexing import affine, at_lane, conjunction, is_uniform
from .ir import (
    Buffer,
    Expr,
    Stmt,
    TensorLoad,
    Var,
    dtype_bytes,
    i32,
    seq,
    substitute,
    unrolled,
    uses,
    vectorized,
)
from .layouts import Swizzle
from .patterns import Nest, is_zero
from .spread import VECTOR_BYTES, is_contiguous, unproven_all

Position = Sequence[Expr]
"""Values of the element loops of a fragment."""


@dataclass(frozen=True)
class Fragment:
    """How one tile buffer is held in registers.

    ``loops``: extents of the loops over the elements of one thread; inside them lie ``run``
    elements of neighbouring columns. ``coordinates``: the tile buffer's indices of element ``v`` of
    a run. ``register``: its place in ``registers``. ``packed``: two 16-bit elements share one
    uint32, as mma.sync wants half accumulators. ``view``: the element type when the registers'
    differs (int32 held as uint32).
    """

    tile: Buffer
    registers: Buffer
    loops: tuple[int, ...]
    run: int
    coordinates: Callable[[Position, Expr], Sequence[Expr]]
    register: Callable[[Position, Expr], Expr]
    packed: bool = False

    @property
    def dtype(self) -> str:
        """Type of an element."""
        return str(self.tile.dtype)

    def read(self, position: Position, v: Expr) -> Expr:
        """The value of one element."""
        index = self.register(position, v)
        if self.packed:
            word = tirx.BufferLoad(self.registers, [tirx.floordiv(index, 2)])
            half = tirx.shift_right(word, tirx.Cast("uint32", tirx.floormod(index, 2) * 16))
            return tirx.reinterpret(self.dtype, tirx.Cast("uint16", half))
        value = tirx.BufferLoad(self.registers, [index])
        if str(self.registers.dtype) != self.dtype:
            return tirx.reinterpret(self.dtype, value)
        return value

    def write(self, position: Position, v: int, values: Sequence[Expr]) -> Stmt:
        """Store ``values`` into the elements from ``v``: one, or the two of a packed register."""
        index = self.register(position, i32(v))
        if self.packed:
            low, high = (tirx.Cast("uint32", tirx.reinterpret("uint16", value)) for value in values)
            word = tirx.bitwise_or(low, tirx.shift_left(high, tirx.const(16, "uint32")))
            if all(is_zero(value) for value in values):
                word = tirx.const(0, "uint32")
            return tirx.BufferStore(self.registers, word, [tirx.floordiv(index, 2)])
        (value,) = values
        if str(self.registers.dtype) != self.dtype:
            zero = is_zero(value)
            kind = str(self.registers.dtype)
            value = tirx.const(0, kind) if zero else tirx.reinterpret(kind, value)
        return tirx.BufferStore(self.registers, value, [index])


@dataclass(frozen=True)
class Mapped:
    """What a mapped matmul gives its function.

    ``layouts``: of the operands' shared tiles. ``ops``: the op statements that replace the matmul.
    ``buffers``: register buffers of one iteration, to be allocated beside the operands.
    """

    fragment: Fragment
    layouts: dict[Buffer, Swizzle]
    ops: tuple[Stmt, ...]
    buffers: tuple[Buffer, ...]


def power_of_two(count: int, most: int) -> int:
    """The largest power of two up to ``most`` (itself one) that divides ``count``."""
    while count % most:
        most //= 2
    return most


def back_and_forth(inner: Expr, outer: Expr, count: int) -> Expr:
    """``inner`` of ``count`` where ``outer`` is even, counted down where it is odd."""
    return inner + tirx.floormod(outer, 2) * (count - 1 - inner * 2)


def rewrite(nest: Nest, fragment: Fragment, analyzer: Any) -> Stmt:
    """``nest``, which reads or writes ``fragment``'s tile, for the elements of one thread."""
    access = _access(nest, fragment)
    position = [Var(f"e{n}", "int32") for n in range(len(fragment.loops))]
    for var, extent in zip(position, fragment.loops):
        analyzer.bind(var, Range(0, extent))
    free = [v for v in nest.vars if not any(uses(index, [v]) for index in access)]
    if nest.store.buffer.same_as(fragment.tile):
        body = _update(nest, fragment, access, position, analyzer)
    else:
        body = _consume(nest, fragment, access, position, analyzer)
    for var in reversed(free):
        body = tirx.For(var, i32(0), i32(nest.extent_of[var]), tirx.ForKind.SERIAL, body)
    return _unroll(position, fragment.loops, body)


def _access(nest: Nest, fragment: Fragment) -> tuple[Expr, ...]:
    """The one place of the tile that each iteration of ``nest`` touches."""
    places = [load.indices for load in nest.loads() if load.source.same_as(fragment.tile)]
    if nest.store.buffer.same_as(fragment.tile):
        places.append(nest.store.indices)
    first = list(places[0])
    if any(not tvm_ffi.structural_equal(first, list(other)) for other in places[1:]):
        raise LoweringError(
            f"cannot map block '{nest.name}' to registers: it touches '{fragment.tile.name}' at "
            "several places at once"
        )
    return tuple(first)


def _solve(
    nest: Nest, access: Sequence[Expr], at: Sequence[Expr]
) -> tuple[dict[Var, Expr], list[Expr]]:
    """Values of the nest's variables for which ``access`` is ``at``, and when there are any."""
    values: dict[Var, Expr] = {}
    guards: list[Expr] = []
    for index, wanted in zip(access, at):
        known = affine(index, nest.vars)
        if known is None or len(known.coefficients) > 1:
            raise LoweringError(f"cannot map block '{nest.name}' to registers: index {index}")
        if not known.coefficients:
            guards.append(tirx.EQ(wanted, known.base))
            continue
        ((var, coefficient),) = known.coefficients.items()
        if coefficient != 1 or var in values:
            raise LoweringError(f"cannot map block '{nest.name}' to registers: index {index}")
        values[var] = wanted - known.base
        guards.append(i32(0) <= values[var])
        guards.append(values[var] < nest.extent_of[var])
    return values, guards


def _consume(
    nest: Nest, fragment: Fragment, access: Sequence[Expr], position: Position, analyzer: Any
) -> Stmt:
    """A nest that stores elsewhere what it computes from the tile."""
    width = min(fragment.run, max(1, VECTOR_BYTES // dtype_bytes(nest.store.buffer.dtype)))
    while True:
        lane, base = Var("v", "int32"), Var("u", "int32")
        analyzer.bind(lane, Range(0, width))
        analyzer.bind(base, Range(0, fragment.run // width))
        column = base * width + lane
        values, inside = _solve(nest, access, fragment.coordinates(position, column))
        values = {var: analyzer.simplify(value) for var, value in values.items()}
        store = _with_fragment(nest.store, fragment, position, column, values)
        guards = unproven_all(
            [analyzer.simplify(part) for part in inside]
            + [substitute(part, values) for part in nest.predicate],
            analyzer,
        )
        if width == 1 or (
            is_contiguous(store.buffer, store.indices, lane, width)
            and all(is_uniform(part, lane, width) for part in guards)
        ):
            break
        width //= 2
    guard = conjunction([analyzer.simplify(at_lane(part, lane, 0)) for part in guards])
    moved = vectorized("v", width, lambda v: at_lane(store, lane, v))
    body = moved if guard is None else tirx.IfThenElse(guard, moved, None)
    rounds = fragment.run // width
    if rounds == 1:
        return substitute(body, {base: i32(0)})
    return unrolled("u", rounds, lambda u: substitute(body, {base: u}))


def _update(
    nest: Nest, fragment: Fragment, access: Sequence[Expr], position: Position, analyzer: Any
) -> Stmt:
    """A nest that stores into the tile: initialisation, scaling, a bias."""
    step = 2 if fragment.packed else 1
    parts: list[Stmt] = []
    for start in range(0, fragment.run, step):
        new: list[Expr] = []
        for v in range(start, start + step):
            values, inside = _solve(nest, access, fragment.coordinates(position, i32(v)))
            old = fragment.read(position, i32(v))
            value = _with_fragment(nest.store, fragment, position, i32(v), values).value
            guard = conjunction(
                unproven_all(
                    [analyzer.simplify(part) for part in inside]
                    + [substitute(part, values) for part in nest.predicate],
                    analyzer,
                )
            )
            new.append(value if guard is None else tirx.if_then_else(guard, value, old))
        parts.append(fragment.write(position, start, new))
    return seq(*parts)


def _with_fragment(
    store: Any, fragment: Fragment, position: Position, v: Expr, values: Mapping[Var, Expr]
) -> Any:
    """``store`` for one element: its loads of the tile become registers."""

    def register(load: Any) -> Expr:
        return fragment.read(position, v) if load.source.same_as(fragment.tile) else load

    replaced = tvm_ffi.structural_map(store, [(TensorLoad, register)], order="post")
    return substitute(replaced, values)


def _unroll(position: Sequence[Var], extents: Sequence[int], body: Stmt) -> Stmt:
    for var, extent in reversed(list(zip(position, extents))):
        if extent == 1:
            body = substitute(body, {var: i32(0)})
        else:
            body = tirx.For(var, i32(0), i32(extent), tirx.ForKind.UNROLLED, body)
    return body
