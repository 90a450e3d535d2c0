"""Refuse statements outside of every kernel that access the GPU's memory: the host would run them.

    for blockIdx.x in 64: P[..] = ..       a kernel
    for i in range(512): C[i] = P[i]       the host's: a segmentation fault at the first call

TVM's own check, VerifyMemory, does not know parameters of more than one dimension, which it
flattens to buffers of other names before.

Does not handle: extents of a grid that are loaded from memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tvm import tirx

from ...errors import PlanError
from ..ir.calls import ADDRESS_OF, called
from ..ir.kernels import bodies, thread_tag
from ..ir.nodes import Call, SBlockRealize, TensorLoad, collect, has, is_global

_ROOT: Final = "root"
"""The block around a function's body that TVM adds."""

_OWN: Final = ("condition", "min", "extent", "value", "predicate")
"""Expressions of statements that contain others."""


def check_host(func: Any) -> None:
    """Raise PlanError where ``func`` accesses a parameter or a workspace outside of its kernels."""
    name = str((func.attrs or {}).get("global_symbol", "main"))
    for block, buffer in _accessed(func.body, ""):
        if is_global(buffer):
            raise PlanError(
                "host.access", function=name, block=block or name, buffer=str(buffer.name)
            )


def _accessed(stmt: Any, block: str) -> Iterator[tuple[str, Any]]:
    """Yield the buffers that the host accesses, each with the name of the block that does so."""
    if thread_tag(stmt) is not None:
        return
    if isinstance(stmt, SBlockRealize):
        given = str(stmt.block.name_hint)
        block = block if given in ("", _ROOT) else given
    inner = bodies(stmt)
    if not inner and has(stmt, (tirx.For, tirx.AttrStmt), lambda one: thread_tag(one) is not None):
        return  # a statement around a kernel that nothing here looks into
    own = [getattr(stmt, name, None) for name in _OWN] if inner else [stmt]
    for part in own:
        yield from ((block, buffer) for buffer in _of(part))
    for one in inner:
        yield from _accessed(one, block)


def _of(node: Any) -> Iterator[Any]:
    """Yield the buffers that ``node`` stores to and loads from; an address is neither."""
    calls = collect(node, Call, lambda call: called(call) == ADDRESS_OF)
    addresses = [call.args[0] for call in calls]
    yield from (store.buffer for store in collect(node, tirx.BufferStore))
    for load in collect(node, TensorLoad):
        if not any(load.same_as(address) for address in addresses):
            yield load.source
