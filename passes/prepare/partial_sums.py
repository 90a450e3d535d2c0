"""Accumulate split-K partial sums in the output: no workspace and no second kernel.

    kernel 0: parts[p, i, j] = acc[p, i, j]           kernel 0: C[i, j] = f(0)
    kernel 1: C[i, j] = f(parts[0, i, j] + ...)  =>   kernel 1: C[i, j] = C[i, j] + acc[p, i, j]

Many CTAs add to one element, in an order that differs from run to run. So an addition must be
atomic; its block says so by ``ADDS``, and its lowering obeys. Each partial sum is rounded to the
type of C before it is added, and so is the sum after every addition.

``f`` may add other terms (a bias, a residual) and round, nothing else: any other function of a sum
is not the sum of the functions. Runs on scheduled blocks, before they are opaque.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Range

from ...diagnostics import Reason
from ...errors import PlanError
from ...plan import ADDABLE
from ...values.facts import ADDS
from ...values.notes import NOTE, note_text
from ..ir.named_pass import named_pass
from ..ir.nodes import (
    Buffer,
    Expr,
    SBlock,
    SBlockRealize,
    TensorLoad,
    Var,
    collect,
    const_int,
    is_global,
    seq,
    simplify,
    substitute,
    uses,
)
from ..ir.patterns import strip_cast


@named_pass("AddPartialSums")
def add_partial_sums(func: Any) -> Any:
    """Return ``func`` with its partial sums added to the output instead of stored and summed.

    Raises PlanError if it has no partial sums, or if what it stores is more than their sum.
    """
    name = str((func.attrs or {}).get("global_symbol", "main"))
    found = _find(func.body, name)
    first, second = found.kernels
    changed = seq(_with_block(second, found.sum, found.started()),
                  _with_block(first, found.partial, found.added()))  # fmt: skip
    root = func.body.block
    allocs = [buf for buf in root.alloc_buffers if not buf.same_as(found.parts)]
    body = SBlockRealize(
        func.body.iter_values,
        func.body.predicate,
        SBlock(
            root.iter_vars, root.reads, root.writes, root.name_hint, changed, root.init, allocs,
            root.match_buffers, root.annotations,
        ),
    )  # fmt: skip
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


@dataclass(frozen=True)
class _PartialSums:
    """The block that stores each partial sum, the one that adds them, and the kernels of both."""

    parts: Buffer
    kernels: tuple[Any, Any]
    partial: Any
    sum: Any
    total: Expr
    at: tuple[Var, ...]

    @property
    def count(self) -> int:
        """The number of partial sums."""
        return const_int(self.parts.shape[0]) or 0

    def started(self) -> Any:
        """Return the block of the sum as if all partial sums were zero."""
        store = self.sum.body
        zero = tirx.const(0, str(self.parts.dtype))
        value = _replaced(store.value, self.total, zero)
        note = {NOTE: note_text(Reason("split.added", splits=self.count))}
        return _block(
            self.sum, tirx.BufferStore(store.buffer, simplify(value), store.indices), note
        )

    def added(self) -> Any:
        """Return the block of a partial sum, which adds it to the output."""
        store, target = self.partial.body, self.sum.body.buffer
        values = dict(zip(self.at, store.indices[1:], strict=True))
        where = substitute(list(self.sum.body.indices), values)
        part: Expr = store.value
        if str(part.ty.dtype) != str(target.dtype):
            part = tirx.Cast(str(target.dtype), part)
        value = tirx.BufferLoad(target, where) + part
        return _block(self.partial, tirx.BufferStore(target, value, where), {ADDS: self.count})


def _find(body: Any, name: str) -> _PartialSums:
    """Return the partial sums of a function of two kernels; PlanError says what is missing."""

    def refused(why: Reason) -> PlanError:
        return PlanError("partial_sums.refused", kernel=name, why=why)

    kernels = list(body.block.body.seq) if isinstance(body.block.body, tirx.SeqStmt) else []
    blocks = [_stores(kernel) for kernel in kernels]
    if len(kernels) != 2 or len(blocks[1]) != 1:
        raise refused(Reason("partial_sums.none"))
    (total,) = blocks[1]
    own = body.block.alloc_buffers
    parts = {load.source for load in collect(total.body, TensorLoad) if load.source in own}
    stored = [block for block in blocks[0] if block.body.buffer in parts]
    if len(parts) > 1:
        names = tuple(sorted(str(buf.name) for buf in parts))
        raise refused(Reason("partial_sums.several", block=str(total.name_hint), names=names))
    if len(parts) != 1 or len(stored) != 1 or not is_global(stored[0].body.buffer):
        raise refused(Reason("partial_sums.none"))
    (workspace,) = parts
    summed, at = _sum_of(total, workspace)
    if summed is None:
        found = str(_outside(total.body.value, workspace))
        raise refused(Reason("partial_sums.no_sum", block=str(total.name_hint), value=found))
    target = total.body.buffer
    if str(target.dtype) not in ADDABLE:
        target_type = {"buffer": str(target.name), "dtype": str(target.dtype)}
        raise refused(Reason("partial_sums.dtype", dtypes=ADDABLE, **target_type))
    return _PartialSums(workspace, (kernels[0], kernels[1]), stored[0], total, summed, at)


def _stores(kernel: Any) -> list[Any]:
    """Return the blocks of ``kernel`` that consist of one store."""
    return collect(kernel, SBlock, lambda b: isinstance(b.body, tirx.BufferStore))


def _sum_of(block: Any, parts: Buffer) -> tuple[Expr | None, tuple[Var, ...]]:
    """Return the sum of all partial sums in ``block``, and where in each it is read.

    None if anything but additions and a final conversion is applied to it, or if it is not the same
    element of every partial sum, once each.
    """
    expr, at = strip_cast(block.body.value), tuple[Var, ...]()
    while isinstance(expr, tirx.Add) and not all(uses(side, [parts]) for side in (expr.a, expr.b)):
        expr = expr.a if uses(expr.a, [parts]) else expr.b
    leaves = _terms(expr)
    if not all(isinstance(leaf, TensorLoad) and leaf.source.same_as(parts) for leaf in leaves):
        return None, at
    axes = {axis.var for axis in block.iter_vars}
    at = tuple(leaves[0].indices[1:])
    alike = all(tvm_ffi.structural_equal(list(leaf.indices[1:]), list(at)) for leaf in leaves)
    numbers = sorted(const_int(leaf.indices[0]) or 0 for leaf in leaves)
    if not alike or set(at) != axes or len(at) != len(axes):
        return None, ()
    return (expr if numbers == list(range(const_int(parts.shape[0]) or 0)) else None), at


def _terms(expr: Expr) -> list[Expr]:
    return [*_terms(expr.a), *_terms(expr.b)] if isinstance(expr, tirx.Add) else [expr]


def _outside(expr: Expr, parts: Buffer) -> str:
    """Return the outermost operation on the partial sums other than additions and conversions."""
    while isinstance(expr, tirx.Add | tirx.Cast):
        if isinstance(expr, tirx.Cast):
            expr = expr.value
        else:
            expr = expr.a if uses(expr.a, [parts]) else expr.b
    op = getattr(getattr(expr, "op", None), "name", type(expr).__name__)
    return str(op).rsplit(".", maxsplit=1)[-1].lower()


def _replaced(expr: Expr, old: Expr, new: Expr) -> Expr:
    """Return ``expr``, a chain of casts and additions, with ``old`` in it replaced."""
    if expr.same_as(old):
        return new
    if isinstance(expr, tirx.Cast):
        return tirx.Cast(str(expr.ty.dtype), _replaced(expr.value, old, new))
    if isinstance(expr, tirx.Add):
        return tirx.Add(_replaced(expr.a, old, new), _replaced(expr.b, old, new))
    return expr


def _block(old: Any, store: Any, notes: Mapping[str, Any]) -> Any:
    """Return ``old`` with another store and the regions that it touches."""
    reads = [_point(load.source, load.indices) for load in collect(store.value, TensorLoad)]
    return SBlock(
        old.iter_vars, reads, [_point(store.buffer, store.indices)], old.name_hint, store, old.init,
        old.alloc_buffers, old.match_buffers, {**old.annotations, **notes},
    )  # fmt: skip


def _point(buf: Buffer, indices: Sequence[Expr]) -> Any:
    return tirx.BufferRegion(buf, [Range.from_min_extent(index, 1) for index in indices])


def _with_block(stmt: Any, old: Any, new: Any) -> Any:
    return tvm_ffi.structural_map(
        stmt, [(SBlock, lambda block: new if block.same_as(old) else block)], order="pre"
    )
