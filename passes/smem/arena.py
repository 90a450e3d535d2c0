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

from ...errors import InternalError
from ...plan import PLAN_ATTR, KernelPlan, SmemBuffer
from ..ir import nodes as ir
from ..ir.calls import data_of
from ..ir.kernels import map_kernels, with_bodies
from ..ir.moved import MovedWhole, Mover
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
class _View(MovedWhole):
    """A flat buffer in the arena and its first byte."""

    buffer: Any
    offset: int

    def at(self, indices: Sequence[Any]) -> Sequence[Any]:
        """The index in the arena's elements of the buffer's type."""
        return [indices[0] + self.ahead(self.buffer.dtype)]

    def ahead(self, unit: Any) -> Any:
        """The offset in elements of ``unit``."""
        return ir.i32(self.offset // ir.dtype_bytes(unit))


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

    def drop(node: Any) -> Any:
        return ir.seq() if node.buffer in views else node

    rules = [*Mover(views).rules, ((tirx.AllocBuffer, tirx.DeclBuffer), drop)]
    return tvm_ffi.structural_map(body, rules, order="post")
