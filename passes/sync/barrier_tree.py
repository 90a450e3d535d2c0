"""Build the tree of nodes in which barriers are placed (``ordering`` has the node).

A loop or branch stays a node with children if a barrier may have to stand inside it and every
thread of the CTA takes it alike. Every other statement becomes one leaf with its accesses:

    if tx < 32: { S[tx] = ..; .. = T[tx] }   =>   Node("leaf", [S: write, T: read])

A conflict inside such a leaf is an error (LoweringError), because no barrier may stand there. So is
an access in the branches of warp roles to shared memory that no mbarrier pair orders.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range

from ...diagnostics import Reason
from ...errors import LoweringError
from ...plan import SmemBuffer
from ...values.op import NO_OP, Op
from ..analysis.access_values import Access
from ..analysis.accesses import accesses, event
from ..analysis.shared_views import SharedViews
from ..analysis.uniform import Uniformity
from ..dependence.footprint import Lanes
from ..ir import nodes as ir
from ..ir.kernels import bodies, thread_extents, thread_tag
from . import ordering
from .conflicts import Conflicts
from .mbarriers import ROLES_ATTR
from .ordering import Item, Node, NodeKind


@dataclass(frozen=True)
class Tree:
    """The nodes of one kernel, and what is known of the values in it.

    ``threads``: the extent of each thread axis. ``ranges``: of loop variables and thread axes,
    which ``prover`` knows as well. ``conflicts``: whether two accesses need an order.
    """

    root: Node
    threads: Mapping[Any, int | None]
    ranges: Mapping[Any, Range]
    prover: Any
    conflicts: Conflicts


def barrier_tree(kernel: Any, places: Mapping[str, SmemBuffer]) -> Tree:
    """The tree of ``kernel``, whose shared buffers lie at ``places`` in shared memory."""
    return _Builder(kernel, places).tree(kernel)


class _Builder:
    """Builds the nodes of one kernel, innermost statements first."""

    def __init__(self, kernel: Any, places: Mapping[str, SmemBuffer]) -> None:
        self._threads = thread_extents(kernel)
        self._uniform = Uniformity(kernel)
        self._prover = sym.Analyzer()
        self._ranges: dict[Any, Range] = {}
        self._local_values: set[Any] = set()
        self._guards: tuple[Any, ...] = ()
        self._buffers: dict[Any, Any] = {}
        ir.walk(kernel, tirx.Bind, lambda bind: self._local_values.add(bind.var))
        self._views = SharedViews(kernel, self._prover)
        self._conflicts = Conflicts(places, self._threads, self._prover, self._views.root)
        for var, extent in self._threads.items():
            if extent is not None:
                self._bind(var, ir.i32(0), ir.i32(extent))

    def tree(self, kernel: Any) -> Tree:
        """The tree of ``kernel``, its nodes numbered."""
        root = self._build(kernel, {}, NO_OP)
        ordering.number(root, ())
        return Tree(root, self._threads, self._ranges, self._prover, self._conflicts)

    def _bind(self, var: Any, low: Any, extent: Any) -> None:
        bounds = Range.from_min_extent(low, extent)
        if var not in self._ranges:
            self._ranges[var] = bounds
            self._prover.bind(var, bounds)
        elif not _is_same(bounds, self._ranges[var]):
            raise LoweringError("sync.variable", variable=str(var))

    def _build(self, stmt: Any, lanes: Lanes, op: Op) -> Node:
        shape = type(stmt)
        if shape is tirx.SeqStmt:
            return ordering.pruned(
                Node("seq", stmt, [self._build(s, lanes, op) for s in bodies(stmt)], op=op)
            )
        if shape is tirx.For:
            return self._build_for(stmt, lanes, op)
        if shape is tirx.While:
            return self._guarded("loop", stmt, stmt.condition, lanes, op)
        if shape is tirx.IfThenElse:
            return self._guarded("branch", stmt, stmt.condition, lanes, op)
        if shape is ir.SBlockRealize:
            if ir.const_int(stmt.predicate) == 1:
                return ordering.pruned(self._wrap(stmt, lanes, op))
            return self._guarded("branch", stmt, stmt.predicate, lanes, op)
        if shape is tirx.AttrStmt and stmt.attr_key == ROLES_ATTR:
            return _roles(stmt, op, self._views)
        if shape is tirx.AttrStmt:
            name = ir.op_of(stmt)
            node = ordering.pruned(self._wrap(stmt, lanes, name or op))
            return node if name is None else self._settle(node, True)
        kind = event(stmt)
        if kind is not None:
            return Node(kind, stmt, op=op)
        return Node("leaf", stmt, items=self._items(stmt, lanes, op), op=op)

    def _wrap(self, stmt: Any, lanes: Lanes, op: Op) -> Node:
        return Node("wrap", stmt, [self._build(body, lanes, op) for body in bodies(stmt)], op=op)

    def _build_for(self, stmt: Any, lanes: Lanes, op: Op) -> Node:
        self._bind(stmt.loop_var, stmt.min, stmt.extent)
        tag = thread_tag(stmt)
        if tag is not None:
            # Virtual threads are run one after the other inside each statement.
            own = (
                {}
                if tag.startswith(("threadIdx", "blockIdx"))
                else {stmt.loop_var: ordering.lanes(stmt)}
            )
            return ordering.pruned(self._wrap(stmt, {**lanes, **own}, op))
        uniform = self._uniform.is_uniform(stmt.min) and self._uniform.is_uniform(stmt.extent)
        body = self._build(stmt.body, lanes, op)
        return self._settle(ordering.pruned(Node("loop", stmt, [body], op=op)), uniform)

    def _guarded(self, kind: NodeKind, stmt: Any, condition: Any, lanes: Lanes, op: Op) -> Node:
        children = []
        for guard, body in zip(ordering.conditions(stmt), bodies(stmt), strict=True):
            if guard is not None and ir.const_int(self._prover.simplify(guard)) == 0:
                children.append(Node("leaf", body, op=op))  # it never runs
                continue
            with self._under(guard):
                children.append(self._build(body, lanes, op))
        node = Node(kind, stmt, children, self._items(condition, lanes, op), op)
        return self._settle(ordering.pruned(node), self._uniform.is_uniform(condition))

    @contextmanager
    def _under(self, guard: Any) -> Iterator[None]:
        """Add ``guard`` (None: nothing) to the conditions of accesses that are built meanwhile."""
        before = self._guards
        if guard is not None and self._is_fixed(guard):
            self._guards = (*before, guard)
        yield
        self._guards = before

    def _items(self, part: Any, lanes: Lanes, op: Op) -> list[Item]:
        return ordering.merged([self._item(a, lanes, op) for a in accesses(part, self._prover)])

    def _item(self, access: Access, lanes: Lanes, op: Op) -> Item:
        """Return ``access`` as an item, without indices that may change between mentions.

        Each buffer is represented by one object, so that comparing two is cheap.
        """
        access = self._views.resolved(access)
        buffer = self._buffers.setdefault(access.buffer, access.buffer)
        index = tuple(x if self._is_fixed(x) else None for x in access.index)
        if access.width > 1 and index[-1] is not None:
            element = ir.Var("element", "int32")
            self._bind(element, ir.i32(0), ir.i32(access.width))
            index = (*index[:-1], index[-1] + element)
            lanes = {**lanes, element: access.width}
        region = access.region
        if region is not None and self._is_fixed(region.offset):
            row, column = ir.Var("row", "int32"), ir.Var("column", "int32")
            self._bind(row, ir.i32(0), ir.i32(region.rows))
            self._bind(column, ir.i32(0), ir.i32(region.columns))
            # One more dimension than the buffer has: compared between regions alone.
            index = (*index, region.offset + row * region.stride + column)
            lanes = {**lanes, row: region.rows, column: region.columns}
        return Item(replace(access, buffer=buffer, index=index), lanes, op, self._guards)

    def _is_fixed(self, index: Any) -> bool:
        if type(index) in ir.CONSTANTS:
            return True
        if index is None or (self._local_values and ir.uses(index, self._local_values)):
            return False
        return not ir.has(index, (ir.TensorLoad, ir.Call))

    def _settle(self, node: Node, uniform: bool) -> Node:
        """Return ``node`` as one leaf if no barrier is needed inside it, or none is possible."""
        if node.kind == "leaf":
            return node
        if uniform and (node.has_event or node.has_clash):
            return node
        parts = ordering.parts(node)
        if getattr(node.stmt, "kind", None) == ir.ForKind.VECTORIZED:
            # Its iterations are lanes of one access: nothing can stand between them.
            return Node("leaf", node.stmt, items=[i for part in parts for i in part], op=node.op)
        clash = self._clash(parts, ordering.repeats(node))
        if uniform and clash:
            node.has_clash = True
            return node
        if clash and not ordering.orders_itself(node.stmt):
            where = ordering.title(node.stmt)
            raise LoweringError("sync.divergent", where=where, conflict=clash)
        items = ordering.ended(node, [item for part in parts for item in part])
        return Node("leaf", node.stmt, items=ordering.merged(items), op=node.op)

    def _clash(self, parts: list[list[Item]], looped: bool) -> Reason | None:
        """Return the first conflict between two accesses that need an order; None if there is none.

        In a loop every access is compared with every other, because its iterations count as lanes.
        """
        for i, part in enumerate(parts):
            for other in parts if looped else parts[i + 1 :]:
                for a, b in itertools.product(part, other):
                    guards = a.guards, b.guards
                    if self._conflicts.between(a, a.access.index, b, b.access.index, guards):
                        return ordering.pair(a, b)
        return None


def _roles(stmt: Any, op: Op, views: SharedViews) -> Node:
    """Return the branches of roles as one leaf: mbarrier pairs order the accesses in them.

    No barrier of the CTA may stand in there, so nothing else in them may need an order. A cluster's
    may, where the others have exited: it waits for none of those.
    """
    ordered = str(stmt.value.value).split(",")
    for access in accesses(stmt.body):
        buffer = views.root(access.buffer)
        if str(buffer.name) not in ordered:
            raise LoweringError("sync.no_mbarriers", buffer=str(buffer.name))
    return Node("leaf", stmt, op=op)


def _is_same(left: Range, right: Range) -> bool:
    """Whether two ranges hold the same values, of any type: relax's loops count in int64."""
    numbers = [ir.const_int(part) for one in (left, right) for part in (one.min, one.extent)]
    if None not in numbers:
        return numbers[:2] == numbers[2:]
    return bool(tvm_ffi.structural_equal(left, right))
