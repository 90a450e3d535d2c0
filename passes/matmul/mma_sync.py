"""Map tile matmuls to tensor cores with mma.sync.

``pipeliner/instructions/mma_sync.py`` says what it requires and chooses the warp tiles.

    mma        acc += A_shared * B_shared
 => mma.k0.a   A_frag_k0 = shared A          ldmatrix, or words where ldmatrix cannot transpose
    mma.k0.b   B_frag_k0 = shared B
    mma.k0     acc += A_frag_k0 * B_frag_k0

A CTA tile is cut into warp tiles, a warp tile into instruction tiles of 16 x 8 x ``k``. One step of
K is three ops, each with its own registers.

Does not handle: warp tiles that the instruction does not divide (LoweringError).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from tvm import tirx
from tvm.script import tirx as T

from ...instructions.ops import k_steps
from ...plan import MatmulPlan
from ...values.elements import element
from ..copy.layouts import ColumnBlocks
from ..fragments.fragment import Fragment
from ..ir.nodes import Buffer, Expr, Stmt, buffer, op_stmt, seq, unrolled
from ..ir.patterns import Matmul
from ..threads.spread import Threads
from .computed_operand import words_of
from .mapped_matmul import Mapped, back_and_forth
from .mma_layout import Warp
from .mma_operands import load_a, load_b

LeftWords: TypeAlias = Callable[[Expr, int], list[Expr]]
"""The registers of A of an instruction tile, by its number along M, and the part of a K step."""

MMA: Final = "mma.sync.aligned.m16n8k{k}.row.col.{acc}.{a}.{b}.{acc}"


def map_mma(
    matmul: Matmul,
    plan: MatmulPlan,
    threads: Threads,
    plain: frozenset[Buffer] = frozenset(),
    rotated: frozenset[Buffer] = frozenset(),
    boxed: Mapping[Buffer, ColumnBlocks] = MappingProxyType({}),
    *,
    pairs: bool = False,
) -> Mapped:
    """Return the op statements, layouts and accumulator fragment of ``matmul`` on mma.sync.

    ``plain``: tiles that the plan keeps row-major; ``rotated``: tiles whose odd rows it rotates by
    a chunk; ``boxed``: tiles that boxes fill, in column blocks. ``pairs``: a lane has no more than
    two neighbouring columns of sums, as an operand that is computed of them.
    """
    warp = Warp(matmul, plan, threads, plain, rotated, boxed, pairs=pairs)
    fragment = warp.fragment()
    computed = warp.computed_operand() if plan.operand == "computed" else None
    inner = plan.k_step // warp.k
    ops: list[Stmt] = []
    buffers: list[Buffer] = []
    for step, named in enumerate(k_steps(plan)):
        a = buffer([inner * warp.ti * 4], "uint32", f"{matmul.a.buffer.name}_frag_k{step}", "local")
        b = buffer([inner * warp.tj * 2], "uint32", f"{matmul.b.buffer.name}_frag_k{step}", "local")
        parts = [(step * inner + part, part) for part in range(inner)]
        if named.a is not None:
            ops.append(op_stmt(named.a, seq(*[load_a(warp, a, k, part) for k, part in parts])))
            buffers.append(a)
        left = _loaded(warp, a) if computed is None else _computed(warp, computed, step)
        ops += [
            op_stmt(named.b, seq(*[load_b(warp, b, k, part) for k, part in parts])),
            op_stmt(
                named.multiply,
                seq(*[_multiply(warp, fragment.registers, left, b, part) for _, part in parts]),
            ),
        ]
        buffers.append(b)
    return Mapped(fragment, warp.layouts, tuple(ops), tuple(buffers), computed)


def _loaded(warp: Warp, a: Buffer) -> LeftWords:
    """Return how to name the registers that A was loaded to."""

    def registers(row: Expr, part: int) -> list[Expr]:
        first = (row + part * warp.ti) * 4
        return [tirx.BufferLoad(a, [first + x]) for x in range(4)]

    return registers


def _computed(warp: Warp, computed: Fragment, step: int) -> LeftWords:
    """Return how to name the registers that A is computed in, of a step of K."""
    inner = warp.plan.k_step // warp.k

    def registers(row: Expr, part: int) -> list[Expr]:
        return words_of(computed, step * inner + part, row)

    return registers


def _multiply(warp: Warp, acc: Buffer, left: LeftWords, b: Buffer, part: int) -> Stmt:
    """Return the instructions of one K step: columns outer, rows back and forth.

    Neighbouring instructions then share B. ``left``: the registers of A.
    """
    a_type, b_type = (
        element(str(side.buffer.dtype)).operand if warp.element == 1 else warp.a_type
        for side in (warp.matmul.a, warp.matmul.b)
    )
    name = MMA.format(k=warp.k, acc=warp.acc_type, a=a_type, b=b_type)

    def one(i: Expr, j: Expr) -> Stmt:
        row = back_and_forth(i, j, warp.ti)
        d = [tirx.BufferLoad(acc, [place]) for place in warp.accumulators(row, j)]
        first = (j + part * warp.tj) * 2
        right = [tirx.BufferLoad(b, [first + x]) for x in range(2)]
        return tirx.Evaluate(T.ptx[name](*d, *left(row, part), *right, *d))

    return unrolled("j", warp.tj, lambda j: unrolled("i", warp.ti, lambda i: one(i, j)))
