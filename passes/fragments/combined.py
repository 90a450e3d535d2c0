"""Say where the registers are that an iteration of a nest touches: of one tile, or of several.

    C[i, j] = acc[i, j] * gate[i, j]   =>   C[..] = acc_frag[e] * gate_frag[e]

Accumulators of matmuls with the same warp tiles are spread over threads and registers in the same
way. A nest that combines such tiles runs on the registers of each thread if each iteration touches
the same place of all tiles, whatever the tiles' indices. Beside them it may read tiles that have
one element for each row or column of theirs, such as the maximum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx

from ...diagnostics import Reason
from ...errors import LoweringError
from ..ir.linear import affine
from ..ir.nodes import Buffer, Expr, TensorLoad, Var, i32, substitute
from ..ir.patterns import Nest
from .fragment import ElementIndex, Fragment


@dataclass(frozen=True)
class Combined:
    """The register tiles that ``nest`` touches, which threads hold in the same way.

    ``fragment``: the one that the nest stores into, or else any of them. ``access``: what of its
    tile each iteration touches. ``others``: the rest, by tile.
    """

    nest: Nest
    fragment: Fragment
    access: tuple[Expr, ...]
    others: Mapping[Buffer, Fragment]

    @staticmethod
    def of(nest: Nest, fragments: Sequence[Fragment], analyzer: Any) -> Combined:
        """Return ``fragments``, whose tiles ``nest`` touches, as one.

        Raises LoweringError if an iteration touches several places of a tile or places of two tiles
        that are not in the same register of one thread, or if a condition depends on a tile.
        """
        stored = [part for part in fragments if part.tile.same_as(nest.store.buffer)]
        widest = sorted(fragments, key=lambda part: -len(part.loops))
        first = (*stored, *widest)[0]
        access = touched(nest, first.tile)
        others = {part.tile: part for part in fragments if not part.tile.same_as(first.tile)}
        for part in others.values():
            _check_like(nest, (first, access), (part, touched(nest, part.tile)), analyzer)
        return Combined(nest, first, access, others)

    @property
    def is_stored(self) -> bool:
        """Whether the nest stores into a register tile."""
        return bool(self.nest.store.buffer.same_as(self.fragment.tile))

    @property
    def is_all(self) -> bool:
        """Whether the nest loads from nothing else."""
        return all(self._part(load.source) is not None for load in self.nest.loads())

    def at(self, coordinates: Sequence[Expr]) -> tuple[dict[Var, Expr], list[Expr]]:
        """Return values of the nest's variables at an element, and when they are in range."""
        return solve(self.nest, self.access, coordinates)

    def on_registers(
        self, store: Any, position: ElementIndex, v: Expr, values: Mapping[Var, Expr]
    ) -> Any:
        """Return ``store`` for one element, with registers in place of loads of the tiles."""

        def register(load: Any) -> Expr:
            part = self._part(load.source)
            return load if part is None else part.read_beside(position, v)

        replaced = tvm_ffi.structural_map(store, [(TensorLoad, register)], order="post")
        return substitute(replaced, values)

    def _part(self, tile: Buffer) -> Fragment | None:
        return self.fragment if tile.same_as(self.fragment.tile) else self.others.get(tile)


def touched(nest: Nest, tile: Buffer) -> tuple[Expr, ...]:
    """Return the one place of ``tile`` that each iteration of ``nest`` touches."""
    if any(load.source.same_as(tile) for load in nest.deciding_loads()):
        raise _refused(nest, Reason("registers.decides", buffer=str(tile.name)))
    places = [load.indices for load in nest.loads() if load.source.same_as(tile)]
    if nest.store.buffer.same_as(tile):
        places.append(nest.store.indices)
    first = list(places[0])
    if any(not tvm_ffi.structural_equal(first, list(other)) for other in places[1:]):
        raise _refused(nest, Reason("registers.places", buffer=str(tile.name)))
    return tuple(first)


def _check_like(
    nest: Nest,
    first: tuple[Fragment, Sequence[Expr]],
    other: tuple[Fragment, Sequence[Expr]],
    analyzer: Any,
) -> None:
    """Raise LoweringError if an iteration touches other threads' or registers' elements of two."""
    (part, access), (second, beside) = first, other
    tiles = (str(part.tile.name), str(second.tile.name))
    of_part = second.is_of_rows(part) or second.is_of_columns(part)
    if not of_part and (part.loops, part.run) != (second.loops, second.run):
        raise _refused(nest, Reason("registers.unlike", buffers=tiles))
    position = [Var(f"e{n}", "int32") for n in range(len(part.loops))]
    lane = Var("v", "int32")
    values, known = solve(nest, access, part.coordinates(position, lane))
    alike, guards = solve(nest, beside, second.coordinates(*second.place_beside(position, lane)))
    same = set(alike) <= set(values) if of_part else set(values) == set(alike)
    same = same and all(
        analyzer.can_prove_equal(values[var], value) for var, value in alike.items()
    )
    if not same or not all(_follows(guard, known, analyzer) for guard in _fixed(guards)):
        raise _refused(nest, Reason("registers.apart", buffers=tiles))


def _fixed(guards: Sequence[Expr]) -> list[tirx.EQ]:
    """Return those that a constant index makes, such as the only row of a tile that is wanted."""
    return [guard for guard in guards if isinstance(guard, tirx.EQ)]


def _follows(guard: tirx.EQ, known: Sequence[Expr], analyzer: Any) -> bool:
    """Whether ``guard`` holds everywhere, or says of one tile what ``known`` says of the other."""
    return analyzer.can_prove(guard) or any(
        analyzer.can_prove_equal(guard.a, other.a) and analyzer.can_prove_equal(guard.b, other.b)
        for other in _fixed(known)
    )


def _refused(nest: Nest, why: Reason) -> LoweringError:
    return LoweringError("block.to_registers", block=nest.name, why=why)


def solve(
    nest: Nest, access: Sequence[Expr], at: Sequence[Expr]
) -> tuple[dict[Var, Expr], list[Expr]]:
    """Return values of the nest's variables for which ``access`` is ``at``, and the conditions."""
    values: dict[Var, Expr] = {}
    guards: list[Expr] = []
    for index, wanted in zip(access, at):
        known = affine(index, nest.vars)
        if known is None or len(known.coefficients) > 1:
            raise _refused(nest, Reason("registers.index", index=str(index)))
        if not known.coefficients:
            guards.append(tirx.EQ(wanted, known.base))
            continue
        ((var, coefficient),) = known.coefficients.items()
        if coefficient != 1 or var in values:
            raise _refused(nest, Reason("registers.index", index=str(index)))
        values[var] = wanted - known.base
        guards.append(i32(0) <= values[var])
        guards.append(values[var] < nest.extent_of[var])
    return values, guards
