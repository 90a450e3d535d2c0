"""The first operand of wgmma in registers: who loads which element, and when.

    for each step of k:
        wgmma.wait_group (steps - 1)      # what read these registers one iteration ago is done
        ldmatrix  A_frag[step]            # 16 rows of a warp by 32 bytes of K, in each 64 rows
        wgmma.fence                       # what follows sees them
        wgmma     acc, A_frag[step], descriptor of B
        wgmma.commit_group

Every step has registers of its own, so the arithmetic of all other steps may run while one loads,
and no register is numbered by what is known at run time. A register must not be touched from the
wgmma that reads it to the wait for its group, and a fence stands between any access and a wgmma
that reads it next (PTX ISA, wgmma.mma_async, wgmma.fence). Each warp holds 16 of 64 rows as
mma.m16n8k16 holds its A (PTX ISA, register fragments of wgmma).

ldmatrix moves 16-bit elements as they lie or transposed, others as they lie. That is an ordinary
read of shared memory, which the slot's next copy must not overtake: before a warp says that it is
done with the slot, its lanes make a proxy fence and meet.

Does not handle: tiles of 8 or 32-bit elements that are not K-major.
"""

from __future__ import annotations

from typing import Final

from tvm import tirx
from tvm.script import tirx as T

from ..cost.wgmma import LEFT_REGISTERS, ROWS
from .ir import Buffer, Expr, Stmt, dtype_bytes, i32, substitute
from .layouts import CHUNK_BYTES, Panels
from .mma_operands import LDMATRIX
from .patterns import Matmul
from .spread import Threads

_MATRIX: Final = 8
"""Rows of a matrix of ldmatrix."""


def load_block(
    matmul: Matmul, panels: Panels, threads: Threads, frag: Buffer, at: int, first: Expr, k: int
) -> Stmt:
    """Load 64 rows of A from row ``first`` of the tile on, at K ``k``, to ``frag[at]`` and on.

    Registers hold rows 0 to 7 and 8 to 15 of the warp at the lower half of K, then at the upper.
    """
    side, analyzer = matmul.a, threads.analyzer
    lane = tirx.floormod(threads.var, 32)
    warp = tirx.floormod(tirx.floordiv(threads.var, 32), 4)
    own = first + warp * (ROWS // 4)
    half = CHUNK_BYTES // dtype_bytes(side.buffer.dtype)
    upper = tirx.floordiv(lane, 2 * _MATRIX)
    row: Expr
    if side.k_major:
        row, column = own + tirx.floormod(lane, 2 * _MATRIX), k + upper * half
    else:
        row = own + tirx.floormod(tirx.floordiv(lane, _MATRIX), 2) * _MATRIX
        column = k + upper * _MATRIX + tirx.floormod(lane, _MATRIX)
    values = {**matmul.split(matmul.m, row), **matmul.split(matmul.k, column)}
    indices = [analyzer.simplify(substitute(index, values)) for index in side.indices]
    place = panels.place(side.buffer, indices, analyzer)
    source = T.address_of(tirx.BufferLoad(panels.held, place))
    name = LDMATRIX.format(count=LEFT_REGISTERS, trans="" if side.k_major else ".trans")
    registers = [tirx.BufferLoad(frag, [i32(at + x)]) for x in range(LEFT_REGISTERS)]
    return tirx.Evaluate(T.ptx[name](*registers, source))
