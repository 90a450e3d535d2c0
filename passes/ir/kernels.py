"""Find the kernels of a function, and rebuild the statements around and inside them.

    func: { kernel 0: blockIdx.x in 784: ..; kernel 1: .. }   =>   kernels_of: [kernel 0, kernel 1]

A kernel is an outermost statement bound to the GPU: one function may have several in sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from tvm import tirx

from ...diagnostics import Reason
from . import nodes as ir

LAUNCH_PARAMS: Final = "tirx.kernel_launch_params"
"""Attribute of a function with tags of its launches."""

PDL: Final = "tirx.use_programtic_dependent_launch"
"""Tag of kernels that may begin before the one before has ended, in TVM's own (mis)spelling."""

COOPERATIVE: Final = "tirx.use_cooperative_launch"
"""Tag of kernels all of whose CTAs are to run at once."""

_AROUND_ONE: Final = frozenset({tirx.For, tirx.While, tirx.AttrStmt})
"""Statements that contain exactly one statement."""


def map_kernels(func: Any, rewrite: Callable[[Any], Any]) -> Any:
    """Return ``func`` with each of its kernels rewritten; the same object if none changes."""
    body = _map(func.body, rewrite)
    if body.same_as(func.body):
        return func
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def map_statement(stmt: Any, tag: str, rewrite: Callable[[Any], Any]) -> Any:
    """Return ``stmt`` with the outermost statements that bind the thread axis ``tag`` rewritten."""
    if thread_tag(stmt) == tag:
        return rewrite(stmt)
    inner = bodies(stmt)
    return with_bodies(stmt, [map_statement(part, tag, rewrite) for part in inner])


def inside_grid(kernel: Any, wrap: Callable[[Any], Any]) -> Any:
    """Return ``kernel`` with the body of its innermost loop bound to blockIdx wrapped."""
    if isinstance(kernel, ir.SBlockRealize) and not kernel.block.alloc_buffers:
        return with_block(kernel, body=inside_grid(kernel.block.body, wrap))
    if thread_tag(kernel) is not None:
        return with_bodies(kernel, [inside_grid(kernel.body, wrap)])
    return wrap(kernel)


def on_host(stmts: Sequence[Any], body: Any) -> Any:
    """Return a function's ``body`` with ``stmts`` before its kernels, and in scope of them."""
    if isinstance(body, ir.SBlockRealize):
        return with_block(body, body=ir.seq(*stmts, body.block.body))
    return ir.seq(*stmts, body)


def kernels_of(body: Any) -> list[Any]:
    """Return the kernels in the body of a function, in order."""
    found: list[Any] = []

    def keep(kernel: Any) -> Any:
        found.append(kernel)
        return kernel

    _map(body, keep)
    return found


def has_kernel(func: Any) -> bool:
    """Whether anything in ``func`` is bound to the GPU."""
    return bool(kernels_of(func.body))


def why_no_kernel(name: str) -> Reason:
    """Return what a function without anything bound to the GPU lacks, and what to do."""
    return Reason("loop.no_kernel", function=name)


def thread_tag(stmt: Any) -> str | None:
    """Return the thread axis that ``stmt`` binds, such as ``threadIdx.x``, or None."""
    kind = type(stmt)
    if kind is tirx.For and stmt.thread_binding is not None:
        return str(stmt.thread_binding.thread_tag)
    if kind is tirx.AttrStmt and stmt.attr_key in ("thread_extent", "virtual_thread"):
        return str(stmt.node.thread_tag)
    return None


def thread_extents(kernel: Any) -> dict[Any, int | None]:
    """Return the threadIdx variables of a kernel with their extents (None: not a constant).

    The last one counts fastest in a thread's number: ``threadIdx.z, y, x``.
    """
    found: dict[Any, tuple[str, int | None]] = {}

    def bound(stmt: Any) -> None:
        tag = thread_tag(stmt) or ""
        if tag.startswith("threadIdx"):
            loop = isinstance(stmt, tirx.For)
            var = stmt.loop_var if loop else stmt.node.var
            found[var] = tag, ir.const_int(stmt.extent if loop else stmt.value)

    ir.walk(kernel, (tirx.For, tirx.AttrStmt), bound)
    in_order = sorted(found.items(), key=lambda item: item[1][0], reverse=True)
    return {var: extent for var, (_, extent) in in_order}


def launch_tags(func: Any) -> list[str]:
    """Return how a function asks for its kernels to be launched, as TVM spells it."""
    return [str(tag) for tag in (func.attrs or {}).get(LAUNCH_PARAMS, ())]


def bodies(stmt: Any) -> list[Any]:
    """Return the statements directly inside ``stmt``."""
    kind = type(stmt)
    if kind in _AROUND_ONE:
        return [stmt.body]
    if kind is tirx.SeqStmt:
        return cast("list[Any]", stmt.seq[:])
    if kind is tirx.IfThenElse:
        return [stmt.then_case, *([] if stmt.else_case is None else [stmt.else_case])]
    if kind is ir.SBlockRealize:
        return [stmt.block.body]
    return []


def with_bodies(stmt: Any, new: Sequence[Any]) -> Any:
    """Return ``stmt`` around other inner statements; itself if they are the same."""
    if all(a.same_as(b) for a, b in zip(new, bodies(stmt))):
        return stmt
    if isinstance(stmt, tirx.SeqStmt):
        return ir.seq(*new)
    if isinstance(stmt, tirx.For):
        return tirx.For(
            stmt.loop_var,
            stmt.min,
            stmt.extent,
            stmt.kind,
            new[0],
            stmt.thread_binding,
            stmt.annotations,
            stmt.step,
        )
    if isinstance(stmt, tirx.While):
        return tirx.While(stmt.condition, new[0])
    if isinstance(stmt, tirx.AttrStmt):
        return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, new[0])
    if isinstance(stmt, tirx.IfThenElse):
        return tirx.IfThenElse(stmt.condition, new[0], new[1] if len(new) > 1 else None)
    return with_block(stmt, body=new[0])


def with_block(
    realize: Any,
    *,
    body: Any = None,
    allocs: Sequence[Any] | None = None,
    regions: tuple[Sequence[Any], Sequence[Any]] | None = None,
) -> Any:
    """Return an SBlockRealize whose block has another body, other allocations or ``regions``.

    ``regions``: what it reads and what it writes.
    """
    block = realize.block
    reads, writes = (block.reads, block.writes) if regions is None else regions
    new = ir.SBlock(
        block.iter_vars,
        list(reads),
        list(writes),
        block.name_hint,
        block.body if body is None else body,
        block.init,
        block.alloc_buffers if allocs is None else list(allocs),
        block.match_buffers,
        block.annotations,
    )
    return ir.SBlockRealize(realize.iter_values, realize.predicate, new)


def _map(stmt: Any, rewrite: Callable[[Any], Any]) -> Any:
    if thread_tag(stmt) is not None:
        return rewrite(stmt)
    inner = bodies(stmt)
    return with_bodies(stmt, [_map(body, rewrite) for body in inner]) if inner else stmt
