"""Map every tile matmul of a function to its instruction, in forms that agree on shared tiles.

``pipeliner/instructions/mapping.py`` chooses the instruction.

    C += A B   then   C += D E         one accumulator: each element in one register of one thread
    C += A B   then   F += A E         one tile: each element in one place of shared memory

If two matmuls, or both operands of one, want different layouts of a tile, the tile is row-major. An
accumulator has the fragment of the first matmul on it.

Does not handle: matmuls on one accumulator with different fragments (LoweringError).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...diagnostics import Reason
from ...errors import LoweringError
from ...instructions.table import multiplied_by
from ...mechanisms.layouts import PADDED, ROTATED
from ...mechanisms.table import moved_by
from ...plan import KernelPlan, MatmulPlan
from ..copy.layouts import ColumnBlocks, Swizzle
from ..copy.tma import column_blocks_of
from ..fragments.fragment import Fragment
from ..ir.nodes import Buffer, Stmt, substitute
from ..ir.patterns import Copy, Matmul
from ..threads.spread import Threads
from .mapped_matmul import Mapped
from .mma_sync import map_mma
from .simt import map_simt
from .wgmma import map_wgmma


@dataclass(frozen=True)
class MappedMatmuls:
    """The mapped matmuls of a function.

    ``fragments`` and ``matmuls`` are by accumulator, ``layouts`` by tile, ``ops`` by op name: the
    statements and buffers of each.
    """

    fragments: dict[Buffer, Fragment] = field(default_factory=dict)
    layouts: dict[Buffer, Swizzle | ColumnBlocks] = field(default_factory=dict)
    ops: dict[str, tuple[tuple[Stmt, ...], tuple[Buffer, ...]]] = field(default_factory=dict)
    matmuls: dict[Buffer, Matmul] = field(default_factory=dict)


def map_matmuls(
    known: Mapping[str, Copy | Matmul],
    plan: KernelPlan,
    threads: Threads,
    pointed: Collection[Buffer] = (),
) -> MappedMatmuls:
    """Return every matmul of ``plan`` mapped to its instruction.

    ``known``: recognised ops by name. ``pointed``: buffers that views or pointers reach, which are
    row-major. Raises LoweringError if the plan names a matmul that does not exist, or two disagree.
    """
    planned = [(_known(op, known), op) for op in plan.matmuls if multiplied_by(op).mapped]
    for matmul, op in planned:
        _check_pointed(matmul, op, pointed)
    mapped = _all_mapped(planned, plan, threads, pointed)
    if clashing := _clashing(mapped):
        mapped = _all_mapped(planned, plan, threads, {*clashing, *pointed})
    for tile in _clashing(mapped):
        raise LoweringError("matmul.layouts", buffer=str(tile.name))
    result = MappedMatmuls()
    for (matmul, op), one in zip(planned, mapped):
        first = result.fragments.setdefault(matmul.acc, one.fragment)
        result.matmuls.setdefault(matmul.acc, matmul)
        if one.computed is not None:
            _check_alone(one.computed, result.fragments, op)
            result.fragments[one.computed.tile] = one.computed
        result.layouts.update(one.layouts)
        result.ops[op.op] = _on(first, one, op), one.buffers
    return result


def _check_alone(computed: Fragment, known: Mapping[Buffer, Fragment], op: MatmulPlan) -> None:
    """Raise LoweringError if something else has said where the elements of an operand are."""
    if computed.tile in known:
        why = Reason("matmul.spread", buffer=str(computed.tile.name))
        raise LoweringError("matmul.unmapped", matmul=op.op, instruction=op.instruction, why=why)


def _check_pointed(matmul: Matmul, op: MatmulPlan, pointed: Collection[Buffer]) -> None:
    """Raise LoweringError if an instruction would rearrange what views or pointers reach."""
    tiles = [matmul.acc]
    if multiplied_by(op).operands == "descriptor":
        tiles += [matmul.a.buffer, matmul.b.buffer]
    for tile in tiles:
        if tile in pointed:
            why = Reason("matmul.pointed", buffer=str(tile.name))
            raise LoweringError(
                "matmul.unmapped", matmul=op.op, instruction=op.instruction, why=why
            )


def _known(op: MatmulPlan, known: Mapping[str, Copy | Matmul]) -> Matmul:
    matmul = known.get(op.op)
    if not isinstance(matmul, Matmul):
        raise LoweringError("matmul.unknown", matmul=op.op)
    return matmul


def _all_mapped(
    planned: Sequence[tuple[Matmul, MatmulPlan]],
    plan: KernelPlan,
    threads: Threads,
    plain: Collection[Buffer],
) -> list[Mapped]:
    """Return every matmul mapped to its instruction, with the tiles ``plain`` row-major."""
    made: list[Mapped] = []
    blocks: dict[Buffer, ColumnBlocks] = {}
    for matmul, op in planned:
        made.append(_mapped(matmul, op, plan, threads, plain, blocks))
        for tile, layout in made[-1].layouts.items():
            if isinstance(layout, ColumnBlocks):
                blocks[tile] = layout
    return made


def _mapped(
    matmul: Matmul,
    op: MatmulPlan,
    plan: KernelPlan,
    threads: Threads,
    plain: Collection[Buffer],
    blocks: Mapping[Buffer, ColumnBlocks],
) -> Mapped:
    """Return ``matmul`` mapped to its instruction, with the tiles ``plain`` row-major.

    ``blocks``: the layouts of tiles that matmuls before it read from column blocks. A tile that
    boxes fill lies in those, whatever reads it.
    """
    asked = {copy.dst: copy.layout for copy in plan.copies}
    operands = {side.buffer for side in (matmul.a, matmul.b)}
    by_row = frozenset(
        tile
        for tile in operands
        if len(operands) == 1 or tile in plain or asked.get(str(tile.name)) == "row-major"
    )
    by = multiplied_by(op)
    if by.thread_tile:
        padded = frozenset(tile for tile in operands if asked.get(str(tile.name)) == PADDED)
        return map_simt(matmul, op, threads, by_row, padded - by_row)
    if by.warpgroup_wide:
        return map_wgmma(matmul, op, threads, blocks, specialised=bool(plan.roles))
    rotated = frozenset(tile for tile in operands if asked.get(str(tile.name)) == ROTATED)
    filled = {copy.dst for copy in plan.copies if moved_by(copy).moves_boxes}
    boxed = {
        tile: blocks.get(tile) or column_blocks_of(tile)
        for tile in operands
        if str(tile.name) in filled
    }
    pairs = any(other.operand == "computed" for other in plan.matmuls)
    plain = by_row - boxed.keys()
    return map_mma(matmul, op, threads, plain, rotated - by_row, boxed, pairs=pairs)


def _clashing(mapped: Sequence[Mapped]) -> list[Buffer]:
    """Return the tiles for which there is more than one layout."""
    layouts: dict[Buffer, list[Any]] = defaultdict(list)
    for one in mapped:
        for tile, layout in one.layouts.items():
            if layout not in layouts[tile]:
                layouts[tile].append(layout)
    return [tile for tile, found in layouts.items() if len(found) > 1]


def _on(first: Fragment, one: Mapped, op: MatmulPlan) -> tuple[Stmt, ...]:
    """Return the ops of ``one`` on the registers of ``first``."""
    own = one.fragment
    if own.registers.same_as(first.registers):
        return one.ops
    if not own.is_like(first):
        why = Reason("matmul.spread", buffer=str(first.tile.name))
        raise LoweringError("matmul.unmapped", matmul=op.op, instruction=op.instruction, why=why)
    return tuple(substitute(stmt, {own.registers: first.registers}) for stmt in one.ops)
