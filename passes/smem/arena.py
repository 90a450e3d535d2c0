"""Make the planned arena: one allocation, in which every shared buffer is a view at its offset.

    S = alloc_buffer((256,), scope="shared.dyn")        arena = alloc_buffer((4096,), "uint8")
    S[i] = x                                      =>    S = decl_buffer((256,), data=arena.data)
                                                        S[i + offset / 4] = x

The form is what TVM's MergeSharedMemoryAllocations prints. The pass runs on flat buffers, right
before StorageRewrite, which would otherwise give two of them the same bytes unknown to the
barriers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from ...errors import InternalError
from ...plan import PLAN_ATTR, KernelPlan, SmemBuffer
from ..ir import nodes as ir
from ..ir.calls import ACCESS_PTR, called, data_of
from ..ir.kernels import map_kernels, with_bodies
from ..ir.named_pass import named_pass
from .place import DYNAMIC

ARENA: Final = "buf_dyn_shmem"
"""Name of the allocation: the one that TVM gives its own."""


@named_pass("ApplyArena")
def apply_arena(func: Any) -> Any:
    """Return ``func`` (flat buffers, planned by ``smem.place``) with one shared allocation.

    Raises InternalError if a buffer is not in the plan or has other bytes than planned.
    """
    if PLAN_ATTR not in (func.attrs or {}):
        return func
    plan = KernelPlan.from_json(str(func.attrs[PLAN_ATTR]))
    if plan.sync.by == "tvm":
        return func
    places = {buffer.buffer: buffer for buffer in plan.smem.buffers}
    return map_kernels(func, lambda kernel: _arena(kernel, places))


@dataclass(frozen=True)
class _View:
    """A flat buffer in the arena and its first byte."""

    buffer: Any
    offset: int

    @property
    def elements(self) -> Any:
        """The offset in elements of the buffer."""
        return self.offset_in(self.buffer.dtype)

    def offset_in(self, dtype: Any) -> Any:
        """The offset in elements of ``dtype``."""
        return ir.i32(self.offset // ir.dtype_bytes(dtype))


def _arena(kernel: Any, places: Mapping[str, SmemBuffer]) -> Any:
    allocated: list[Any] = []
    ir.walk(kernel, tirx.AllocBuffer, lambda s: allocated.append(s.buffer))
    shared = [buffer for buffer in allocated if ir.is_shared(buffer)]
    dynamic = [buffer for buffer in shared if str(buffer.scope()) == DYNAMIC]
    if not dynamic:
        return kernel
    placed = {buffer: _placed(buffer, places) for buffer in dynamic}
    size = max(place.offset + place.bytes for place in placed.values())
    arena = _allocation(size, list(placed))
    views = {buffer: _View(_fresh(buffer), place.offset) for buffer, place in placed.items()}
    _add_aliases(kernel, views)
    body = _rewrite(kernel.body, views)
    declared = [
        tirx.DeclBuffer(view.buffer, data=arena.data)
        for view in sorted(views.values(), key=lambda view: view.offset)
    ]
    return with_bodies(kernel, [ir.seq(tirx.AllocBuffer(arena), *declared, body)])


def _allocation(size: int, buffers: Sequence[Any]) -> Any:
    """Return the arena: an array of bytes, or of elements of the one type that every buffer has.

    StorageRewrite retypes an allocation all of whose views have one type, and keeps its number of
    elements: as many halves as there were bytes.
    """
    kinds = {str(buffer.dtype) for buffer in buffers}
    dtype = kinds.pop() if len(kinds) == 1 else "uint8"
    return ir.buffer([-(-size // ir.dtype_bytes(dtype))], dtype, ARENA, DYNAMIC)


def _placed(buffer: Any, places: Mapping[str, SmemBuffer]) -> SmemBuffer:
    name, size = str(buffer.name), ir.buffer_bytes(buffer)
    place = places.get(name)
    if place is None:
        raise InternalError(f"cannot find shared buffer '{name}' in the arena's plan")
    if place.bytes != size:
        raise InternalError(
            f"shared buffer '{name}' has {size} bytes, the arena's plan has {place.bytes}"
        )
    return place


def _fresh(buffer: Any) -> Any:
    """Return a flat buffer like ``buffer`` that allocates nothing."""
    align = buffer.ty.data_alignment
    return ir.buffer(list(buffer.shape), buffer.dtype, buffer.name, DYNAMIC, align)


def _add_aliases(kernel: Any, views: dict[Any, _View]) -> None:
    """Add to ``views`` the declarations over a buffer's data: they start where it starts."""

    def declared(stmt: Any) -> None:
        source = data_of(stmt.data)
        if source in views:
            views[stmt.buffer] = _View(_fresh(stmt.buffer), views[source].offset)

    ir.walk(kernel, tirx.DeclBuffer, declared)


def _rewrite(body: Any, views: Mapping[Any, _View]) -> Any:
    """Return ``body`` with every access moved to the arena, without allocations and aliases."""

    def load(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        view = views.get(node.source)
        if view is None:
            return node
        return tirx.BufferLoad(view.buffer, [node.indices[0] + view.elements])

    def store(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        view = views.get(node.buffer)
        if view is None:
            return node
        return tirx.BufferStore(view.buffer, node.value, [node.indices[0] + view.elements])

    def call(node: Any, mutator: Any) -> Any:
        name = called(node)
        view = views.get(data_of(node.args[1])) if name == ACCESS_PTR else None
        if view is not None:
            kind, _, offset, extent, mask = node.args
            start = view.offset_in(kind.ty if hasattr(kind, "ty") else view.buffer.dtype)
            moved = mutator.mutate(offset) + start
            args = [kind, view.buffer.data, moved, mutator.mutate(extent), mask]
            return ir.Call(node.op, args, ret_ty=node.ty)
        view = views.get(data_of(node))
        if view is not None:
            return T.address_of(tirx.BufferLoad(view.buffer, [view.elements]))
        return mutator.default_mutate(node)

    def drop(node: Any, mutator: Any) -> Any:
        return ir.seq() if node.buffer in views else mutator.default_mutate(node)

    rewriters = [
        (ir.TensorLoad, load),
        (tirx.BufferStore, store),
        (ir.Call, call),
        (tirx.AllocBuffer, drop),
        (tirx.DeclBuffer, drop),
    ]
    return tvm_ffi.structural_mutate(body, rewriters)
