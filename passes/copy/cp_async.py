"""Make cp.async of stores of loaded values: as wide as alignment proves, the mask as a source size.

``pipeliner/mechanisms/cp_async.py`` says what it requires and which cache it goes through.

    S[r, c * 8 + v] = if_then_else(m < M, A[m, c * 8 + v], 0)   # v in 8 lanes
 => cp.async.cg [&S[r, c * 8]], [&A[min(m, M - 1), c * 8]], 16, select(m < M, 16, 0)

PTX ISA, cp.async: it copies 4, 8 or 16 bytes, and both addresses are aligned to the size; bytes
from the source size on are zero. ``.cg`` (only 16 bytes) bypasses L1, ``.ca`` goes through it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import sym, tirx
from tvm.script import tirx as T

from ...diagnostics import Reason
from ...errors import LoweringError
from ...plan import Cache
from ..ir.indexing import alignment, at_lane, comparison, conjunction, is_uniform, offset, unproven
from ..ir.kernels import bodies, with_bodies
from ..ir.linear import affine
from ..ir.nodes import (
    Expr,
    ForKind,
    SBlockRealize,
    Stmt,
    Var,
    const_int,
    dtype_bytes,
    i32,
    is_global,
    is_shared,
    unrolled,
    uses,
)
from ..ir.patterns import masked_load

SIZES: Final = (16, 8, 4)


def as_cp_async(
    name: str,
    stmt: Stmt,
    analyzer: Any,
    step: Sequence[Var] = (),
    nearest: Cache = "L2",
) -> Stmt:
    """Return ``stmt`` with every store from global to shared memory as cp.async.

    ``analyzer`` knows the ranges of the loops around and in it, ``step`` is the variable of the
    loop that repeats it, ``nearest`` the nearest cache that keeps 16 bytes. Raises LoweringError
    with the reason if a store of op ``name`` cannot be a cp.async.
    """
    if isinstance(stmt, tirx.For) and stmt.kind == ForKind.VECTORIZED:
        lane, lanes = stmt.loop_var, const_int(stmt.extent) or 1
        store, predicate = _inside_block(stmt.body)
        if isinstance(store, tirx.BufferStore) and is_uniform(predicate, lane, lanes):
            copy = _vector(name, store, lane, lanes, analyzer, step, nearest)
            if const_int(predicate) == 1:
                return copy
            return tirx.IfThenElse(at_lane(predicate, lane, 0), copy, None)
        # not one vector: every element by itself
        stmt = tirx.For(lane, stmt.min, stmt.extent, ForKind.UNROLLED, stmt.body)
    if isinstance(stmt, tirx.BufferStore):
        return _vector(name, stmt, Var("v", "int32"), 1, analyzer, step, nearest)
    inner = bodies(stmt)
    if not inner:
        raise _refused(name, Reason("cp_async.no_copy", statement=type(stmt).__name__))
    return with_bodies(stmt, [as_cp_async(name, body, analyzer, step, nearest) for body in inner])


def _inside_block(stmt: Stmt) -> tuple[Stmt, Expr]:
    """Return the statement of a block that allocates nothing, and its predicate."""
    if not isinstance(stmt, SBlockRealize):
        return stmt, tirx.const(1, "bool")
    block = stmt.block
    if block.alloc_buffers or block.match_buffers or block.init is not None:
        return stmt, stmt.predicate
    return block.body, stmt.predicate


def _vector(
    name: str,
    store: Any,
    lane: Var,
    lanes: int,
    analyzer: Any,
    step: Sequence[Var],
    nearest: Cache,
) -> Stmt:
    """Return the store of elements ``lane`` in ``0 .. lanes - 1`` as one or several cp.async."""
    loaded = masked_load(store.value)
    if loaded is None or not is_global(loaded[0].source) or not is_shared(store.buffer):
        raise _refused(name, Reason("cp_async.computes", buffer=str(store.buffer.name)))
    load, mask = loaded
    mask = tuple(rest for part in mask for rest in unproven(part, analyzer))
    element = dtype_bytes(store.buffer.dtype)
    if str(load.source.dtype) != str(store.buffer.dtype):
        kinds = str(load.source.dtype), str(store.buffer.dtype)
        raise _refused(name, Reason("cp_async.converts", source=kinds[0], dtype=kinds[1]))
    aligned = min(
        _aligned(store.buffer, store.indices, lane, lanes, analyzer),
        _aligned(load.source, load.indices, lane, lanes, analyzer),
    )
    cut = 0
    for size in SIZES:
        width = size // element
        if width < 1 or lanes % width or aligned % width:
            continue
        rounds = lanes // width
        base = Var("u", "int32")
        start = base * width if rounds > 1 else i32(0)
        call = _call(store, load, mask, lane, start, width, analyzer, step, nearest)
        if call is None:
            cut = size
            continue
        if rounds == 1:
            return call
        return unrolled("u", rounds, functools.partial(at_lane, call, base))
    if cut:
        raise _refused(name, Reason("cp_async.mask", nbytes=cut))
    have = aligned * element, lanes * element
    raise _refused(name, Reason("cp_async.bytes", aligned=have[0], contiguous=have[1]))


def _refused(name: str, why: Reason) -> LoweringError:
    return LoweringError("copy.cp_async", copy=name, why=why)


def _aligned(buf: Any, indices: Sequence[Expr], lane: Var, lanes: int, analyzer: Any) -> int:
    """Return how many elements provably divide the vector's start; 1 if it is not contiguous."""
    start = offset(buf, indices)
    if lanes > 1 and not _is_run(buf, indices, lane, analyzer):
        return 1
    base = analyzer.simplify(at_lane(start, lane, 0))
    return min(alignment(base, analyzer), max(1, int(buf.data_alignment) // dtype_bytes(buf.dtype)))


def _is_run(buf: Any, indices: Sequence[Expr], lane: Var, analyzer: Any) -> bool:
    known = affine(analyzer.simplify(offset(buf, indices)), [lane])
    return known is not None and known.coefficients == {lane: 1}


def _call(
    store: Any,
    load: Any,
    mask: Sequence[Expr],
    lane: Var,
    start: Expr,
    width: int,
    analyzer: Any,
    step: Sequence[Var],
    nearest: Cache,
) -> Stmt | None:
    """Return a cp.async of ``width`` elements from ``start``; None if the mask is no size."""
    element = dtype_bytes(store.buffer.dtype)
    size = width * element
    instruction = f"cp.async.{'cg' if size == 16 and nearest == 'L2' else 'ca'}.shared.global"
    target = [at_lane(index, lane, start) for index in store.indices]
    source = [at_lane(index, lane, start) for index in load.indices]
    known = _source_size(load, mask, lane, start, width, source, analyzer, step)
    if known is None:
        return None
    source, valid = known
    arguments: list[Any] = [
        T.address_of(tirx.BufferLoad(store.buffer, target)),
        T.address_of(tirx.BufferLoad(load.source, source)),
        size,
    ]
    if valid is not None:
        arguments.append(tirx.Cast("uint32", valid))
    prefetch = ".L2::128B" if size == 16 else ""
    return tirx.Evaluate(T.ptx[instruction + prefetch](*arguments))


def _source_size(
    load: Any,
    mask: Sequence[Expr],
    lane: Var,
    start: Expr,
    width: int,
    source: list[Expr],
    analyzer: Any,
    step: Sequence[Var],
) -> tuple[list[Expr], Expr | None] | None:
    """Return source indices inside the tensor, and how many bytes to read there (None: all).

    Each conjunct of the mask either holds for the whole vector or not at all, or it says that the
    vector ends at a bound.
    """
    size = width * dtype_bytes(load.source.dtype)
    whole: list[Expr] = []
    count: Expr | None = None
    for part in mask:
        first = at_lane(part, lane, start)
        if not _is_shared_by(part, lane, start, width):
            bound = _upper_bound(part, lane)
            if bound is None and width > 1:
                return None
            if bound is not None and width > 1:
                room = bound - start
                if alignment(room, analyzer) % width:
                    room = tirx.max(i32(0), tirx.min(room, i32(width)))
                    count = room if count is None else tirx.min(count, room)
                    source = _clamp(source, first, width)
                    continue
        whole.append(first)
    if not whole and count is None:
        return source, None
    valid = i32(size) if count is None else count * (size // width)
    if _is_pattern(whole, step):
        return source, tirx.Select(conjunction(whole), valid, i32(0))
    for part in whole:
        source = _clamp(source, part, width)
        valid = tirx.Select(part, valid, i32(0))
    return source, valid


def _is_pattern(whole: Sequence[Expr], step: Sequence[Var]) -> bool:
    """Whether several conditions change from step to step, as those of a halo do.

    Such a copy reads either all its bytes or none. If it reads none, its address is not used: ptxas
    makes the size a predicate of the instruction. Clamping each coordinate in each step would cost
    more than the address itself, and rows would no longer share an address.
    """
    return sum(uses(part, step) for part in whole) > 1


def _is_shared_by(part: Expr, lane: Var, start: Expr, width: int) -> bool:
    """Whether ``part`` is the same for ``lane`` in ``start .. start + width - 1``.

    TVM's simplifier divides a bound by the common factor of its terms, which can hide a lane in
    ``lane // 4``.
    """
    inner = Var(str(lane.name), "int32")
    here = at_lane(part, lane, start + inner)
    analyzer = sym.Analyzer()
    analyzer.bind(inner, tvm.ir.Range(0, width))
    return is_uniform(here, inner, width) or not uses(analyzer.simplify(here), [inner])


def _upper_bound(part: Expr, lane: Var) -> Expr | None:
    """Return ``b`` of a conjunct that is equivalent to ``lane < b``."""
    compared = comparison(part)
    if compared is None:
        return None
    left, right, slack = compared
    known = affine(right - left + slack, [lane])
    if known is None or known.coefficients != {lane: -1}:
        return None
    return known.base


def _clamp(source: list[Expr], condition: Expr, width: int) -> list[Expr]:
    """Return ``source`` changed to lie inside the tensor where ``condition`` fails.

    A bound on one index clamps that index, so the rest of the address stays and nvcc can hoist it
    out of the loop. Any other condition moves the whole vector to the tensor's start.
    """
    compared = comparison(condition)
    if compared is not None:
        left, right, slack = compared
        for d, index in enumerate(source):
            if const_int(index) is not None:
                continue
            difference = sym.Analyzer().simplify(left - index)
            gap = const_int(difference)
            if gap is not None:  # index + gap < right + slack
                last = right - 1 + slack - gap
                if d == len(source) - 1 and width > 1:
                    last = tirx.floordiv(last, width) * width
                return [*source[:d], tirx.min(index, last), *source[d + 1 :]]
            gap = const_int(sym.Analyzer().simplify(right - index))
            if gap is not None:  # left < index + gap + slack
                first = left + 1 - slack - gap
                if d == len(source) - 1 and width > 1:
                    first = -tirx.floordiv(-first, width) * width
                return [*source[:d], tirx.max(index, first), *source[d + 1 :]]
    return [tirx.Select(condition, index, tirx.const(0, str(index.ty.dtype))) for index in source]
