"""Place the barriers of a function: the fewest that order every two conflicting shared accesses.

    for k:  wait(k)                               for k:  wait(k)
            copy slot (k + depth - 1) % depth  =>         barrier
            compute on slot k % depth                     copy slot (k + depth - 1) % depth
                                                          compute on slot k % depth

The one barrier orders the landed copies before the compute that reads them. It also orders the
compute of the step before, before the copies that overwrite its slot.

Statements are visited in program order with the accesses since the last barrier
(``barrier_state``). The first access that conflicts with one of them needs a barrier before it. The
barrier stands as late and as far out as the two allow: before a statement of the innermost sequence
around both, and inside a loop only if the loop itself brings the two together. A loop is visited
until what it carries into its next iteration no longer changes. Slots of a ring are compared across
iterations (``differences``).

An asynchronous copy writes from its issue on. When a wait completes it, it is a write of the thread
that issued it, which others see after a barrier. A wgmma reads its operands until a wgmma wait ends
its group; to overwrite them before is an error, because no barrier orders that. A barrier stands
only where every thread of the CTA passes (``barrier_tree``).

Does not handle: an early return under a thread-dependent condition before a barrier.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from tvm import tirx

from ...diagnostics import Reason
from ...errors import InternalError, LoweringError
from ...plan import SmemPlan, SyncPlan
from ..analysis.access_values import Access
from ..analysis.accesses import whole
from ..ir import nodes as ir
from ..ir.kernels import map_kernels
from ..ir.named_pass import named_pass
from . import barrier_state, ordering
from .barrier_state import EXACT_ITERATIONS, BarrierState, Pending
from .barrier_tree import Tree, barrier_tree
from .ordering import Item, Node, Path


class _Conflict(Exception):
    """A barrier is needed before the node at ``path``."""

    def __init__(self, path: Path, why: Reason) -> None:
        super().__init__(str(why))
        self.path = path
        self.why = why


@named_pass("Synchronise")
def synchronise(func: Any, smem: SmemPlan | None = None) -> tuple[Any, SyncPlan]:
    """Return ``func`` with the barriers it needs, and the plan of those.

    ``smem``: the arena; buffers that share bytes in it are ordered too. Raises LoweringError for a
    statement that needs a barrier where not every thread of the CTA passes.
    """
    places = {buffer.buffer: buffer for buffer in (smem or SmemPlan()).buffers}
    plans: list[SyncPlan] = []

    def kernel(stmt: Any) -> Any:
        done, plan = Synchroniser(barrier_tree(stmt, places)).run()
        plans.append(plan)
        return done

    return map_kernels(func, kernel), SyncPlan(
        barriers=sum(plan.barriers for plan in plans),
        barriers_in_steady=max((plan.barriers_in_steady for plan in plans), default=0),
        waits=tuple(wait for plan in plans for wait in plan.waits),
        reasons=tuple(reason for plan in plans for reason in plan.reasons),
    )


class Synchroniser:
    """Places the barriers of one kernel: marks the nodes of its tree that need one before them."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._memo: dict[Any, dict[Item, bool]] = {}
        self._writes: dict[Item, Access] = {}

    def run(self) -> tuple[Any, SyncPlan]:
        """Return the kernel with barriers, and the plan of those."""
        root = self._tree.root
        try:
            self._visit(root, BarrierState())
        except _Conflict as conflict:
            raise InternalError(f"cannot place the barrier for {conflict.why}") from conflict
        return ordering.rebuild(root), ordering.summary(root)

    def _visit(self, node: Node, state: BarrierState) -> BarrierState:
        """Return the state after ``node``, with the barriers under it placed anew."""
        node.why = None
        while True:
            entry = replace(state, pending={}) if node.why else state
            try:
                return self._enter(node, entry)
            except _Conflict as conflict:
                if conflict.path != node.path or node.why:
                    raise
                node.why = conflict.why

    def _enter(self, node: Node, state: BarrierState) -> BarrierState:
        if node.kind == "barrier":
            return replace(state, pending={})
        if node.kind in ("wait", "wait_all"):
            return self._land(node, state)
        if node.kind == "mma_wait":
            return self._finish(node, state)
        if node.kind == "group":
            older = map(barrier_state.committed, state.reading.values())
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

    def _touch(self, node: Node, state: BarrierState) -> BarrierState:
        """Return the state after the accesses of ``node`` itself."""
        if not node.items:
            return state
        self.check_reading(node, state)
        self._check(node, state)
        entries = [Pending(item, item.access.index, item.guards, node.path) for item in node.items]
        issued = [entry for entry in entries if entry.item.access.issue]
        pending = {**state.pending, **{entry.key: entry for entry in entries}}
        in_flight = dict.fromkeys(entry.item for entry in issued if not entry.item.is_read)
        reading = {entry.key: entry for entry in issued if entry.item.is_read}
        return BarrierState(pending, {**state.in_flight, **in_flight}, {**state.reading, **reading})

    def _land(self, node: Node, state: BarrierState) -> BarrierState:
        """Return the state after a wait, which may complete any copy in flight."""
        pending = dict(state.pending)
        for copy in state.in_flight:
            item = node.landed.get(copy)
            if item is None:
                item = node.landed[copy] = self._landed(copy, node.op or "wait")
            entry = Pending(item, item.access.index, item.guards, node.path)
            pending[entry.key] = entry
        in_flight = {} if node.kind == "wait_all" else state.in_flight
        return replace(state, pending=pending, in_flight=in_flight)

    def _finish(self, node: Node, state: BarrierState) -> BarrierState:
        """Return the state after a wgmma wait: the reads that it ends may last until then."""
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
        """Return the write that ``copy``, of some iteration, becomes when it completes.

        It is the write of the issuing thread if the copy was.
        """
        if not copy.access.own:
            return Item(whole(copy.access.buffer, "write"), {}, op)
        if copy not in self._writes:
            fixed = {**self._tree.threads, **copy.lanes}
            index = tuple(x if _is_of(x, fixed) else None for x in copy.access.index)
            self._writes[copy] = replace(copy.access, mode="write", index=index, issue=False)
        return Item(self._writes[copy], copy.lanes, op)

    def _loop(self, node: Node, state: BarrierState) -> BarrierState:
        """Return the state after a loop.

        What the loop itself carries is found first, without what came before it: if only the latter
        conflicts, one barrier before the loop is enough.
        """
        var = getattr(node.stmt, "loop_var", None)
        before = state.each(lambda entry: barrier_state.entered(entry, var))
        if not ordering.repeats(node):
            return self._visit(node.children[0], state)
        with self._running(node.stmt):
            inside = replace(before, pending={})
            alone, _ = self._iterate(node, inside, inside)
            _, after = self._iterate(node, before, alone)
        if var is None:
            return after | state
        last = self._tree.prover.simplify(node.stmt.min + node.stmt.extent - 1)
        after = after.each(lambda entry: barrier_state.left(entry, node, last))
        return after if self._tree.prover.can_prove(node.stmt.extent >= 1) else after | state

    def _running(self, stmt: Any) -> AbstractContextManager[Any]:
        """Assume, for the prover, that the loop has an iteration."""
        if not isinstance(stmt, tirx.For) or ir.const_int(stmt.extent) is not None:
            return nullcontext()
        return self._tree.conflicts.assuming(stmt.extent >= 1)

    def _iterate(
        self, node: Node, before: BarrierState, carried: BarrierState
    ) -> tuple[BarrierState, BarrierState]:
        """Return what an iteration carries to the next, and the state after it, at the end.

        The end is the fixed point of visiting the loop's body.
        """
        for count in itertools.count():
            after = self._visit(node.children[0], before | carried)
            handed = after.each(lambda entry: barrier_state.carried(entry, node))
            if handed.within(before | carried):
                break
            # Exchanged at first, because a barrier placed now may end what was carried; later only
            # added to, which is sure to end.
            carried = handed if count < EXACT_ITERATIONS else handed | carried
        return carried, after

    def check_reading(self, node: Node, state: BarrierState) -> None:
        """Raise LoweringError if ``node`` overwrites what a wgmma in flight still reads."""
        for entry in state.reading.values():
            item = self._first_conflict(entry, node.items)
            if item is not None:
                conflict = ordering.pair(entry.item, item)
                raise LoweringError("sync.needs_wgmma_wait", conflict=conflict)

    def _check(self, node: Node, state: BarrierState) -> None:
        """Raise _Conflict, with the barrier's place, if ``node`` conflicts with an access."""
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
        """Return the first of ``items`` that needs an order after ``entry``."""
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
        if not self._tree.conflicts.meet(entry.item.access.buffer, item.access.buffer):
            return False
        lows = {var: self._tree.ranges[var].min for var in entry.first}
        index = barrier_state.placed(item.access.index, lows)
        guards = entry.guards, barrier_state.placed(item.guards, lows)
        return self._tree.conflicts.between(entry.item, entry.index, item, index, guards)

    def _place(self, entry: Pending, path: Path) -> Path:
        """Return the latest statement up to the leaf at ``path`` that is certainly after ``entry``.

        For an access of the same iteration that is the statement of the innermost sequence around
        both. For one that a loop carried here it is the statement of that loop's body.
        """
        if entry.crossed:
            return self._statement(path, min(depth for depth, _ in entry.crossed) + 1)
        same = sum(1 for _ in itertools.takewhile(lambda ab: ab[0] == ab[1], zip(entry.path, path)))
        if same == len(entry.path):
            return self._statement(path, same + 1)
        return path[: same + 1]

    def _statement(self, path: Path, depth: int) -> Path:
        """Return ``path`` cut at ``depth``, or at a statement of the first sequence further in."""
        node = self._tree.root
        for step in path[:depth]:
            node = node.children[step]
        while node.kind == "wrap" and depth < len(path):
            node = node.children[path[depth]]
            depth += 1
        return path[: depth + 1] if node.kind == "seq" else path[:depth]


def _is_of(expr: Any | None, variables: Container[Any]) -> bool:
    """Whether ``expr`` depends only on ``variables``; None, which may be anything, does not."""
    return expr is not None and all(var in variables for var in ir.variables(expr))
