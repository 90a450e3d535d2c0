"""Read the op form of a candidate loop: its ops in program order and the buffers of its body.

Every pass from the dependence graph to the expansion reads loops in this form::

    for k in T.serial(min, n):
        with T.sblock(""):                        # absent when the body allocates nothing
            alloc_buffers(...)                    # what may become a ring
            T.attr(name, "pipeliner.op", name): statement
            ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm.s_tir import SBlockRealize
from tvm.tirx import ForKind

from ...errors import PlanError
from ...values.op import Op
from .nodes import Buffer, Expr, Stmt, collect, const_int, op_of, statements, walk


@dataclass(frozen=True, slots=True)
class OpLoop:
    """A loop in op form. ``block``: the SBlock of its body, if it has one."""

    node: Any
    block: Any
    ops: tuple[tuple[Op, Stmt], ...]
    allocs: tuple[Buffer, ...]

    @property
    def var(self) -> Var:
        """The loop variable."""
        return self.node.loop_var

    @property
    def extent(self) -> Expr:
        """The number of iterations."""
        return self.node.extent

    @property
    def trip(self) -> int | None:
        """The number of iterations if constant, else None."""
        return const_int(self.node.extent)

    @property
    def names(self) -> tuple[Op, ...]:
        """The ops without their statements, in program order."""
        return tuple(name for name, _ in self.ops)

    def buffer_names(self) -> dict[Buffer, str]:
        """Return a name for each buffer of the body that no other buffer of the body has."""
        taken: dict[Buffer, str] = {}
        for buf in self.allocs:
            name, count = str(buf.name), 0
            while name in taken.values():
                count += 1
                name = f"{buf.name}_{count}"
            taken[buf] = name
        return taken


def op_loop(node: Any) -> OpLoop | None:
    """Return the op form of a loop, or None if it has none (or is already expanded).

    Raises PlanError if two of its ops have one name.
    """
    if not isinstance(node, tirx.For) or node.kind != ForKind.SERIAL:
        return None
    body, block = node.body, None
    if isinstance(body, SBlockRealize):
        block = body.block
        if block.iter_vars or block.init is not None or const_int(body.predicate) != 1:
            return None
        body = block.body
    marked = [(op_of(stmt), stmt) for stmt in statements(body)]
    ops = tuple((op, stmt) for op, stmt in marked if op is not None)
    if len(ops) != len(marked):
        return None
    if len({op for op, _ in ops}) != len(ops):
        raise PlanError("schedule.op_names", loop=str(node.loop_var.name))
    return OpLoop(node, block, ops, tuple(block.alloc_buffers) if block is not None else ())


def op_loops(node: Any) -> Iterator[OpLoop]:
    """Yield every loop in op form below ``node``, outer before inner."""
    for loop in collect(node, tirx.For):
        form = op_loop(loop)
        if form is not None:
            yield form


def thread_extents(node: Any) -> dict[Var, int]:
    """Return the threadIdx variables bound by loops or launches below ``node``, with extents."""
    found: dict[Var, int] = {}

    def visit_loop(loop: Any) -> None:
        binding = loop.thread_binding
        if binding is not None and str(binding.thread_tag).startswith(("threadIdx", "vthread")):
            found[loop.loop_var] = const_int(loop.extent) or 1

    walk(node, tirx.For, visit_loop)
    return found
