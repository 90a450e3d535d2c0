"""Say of which accumulators something is computed row by row.

    for i, j: m[i] = T.max(m[i], S[i, j])        S: a maximum of each row
    for i, j: acc[i, j] = acc[i, j] * f[i]       acc: a factor for each row

Threads that share out the rows alone have each of them whole, with what belongs to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...values.facts import LoopInfo, MatmulInfo
from ..ir.nodes import Buffer, Stmt, is_private, uses
from ..ir.patterns import Copy, Matmul, Nest, nests_of


def by_rows(
    loops: Sequence[LoopInfo], ops: Mapping[str, Copy | Matmul], body: Stmt
) -> tuple[LoopInfo, ...]:
    """Return ``loops`` with those matmuls marked of whose rows nests in ``body`` compute."""
    accumulators = {op.acc for op in ops.values() if isinstance(op, Matmul)}
    found: set[str] = set()
    for nest in nests_of(body):
        found |= {str(tile.name) for tile in _by_rows(nest, accumulators)}

    def told(loop: LoopInfo) -> LoopInfo:
        marked = (
            replace(op, by_rows=op.acc in found) if isinstance(op, MatmulInfo) else op
            for op in loop.ops
        )
        return replace(loop, ops=tuple(marked))

    return tuple(map(told, loops)) if found else tuple(loops)


def _by_rows(nest: Nest, accumulators: set[Buffer]) -> list[Buffer]:
    """Return the accumulators that ``nest`` touches beside a tile with fewer dimensions."""
    touched = [(load.source, list(load.indices)) for load in nest.loads()]
    touched.append((nest.store.buffer, list(nest.store.indices)))
    used = {
        tile: [var for var in nest.vars if uses(indices, [var])]
        for tile, indices in touched
        if is_private(tile)
    }
    narrow = [walked for tile, walked in used.items() if tile not in accumulators and walked]
    return [
        tile
        for tile, walked in used.items()
        if tile in accumulators
        and any(set(other) < set(walked) and walked[0] in other for other in narrow)
    ]
