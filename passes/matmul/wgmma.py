"""Map tile matmuls to tensor cores with wgmma: warpgroups multiply straight from shared memory.

``pipeliner/instructions/wgmma.py`` says what it requires and chooses the tiles of warpgroups.

    acc += A_shared * B_shared
 => wgmma.fence
    wgmma m64nNk16  acc, descriptor of A at k 0, descriptor of B at k 0    for each 64 rows
    wgmma m64nNk16  acc, descriptor of A at k 16, ...
    wgmma.commit_group

A CTA tile is cut into the tiles of its warpgroups, and each of those into blocks of 64 rows. One
step of the loop is one op, which is one group of asynchronous instructions. The loop around it
waits for the group. In a loop without roles an extra op, ``C_update.mma_wait``, waits; what is
scheduled between the two, the copies of later steps, is issued while tensor cores work.

A descriptor names a swizzled tile by address, swizzle and strides (PTX ISA, wgmma matrix
descriptor). With ``span`` bytes in a row of a column block, and column blocks side by side:

- K contiguous: 8 rows further is ``8 * span`` bytes; the next 32 bytes of K are 32 bytes further
until the column block ends.
- M or N contiguous (16-bit types): 8 steps of K further is ``8 * span`` bytes, the next ``span``
bytes along M or N are a column block further.

Tensor cores truncate the addends of fp8 sums to about 14 bits. If the plan promotes sums, tensor
cores add up only one step, and threads add the result in float32 when it is complete:

    wgmma m64nNk32  partial, ...           which the first instruction of the step writes
    wgmma.wait_group 0
    acc += partial                         for each 64 rows, one after the other

The first operand may be in registers instead: loaded from shared memory (``wgmma_registers``), each
step of K then a group of its own, or computed there (``computed_operand``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tvm import tirx
from tvm.script import tirx as T

from ...diagnostics import Reason
from ...errors import LoweringError, PlanError
from ...instructions.ops import wgmma_ops
from ...instructions.wgmma_shapes import ROWS, WARPGROUP, must_transpose
from ...plan import MatmulPlan
from ...values.elements import element, operands_of
from ..copy.layouts import CHUNK_BYTES, ColumnBlocks
from ..copy.tma import column_blocks_of
from ..fragments.fragment import Fragment
from ..ir.nodes import (
    Buffer,
    Expr,
    Stmt,
    buffer,
    i32,
    is_shared,
    op_stmt,
    seq,
    unrolled,
)
from ..ir.patterns import Matmul, MatmulOperand
from ..threads.spread import Threads
from .computed_operand import computed_operand, words_of
from .descriptors import encode
from .mapped_matmul import Mapped
from .wgmma_accumulators import Accumulators
from .wgmma_registers import Left

WGMMA_CALL: Final = "wgmma.mma_async.sync.aligned.m64n{n}k{k}.{acc}.{a}.{b}"

_PATTERN: Final = re.compile(r"wgmma\.m64n(\d+)k(\d+)\.(\w+)\.(\w+)")
_REGISTERS: Final = {"f32": "float32", "s32": "uint32", "f16": "uint32"}
"""Type of the accumulators that TVM expects; two of 16 bits share a register."""

_TRANSPOSABLE: Final = tuple(one.operand for one in operands_of("wgmma") if one.k_outermost)
_INTEGERS: Final = tuple(one.operand for one in operands_of("wgmma") if "int32" in one.sums)
_CORE_ROWS: Final = 8


def map_wgmma(
    matmul: Matmul,
    plan: MatmulPlan,
    threads: Threads,
    known: Mapping[Buffer, ColumnBlocks] | None = None,
    *,
    specialised: bool = True,
) -> Mapped:
    """Return the ops, layouts and accumulator fragment of ``matmul`` on wgmma.

    ``known``: the layouts of tiles that other matmuls read too. ``specialised``: a producer warp
    copies, and the consumers' loop waits for the group.
    """
    issue, *waits = wgmma_ops(plan, specialised=specialised)
    if plan.swap_ab:
        matmul, plan = matmul.transposed(), _transposed(plan)
    tile = _Warpgroup(matmul, plan, threads, known or {})
    left = tile.left() if plan.operand == "registers" else None
    buffers = () if left is None else left.buffers
    if plan.promoted:
        partial = tile.partial()
        op = op_stmt(issue, tile.multiply_promoted(left, partial))
        return Mapped(tile.sums.fragment(), tile.column_blocks, (op,), (*buffers, partial))
    computed = tile.computed() if plan.operand == "computed" else None
    if computed is not None:
        multiplied = tile.multiply_computed(computed)
    elif left is not None:
        multiplied = tile.multiply_from_registers(left)
    else:
        multiplied = tile.multiply()
    done = tirx.Evaluate(T.ptx.wgmma.wait_group.sync.aligned(0))
    ops = (op_stmt(issue, multiplied), *(op_stmt(wait, done) for wait in waits))
    layouts = {buf: at for buf, at in tile.column_blocks.items() if is_shared(buf)}
    return Mapped(tile.sums.fragment(), layouts, ops, buffers, computed)


def _transposed(plan: MatmulPlan) -> MatmulPlan:
    """Return ``plan`` with A and B swapped, as the instruction sees it."""
    return replace(plan, m=plan.n, n=plan.m, warps=plan.warps[::-1], warp_tile=plan.warp_tile[::-1])


def _group(calls: Sequence[Stmt]) -> Stmt:
    """Return ``calls`` behind a fence, as one group."""
    fence = tirx.Evaluate(T.ptx.wgmma.fence.sync.aligned())
    commit = tirx.Evaluate(T.ptx.wgmma.commit_group.sync.aligned())
    return seq(fence, *calls, commit)


class _Warpgroup:
    """The tile of one warpgroup: where its operands and accumulators are."""

    def __init__(
        self,
        matmul: Matmul,
        plan: MatmulPlan,
        threads: Threads,
        known: Mapping[Buffer, ColumnBlocks],
    ) -> None:
        found = _PATTERN.fullmatch(plan.instruction)
        if found is None:
            raise LoweringError(
                "matmul.instruction",
                matmul=plan.op,
                example="wgmma.m64n128k16.f16.f32",
                instruction=plan.instruction,
            )
        self.n, self.k, self.type, self.acc_type = int(found[1]), int(found[2]), found[3], found[4]
        self.matmul, self.plan, self.threads = matmul, plan, threads
        self._check()
        self.blocks = plan.warp_tile[0] // (ROWS // 4)
        groups = plan.warps[0] // 4
        group = tirx.floordiv(threads.index, WARPGROUP)
        simplify = threads.analyzer.simplify
        row0 = simplify(tirx.floormod(group, groups) * (self.blocks * ROWS))
        col0 = simplify(tirx.floordiv(group, groups) * self.n)
        self.column_blocks = {
            side.buffer: known.get(side.buffer)
            or column_blocks_of(side.buffer, spare=not side.k_major)
            for side in (matmul.a, matmul.b)
            if is_shared(side.buffer)
        }
        packed = self.acc_type == "f16"
        self.each = self.n // (4 if packed else 2)
        name, kind = f"{matmul.acc.name}_frag", _REGISTERS.get(self.acc_type, "float32")
        self.acc = buffer([self.blocks * self.each], kind, name, "local")
        self.sums = Accumulators(
            matmul,
            self.acc,
            threads,
            corner=(row0, col0),
            blocks=self.blocks,
            columns=self.n,
            groups_across=plan.warps[1],
            packed=packed,
            swap_ab=plan.swap_ab,
            paired=plan.transposed,
        )

    def _check(self) -> None:
        plan, matmul = self.plan, self.matmul
        m, n, k = (matmul.extent(dims) for dims in (matmul.m, matmul.n, matmul.k))
        covered = (
            plan.warps[0] * plan.warp_tile[0],
            plan.warps[1] * plan.warp_tile[1],
            plan.k_step * plan.steps,
        )
        parts = (plan.warps[0] % 4, plan.warp_tile[0] % (ROWS // 4), plan.warp_tile[1] - self.n)
        if (m, n, k) != covered or any(parts) or plan.k_step != self.k:
            raise self._refused(
                Reason(
                    "matmul.tile",
                    tile=(m, n, k),
                    covered=covered,
                    warps=plan.warps,
                    warp_tile=plan.warp_tile,
                )
            )
        if plan.warps[0] * plan.warps[1] * 32 != self.threads.count:
            threads = self.threads.count
            raise self._refused(Reason("matmul.threads", threads=threads, warps=plan.warps))
        self._check_transposed()
        for side in (matmul.a, matmul.b):
            kind = str(side.buffer.dtype)
            if side is matmul.a and str(matmul.b.buffer.dtype) in element(kind).converts_to:
                if plan.operand != "registers":
                    name = str(side.buffer.name)
                    raise self._refused(Reason("matmul.converted", buffer=name, dtype=kind))
                continue
            given, sums = element(kind), element(str(matmul.acc.dtype))
            fits = given.is_operand_of("wgmma") and sums.name in given.sums
            if not fits or (given.operand, sums.ptx) != (self.type, self.acc_type):
                raise self._refused(
                    Reason(
                        "matmul.dtypes",
                        buffer=str(side.buffer.name),
                        dtype=kind,
                        accumulator=str(matmul.acc.name),
                        sums=str(matmul.acc.dtype),
                    )
                )

    def _refused(self, why: Reason) -> LoweringError:
        plan = self.plan
        return LoweringError(
            "matmul.unmapped", matmul=plan.op, instruction=plan.instruction, why=why
        )

    def _check_transposed(self) -> None:
        """Raise PlanError if rows of the first operand are laid out otherwise than planned."""
        plan, side = self.plan, self.matmul.a
        transposes = (
            must_transpose(str(side.buffer.dtype), side.k_major) and plan.operand == "registers"
        )
        if plan.transposed == transposes:
            return
        lies = "innermost" if side.k_major else "outermost"
        found = {
            "buffer": str(side.buffer.name),
            "dtype": str(side.buffer.dtype),
            "lies": lies,
            "operand": plan.operand,
        }
        why = Reason("matmul.not_transposed", **found)
        if plan.transposed:
            why = Reason("matmul.transposed", **found)
        raise PlanError("matmul.unmapped", matmul=plan.op, instruction=plan.instruction, why=why)

    def multiply(self) -> Stmt:
        """Return the instructions of one step of the loop, as one group."""
        steps, blocks = range(self.plan.steps), range(self.blocks)
        return _group([self._described(step, block) for step in steps for block in blocks])

    def multiply_promoted(self, left: Left | None, partial: Buffer) -> Stmt:
        """Return the same into ``partial``, block after block, each added when it is complete."""
        steps = range(self.plan.steps)
        done = tirx.Evaluate(T.ptx.wgmma.wait_group.sync.aligned(0))
        parts: list[Stmt] = []
        for block in range(self.blocks):
            if left is None:
                calls = [self._described(step, block, partial) for step in steps]
            else:
                loaded = [left.registers(step, block) for step in steps]
                calls = [self._call(step, block, loaded[step], [], partial) for step in steps]
                parts += [left.load_block(step, block) for step in steps]
            parts += [_group(calls), done, self._added(block, partial)]
        return seq(*parts)

    def partial(self) -> Buffer:
        """Return registers for the sum of one step in one block."""
        return buffer([self.each], str(self.acc.dtype), f"{self.matmul.acc.name}_partial", "local")

    def _added(self, block: int, partial: Buffer) -> Stmt:
        """Return the addition of ``partial`` to the accumulators of ``block``."""

        def add(x: Expr) -> Stmt:
            at = [x + block * self.each]
            both = tirx.BufferLoad(self.acc, at) + tirx.BufferLoad(partial, [x])
            return tirx.BufferStore(self.acc, both, at)

        return unrolled("x", self.each, add)

    def multiply_from_registers(self, left: Left) -> Stmt:
        """Return the same with A loaded to registers, each step of K in its own group."""
        done = tirx.Evaluate(T.ptx.wgmma.wait_group.sync.aligned(self.plan.steps - 1))
        parts = [left.read_ahead(0)]
        for step in range(self.plan.steps):
            calls = [
                self._call(step, block, left.registers(step, block), [])
                for block in range(self.blocks)
            ]
            parts += [left.read_ahead(step + 1), done, left.load(step), _group(calls)]
        return seq(*parts)

    def multiply_computed(self, left: Fragment) -> Stmt:
        """Return the same with A in the registers of ``left``, which it is computed in."""
        return _group(
            [
                self._call(step, block, words_of(left, step, block), [])
                for step in range(self.plan.steps)
                for block in range(self.blocks)
            ]
        )

    def computed(self) -> Fragment:
        """Return the fragment of operand A, which is computed in registers."""
        return computed_operand(
            self.matmul, self.blocks, self.plan.steps, self.threads, self.sums.row
        )

    def left(self) -> Left:
        """Return operand A in registers."""
        column_blocks = self.column_blocks[self.matmul.a.buffer]
        return Left.of(
            self.matmul, column_blocks, self.threads, self.sums.corner[0], self.blocks, self.plan
        )

    def _described(self, step: int, block: int, partial: Buffer | None = None) -> Stmt:
        """Return one instruction whose operands are both in shared memory."""
        a = self.matmul.a
        left = self._descriptor(a, self.sums.corner[0], block * ROWS, step)
        return self._call(step, block, [left], [a], partial)

    def _call(
        self,
        step: int,
        block: int,
        left: Sequence[Expr],
        described: Sequence[MatmulOperand],
        partial: Buffer | None = None,
    ) -> Stmt:
        """Return one instruction with first operand ``left``; ``described``: by descriptor.

        It adds to the accumulators of ``block``, or to ``partial``, which step 0 writes.
        """
        name = WGMMA_CALL.format(n=self.n, k=self.k, acc=self.acc_type, a=self.type, b=self.type)
        b, each = self.matmul.b, self.each
        # Signs of A and B where they are no integers, transposition where the type allows it.
        options = [] if self.type in _INTEGERS else [1, 1]
        if self.type in _TRANSPOSABLE:
            options += [int(not side.k_major) for side in (*described, b)]
        sums, first = (self.acc, block * each) if partial is None else (partial, 0)
        return tirx.Evaluate(
            T.ptx[name](
                *[tirx.BufferLoad(sums, [first + x]) for x in range(each)],
                *left,
                self._descriptor(b, self.sums.corner[1], 0, step),
                partial is None or step > 0,
                *options,
            )
        )

    def _descriptor(self, side: MatmulOperand, own: Expr, block: int, step: int) -> Expr:
        """Return the descriptor of ``side`` from row (or column) ``own + block`` on, at a step."""
        column_blocks, simplify = self.column_blocks[side.buffer], self.threads.analyzer.simplify
        first, k = simplify(own + block), step * self.k
        if side.k_major:
            at = [i32(k // column_blocks.columns), first, i32(k % column_blocks.columns)]
            leading = CHUNK_BYTES  # not looked at
        else:
            # A warpgroup's rows or columns fill column blocks.
            at = [simplify(tirx.floordiv(first, column_blocks.columns)), i32(k), i32(0)]
            leading = column_blocks.rows * column_blocks.span
        pointer = T.address_of(tirx.BufferLoad(column_blocks.stored, at))
        return encode(pointer, leading, _CORE_ROWS * column_blocks.span, column_blocks.span)
