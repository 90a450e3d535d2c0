"""Emit the ops of a pipelined loop, each on the iteration that its stage works on in one step.

    A_shared[..] = A[k, ..]    =>   if k + 2 < n: A_shared[(k + 2) % 3, ..] = A[k + 2, ..]

An op becomes an *instance*: its statement with the loop variable replaced, on the slots of that
iteration, with its origin, and under a guard if the iteration may be past the end. Loads from
shared memory into registers are not guarded: past the end they repeat the last iteration, as
asynchronous copies do in a ``clamped`` loop. Work on the padding of the K tail is left out if the
last iteration is straight-line code.

Every step commits one group for each run of asynchronous copies, even if the copies are guarded, so
each wait has one constant count. A wait for wgmmas of earlier steps has no guard either; in the
first steps there is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from tvm import tirx
from tvm.ir import Var
from tvm.script import tirx as T
from tvm.tirx.buffer import is_buffer_var

from ...diagnostics import Reason
from ...errors import PlanError
from ...plan import LoopPlan, OpPlan
from ...values.op import Op
from ...values.origin import STEADY, Origin, Place
from ..ir.calls import CP_ASYNC_COPY, WGMMA_CALL, WGMMA_COMMIT, called
from ..ir.iteration import Iteration
from ..ir.nodes import (
    Buffer,
    Call,
    Expr,
    Stmt,
    collect,
    const_int,
    is_global,
    is_private,
    is_shared,
    op_stmt,
    operators,
    seq,
    with_origin,
)
from ..ir.op_form import OpLoop
from ..sync.async_groups import commit_points, empty_behind, wait_counts, wgmma_wait_counts
from .rings import Ring, definitions_and_uses, instantiate, make_ring

_ALL_THREADS: Final = "all"

StepIterations: TypeAlias = "Callable[[int], Iteration | None]"
"""The iteration that an op of a given stage works on in one step; None if it is idle."""


@dataclass(frozen=True, slots=True)
class _Op:
    """One op of the plan, with what an instance of it needs.

    ``body``: None for a wait. ``defines``: variables that it defines. ``rings``: those that it
    uses, by name. ``unversioned``: other shared buffers. ``sources``: shared buffers that it reads.
    ``repeats``: running it once more is harmless. ``by_proxy``: wgmma reads for it. ``groups``: how
    many groups of wgmma it commits.
    """

    plan: OpPlan
    body: Any = None
    defines: tuple[Var, ...] = ()
    rings: tuple[tuple[str, Ring], ...] = ()
    unversioned: tuple[str, ...] = ()
    sources: frozenset[Buffer] = frozenset()
    repeats: bool = False
    is_async: bool = False
    by_proxy: bool = False
    groups: int = 0

    @property
    def name(self) -> Op:
        return self.plan.name

    @property
    def stage(self) -> int:
        return self.plan.stage


class Instances:
    """Emits steps of one loop. ``rings``: its buffers that have slots.

    Raises PlanError for slots of a buffer that the loop's body does not allocate, for waits without
    copies, and for wgmma in flight across steps that is not one group.
    """

    def __init__(self, form: OpLoop, plan: LoopPlan) -> None:
        self.rings = _make_rings(form, plan)
        self._form, self._plan = form, plan
        self._n = form.extent
        self._dtype = str(form.var.ty.dtype)
        self._last = plan.ahead
        self._bodies, self._names = dict(form.ops), form.buffer_names()
        self._ops = [self._described(op) for op in sorted(plan.ops, key=lambda op: op.order)]
        ordered = [op.plan for op in self._ops]
        copies = {op.name for op in self._ops if op.is_async}
        self._groups = commit_points(ordered, copies, plan)
        self._waits = wait_counts(ordered, self._groups, plan)
        self._wgmma_left = wgmma_wait_counts(ordered, self._issues(), plan)
        self._emitted: set[Op] = set()
        self._by_proxy = any(op.by_proxy for op in self._ops)

    def step(self, at: StepIterations, phase: str, guarded: bool = True) -> list[Stmt]:
        """Return all ops of a step; neighbours with the same guard share one ``if``."""
        items: list[tuple[int | None, Any, Stmt]] = []
        for op in self._ops:
            iteration = at(op.stage)
            if iteration is not None and not self._is_idle(op, iteration, at):
                items.append(self._emit(op, iteration, phase, guarded))
            if op.name in self._groups:
                call = tirx.Evaluate(T.ptx.cp.async_.commit_group())
                origin = _origin(op.plan, phase, "" if iteration is None else str(iteration))
                origin = replace(origin, op=op.name.adding("commit"), kind="commit")
                items.append((None, None, with_origin(origin, call)))
        return _merge(items)

    def _is_idle(self, op: _Op, at: Iteration, step: StepIterations) -> bool:
        """Whether ``op`` has no work there: only padding, or a wait that need not wait.

        If the last iteration is in the rolled loop nothing of it is left out, not even in the
        prologue: for a loop of one iteration that loads the fragments.
        """
        if op.name in self._wgmma_left:
            return not any(step(other.stage - 1) for other in self._ops if other.stage < self._last)
        trip = self._form.trip
        last = at.base is None and trip is not None and at.offset == trip - 1
        return last and op.plan.skips_k_tail and self._plan.epilogue == "peeled"

    def drain(self) -> list[Stmt]:
        """Return the wait for overrunning copies, which the last steps issued and nothing reads.

        Groups that a step commits behind theirs are empty by then, as their copies are guarded.
        """
        late = [op for op in self._ops if op.is_async and op.repeats and op.stage < self._last]
        if not late:
            return []
        ordered = [op.plan for op in self._ops]
        empty = empty_behind(ordered, self._groups, [op.name for op in late])
        call = tirx.Evaluate(T.ptx.cp.async_.wait_group(empty))
        origin = replace(_origin(late[0].plan, "epilogue"), kind="wait", stage=self._last)
        return [with_origin(replace(origin, op=late[0].name.adding("drain")), call)]

    def finish(self) -> list[Stmt]:
        """Return the wait behind the loop for wgmma that its steps leave in flight."""
        return [
            self._finished(op, 0, replace(_origin(op.plan, "epilogue"), op=op.name.adding("drain")))
            for op in self._ops
            if op.name in self._wgmma_left
        ]

    def _finished(self, op: _Op, left: int, origin: Origin) -> Stmt:
        """Return a wait that leaves ``left`` groups of wgmma in flight."""
        call = tirx.Evaluate(T.ptx.wgmma.wait_group.sync.aligned(left))
        return with_origin(origin, op_stmt(origin.op, call))

    def _issues(self) -> dict[Op, list[Op]]:
        """Return for each wait for wgmma all earlier ops of the program that commit groups."""
        committed = {op.name: op.groups for op in self._ops if op.groups}
        waits = {op.name for op in self._ops if op.plan.kind == "mma_wait"}
        found: dict[Op, list[Op]] = {}
        before: list[Op] = []
        for name in self._form.names:
            if name in waits and before:
                found[name] = list(before)
            before += [name] if name in committed else []
        for wait, names in found.items():
            several = [name for name in names if committed[name] > 1]
            if several and self._plan.op(wait).stage > self._last:
                raise PlanError(
                    "schedule.groups",
                    loop=self._plan.name,
                    wait=wait,
                    op=several[0],
                    groups=committed[several[0]],
                )
        return found

    def _emit(
        self, op: _Op, at: Iteration, phase: str, guarded: bool
    ) -> tuple[int | None, Any, Stmt]:
        """Return a key that equal guards share, the guard, and ``op`` on iteration ``at``."""
        known = at.base is None and self._form.trip is not None
        last = phase == STEADY and op.stage == self._last
        if op.body is None or op.name in self._wgmma_left or known or last or not guarded:
            return None, None, self._instance(op, at, at, phase)
        if op.repeats and phase == STEADY:
            end = tirx.min(at.value(self._dtype), self._n - tirx.const(1, self._dtype))
            source = Iteration(end, 0, 1, f"min({at}, {self._plan.trip or 'n'} - 1)")
            return None, None, self._instance(op, at, source, phase)
        return at.offset, at.value(self._dtype) < self._n, self._instance(op, at, at, phase)

    def _instance(self, op: _Op, at: Iteration, source: Iteration, phase: str) -> Stmt:
        """Return ``op`` on iteration ``at``, with the inputs of iteration ``source``."""
        if op.body is None:
            call = tirx.Evaluate(T.ptx.cp.async_.wait_group(self._waits[op.name]))
            origin = _origin(op.plan, phase, str(at), self._awaited(op.name, at))
            waited = with_origin(origin, op_stmt(op.name, call))
            return seq(waited, self._proxy_fence(origin)) if self._by_proxy else waited
        if op.name in self._wgmma_left:
            return self._finished(op, self._wgmma_left[op.name], _origin(op.plan, phase, str(at)))
        slots: dict[Buffer, tuple[Ring, Expr]] = {}
        places: list[Place] = []
        for name, ring in op.rings:
            where = source if ring.buffer in op.sources else at
            slots[ring.buffer] = (ring, where.slot(ring.depth, self._dtype))
            places.append(Place(name, where.slot_text(ring.depth)))
        places += [Place(name) for name in op.unversioned]
        value, start = source.value(self._dtype), self._form.node.min
        if const_int(start) != 0:
            value = start + value
        fresh = op.defines if op.name in self._emitted else ()
        self._emitted.add(op.name)
        stmt = instantiate(op.body, {self._form.var: value}, fresh, slots)
        return with_origin(_origin(op.plan, phase, str(source), places), stmt)

    def _proxy_fence(self, origin: Origin) -> Stmt:
        """Return the fence that shows a thread's copies to wgmma (PTX ISA, async proxy).

        It stands before the barrier.
        """
        fence = tirx.Evaluate(T.ptx["fence.proxy.async.shared::cta"]())
        return with_origin(replace(origin, op=origin.op.adding("fence"), kind="fence"), fence)

    def _awaited(self, wait: Op, at: Iteration) -> list[Place]:
        """Return the slots that copies of iteration ``at`` fill and ``wait`` waits for."""
        names = dict.fromkeys(edge.buffer for edge in self._plan.edges if edge.dst == wait)
        depths = {ring.buffer: ring.depth for ring in self._plan.rings if ring.depth > 1}
        return [Place(name, at.slot_text(depths[name]) if name in depths else "") for name in names]

    def _described(self, op: OpPlan) -> _Op:
        if op.kind == "wait":
            return _Op(op)
        body, names = self._bodies[op.name], self._names
        defines, inside = definitions_and_uses(body)
        used, called = set(filter(is_buffer_var, inside)), operators(body)
        is_async = any(name.startswith(CP_ASYNC_COPY) for name in called)
        if is_async:
            # Into slots that are not read: not the last iteration's, which the loads repeat.
            ahead = self._last - op.stage
            repeats = self._plan.epilogue == "clamped" and all(
                is_global(b) or (is_shared(b) and b in self.rings and ahead < self.rings[b].depth)
                for b in used
            )
        else:
            # Shared memory into registers of the body, and nothing else.
            repeats = op.kind == "load" and all(
                is_shared(b) or (b in names and is_private(b)) for b in used
            )
        return _Op(
            plan=op,
            body=body,
            defines=tuple(defines),
            rings=tuple((names[b], ring) for b, ring in self.rings.items() if b in used),
            unversioned=tuple(
                sorted(names.get(b, str(b.name)) for b in used - set(self.rings) if is_shared(b))
            ),
            sources=frozenset(b for b in used if is_shared(b) and not is_async),
            repeats=repeats,
            is_async=is_async,
            by_proxy=any(name.startswith(WGMMA_CALL) for name in called),
            groups=_commits(body),
        )


def _commits(body: Stmt) -> int:
    """Count the groups of wgmma that ``body`` commits, as it is written."""
    return len(collect(body, Call, lambda call: called(call) == WGMMA_COMMIT))


def _make_rings(form: OpLoop, plan: LoopPlan) -> dict[Buffer, Ring]:
    depths = {ring.buffer: ring.depth for ring in plan.rings if ring.depth > 1}
    rings: dict[Buffer, Ring] = {}
    for buf, name in form.buffer_names().items():
        if name in depths:
            rings[buf] = make_ring(buf, depths.pop(name), form.node.body)
    for name, depth in depths.items():
        why = Reason("version.outside")
        raise PlanError("ring.slots", buffer=name, slots=depth, loop=plan.name, why=why)
    return rings


def _origin(op: OpPlan, phase: str, iteration: str = "", places: Sequence[Place] = ()) -> Origin:
    """Return the origin of ``op`` on an iteration."""
    return Origin(
        op=op.name,
        kind=op.kind,
        block=op.block,
        stage=op.stage,
        phase=phase,
        role="" if op.role == _ALL_THREADS else op.role,
        iteration=iteration,
        places=tuple(places),
    )


def _merge(items: Sequence[tuple[int | None, Any, Stmt]]) -> list[Stmt]:
    result: list[Stmt] = []
    index = 0
    while index < len(items):
        key, guard, stmt = items[index]
        together = [stmt]
        index += 1
        while guard is not None and index < len(items) and items[index][0] == key:
            together.append(items[index][2])
            index += 1
        result.append(stmt if guard is None else tirx.IfThenElse(guard, seq(*together), None))
    return result
