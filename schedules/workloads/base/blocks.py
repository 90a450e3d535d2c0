"""Blocks of a workload's function: one store under one loop for each axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Range, TensorLoad, Var
from tvm.s_tir import SBlock, SBlockRealize

from ....passes.ir.nodes import i32, walk


def grid(
    name: str,
    axes: Sequence[tuple[str, Any]],
    reductions: int,
    body: Callable[[list[Any]], tuple[Any, Any]],
    annotations: Mapping[str, Any] | None = None,
) -> Any:
    """A block under one loop for each axis (name, extent), the last ``reductions`` summed over.

    ``body`` gives the block's store and, where something is reduced, its initial store.
    """
    loops = [Var(axis, "int32") for axis, _ in axes]
    values = [Var(f"v{axis}", "int32") for axis, _ in axes]
    spatial = len(axes) - reductions
    iters = [
        tirx.IterVar(
            Range(i32(0), extent),
            value,
            tirx.IterVar.DataPar if at < spatial else tirx.IterVar.CommReduce,
        )
        for at, (value, (_, extent)) in enumerate(zip(values, axes, strict=True))
    ]
    store, init = body(values)
    loads: list[Any] = []
    walk(store.value, TensorLoad, loads.append)
    # What a reduction block adds to is its output, not one of its reads.
    inputs = [load for load in loads if not load.source.same_as(store.buffer)]
    reads = [_point(load.source, load.indices) for load in inputs]
    writes = [_point(store.buffer, store.indices)]
    block = SBlock(iters, reads, writes, name, store, init, annotations=dict(annotations or {}))
    stmt = SBlockRealize(loops, True, block)
    for var, (_, extent) in reversed(list(zip(loops, axes, strict=True))):
        stmt = tirx.For(var, i32(0), extent, tirx.ForKind.SERIAL, stmt)
    return stmt


def cast(value: Any, dtype: str) -> Any:
    """``value`` converted to ``dtype``; itself where it is of that type."""
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)


def all_of(conditions: Sequence[Any]) -> Any:
    """The conjunction of at least one condition."""
    first, *rest = conditions
    for condition in rest:
        first = tirx.And(first, condition)
    return first


def _point(buf: Any, indices: Sequence[Any]) -> Any:
    return tirx.BufferRegion(buf, [Range.from_min_extent(index, i32(1)) for index in indices])
