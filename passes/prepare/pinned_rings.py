"""Protect a ring that the user wrote by hand from TVM's compaction.

    S = alloc_buffer((4, 64))                  for k:
    for k:                              =>         S = alloc_buffer((4 - ..., 64))
        S[k % 4, ...] = ...                        S[k % 4 - min(k % 4, (k + 3) % 4), ...] = ...
        ... = S[(k + 3) % 4, ...]                  ...

is what compaction does: it moves an allocation into the innermost loop around all of its uses and
makes it as small as one iteration needs. That is right for a tile, but it loses what a ring carries
to later iterations. So while TVM's prefix runs, such a buffer gets a use of its whole extent beside
its allocation: it is pinned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range, prim

from ..ir import nodes as ir
from ..ir.calls import BUFFER_DATA, called
from ..ir.kernels import bodies, map_kernels, thread_tag, with_block
from ..ir.named_pass import named_pass

_PINNED: Final = "pipeliner.pinned"
"""Name of the block that pins a buffer to its place."""

_SAMPLES: Final = 8
"""Iterations examined: a ring of up to as many slots is recognised by them."""

_Region = tuple[tuple[int, int], ...]


@named_pass("PinRings")
def pin_rings(func: Any) -> Any:
    """Pin each ring of ``func``: add a use of all of it; return ``func`` itself without rings.

        S = alloc_buffer((4, 64))          S = alloc_buffer((4, 64))
        for k: S[k % 4, ..] = ..     =>    with block("pipeliner.pinned"): a use of S[0:4, 0:64]
                                           for k: S[k % 4, ..] = ..

    Compaction then finds that all of the ring is used outside of the loop.
    """
    return map_kernels(func, _pin)


@named_pass("UnpinRings")
def unpin_rings(func: Any) -> Any:
    """Unpin the rings of ``func``: remove the uses that ``pin_rings`` added.

        S = alloc_buffer((4, 64))                                     S = alloc_buffer((4, 64))
        with block("pipeliner.pinned"): a use of S[0:4, 0:64]   =>    for k: S[k % 4, ..] = ..
        for k: S[k % 4, ..] = ..

    Compaction, which they protect a ring from, has run.
    """

    def flatten(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        kept = [stmt for stmt in node.seq if not _is_pinned(stmt)]
        return node if len(kept) == len(node.seq) else ir.seq(*kept)

    body = tvm_ffi.structural_mutate(func.body, [(tirx.SeqStmt, flatten)])
    if body.same_as(func.body):
        return func
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _is_pinned(stmt: Any) -> bool:
    return isinstance(stmt, ir.SBlockRealize) and stmt.block.name_hint == _PINNED


def _pin(kernel: Any) -> Any:
    rings = {buffer for buffer, uses in _Uses(kernel).found.items() if uses.is_ring()}
    if not rings:
        return kernel

    def add(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        here = [_use(buffer) for buffer in node.block.alloc_buffers if buffer in rings]
        return with_block(node, body=ir.seq(*here, node.block.body)) if here else node

    return tvm_ffi.structural_mutate(kernel, [(ir.SBlockRealize, add)])


def _use(buffer: Any) -> Any:
    whole = [Range.from_min_extent(ir.i32(0), extent) for extent in buffer.shape]
    region = tirx.BufferRegion(buffer, whole)
    return ir.block(_PINNED, tirx.Evaluate(buffer.data), reads=[region], writes=[region])


@dataclass
class _BufferUses:
    """The accesses to one buffer: index of each, loops around all of them and the allocation."""

    around: int
    prover: sym.Analyzer
    reads: list[tuple[Any, ...]] = field(default_factory=list)
    writes: list[tuple[Any, ...]] = field(default_factory=list)
    loops: tuple[Any, ...] | None = None
    opaque: bool = False

    def add(self, index: tuple[Any, ...], is_write: bool, loops: tuple[Any, ...]) -> None:
        """Add one access."""
        (self.writes if is_write else self.reads).append(index)
        if self.loops is None:
            self.loops = loops
            return
        same = [a for a, b in zip(self.loops, loops) if a.same_as(b)]
        self.loops = tuple(same)

    def is_ring(self) -> bool:
        """Whether some iteration of the loop around all uses reads what an earlier one wrote."""
        inner = (self.loops or ())[self.around :]
        if self.opaque or not inner or not self._wraps(inner[-1].loop_var):
            return False
        loop = inner[-1]
        low, extent = ir.const_int(loop.min) or 0, ir.const_int(loop.extent) or _SAMPLES
        return any(self._carries(loop.loop_var, low + i) for i in range(min(extent, _SAMPLES)))

    def _wraps(self, var: Any) -> bool:
        """Whether an index wraps around with ``var``, as those of a ring do."""
        found: list[Any] = []

        def round_trip(expr: Any) -> None:
            if ir.uses(expr, [var]):
                found.append(expr)

        for index in (*self.reads, *self.writes):
            for expr in index:
                ir.walk(expr, (prim.FloorMod, prim.BitwiseAnd), round_trip)
        return bool(found)

    def _carries(self, var: Any, value: int) -> bool:
        written = [self._box(index, var, value) for index in self.writes]
        read = [self._box(index, var, value) for index in self.reads]
        return any(not any(_covers(box, inner) for box in written) for inner in read)

    def _box(self, index: tuple[Any, ...], var: Any, value: int) -> _Region:
        box = []
        for expr in index:
            bound = self.prover.const_int_bound(ir.substitute(expr, {var: ir.i32(value)}))
            box.append((int(bound.min_value), int(bound.max_value)))
        return tuple(box)


def _covers(box: _Region, inner: _Region) -> bool:
    return all(a <= c and d <= b for (a, b), (c, d) in zip(box, inner))


class _Uses:
    """Collects the accesses to each buffer that a kernel allocates, block variables replaced."""

    def __init__(self, kernel: Any) -> None:
        self.found: dict[Any, _BufferUses] = {}
        self._prover = sym.Analyzer()
        self._bound: set[Any] = set()
        self._visit(kernel, (), {})

    def _visit(self, stmt: Any, loops: tuple[Any, ...], values: Mapping[Any, Any]) -> None:
        if isinstance(stmt, tirx.For):
            if stmt.loop_var not in self._bound:
                self._bound.add(stmt.loop_var)
                self._prover.bind(stmt.loop_var, Range.from_min_extent(stmt.min, stmt.extent))
            loops = loops if thread_tag(stmt) else (*loops, stmt)
        if isinstance(stmt, ir.SBlockRealize):
            inlined = (ir.substitute(value, values) for value in stmt.iter_values)
            values = {**values, **{a.var: v for a, v in zip(stmt.block.iter_vars, inlined)}}
            for buffer in stmt.block.alloc_buffers:
                self.found[buffer] = _BufferUses(len(loops), self._prover)
            if stmt.block.init is not None:
                self._visit(stmt.block.init, loops, values)
        inner = bodies(stmt)
        for body in inner:
            self._visit(body, loops, values)
        if not inner:
            self._leaf(stmt, loops, values)

    def _leaf(self, stmt: Any, loops: tuple[Any, ...], values: Mapping[Any, Any]) -> None:
        def access(buffer: Any, index: Any, is_write: bool) -> None:
            uses = self.found.get(buffer)
            if uses is not None:
                uses.add(tuple(ir.substitute(x, values) for x in index), is_write, loops)

        def data(call: Any) -> None:
            if called(call) == BUFFER_DATA:
                uses = self.found.get(call.args[0])
                if uses is not None:
                    uses.opaque = True

        ir.walk(stmt, tirx.BufferStore, lambda s: access(s.buffer, s.indices, True))
        ir.walk(stmt, ir.TensorLoad, lambda v: access(v.source, v.indices, False))
        ir.walk(stmt, ir.Call, data)
