"""Barriers for a whole function: the fewest that order every two conflicting shared accesses.

The function is walked in program order with the set of accesses since the last barrier. The first
access that conflicts with one of them puts a barrier before itself, as late and as far out as the
two allow: before the statement of the innermost sequence that holds both, and inside a loop only
when the loop itself brings the two together. Loops are walked until what they carry into their next
iteration no longer changes; slots of a ring are told apart across iterations (``differences``).

    prologue: copies 0 .. depth-2
    for k:    wait(k)   | barrier |   copies(k + depth-1)   compute(k)

One barrier a step orders both the landed copies before the compute that reads them and the compute
of the step before, before the copies that reuse its slot.

An asynchronous copy writes from its issue on, and becomes a write of the issuing thread, visible to
others after a barrier, when a wait lets it land. What wgmma reads it reads until a wait, too, of
which each ends all groups but the youngest few: to overwrite it before is an error, for no barrier
helps. A barrier stands only where every thread of the CTA passes: code under a thread-dependent
condition is one unit, a conflict inside it is an error.

Does not handle: an early return under a thread-dependent condition before a barrier.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range

from ..diagnostics import Reason
from ..errors import InternalError, LoweringError
from ..plan import SmemBuffer, SmemPlan, SyncPlan
from . import ir, ordering
from .accesses import Access, accesses, event, whole
from .channels import ROLES_ATTR
from .conflicts import Conflicts
from .kernels import bodies, map_kernels, thread_extents, thread_tag
from .ordering import EXACT_ITERATIONS, Item, Kind, Lanes, Node, Path, Pending, State
from .shared_views import SharedViews
from .uniform import Uniformity


class _Conflict(Exception):
    """A barrier is needed before the node at ``path``."""

    def __init__(self, path: Path, why: Reason) -> None:
        super().__init__(str(why))
        self.path = path
        self.why = why


def synchronise(func: Any, smem: SmemPlan | None = None) -> tuple[Any, SyncPlan]:
    """``func`` with the barriers it needs, and what they are.

    ``smem``: the arena; buffers that share bytes in it are ordered too. LoweringError names a
    statement that needs a barrier where not every thread of the CTA passes.
    """
    places = {buffer.buffer: buffer for buffer in (smem or SmemPlan()).buffers}
    plans: list[SyncPlan] = []

    def kernel(stmt: Any) -> Any:
        done, plan = _Synchroniser(stmt, places).run()
        plans.append(plan)
        return done

    return map_kernels(func, kernel), SyncPlan(
        barriers=sum(plan.barriers for plan in plans),
        barriers_in_steady=max((plan.barriers_in_steady for plan in plans), default=0),
        waits=tuple(wait for plan in plans for wait in plan.waits),
        reasons=tuple(reason for plan in plans for reason in plan.reasons),
    )


def _roles(stmt: Any, op: str, views: SharedViews) -> Node:
    """The branches of roles as one leaf: mbarrier pairs order what passes between them.

    No barrier of the CTA may stand in there, so there must be nothing else to order.
    """
    ordered = str(stmt.value.value).split(",")
    for access in accesses(stmt.body):
        buffer = views.root(access.buffer)
        if str(buffer.name) not in ordered:
            raise LoweringError("sync.no_mbarriers", buffer=str(buffer.name))
    return Node("leaf", stmt, op=op)


class _Synchroniser:
    """One kernel: builds the tree of nodes, places barriers, rebuilds the statement."""

    def __init__(self, kernel: Any, places: Mapping[str, SmemBuffer]) -> None:
        self._kernel = kernel
        self._threads = thread_extents(kernel)
        self._uniform = Uniformity(kernel)
        self._prover = sym.Analyzer()
        self._ranges: dict[Any, Range] = {}
        self._local_values: set[Any] = set()
        self._guards: tuple[Any, ...] = ()
        self._memo: dict[Any, dict[Item, bool]] = {}
        self._buffers: dict[Any, Any] = {}
        self._writes: dict[Item, Access] = {}
        self._root = Node("seq", kernel)
        ir.walk(kernel, tirx.Bind, lambda bind: self._local_values.add(bind.var))
        self._views = SharedViews(kernel, self._prover)
        self._conflicts = Conflicts(places, self._threads, self._prover, self._views.root)
        for var, extent in self._threads.items():
            if extent is not None:
                self._bind(var, ir.i32(0), ir.i32(extent))

    def run(self) -> tuple[Any, SyncPlan]:
        """The kernel with barriers, and what they are."""
        self._root = self._build(self._kernel, {}, "")
        ordering.number(self._root, ())
        try:
            self._visit(self._root, State())
        except _Conflict as conflict:
            raise InternalError(f"cannot place the barrier for {conflict.why}") from conflict
        return ordering.rebuild(self._root), ordering.summary(self._root)

    # The tree.

    def _bind(self, var: Any, low: Any, extent: Any) -> None:
        bounds = Range.from_min_extent(low, extent)
        if var not in self._ranges:
            self._ranges[var] = bounds
            self._prover.bind(var, bounds)
        elif not _is_same(bounds, self._ranges[var]):
            raise LoweringError("sync.variable", variable=str(var))

    def _build(self, stmt: Any, lanes: Lanes, op: str) -> Node:
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
            name = ir.op_name(stmt)
            node = ordering.pruned(self._wrap(stmt, lanes, name or op))
            return node if name is None else self._settle(node, True)
        kind = event(stmt)
        if kind is not None:
            return Node(kind, stmt, op=op)
        return Node("leaf", stmt, items=self._items(stmt, lanes, op), op=op)

    def _wrap(self, stmt: Any, lanes: Lanes, op: str) -> Node:
        return Node("wrap", stmt, [self._build(body, lanes, op) for body in bodies(stmt)], op=op)

    def _build_for(self, stmt: Any, lanes: Lanes, op: str) -> Node:
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

    def _guarded(self, kind: Kind, stmt: Any, condition: Any, lanes: Lanes, op: str) -> Node:
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
        """``guard`` (None: nothing) among the conditions of the accesses that are built."""
        before = self._guards
        if guard is not None and self._is_fixed(guard):
            self._guards = (*before, guard)
        yield
        self._guards = before

    def _items(self, part: Any, lanes: Lanes, op: str) -> list[Item]:
        return ordering.merged([self._item(a, lanes, op) for a in accesses(part, self._prover)])

    def _item(self, access: Access, lanes: Lanes, op: str) -> Item:
        """``access`` as an item, without indices that may change from one mention to the next.

        And of the one object for its buffer: to compare those is then cheap.
        """
        access = self._views.resolved(access)
        buffer = self._buffers.setdefault(access.buffer, access.buffer)
        index = tuple(x if self._is_fixed(x) else None for x in access.index)
        if access.width > 1 and index[-1] is not None:
            element = ir.Var("element", "int32")
            self._bind(element, ir.i32(0), ir.i32(access.width))
            index = (*index[:-1], index[-1] + element)
            lanes = {**lanes, element: access.width}
        tile = access.tile
        if tile is not None and self._is_fixed(tile.offset):
            row, column = ir.Var("row", "int32"), ir.Var("column", "int32")
            self._bind(row, ir.i32(0), ir.i32(tile.rows))
            self._bind(column, ir.i32(0), ir.i32(tile.columns))
            # One more dimension than the buffer has: compared between tiles alone.
            index = (*index, tile.offset + row * tile.stride + column)
            lanes = {**lanes, row: tile.rows, column: tile.columns}
        return Item(replace(access, buffer=buffer, index=index), lanes, op, self._guards)

    def _is_fixed(self, index: Any) -> bool:
        if type(index) in ir.CONSTANTS:
            return True
        if index is None or (self._local_values and ir.uses(index, self._local_values)):
            return False
        return not ir.has(index, (ir.TensorLoad, ir.Call))

    def _settle(self, node: Node, uniform: bool) -> Node:
        """``node`` as one leaf where no barrier is needed, or none is possible, inside it."""
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
        """The first two accesses that need an order; None when there are none.

        In a loop every access is compared with every other: its iterations are lanes of them.
        """
        for i, part in enumerate(parts):
            for other in parts if looped else parts[i + 1 :]:
                for a, b in itertools.product(part, other):
                    guards = (*a.guards, *b.guards)
                    if self._conflicts.between(a, a.access.index, b, b.access.index, guards):
                        return ordering.pair(a, b)
        return None

    # Placing barriers.

    def _visit(self, node: Node, state: State) -> State:
        """The state after ``node``; the barriers under it are placed anew."""
        node.why = None
        while True:
            entry = replace(state, pending={}) if node.why else state
            try:
                return self._enter(node, entry)
            except _Conflict as conflict:
                if conflict.path != node.path or node.why:
                    raise
                node.why = conflict.why

    def _enter(self, node: Node, state: State) -> State:
        if node.kind == "barrier":
            return replace(state, pending={})
        if node.kind in ("wait", "wait_all"):
            return self._land(node, state)
        if node.kind == "mma_wait":
            return self._finish(node, state)
        if node.kind == "group":
            older = map(ordering.committed, state.reading.values())
            return replace(state, reading={entry.key: entry for entry in older})
        state = self._touch(node, state)
        if node.kind == "branch":
            outs = [self._visit(child, state) for child in node.children]
            return outs[0] | (outs[1] if len(outs) > 1 else state)
        if node.kind == "loop":
            return self._loop(node, state)
        for child in node.children:
            state = self._visit(child, state)
        return state

    def _touch(self, node: Node, state: State) -> State:
        """The state after the accesses of ``node`` itself."""
        if not node.items:
            return state
        self._check_reading(node, state)
        self._check(node, state)
        entries = [Pending(item, item.access.index, item.guards, node.path) for item in node.items]
        issued = [entry for entry in entries if entry.item.access.issue]
        pending = {**state.pending, **{entry.key: entry for entry in entries}}
        flying = dict.fromkeys(entry.item for entry in issued if not entry.item.is_read)
        reading = {entry.key: entry for entry in issued if entry.item.is_read}
        return State(pending, {**state.flying, **flying}, {**state.reading, **reading})

    def _land(self, node: Node, state: State) -> State:
        """The state after a wait: any copy in flight may be what it completes."""
        pending = dict(state.pending)
        for copy in state.flying:
            item = node.landed.get(copy)
            if item is None:
                item = node.landed[copy] = self._landed(copy, node.op or "wait")
            entry = Pending(item, item.access.index, item.guards, node.path)
            pending[entry.key] = entry
        flying = {} if node.kind == "wait_all" else state.flying
        return replace(state, pending=pending, flying=flying)

    def _finish(self, node: Node, state: State) -> State:
        """The state after a wait for wgmma: the reads that it ends may have lasted until then."""
        pending = dict(state.pending)
        left = ordering.left_in_flight(node)
        reading = {
            key: entry
            for key, entry in state.reading.items()
            if left is None or entry.groups <= left
        }
        for key, entry in state.reading.items():
            if key in reading:
                continue
            if key not in node.finished:
                access = replace(entry.item.access, issue=False)
                node.finished[key] = replace(entry.item, access=access, op=node.op or "wait")
            read = Pending(node.finished[key], entry.index, entry.guards, node.path)
            pending[read.key] = read
        return replace(state, pending=pending, reading=reading)

    def _landed(self, copy: Item, op: str) -> Item:
        """The write that ``copy``, of some iteration, becomes: the thread's own where it was."""
        if not copy.access.own:
            return Item(whole(copy.access.buffer, "write"), {}, op)
        if copy not in self._writes:
            fixed = {**self._threads, **copy.lanes}
            index = tuple(x if _is_of(x, fixed) else None for x in copy.access.index)
            self._writes[copy] = replace(copy.access, mode="write", index=index, issue=False)
        return Item(self._writes[copy], copy.lanes, op)

    def _loop(self, node: Node, state: State) -> State:
        """The state after a loop.

        What the loop itself carries is found first, without what came before it: where only that
        conflicts, one barrier before the loop is enough.
        """
        var = getattr(node.stmt, "loop_var", None)
        before = state.each(lambda entry: ordering.entered(entry, var))
        if not ordering.repeats(node):
            return self._visit(node.children[0], state)
        with self._running(node.stmt):
            inside = replace(before, pending={})
            alone, _ = self._iterate(node, inside, inside)
            _, after = self._iterate(node, before, alone)
        if var is None:
            return after | state
        last = self._prover.simplify(node.stmt.min + node.stmt.extent - 1)
        after = after.each(lambda entry: ordering.left(entry, node, last))
        return after if self._prover.can_prove(node.stmt.extent >= 1) else after | state

    def _running(self, stmt: Any) -> AbstractContextManager[Any]:
        """The prover's knowledge inside a loop: it has an iteration."""
        if not isinstance(stmt, tirx.For) or ir.const_int(stmt.extent) is not None:
            return nullcontext()
        return self._conflicts.assuming(stmt.extent >= 1)

    def _iterate(self, node: Node, before: State, carried: State) -> tuple[State, State]:
        """What an iteration hands to the next, and the state after it, at the fixed point."""
        for count in itertools.count():
            after = self._visit(node.children[0], before | carried)
            handed = after.each(lambda entry: ordering.carried(entry, node))
            if handed.within(before | carried):
                break
            # Exchanged at first, because a barrier placed now may end what was carried; later only
            # added to, which is sure to end.
            carried = handed if count < EXACT_ITERATIONS else handed | carried
        return carried, after

    def _check_reading(self, node: Node, state: State) -> None:
        """LoweringError where ``node`` overwrites what wgmma in flight still reads."""
        for entry in state.reading.values():
            item = self._first_conflict(entry, node.items)
            if item is not None:
                conflict = ordering.pair(entry.item, item)
                raise LoweringError("sync.needs_wgmma_wait", conflict=conflict)

    def _check(self, node: Node, state: State) -> None:
        """Raise where a barrier must stand if ``node`` conflicts with what is pending."""
        place: Path = ()
        why: Reason | None = None
        for entry in state.pending.values():
            if why and len(self._place(entry, node.path)) <= len(place):
                continue  # a barrier is needed as late as that anyway
            item = self._first_conflict(entry, node.items)
            if item is not None:
                place, why = self._place(entry, node.path), ordering.pair(entry.item, item)
        if why:
            raise _Conflict(place, why)

    def _first_conflict(self, entry: Pending, items: Sequence[Item]) -> Item | None:
        """The first of ``items`` that needs an order after ``entry``."""
        known = self._memo.setdefault(entry.key, {})
        for item in items:
            if item.is_read and entry.item.is_read:
                continue
            if item not in known:
                known[item] = self._conflict(entry, item)
            if known[item]:
                return item
        return None

    def _conflict(self, entry: Pending, item: Item) -> bool:
        if not self._conflicts.meet(entry.item.access.buffer, item.access.buffer):
            return False
        lows = {var: self._ranges[var].min for var in entry.first}
        index = ordering.placed(item.access.index, lows)
        guards = (*entry.guards, *ordering.placed(item.guards, lows))
        return self._conflicts.between(entry.item, entry.index, item, index, guards)

    def _place(self, entry: Pending, path: Path) -> Path:
        """The latest statement up to the leaf at ``path`` that is surely after ``entry``.

        For an access of the same iteration that is the statement of the innermost sequence around
        both; for one that a loop carried here, the statement of that loop's body.
        """
        if entry.crossed:
            return self._statement(path, min(depth for depth, _ in entry.crossed) + 1)
        same = sum(1 for _ in itertools.takewhile(lambda ab: ab[0] == ab[1], zip(entry.path, path)))
        if same == len(entry.path):
            return self._statement(path, same + 1)
        return path[: same + 1]

    def _statement(self, path: Path, depth: int) -> Path:
        """``path`` cut at ``depth``, or where the first sequence further in has its statement."""
        node = self._root
        for step in path[:depth]:
            node = node.children[step]
        while node.kind == "wrap" and depth < len(path):
            node = node.children[path[depth]]
            depth += 1
        return path[: depth + 1] if node.kind == "seq" else path[:depth]


def _is_of(expr: Any | None, variables: Container[Any]) -> bool:
    """Whether ``expr`` depends on ``variables`` alone; None, which may be anything, does not."""
    return expr is not None and all(var in variables for var in ir.variables(expr))


def _is_same(left: Range, right: Range) -> bool:
    """Whether two ranges hold the same values: relax's loops count in int64."""
    numbers = [ir.const_int(part) for one in (left, right) for part in (one.min, one.extent)]
    if None not in numbers:
        return numbers[:2] == numbers[2:]
    return bool(tvm_ffi.structural_equal(left, right))
