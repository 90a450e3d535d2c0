"""Tile matmuls on tensor cores with mma.sync.

A CTA tile is cut into warp tiles, a warp tile into instruction tiles of 16 x 8 x ``k``. One step of
K is three ops, each with its own registers:

    mma.k0.a    A_frag_k0 = shared A          ldmatrix, or words where ldmatrix cannot transpose
    mma.k0.b    B_frag_k0 = shared B
    mma.k0      acc += A_frag_k0 * B_frag_k0

Does not handle: warp tiles that the instruction does not divide (LoweringError).
"""

from __future__ import annotations

from typing import Any, Final

from tvm import tirx
from tvm.script import tirx as T

from ..plan import MatmulPlan
from .fragments import Mapped
from .ir import Buffer, Call, Stmt, buffer, i32, op_stmt, seq
from .mma_layout import PTX_TYPES, Warp
from .mma_operands import load_a, load_b
from .patterns import Matmul
from .spread import Threads

MMA: Final = "mma.sync.aligned.m16n8k{k}.row.col.{acc}.{a}.{b}.{acc}"


def map_mma(
    matmul: Matmul, plan: MatmulPlan, threads: Threads, plain: frozenset[Buffer] = frozenset()
) -> Mapped:
    """The op statements, layouts and accumulator fragment of ``matmul`` on mma.sync.

    ``plain``: tiles that the plan keeps row-major.
    """
    warp = Warp(matmul, plan, threads, plain)
    fragment = warp.fragment()
    inner = plan.k_step // warp.k
    ops: list[Stmt] = []
    buffers: list[Buffer] = []
    for step in range(plan.steps):
        name = f"{plan.op}.k{step}"
        a = buffer([inner * warp.ti * 4], "uint32", f"{matmul.a.buffer.name}_frag_k{step}", "local")
        b = buffer([inner * warp.tj * 2], "uint32", f"{matmul.b.buffer.name}_frag_k{step}", "local")
        parts = [(step * inner + part, part) for part in range(inner)]
        ops += [
            op_stmt(f"{name}.a", seq(*[load_a(warp, a, k, part) for k, part in parts])),
            op_stmt(f"{name}.b", seq(*[load_b(warp, b, k, part) for k, part in parts])),
            op_stmt(
                name, seq(*[_multiply(warp, fragment.registers, a, b, part) for _, part in parts])
            ),
        ]
        buffers += [a, b]
    return Mapped(fragment, warp.layouts, tuple(ops), tuple(buffers))


def _multiply(warp: Warp, acc: Buffer, a: Buffer, b: Buffer, part: int) -> Stmt:
    """The instructions of one K: columns outer, rows back and forth, so that neighbours share B."""
    a_type, b_type = (
        PTX_TYPES[str(side.buffer.dtype)] if warp.element == 1 else warp.a_type
        for side in (warp.matmul.a, warp.matmul.b)
    )
    name = MMA.format(k=warp.k, acc=warp.acc_type, a=a_type, b=b_type)
    left = [tirx.BufferLoad(a, [i32(x)]) for x in range(int(a.shape[0]))]
    right = [tirx.BufferLoad(b, [i32(x)]) for x in range(int(b.shape[0]))]
    out = [tirx.BufferLoad(acc, [i32(x)]) for x in range(int(acc.shape[0]))]
    calls: list[Any] = []
    for j in range(warp.tj):
        for i in reversed(range(warp.ti)) if j % 2 else range(warp.ti):
            d = [out[place] for place in warp.accumulators(i, j)]
            first_a, first_b = (i + part * warp.ti) * 4, (j + part * warp.tj) * 2
            operands = [*d, *left[first_a : first_a + 4], *right[first_b : first_b + 2], *d]
            calls.append(_same(calls[0], operands) if calls else T.ptx[name](*operands))
    return seq(*[tirx.Evaluate(call) for call in calls])


def _same(call: Any, operands: list[Any]) -> Any:
    """The instruction of ``call`` on other operands; looking one up by name takes a millisecond."""
    return Call(call.op, [*operands, *call.args[len(operands) :]], call.attrs, ret_ty=call.ty)
