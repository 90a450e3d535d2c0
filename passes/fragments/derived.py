"""Derive which thread has which element of a tile from the tiles that nests combine it with.

    for i, j: m[i] = T.max(m[i], S[i, j])        m: an element for each row that a thread has of S
    for i: old[i] = m[i]                         old: as m
    for i, j: c[j] = c[j] + S[i, j]              c: a part of an element for each column
    for i, j: E[i, j] = T.exp(S[i, j] - m[i])    E: as S

Instructions say where the elements of accumulators and operands lie. A tile in registers that no
instruction touches gets the place that makes the nests over it run where their other tiles are.

Does not handle: a tile of which a nest touches a part, or at several places.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...errors import LoweringError
from ..ir.nodes import Buffer, Expr, Stmt, Var, buffer, const_int, i32, is_private, uses
from ..ir.patterns import Nest, nests_of
from .columns import columns_of, in_parts
from .combined import solve, touched
from .fragment import ElementIndex, Fragment
from .lane_sums import by_lane


def derive(stmt: Stmt, known: Mapping[Buffer, Fragment]) -> dict[Buffer, Fragment]:
    """Return the fragments of tiles that nests in ``stmt`` combine with tiles of ``known``."""
    nests = list(nests_of(stmt))
    found = dict(known)
    stored: dict[Buffer, list[Nest]] = {}
    for nest in nests:
        stored.setdefault(nest.store.buffer, []).append(nest)
    more = True
    while more:
        made = {tile: one for nest in nests for tile, one in _beside(nest, found, stored)}
        more = bool(made)
        found.update(made)
    made = {tile: one for tile, one in found.items() if tile not in known}
    return made | by_lane(nests, made)


def _beside(
    nest: Nest, known: Mapping[Buffer, Fragment], stored: Mapping[Buffer, Sequence[Nest]]
) -> Iterator[tuple[Buffer, Fragment]]:
    """Return what the tiles that ``nest`` touches say of others that it touches.

    ``stored``: the nests that store into a tile.
    """
    tiles = dict.fromkeys([nest.store.buffer, *(load.source for load in nest.loads())])
    bases = sorted((known[tile] for tile in tiles if tile in known), key=lambda f: -len(f.loops))
    for tile in tiles:
        if tile not in known and is_private(tile):
            made = (_like(nest, base, tile) for base in bases)
            first = next((one for one in made if one is not None), None)
            if first is not None and first.of_columns is not None:
                first = in_parts(first, stored.get(tile, []))
            if first is not None:
                yield tile, first


def _like(nest: Nest, base: Fragment, tile: Buffer) -> Fragment | None:
    """Return the fragment of ``tile`` by which ``nest`` runs where the elements of ``base`` are."""
    position = [Var(f"e{n}", "int32") for n in range(len(base.loops))]
    lane = Var("v", "int32")
    try:
        access, own = touched(nest, base.tile), touched(nest, tile)
        values, _ = solve(nest, access, base.coordinates(position, lane))
    except LoweringError:
        return None
    if not _is_whole(nest, tile, own) or any(var not in values for var in own):
        return None

    def coordinates(at: ElementIndex, v: Expr) -> list[Expr]:
        here, _ = solve(nest, access, base.coordinates(at, v))
        return [here[var] for var in own]

    if len(own) == len(values):
        count = (const_int(base.registers.shape[0]) or 0) * (2 if base.packed else 1)
        registers = _registers(tile, count)
        return replace(
            base,
            tile=tile,
            registers=registers,
            coordinates=coordinates,
            packed=False,
            quad=None,
            corner=None,
        )
    at = [values[var] for var in own]
    if base.columns is not None and not uses(at, position[: base.columns.loops]):
        return columns_of(base, tile, coordinates)
    rows = base.rows
    if rows is None or uses(at, [*position[rows.loops :], lane]):
        return None
    loops = base.loops[: rows.loops]
    inner = [i32(0)] * (len(base.loops) - rows.loops)

    def row(at: ElementIndex, v: Expr) -> list[Expr]:
        return coordinates([*at, *inner], i32(0))

    def register(at: ElementIndex, v: Expr) -> Expr:
        place: Expr = i32(0)
        for index, extent in zip(at, loops):
            place = place * extent + index
        return place

    registers = _registers(tile, math.prod(loops))
    lanes = rows.lanes if rows.whole else 1
    return Fragment(
        tile,
        registers,
        loops,
        1,
        row,
        register,
        holder=rows.first,
        lanes=lanes,
        lane=rows.lane,
    )


def _registers(tile: Buffer, count: int) -> Buffer:
    return buffer([count], str(tile.dtype), f"{tile.name}_frag", "local")


def _is_whole(nest: Nest, tile: Buffer, access: Sequence[Expr]) -> bool:
    """Whether ``nest`` touches every element of ``tile``, each dimension by a variable."""
    extents = nest.extent_of
    sizes = [extents[index] if index in nest.vars else None for index in access]
    return sizes == [const_int(extent) for extent in tile.shape]
