"""Find parameters that must not overlap at a call, and those that may be the same array.

    for t: S[tx] = A[t, tx]; C[t + 1, tx] = S[63 - tx]    no: loads of A move above stores to C
    for t: C[t, tx] = f(A[t, tx])                         yes: only its writer reads an element

A kernel is compiled as if nothing it writes overlapped another parameter: TVM prints
``__restrict__``, and loads move above stores. Unless the function promises that itself
(``tirx.noalias``), it is checked at each call. One array may be given twice if every element that
an instance writes is read by that instance alone, and before: in the same iteration of all loops
around both, in the same thread. Arrays that overlap without being the same are always refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.tirx.buffer import is_buffer_var

from ..analysis.effects import READ, WRITE, effects
from ..ir.calls import MAP_STORES, called
from ..ir.kernels import bodies, kernels_of, thread_tag
from ..ir.nodes import (
    Buffer,
    Call,
    SBlockRealize,
    Stmt,
    TensorLoad,
    Var,
    collect,
    uses,
    variables,
    walk,
)
from .same_iteration import Side, same_instance

OVERLAP: Final = "pipeliner.overlap"
"""Attribute of a function: pairs of parameters, by position, that its host code checks.

``[written, other, 1]`` if they may be one array, else ``[written, other, 0]``.
"""

ENCODERS: Final = ("runtime.cuTensorMapEncodeTiled", "pipeliner_encode_im2col")


def note_overlap(func: Any) -> Any:
    """Return ``func``, not lowered yet, with the pairs to check; itself if there are none."""
    attrs = func.attrs or {}
    if OVERLAP in attrs or attrs.get("tirx.noalias", False):
        return func
    params = [param for param in func.params if is_buffer_var(param)]
    place = {param: at for at, param in enumerate(func.params)}
    touched, written = _used(func.body, params)
    pairs: list[list[int]] = []
    for one in params:
        for other in params:
            if one not in written or other not in touched or one.same_as(other):
                continue
            if other in written and place[other] < place[one]:
                continue  # the same pair
            both = other in written or not may_be_one(func.body, one, other)
            pairs.append([place[one], place[other], int(not both)])
    return func.with_attr(OVERLAP, pairs) if pairs else func


def used_in_place(func: Any) -> dict[str, str]:
    """Return for each parameter that ``func`` reads the written one that may be the same array."""
    names = [str(getattr(param, "name", "")) for param in func.params]
    pairs = (func.attrs or {}).get(OVERLAP, [])
    return {names[int(other)]: names[int(one)] for one, other, both in pairs if int(both)}


def _used(body: Stmt, params: Sequence[Buffer]) -> tuple[set[Buffer], set[Buffer]]:
    """Return the parameters that kernels touch, and those that they write, also by tensor maps."""
    touched: set[Buffer] = set()
    written: set[Buffer] = set()
    kernels = kernels_of(body)
    for kernel in kernels:
        found = effects(kernel)
        written |= found.buffers(WRITE).intersection(params)
        touched |= found.buffers(READ).intersection(params)

    def encode(call: Any) -> None:
        if len(call.args) < 2 or str(getattr(call.args[0], "value", "")) not in ENCODERS:
            return
        mapped = variables(list(call.args)).intersection(params)
        touched.update(mapped)
        if any(_stores_by(kernel, call.args[1]) for kernel in kernels):
            written.update(mapped)

    walk(body, Call, encode)
    return touched | written, written


def _stores_by(kernel: Stmt, tensor_map: Any) -> bool:
    stores = collect(kernel, Call, lambda call: called(call).startswith(MAP_STORES))
    return any(uses(call, [tensor_map]) for call in stores)


@dataclass(frozen=True)
class _Site:
    """A store to ``buffer`` by the statement ``store``, or a load for it.

    ``store``: None for any other use. ``trail``: the statements around it, outermost first, each
    with the position of the child that contains it.
    """

    buffer: Any
    store: Any
    indices: tuple[Any, ...] = ()
    trail: tuple[tuple[Any, int], ...] = ()
    is_load: bool = False


def may_be_one(body: Stmt, written: Buffer, other: Buffer) -> bool:
    """Whether ``other``, which is only read, may be the same array as ``written``."""
    same = tvm_ffi.structural_equal
    alike = str(written.dtype) == str(other.dtype) and len(written.shape) == len(other.shape)
    if not alike or not same(list(written.shape), list(other.shape)):
        return False
    if not same(list(written.strides), list(other.strides)):
        return False
    for kernel in kernels_of(body):
        sites = list(_sites(kernel, {written, other}, ()))
        if any(site.store is None for site in sites):
            return False
        reads = [site for site in sites if site.buffer.same_as(other)]
        writes = [site for site in sites if site.buffer.same_as(written) and not site.is_load]
        if not all(_is_before(read, write, kernel) for read in reads for write in writes):
            return False
    return True


def _sites(stmt: Stmt, buffers: set[Buffer], trail: tuple[tuple[Any, int], ...]) -> Iterator[_Site]:
    """Yield the uses of ``buffers`` in ``stmt``; neither load nor store has no statement."""
    if isinstance(stmt, tirx.BufferStore):
        if stmt.buffer in buffers:
            yield _Site(stmt.buffer, stmt, tuple(stmt.indices), trail)
        loads = collect(
            [stmt.value, *stmt.indices], TensorLoad, lambda load: load.source in buffers
        )
        for load in loads:
            yield _Site(load.source, stmt, tuple(load.indices), trail, is_load=True)
        if _named([stmt.value, *stmt.indices], buffers) > len(loads):
            yield _Site(None, None)  # a pointer
        return
    inner = bodies(stmt)
    if not inner or _decides(stmt, buffers):
        if uses(stmt, buffers):
            yield _Site(None, None)
        return
    for number, part in enumerate(inner):
        yield from _sites(part, buffers, (*trail, (stmt, number)))


def _named(node: Any, buffers: set[Buffer]) -> int:
    return len(collect(node, Var, lambda var: var in buffers))


def _decides(stmt: Stmt, buffers: set[Buffer]) -> bool:
    """Whether the values in ``buffers`` decide if ``stmt`` runs what is in it."""
    if isinstance(stmt, tirx.For):
        return uses([stmt.min, stmt.extent], buffers)
    if isinstance(stmt, (tirx.IfThenElse, tirx.While)):
        return uses(stmt.condition, buffers)
    return isinstance(stmt, SBlockRealize) and uses(stmt.predicate, buffers)


def _is_before(read: _Site, write: _Site, kernel: Stmt) -> bool:
    """Whether an element's only writer, by ``write``, reads it by ``read`` before."""
    depth = 0
    while depth < min(len(read.trail), len(write.trail)) and _same(
        read.trail[depth], write.trail[depth]
    ):
        depth += 1
    together = read.store.same_as(write.store)
    common = [stmt for stmt, _ in read.trail[:depth]]
    if not together:
        if depth == len(read.trail) or depth == len(write.trail):
            return False
        (stmt, first), (other, second) = read.trail[depth], write.trail[depth]
        if not stmt.same_as(other) or not isinstance(stmt, tirx.SeqStmt) or first >= second:
            return False
        if not any((thread_tag(loop) or "").startswith("threadIdx") for loop in common):
            return False  # which thread has which part of a tile is not decided yet
        serial = any(isinstance(loop, tirx.For) and thread_tag(loop) is None for loop in common)
        if serial and not _passes_on(read.store, write.store, kernel, common):
            return False
    shared = [stmt for stmt in common if isinstance(stmt, tirx.For)]
    return same_instance(
        Side(read.indices, _loops(read.trail)), Side(write.indices, _loops(write.trail)), shared
    )


def _same(a: tuple[Any, int], b: tuple[Any, int]) -> bool:
    return bool(a[0].same_as(b[0])) and a[1] == b[1]


def _loops(trail: Sequence[tuple[Any, int]]) -> list[Any]:
    return [stmt for stmt, _ in trail if isinstance(stmt, tirx.For)]


def _passes_on(first: Any, last: Any, kernel: Stmt, common: Sequence[Any]) -> bool:
    """Whether ``last`` stores what ``first`` has loaded in the same iteration of common loops.

    It then stays behind it however the loop is scheduled, because nothing else writes what it
    reads.
    """
    buf = first.buffer
    writers = collect(kernel, tirx.BufferStore, lambda s: s.buffer.same_as(buf))
    loads = collect(last.value, TensorLoad, lambda x: x.source.same_as(buf))
    serial = [
        loop.loop_var for loop in common if isinstance(loop, tirx.For) and thread_tag(loop) is None
    ]
    indices = [*first.indices, *[index for load in loads for index in load.indices]]
    return len(writers) == 1 and bool(loads) and not uses(indices, serial)
