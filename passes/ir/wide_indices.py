"""Widen indices to 64 bits where the largest that they can reach needs it.

    A: float16[65536, 65536]               A: float16[int64(65536), int64(65536)]
    A[b * 160 + i, k * 32 + j]       =>    A[int64(b) * 160 + int64(i), int64(k) * 32 + int64(j)]

TVM flattens an access in the type of its indices, and a product of 32-bit extents and indices wraps
past 2^31. So indices of buffers with more elements are widened before that, down to variables and
constants, because a sum must not wrap before it is widened. NarrowDataType, which follows, narrows
what provably fits in 32 bits. Shared memory and registers are never that large.

An index that can pass 2^31 by itself (of a dimension so long, or before a division) is widened even
earlier, before anything folds its constants, and so is what it is compared with.

If extents are 32-bit variables, kernels keep 32 bits, and the host code checks at each call that no
buffer has more elements. 64-bit variables make 64-bit offsets, which is TVM's own convention.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Range, StringImm, TensorLoad, TensorRegion, Var

from ...diagnostics import Reason
from . import nodes as ir
from .bounds import RANGES, Bounds, KnownBounds
from .calls import ACCESS_PTR, called
from .named_pass import named_pass

ELEMENTS: Final = (1 << 31) - 1
"""The greatest index in 32 bits: most elements of a buffer whose number and offsets fit."""

WIDE: Final = "int64"

_BOTH: Final = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod, tirx.Min,
    tirx.Max, tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor,
)  # fmt: skip
"""Operators of which both operands have the type of the result."""

_COMPARED: Final = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)


@named_pass("WidenIndices")
def widen_indices(func: Any) -> Any:
    """Widen those indices of ``func``, blocks opaque, that can pass 2^31 by themselves.

        A: int8[2^32]
        A[b * 65536 + t] = ..      =>      A[int64(b) * 65536 + int64(t)] = ..

    The extents of large buffers that blocks match are widened too, because TVM computes offsets
    from them.
    """
    return _Indices().run(func)


@named_pass("WidenOffsets")
def widen_offsets(func: Any) -> Any:
    """Widen all indices of large buffers of ``func``, blocks lowered; return itself without any.

        B: int8[65536, 65536]              B: int8[int64(65536), int64(65536)]
        B[b, t] = ..                 =>    B[int64(b), int64(t)] = ..

    TVM then flattens their accesses in 64 bits.
    """
    large = _declared(_large_memory(func))
    if not large:
        return func
    wide = set(large.values())

    def load(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if node.source not in wide:
            return node
        return tirx.BufferLoad(node.source, [widened(index) for index in node.indices])

    def store(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if node.buffer not in wide:
            return node
        return tirx.BufferStore(node.buffer, node.value, [widened(index) for index in node.indices])

    def pointer(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if called(node) != ACCESS_PTR or not ir.uses(node.args[1], wide):
            return node
        kind, data, offset, *rest = node.args
        return Call(node.op, [kind, data, widened(offset), *rest], node.attrs, ret_ty=node.ty)

    func = _replaced(func, large)
    rewriters = [(TensorLoad, load), (tirx.BufferStore, store), (Call, pointer)]
    return func.with_body(tvm_ffi.structural_mutate(func.body, rewriters))


@named_pass("CheckExtents")
def check_extents(func: Any) -> Any:
    """Check at each call of ``func`` that 32 bits count the elements of its parameters.

        def f(A: int8[n, 1024]): S      =>      def f(A: int8[n, 1024]):
                                                    assert int64(n) * 1024 <= 2147483647
                                                    S

    Only parameters whose extents are 32-bit variables need it.
    """
    checks: list[Any] = []
    for param in func.params:
        if not ir.is_buffer_var(param) or not _counts_in_32_bits(param):
            continue
        total = math.prod((widened(extent) for extent in param.shape), start=tirx.const(1, WIDE))
        shown = " * ".join(str(extent) for extent in param.shape)
        said = Reason("call.elements", name=str(param.name), elements=shown, most=ELEMENTS)
        fits = total <= tirx.const(ELEMENTS, WIDE)
        checks.append(tirx.AssertStmt(fits, StringImm("ValueError"), [StringImm(str(said))]))
    return func.with_body(ir.seq(*checks, func.body)) if checks else func


def is_large(buffer: Any) -> bool:
    """Whether ``buffer`` has more elements than 32 bits count, whatever its variables are."""
    return ir.is_global(buffer) and _least_elements(buffer) > ELEMENTS


def widened(expr: Any) -> Any:
    """Return ``expr``, an integer, in 64 bits, with its sums and products in 64 bits too."""
    kind, _, lanes = str(expr.ty.dtype).partition("x")
    if kind == WIDE or not kind.startswith("int"):
        return expr
    if isinstance(expr, tirx.IntImm):
        return tirx.const(int(expr.value), WIDE)
    if isinstance(expr, _BOTH):
        return type(expr)(widened(expr.a), widened(expr.b))
    if isinstance(expr, tirx.Select):
        return tirx.Select(expr.condition, widened(expr.true_value), widened(expr.false_value))
    if isinstance(expr, tirx.Ramp):
        return tirx.Ramp(widened(expr.base), widened(expr.stride), expr.lanes)
    if isinstance(expr, tirx.Broadcast):
        return tirx.Broadcast(widened(expr.value), expr.lanes)
    return tirx.Cast(f"{WIDE}x{lanes}" if lanes else WIDE, expr)


class _Indices:
    """Widens the indices of one function; knows the bounds of its loop variables."""

    def __init__(self) -> None:
        self._known = KnownBounds()
        self._matched: set[Any] = set()

    def run(self, func: Any) -> Any:
        """Return ``func`` with its indices as wide as they need to be."""
        rewriters = [
            (tirx.For, self._loop),
            (ir.SBlock, self._block),
            (TensorLoad, self._load),
            (tirx.BufferStore, self._store),
            (TensorRegion, self._region),
            (_COMPARED, self._comparison),
        ]
        body = tvm_ffi.structural_mutate(func.body, rewriters)
        done = func if body.same_as(func.body) else func.with_body(body)
        large = _declared(buffer for buffer in self._matched if is_large(buffer))
        return _replaced(done, large) if large else done

    def _loop(self, node: Any, mutator: Any) -> Any:
        least, extent = ir.const_int(node.min), ir.const_int(node.extent)
        if least is not None and extent is not None:
            self._known.bind(node.loop_var, least, least + max(extent, 1) - 1)
        return mutator.default_mutate(node)

    def _block(self, node: Any, mutator: Any) -> Any:
        parts = [part for part in node.match_buffers if self._is_matched(part.source.source)]
        names: dict[Any, Any] = {}
        for part in parts:
            place = [part.buffer.elem_offset, *part.buffer.strides]
            names |= {var: Var(str(var.name), WIDE) for var in place if type(var) is Var}
        if names:
            node = ir.substitute(node, names)
            parts = [part for part in node.match_buffers if self._is_matched(part.source.source)]
            node = ir.substitute(node, _declared([part.buffer for part in parts]))
        for part in node.match_buffers:
            if self._is_matched(part.source.source):
                self._matched |= {part.source.source, part.buffer}
        return mutator.default_mutate(node)

    def _is_matched(self, source: Any) -> bool:
        """Whether a block matches part of ``source``, which is in a large buffer."""
        return source in self._matched or is_large(source)

    def _load(self, node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        indices = self._fitting(node.indices)
        return node if indices is None else tirx.BufferLoad(node.source, indices)

    def _store(self, node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        indices = self._fitting(node.indices)
        return node if indices is None else tirx.BufferStore(node.buffer, node.value, indices)

    def _region(self, node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        firsts = [part.min for part in node.region]
        if node.source in self._matched:
            wide: list[Any] | None = [widened(first) for first in firsts]
        else:
            wide = self._fitting(firsts)
        if wide is None:
            return node
        extents = [part.extent for part in node.region]
        ranges = [
            Range.from_min_extent(first, widened(extent) if str(first.ty.dtype) == WIDE else extent)
            for first, extent in zip(wide, extents, strict=True)
        ]
        return tirx.BufferRegion(node.source, ranges)

    def _comparison(self, node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if not any(self._wraps(side) for side in (node.a, node.b)):
            return node
        return type(node)(widened(node.a), widened(node.b))

    def _fitting(self, indices: Sequence[Any]) -> list[Any] | None:
        """Return ``indices``, with those widened that need it; None if none does."""
        wide = [self._wraps(index) for index in indices]
        if not any(wide):
            return None
        return [widened(index) if wraps else index for index, wraps in zip(indices, wide)]

    def _wraps(self, index: Any) -> bool:
        """Whether ``index``, or a subexpression computed in 32 bits, can exceed them."""
        met: list[Bounds] = []
        self._known.of(index, met)
        allowed = RANGES["int32"]
        return any(found.low not in allowed or found.high not in allowed for found in met)


def _least_elements(buffer: Any) -> int:
    """Return the elements from the first to the last of ``buffer``, if its variables are 1."""
    shape = [ir.const_int(extent) for extent in buffer.shape]
    strides = [ir.const_int(stride) for stride in buffer.strides]
    if not strides:
        return math.prod(1 if size is None else size for size in shape)
    return 1 + sum(
        (size - 1) * stride for size, stride in zip(shape, strides, strict=True) if size and stride
    )


def _counts_in_32_bits(buffer: Any) -> bool:
    """Whether extents that are 32-bit variables determine how many elements ``buffer`` has."""
    kinds = {str(extent.ty.dtype) for extent in buffer.shape if ir.const_int(extent) is None}
    return kinds == {"int32"} and not is_large(buffer) and not len(buffer.strides)


def _buffers(func: Any) -> list[Any]:
    """Return the buffers of ``func``, parameters first."""
    found: dict[Any, None] = dict.fromkeys(func.params)
    ir.walk(func.body, Var, found.setdefault)
    return [var for var in found if ir.is_buffer_var(var)]


def _large_memory(func: Any) -> list[Any]:
    """Return the large buffers of ``func``, and what is declared over the data of one."""
    found = {buffer: None for buffer in _buffers(func) if is_large(buffer)}

    def declared(node: Any) -> None:
        if not found.keys().isdisjoint(ir.variables(node.data)):
            found.setdefault(node.buffer)

    if found:
        ir.walk(func.body, tirx.DeclBuffer, declared)
    return list(found)


def _declared(buffers: Iterable[Any]) -> dict[Any, Any]:
    """Return for each of ``buffers`` the same with 64-bit extents, strides and offset.

    An extent that is a variable stays, because a parameter's shape gives it its value.
    """
    return {
        buffer: tirx.decl_buffer(
            [extent if type(extent) is Var else widened(extent) for extent in buffer.shape],
            buffer.dtype,
            str(buffer.name),
            strides=[widened(stride) for stride in buffer.strides],
            elem_offset=widened(buffer.elem_offset),
            scope=str(buffer.scope()),
            data_alignment=buffer.data_alignment,
            offset_factor=buffer.offset_factor,
            layout=None,
        )
        for buffer in buffers
    }


def _replaced(func: Any, buffers: dict[Any, Any]) -> Any:
    """Return ``func`` with other buffers in place of ``buffers``."""
    params = [buffers.get(param, param) for param in func.params]
    body = tvm_ffi.structural_map(func.body, [(Var, lambda v: buffers.get(v, v))], order="post")
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)
