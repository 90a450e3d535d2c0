"""Define the tree that barriers are placed in: statements are nodes, shared accesses are items.

    for k: { wait; copy S; use S }   =>   Node("loop", [Node("wait"), Node("leaf", [S: write]),
                                                        Node("leaf", [S: read])])

``barrier_tree`` builds the tree, ``sync`` marks the nodes that need a barrier before them, and
``rebuild`` makes the statement with those barriers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from tvm import tirx
from tvm.script import tirx as T
from tvm_ffi import StructuralKey

from ...diagnostics import Reason
from ...plan import SyncPlan
from ...values.op import NO_OP, Op
from ...values.origin import PHASE, STEADY, Origin
from ..analysis.access_values import Access, OrderingEvent
from ..analysis.accesses import event
from ..dependence.footprint import Lanes
from ..ir import nodes as ir
from ..ir.calls import CLUSTER_WAIT, called
from ..ir.kernels import bodies, with_bodies
from .mbarriers import ROLES_ATTR

_MERGE_OVER: Final = 8
"""Most accesses of one statement to one slot that are compared one by one; more become one."""

_EVENTS: Final = ("barrier", "wait", "wait_all", "group", "mma_wait")
_OWN_ORDER: Final = (
    "tirx.tvm_storage_sync",
    "tirx.ptx.mbarrier",
    "tirx.ptx.bar_",
    "tirx.ptx.barrier_",
    "tirx.cuda.mbarrier",
    "tirx.cuda.warp_sync",
    "tirx.cuda.warpgroup_sync",
)

Path: TypeAlias = "tuple[int, ...]"
NodeKind = Literal["leaf", "wrap", "seq", "loop", "branch"] | OrderingEvent


@dataclass(frozen=True, eq=False)
class Item:
    """An access with its op and the loops inside its leaf (``lanes``: variable to extent).

    ``guards``: conditions that hold whenever it is made.
    """

    access: Access
    lanes: Lanes
    op: str
    guards: tuple[Any, ...] = ()

    @property
    def is_read(self) -> bool:
        """Whether it only reads."""
        return self.access.mode == "read"


@dataclass(eq=False)
class Node:
    """A statement of the kernel, as far as ordering is concerned.

    ``items``: the accesses of a leaf, or those of the condition of a loop or branch. ``why``: set
    if a barrier stands before the statement. ``landed``: the writes that a wait completes, by their
    copies; ``finished``: the reads that a wgmma wait ends, by key. ``has_clash``: two accesses
    under it need an order.
    """

    kind: NodeKind
    stmt: Any
    children: list[Node] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    op: Op = NO_OP
    why: Reason | None = None
    path: Path = ()
    landed: dict[Item, Item] = field(default_factory=dict)
    finished: dict[Any, Item] = field(default_factory=dict)
    has_event: bool = False
    has_clash: bool = False
    has_items: bool = False

    def __post_init__(self) -> None:
        """Compute whether an event, a clash or an access is here or below."""
        self.has_event = self.kind in _EVENTS or any(child.has_event for child in self.children)
        self.has_clash = any(child.has_clash for child in self.children)
        self.has_items = bool(self.items) or any(child.has_items for child in self.children)


def number(node: Node, path: Path) -> None:
    """Give every node its path: the positions of it and its parents among their siblings."""
    node.path = path
    for i, child in enumerate(node.children):
        number(child, (*path, i))


def nodes(node: Node) -> Iterator[Node]:
    """Yield ``node`` and everything under it, in program order."""
    yield node
    for child in node.children:
        yield from nodes(child)


def repeats(node: Node) -> bool:
    """Whether ``node`` is a loop that may have a second iteration."""
    if node.kind != "loop":
        return False
    return isinstance(node.stmt, tirx.While) or ir.const_int(node.stmt.extent) != 1


def pruned(node: Node) -> Node:
    """Return ``node``, or a leaf if nothing under it matters."""
    if node.has_event or node.has_items:
        return node
    return Node("leaf", node.stmt, op=node.op)


def ended(node: Node, items: Sequence[Item]) -> list[Item]:
    """Return ``items``, all accesses of ``node``, with wgmma reads ended if it waits for all."""
    last = [found for found in nodes(node) if found.kind in ("group", "mma_wait")][-1:]
    if not last or left_in_flight(last[0]) != 0:
        return list(items)
    return [
        replace(item, access=replace(item.access, issue=False)) if item.is_read else item
        for item in items
    ]


def left_in_flight(node: Node) -> int | None:
    """Return how many groups of wgmma a wait leaves in flight; None if ``node`` is no such wait."""
    return ir.const_int(node.stmt.value.args[0]) if node.kind == "mma_wait" else None


def parts(node: Node) -> list[list[Item]]:
    """Return the accesses under ``node``, one list for each statement, in program order.

    Loops around them, ``node`` included, count as lanes: any two iterations may be compared.
    """
    if not node.has_items:
        return []
    inner = [items for child in node.children for items in parts(child)]
    if node.kind == "loop" and isinstance(node.stmt, tirx.For):
        lane = {node.stmt.loop_var: lanes(node.stmt)}
        inner = [[replace(i, lanes={**i.lanes, **lane}) for i in items] for items in inner]
    return [*([node.items] if node.items else []), *inner]


def merged(items: Sequence[Item]) -> list[Item]:
    """Return ``items``, with many accesses to one slot of a buffer merged, to bound the work."""
    if len(items) < 2:
        return list(items)
    groups: dict[Any, list[Item]] = {}
    for item in items:
        access, slot = item.access, StructuralKey(item.access.index[0])
        key = (access.buffer, access.mode, access.own, access.issue, slot)
        groups.setdefault(key, []).append(item)
    kept: list[Item] = []
    for group in groups.values():
        kept.extend(group if len(group) <= _MERGE_OVER else [_as_one(group)])
    return kept


def _as_one(group: Sequence[Item]) -> Item:
    access = group[0].access
    index = (access.index[0], *(None for _ in access.index[1:]))
    lanes = {var: extent for item in group for var, extent in item.lanes.items()}
    guards = tuple(
        guard
        for guard in group[0].guards
        if all(any(guard.same_as(other) for other in item.guards) for item in group)
    )
    return Item(replace(access, index=index, own=False), lanes, group[0].op, guards)


def lanes(loop: Any) -> int | None:
    """Return one more than the greatest value of a loop's variable, if constant, else None.

    None also if the variable may be negative.
    """
    low, extent = ir.const_int(loop.min), ir.const_int(loop.extent)
    return None if low is None or extent is None or low < 0 else low + extent


def conditions(stmt: Any) -> list[Any]:
    """Return for each inner statement of ``stmt`` the condition that it runs under, or None.

    A while loop's condition may no longer hold further on in its body, so it does not count.
    """
    if isinstance(stmt, tirx.IfThenElse):
        return [stmt.condition, tirx.Not(stmt.condition)][: len(bodies(stmt))]
    return [None for _ in bodies(stmt)]


def orders_itself(stmt: Any) -> bool:
    """Whether a statement has its own synchronisation, such as mbarriers between roles."""
    return ir.has(stmt, ir.Call, lambda call: called(call).startswith(_OWN_ORDER))


def title(stmt: Any) -> Reason:
    """Return a short description of a statement, for an error."""
    if isinstance(stmt, tirx.For):
        return Reason("sync.loop", var=str(stmt.loop_var.name))
    condition = stmt.predicate if isinstance(stmt, ir.SBlockRealize) else stmt.condition
    return Reason("sync.condition", condition=str(condition))


def pair(a: Item, b: Item) -> Reason:
    """Return the conflict between two accesses."""
    letter = {"read": "R", "write": "W"}
    kind = f"{letter.get(b.access.mode, 'W')}A{letter.get(a.access.mode, 'W')}"
    name, other = str(a.access.buffer.name), str(b.access.buffer.name)
    between = bool(a.op and b.op)
    if a.access.buffer.same_as(b.access.buffer):
        if not between:
            return Reason("sync.conflict", kind=kind, buffer=name)
        return Reason("sync.conflict_between", kind=kind, buffer=name, first=a.op, second=b.op)
    both = {"kind": kind, "buffer": name, "other": other}
    if not between:
        return Reason("sync.conflict_in_bytes", **both)
    return Reason("sync.conflict_in_bytes_between", **both, first=a.op, second=b.op)


def rebuild(node: Node) -> Any:
    """Return the statement of ``node`` with its barriers."""
    stmt = node.stmt
    if node.children:
        stmt = with_bodies(stmt, [rebuild(child) for child in node.children])
    if not node.why:
        return stmt
    barrier = tirx.Evaluate(T.tvm_storage_sync("shared"))
    return ir.seq(ir.with_origin(_barrier_origin(node), barrier), stmt)


def _barrier_origin(node: Node) -> Origin:
    """Return the origin of the barrier before ``node``: the first one in it, with the reason."""
    marked: list[Origin] = []

    def visit(stmt: Any) -> None:
        origin = None if marked else ir.origin_of(stmt)
        if origin is not None:
            marked.append(origin)

    ir.walk(node.stmt, tirx.AttrStmt, visit)
    first = marked[0] if marked else Origin(op=node.op)
    if node.kind == "loop":
        # Inside the loop it would be another phase, and of an iteration.
        first = replace(first, stage=None, phase="", iteration="")
    op = first.op and first.op.adding("barrier")
    return replace(first, op=op, kind="barrier", places=(), reason=str(node.why))


def summary(root: Node) -> SyncPlan:
    """Return what orders the kernel under ``root``: its barriers, waits and reasons."""
    waits = [n for n in nodes(root) if n.kind in ("wait", "wait_all")]
    steady = [n for n in nodes(root) if n.kind == "loop" and _phase(n.stmt) == STEADY]
    return SyncPlan(
        barriers=_barriers(root),
        barriers_in_steady=max((_barriers(loop) - bool(loop.why) for loop in steady), default=0),
        waits=tuple(_wait(n) for n in waits),
        reasons=tuple(
            Reason("sync.barrier", conflict=n.why) for n in nodes(root) if n.why is not None
        ),
    )


def _barriers(node: Node) -> int:
    """Count the barriers under ``node`` and the one before it."""
    return sum((n.kind == "barrier") + bool(n.why) + _of_clusters(n) for n in nodes(node))


def _of_clusters(node: Node) -> int:
    """Count the barriers of a cluster in a leaf: where all begin, and where a role ends.

    Neither orders the CTA's shared memory: at the one nothing is released, at the other the threads
    of other roles have exited.
    """
    if node.kind != "leaf":
        return 0
    calls = ir.collect(node.stmt, tirx.Evaluate)
    branches = ir.collect(node.stmt, tirx.AttrStmt)
    in_roles = [ir.collect(one, tirx.Evaluate) for one in branches if one.attr_key == ROLES_ATTR]
    return sum(called(stmt.value) == CLUSTER_WAIT for stmt in calls) + sum(
        event(stmt) == "barrier" for stmts in in_roles for stmt in stmts
    )


def _phase(stmt: Any) -> str:
    return str(getattr(stmt, "annotations", {}).get(PHASE, ""))


def _wait(node: Node) -> str:
    count = 0 if node.kind == "wait_all" else ir.const_int(node.stmt.value.args[0])
    return f"{node.op + ': ' if node.op else ''}wait_group {count}"
