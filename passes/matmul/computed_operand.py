"""Read the first operand of wgmma or mma.sync from the registers that it is computed in.

    P[i, j] = T.Cast("float16", S[i, j])     each thread its elements of S
    acc += P V                               wgmma acc, P_frag[4 * step ...], descriptor of V
                                             mma acc, P_frag[4 * step ...], V_frag

Of two neighbouring 8 x 8 matrices of sums a lane has what the operand's registers of one step of K
hold (PTX ISA, register fragments of wgmma and of mma.m16n8k16), once pairs of columns are words of
16-bit values. So what is computed of sums is an operand where it lies, without an exchange among
lanes. ``blocks`` are of 64 rows of a warpgroup, or of 16 rows of a warp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tvm import tirx

from ...instructions.wgmma import LEFT_REGISTERS
from ..fragments.fragment import Fragment, shared_by_quads
from ..fragments.quads import LANES, PAIR
from ..ir.nodes import Expr, buffer, i32, substitute
from ..ir.patterns import Matmul
from ..threads.spread import Threads

_MATRICES: Final = 2
"""8 x 8 matrices side by side in a step of K of 16-bit elements."""

_COLUMNS: Final = 8


def computed_operand(
    matmul: Matmul,
    blocks: int,
    steps: int,
    threads: Threads,
    row: Callable[[Expr, Expr], Expr],
) -> Fragment:
    """Return the fragment of operand A, of ``blocks`` of rows and ``steps`` of K.

    ``row``: the tile's row that this lane has in a half of a block.
    """
    each = steps * LEFT_REGISTERS * PAIR
    lane = tirx.floormod(tirx.floormod(threads.index, 32), LANES)

    def coordinates(position: Sequence[Expr], v: Expr) -> list[Expr]:
        block, half, matrix = position
        at = matmul.split(matmul.m, row(block, half))
        values = {**at, **matmul.split(matmul.k, matrix * _COLUMNS + lane * PAIR + v)}
        return [substitute(index, values) for index in matmul.a.indices]

    def register(position: Sequence[Expr], v: Expr) -> Expr:
        block, half, matrix = position
        return block * each + matrix * (2 * PAIR) + half * PAIR + v

    return Fragment(
        tile=matmul.a.buffer,
        registers=buffer(
            [blocks * each // PAIR], "uint32", f"{matmul.a.buffer.name}_frag", "local"
        ),
        loops=(blocks, 2, steps * _MATRICES),
        run=PAIR,
        coordinates=coordinates,
        register=register,
        packed=True,
        rows=shared_by_quads(lane, i32(0), 1),
    )


def words_of(operand: Fragment, step: int, block: Expr | int) -> list[Expr]:
    """Return the registers that the instruction reads of ``block`` at a step of K."""
    return [
        operand.word([_index(block), i32(half), i32(step * _MATRICES + matrix)], 0)
        for matrix in range(_MATRICES)
        for half in range(2)
    ]


def _index(block: Expr | int) -> Expr:
    return i32(block) if isinstance(block, int) else block
