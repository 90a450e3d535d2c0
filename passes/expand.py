"""Expands a scheduled loop: prologue, steady state and epilogue, rings and asynchronous groups.

With S stages, step ``t`` runs the op of stage ``s`` on iteration ``t - s``; the steady loop runs
step ``k + S - 1``::

    <prologue: steps 0 .. S - 2>
    for k in range(n):                        # "rolled": ops before the last stage are guarded
        if k + 2 < n: A_shared[(k + 2) % 3, ...] = A[...]
        C[...] += A_shared[k % 3, ...] * ...

``clamped`` has no guard around asynchronous copies either: past the end they repeat the tile of the
last iteration, in slots that nobody reads any more, and a wait behind the loop lets them land.
``peeled`` runs the loop for ``n - (S - 1)`` steps without guards and emits the rest as straight
code. Loads from shared memory into registers are not guarded: past the end they repeat the last
iteration. Rings in registers need constant slots, so the steady loop is unrolled by their least
common multiple (modulo variable expansion). Every step commits one group per run of asynchronous
copies, guarded copies or not, so each wait has one constant count.

Does not handle a peeled epilogue after a dynamic trip count when rings are in registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Range, Var
from tvm.script import tirx as T
from tvm.tirx import ForKind
from tvm.tirx.buffer import is_buffer_var

from ..errors import PipelinerError, PlanError
from ..origin import Origin, Place
from ..plan import KernelPlan, LoopPlan, OpPlan
from .async_groups import commit_points, wait_counts, without_idle_waits
from .ir import (
    Buffer,
    Expr,
    Stmt,
    block,
    const_int,
    is_global,
    is_private,
    is_shared,
    op_stmt,
    origin_of,
    seq,
    walk,
    with_origin,
)
from .iteration import Iteration
from .op_form import OpLoop, op_loop
from .rings import Ring, definitions, instantiate, make_ring

PHASE: Final = "pipeliner.phase"
"""Annotation of an emitted loop."""

_ALL_THREADS: Final = "all"
_TVM_PIPELINE: Final = "software_pipeline_"
_ASYNC_COPIES: Final = ("tirx.ptx.cp_async_ca", "tirx.ptx.cp_async_cg")


def expand(func: Any, plan: KernelPlan) -> Any:
    """``func`` with each pipelined loop of ``plan`` expanded; the same object when there is none.

    Loops match by their ops. PlanError: a plan that the loop cannot follow; LoweringError: a buffer
    that cannot have slots.
    """
    wanted = {
        frozenset(op.name for op in loop.ops if op.kind != "wait"): loop
        for loop in plan.loops
        if loop.pipelined
    }
    if not wanted:
        return func

    failures: list[PipelinerError] = []

    def rewrite(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        try:
            form = op_loop(node)
            loop_plan = None if form is None else wanted.get(frozenset(form.names))
            if form is None or loop_plan is None:
                return node
            return _Expansion(form, loop_plan).emit()
        except PipelinerError as err:  # the FFI would turn it into a RuntimeError
            failures.append(err)
            return node

    body = tvm_ffi.structural_mutate(func.body, [(tirx.For, rewrite)])
    if failures:
        raise failures[0]
    if body.same_as(func.body):
        return func
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


@dataclass(frozen=True, slots=True)
class _Op:
    """One op of the plan and what a copy of it needs.

    ``body``: None for a wait. ``defines``: its own variables. ``rings``: those that it uses, by
    name. ``unversioned``: other shared buffers. ``sources``: the shared buffers it reads.
    ``repeats``: running it once more is harmless.
    """

    plan: OpPlan
    body: Any = None
    defines: tuple[Var, ...] = ()
    rings: tuple[tuple[str, Ring], ...] = ()
    unversioned: tuple[str, ...] = ()
    sources: frozenset[Buffer] = frozenset()
    repeats: bool = False
    is_async: bool = False

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def stage(self) -> int:
        return self.plan.stage


_Step: TypeAlias = "Callable[[int], Iteration | None]"
"""The iteration that an op of a given stage works on in one step, None when it is idle."""


class _Expansion:
    """Emits one loop of ``n`` iterations; ``static`` is ``n`` when constant."""

    def __init__(self, form: OpLoop, plan: LoopPlan) -> None:
        self.form, self.plan = form, plan
        self.n, self.static = form.extent, form.trip
        self.dtype = str(form.var.ty.dtype)
        self.last = plan.stages - 1
        self.rings = _make_rings(form, plan)
        private = [ring.depth for ring in self.rings.values() if is_private(ring.buffer)]
        self.unroll = math.lcm(1, *private)
        self.ops = [self._op(op) for op in sorted(plan.ops, key=lambda op: op.order)]
        ordered = [op.plan for op in self.ops]
        self.groups = commit_points(ordered, {op.name for op in self.ops if op.is_async})
        self.waits = wait_counts(ordered, self.groups, plan)
        self.emitted: set[str] = set()
        self.by_proxy = any(_is_wgmma(body) for _, body in form.ops)

    def emit(self) -> Stmt:
        """The expanded loop, in a block that allocates its rings."""
        if self.plan.epilogue != "peeled" or self.last == 0:
            parts = [*self._prologue(), *self._rolled(), *self._drain()]
        elif self.static is not None:
            parts = [*self._prologue(), *self._peeled(self.static)]
        else:
            parts = [*self._prologue(), *self._peeled_dynamic()]
        body = seq(*_without_idle_commits(without_idle_waits(parts)))
        old = self.form.block
        if old is None:
            return body
        allocs = [self.rings[b].slots if b in self.rings else b for b in self.form.allocs]
        own = set(self.form.allocs)
        return block(
            old.name_hint,
            body,
            allocs,
            _whole(old.reads, own),
            _whole(old.writes, own),
            old.annotations,
        )

    # Phases.

    def _prologue(self) -> list[Stmt]:
        parts: list[Stmt] = []
        for step in range(self.last):
            parts += self._step(self._constant(step), "prologue")
        return parts

    def _rolled(self) -> list[Stmt]:
        """The steady loop over every iteration of the last stage."""
        if self.static is None:
            trips = self.n
            if self.unroll > 1:
                trips = tirx.floordiv(
                    self.n + self._const(self.unroll - 1), self._const(self.unroll)
                )
            return [self._steady(trips, guarded=True)]
        return self._steady_and_rest(self.static, guarded=True)

    def _drain(self) -> list[Stmt]:
        """The wait for copies that the last steps issued for nobody."""
        late = [op for op in self.ops if op.is_async and op.repeats and op.stage < self.last]
        if not late:
            return []
        call = tirx.Evaluate(T.ptx.cp.async_.wait_group(0))
        origin = replace(_origin(late[0].plan, "epilogue"), kind="wait", stage=self.last)
        return [with_origin(replace(origin, op=f"{late[0].name}.drain"), call)]

    def _peeled(self, n: int) -> list[Stmt]:
        steady = max(0, n - self.last)
        parts = self._steady_and_rest(steady, guarded=False)
        for step in range(max(n, self.last), n + self.last):
            parts += self._step(self._constant(step), "epilogue")
        return parts

    def _peeled_dynamic(self) -> list[Stmt]:
        if self.unroll > 1:
            raise PlanError(
                f"cannot peel the epilogue of loop '{self.plan.name}': its trip count is dynamic "
                f"and rings in registers need constant slots (unrolled by {self.unroll})"
            )
        last = self._const(self.last)
        base = tirx.max(self.n, last)
        parts = [self._steady(tirx.max(self.n - last, self._const(0)), guarded=False)]
        for drain in range(self.last):
            # Step max(n, S - 1) + drain: whatever the steady loop left in the pipeline.
            def at(stage: int, drain: int = drain) -> Iteration | None:
                text = f"max({self._trip_text()}, {self.last})"
                return Iteration(base, drain - stage, 1, text) if stage > drain else None

            parts += self._step(at, "epilogue")
        return parts

    def _steady_and_rest(self, steps: int, guarded: bool) -> list[Stmt]:
        """A loop of constant length, and as straight code the steps that unrolling leaves over."""
        trips, rest = divmod(steps, self.unroll)
        parts = [self._steady(self._const(trips), guarded)] if trips else []
        for k in range(steps - rest, steps):
            parts += self._step(self._constant(k + self.last), "epilogue")
        return parts

    def _steady(self, trips: Expr, guarded: bool) -> Stmt:
        """The loop; ``guarded``: iterations past the end of it have to be kept out."""
        var = Var(self.form.var.name, self.form.var.ty)
        base, text = var, str(var.name)
        if self.unroll > 1:
            base, text = var * self._const(self.unroll), f"{var.name} * {self.unroll}"
        parts: list[Stmt] = []
        for copy in range(self.unroll):

            def at(stage: int, copy: int = copy) -> Iteration:
                return Iteration(base, copy + self.last - stage, self.unroll, text)

            step = self._step(at, "steady", guarded)
            if copy and self.static is None:
                inside = base + self._const(copy) < self.n
                parts.append(tirx.IfThenElse(inside, seq(*step), None))
            else:
                parts += step
        kept = {
            str(key): value
            for key, value in self.form.node.annotations.items()
            if not str(key).startswith(_TVM_PIPELINE)
        }
        annotations = {**kept, PHASE: "steady"}
        return tirx.For(var, self._const(0), trips, ForKind.SERIAL, seq(*parts), None, annotations)

    def _constant(self, step: int) -> _Step:
        """Step ``step``, counted from the first of the prologue."""

        def at(stage: int) -> Iteration | None:
            idle = step < stage or (self.static is not None and step - stage >= self.static)
            return None if idle else Iteration(None, step - stage)

        return at

    # One step.

    def _step(self, at: _Step, phase: str, guarded: bool = True) -> list[Stmt]:
        """All ops of a step, neighbours with the same guard under one ``if``."""
        items: list[tuple[int | None, Any, Stmt]] = []
        for op in self.ops:
            iteration = at(op.stage)
            if iteration is not None:
                items.append(self._emit(op, iteration, phase, guarded))
            if op.name in self.groups:
                call = tirx.Evaluate(T.ptx.cp.async_.commit_group())
                origin = _origin(op.plan, phase, "" if iteration is None else str(iteration))
                origin = replace(origin, op=f"{op.name}.commit", kind="commit")
                items.append((None, None, with_origin(origin, call)))
        return _merge(items)

    def _emit(
        self, op: _Op, at: Iteration, phase: str, guarded: bool
    ) -> tuple[int | None, Any, Stmt]:
        """A key that equal guards share, the guard, and ``op`` on iteration ``at``."""
        known = at.base is None and self.static is not None
        last = phase == "steady" and op.stage == self.last
        if op.body is None or known or last or not guarded:
            return None, None, self._instance(op, at, at, phase)
        if op.repeats and phase == "steady":
            end = tirx.min(at.value(self.dtype), self.n - self._const(1))
            source = Iteration(end, 0, 1, f"min({at}, {self._trip_text()} - 1)")
            return None, None, self._instance(op, at, source, phase)
        return at.offset, at.value(self.dtype) < self.n, self._instance(op, at, at, phase)

    def _instance(self, op: _Op, at: Iteration, source: Iteration, phase: str) -> Stmt:
        """``op`` on iteration ``at``, with the inputs of iteration ``source``."""
        if op.body is None:
            call = tirx.Evaluate(T.ptx.cp.async_.wait_group(self.waits[op.name]))
            origin = _origin(op.plan, phase, str(at), self._awaited(op.name, at))
            waited = with_origin(origin, op_stmt(op.name, call))
            return seq(waited, self._proxy_fence(origin)) if self.by_proxy else waited
        slots: dict[Buffer, tuple[Ring, Expr]] = {}
        places: list[Place] = []
        for name, ring in op.rings:
            where = source if ring.buffer in op.sources else at
            slots[ring.buffer] = (ring, where.slot(ring.depth, self.dtype))
            places.append(Place(name, where.slot_text(ring.depth)))
        places += [Place(name) for name in op.unversioned]
        value, start = source.value(self.dtype), self.form.node.min
        if const_int(start) != 0:
            value = start + value
        fresh = op.defines if op.name in self.emitted else ()
        self.emitted.add(op.name)
        stmt = instantiate(op.body, {self.form.var: value}, fresh, slots)
        return with_origin(_origin(op.plan, phase, str(source), places), stmt)

    def _proxy_fence(self, origin: Origin) -> Stmt:
        """What a thread has copied, shown to wgmma (PTX ISA, async proxy) before the barrier."""
        fence = tirx.Evaluate(T.ptx["fence.proxy.async.shared::cta"]())
        return with_origin(replace(origin, op=f"{origin.op}.fence", kind="fence"), fence)

    def _awaited(self, wait: str, at: Iteration) -> list[Place]:
        """The slots that the copies of iteration ``at`` fill and ``wait`` waits for."""
        names = dict.fromkeys(edge.buffer for edge in self.plan.edges if edge.dst == wait)
        depths = {ring.buffer: ring.depth for ring in self.plan.rings if ring.depth > 1}
        return [Place(name, at.slot_text(depths[name]) if name in depths else "") for name in names]

    def _op(self, op: OpPlan) -> _Op:
        if op.kind == "wait":
            return _Op(op)
        body = dict(self.form.ops)[op.name]
        names, used = self.form.buffer_names(), _buffers(body)
        own, is_async = set(self.form.allocs), _is_async(body)
        if is_async:
            # Into slots that nobody reads: not the last iteration's, which the loads repeat.
            ahead = self.last - op.stage
            repeats = self.plan.epilogue == "clamped" and all(
                is_global(b) or (is_shared(b) and b in self.rings and ahead < self.rings[b].depth)
                for b in used
            )
        else:
            # Shared memory into registers of the body, and nothing else.
            repeats = op.kind == "load" and all(
                is_shared(b) or (b in own and is_private(b)) for b in used
            )
        return _Op(
            plan=op,
            body=body,
            defines=tuple(definitions(body)),
            rings=tuple((names[b], ring) for b, ring in self.rings.items() if b in used),
            unversioned=tuple(
                sorted(names.get(b, str(b.name)) for b in used - set(self.rings) if is_shared(b))
            ),
            sources=frozenset(b for b in used if is_shared(b) and not is_async),
            repeats=repeats,
            is_async=is_async,
        )

    def _const(self, value: int) -> Expr:
        return tirx.const(value, self.dtype)

    def _trip_text(self) -> str:
        return self.plan.trip or "n"


def _make_rings(form: OpLoop, plan: LoopPlan) -> dict[Buffer, Ring]:
    depths = {ring.buffer: ring.depth for ring in plan.rings if ring.depth > 1}
    rings: dict[Buffer, Ring] = {}
    for buf, name in form.buffer_names().items():
        if name in depths:
            rings[buf] = make_ring(buf, depths.pop(name), form.node.body)
    for name, depth in depths.items():
        raise PlanError(
            f"cannot give '{name}' {depth} slots in loop '{plan.name}': the loop's body does not "
            "allocate it"
        )
    return rings


def _origin(op: OpPlan, phase: str, iteration: str = "", places: Sequence[Place] = ()) -> Origin:
    """The origin of ``op`` on an iteration."""
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


def _without_idle_commits(parts: list[Stmt]) -> list[Stmt]:
    """``parts`` without commits of groups that issue nothing: before any copy, behind all waits."""
    waits = [at for at, part in enumerate(parts) if _has_wait(part)]
    copies = [at for at, part in enumerate(parts) if _is_async(part)]
    first, last = min(copies, default=0), max(waits, default=len(parts))
    return [part for at, part in enumerate(parts) if first <= at < last or not _is_commit(part)]


def _has_wait(stmt: Stmt) -> bool:
    kinds: list[str] = []
    walk(stmt, tirx.AttrStmt, lambda attr: kinds.append(_kind(attr)))
    return "wait" in kinds


def _is_commit(stmt: Stmt) -> bool:
    return _kind(stmt) == "commit"


def _kind(stmt: Stmt) -> str:
    origin = origin_of(stmt)
    return "" if origin is None else origin.kind


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


def _buffers(stmt: Stmt) -> set[Buffer]:
    found: set[Buffer] = set()
    walk(stmt, Var, lambda var: found.add(var) if is_buffer_var(var) else None)
    return found


def _is_wgmma(stmt: Stmt) -> bool:
    found: list[Any] = []

    def visit(call: Any) -> None:
        if str(getattr(call.op, "name", "")).startswith("tirx.ptx.wgmma_"):
            found.append(call)

    walk(stmt, Call, visit)
    return bool(found)


def _is_async(stmt: Stmt) -> bool:
    found: list[str] = []

    def visit(call: Any) -> None:
        if str(getattr(call.op, "name", "")).startswith(_ASYNC_COPIES):
            found.append(call.op.name)

    walk(stmt, Call, visit)
    return bool(found)


def _whole(regions: Any, own: set[Buffer]) -> list[Any]:
    """The buffers of ``regions`` entire: the loop variable is out of scope around the loop."""
    buffers = dict.fromkeys(region.source for region in regions if region.source not in own)
    zero = tirx.const(0, "int32")
    return [
        tirx.BufferRegion(buf, [Range.from_min_extent(zero, extent) for extent in buf.shape])
        for buf in buffers
    ]
