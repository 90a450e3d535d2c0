"""Expand a scheduled loop: prologue, steady state and epilogue, rings and asynchronous groups.

    for k in range(n):                       A_shared[0] = A[0]; A_shared[1] = A[1]     # prologue
        A_shared[...] = A[k]            =>   for k in range(n):                         # "rolled"
        C[...] += A_shared[...]                  if k + 2 < n: A_shared[(k + 2) % 3] = A[k + 2]
                                                 C[...] += A_shared[k % 3]

With S stages, step ``t`` runs the op of stage ``s`` on iteration ``t - s``. The prologue is steps
``0 .. S - 2``; the steady loop runs step ``k + S - 1``. The wait for wgmmas of earlier steps has no
stage: it stands in every step that multiplies, and once more behind the loop.

The epilogue is one of three. ``rolled`` guards the ops before the last stage. ``clamped`` does not
guard asynchronous copies: past the end they repeat the tile of the last iteration, into slots that
are no longer read, and a wait behind the loop completes them. ``peeled`` runs the loop for ``n - (S
- 1)`` steps without guards and emits the rest as straight-line code.

Rings in registers need constant slots, so the steady loop is unrolled by the least common multiple
of their depths (modulo variable expansion).

Does not handle: a peeled epilogue after a dynamic trip count with rings in registers.
"""

from __future__ import annotations

import math
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Range, Var
from tvm.tirx import ForKind

from ...errors import PipelinerError, PlanError
from ...plan import KernelPlan, LoopPlan
from ...values.origin import PHASE, STEADY
from ..ir.iteration import Iteration
from ..ir.named_pass import named_pass
from ..ir.nodes import Buffer, Expr, Stmt, block, is_private, seq
from ..ir.op_form import OpLoop, op_loop
from ..sync.async_groups import without_idle_commits, without_idle_waits
from .instances import Instances, StepIterations

_TVM_PIPELINE: Final = "software_pipeline_"


@named_pass("Expand")
def expand(func: Any, plan: KernelPlan) -> Any:
    """Return ``func`` with each pipelined loop of ``plan`` expanded; the same object without any.

    Loops match by their ops. Raises PlanError for a plan that the loop cannot follow, and
    LoweringError for a buffer that cannot have slots.
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


class _Expansion:
    """Emits one loop of ``n`` iterations; ``static`` is ``n`` if constant."""

    def __init__(self, form: OpLoop, plan: LoopPlan) -> None:
        self.form, self.plan = form, plan
        self.n, self.static = form.extent, form.trip
        self.dtype = str(form.var.ty.dtype)
        self.last = plan.ahead
        self.instances = Instances(form, plan)
        self.rings = self.instances.rings
        private = [ring.depth for ring in self.rings.values() if is_private(ring.buffer)]
        self.unroll = math.lcm(1, *private)

    def emit(self) -> Stmt:
        """Return the expanded loop, in a block that allocates its rings."""
        if self.plan.epilogue != "peeled" or self.last == 0:
            parts = [*self._prologue(), *self._rolled(), *self.instances.drain()]
        elif self.static is not None:
            parts = [*self._prologue(), *self._peeled(self.static)]
        else:
            parts = [*self._prologue(), *self._peeled_dynamic()]
        parts += self.instances.finish()
        body = seq(*without_idle_commits(without_idle_waits(parts)))
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

    def _prologue(self) -> list[Stmt]:
        parts: list[Stmt] = []
        for step in range(self.last):
            parts += self.instances.step(self._constant(step), "prologue")
        return parts

    def _rolled(self) -> list[Stmt]:
        """Return the steady loop over every iteration of the last stage."""
        if self.static is None:
            trips = self.n
            if self.unroll > 1:
                trips = tirx.floordiv(
                    self.n + self._const(self.unroll - 1), self._const(self.unroll)
                )
            return [self._steady(trips, guarded=True)]
        return self._steady_and_rest(self.static, guarded=True)

    def _peeled(self, n: int) -> list[Stmt]:
        steady = max(0, n - self.last)
        parts = self._steady_and_rest(steady, guarded=False)
        for step in range(max(n, self.last), n + self.last):
            parts += self.instances.step(self._constant(step), "epilogue")
        return parts

    def _peeled_dynamic(self) -> list[Stmt]:
        if self.unroll > 1:
            raise PlanError("schedule.peeled", loop=self.plan.name, unroll=self.unroll)
        last = self._const(self.last)
        base = tirx.max(self.n, last)
        parts = [self._steady(tirx.max(self.n - last, self._const(0)), guarded=False)]
        for drain in range(self.last):
            # Step max(n, S - 1) + drain: whatever the steady loop left in the pipeline.
            def at(stage: int, drain: int = drain) -> Iteration | None:
                text = f"max({self.plan.trip or 'n'}, {self.last})"
                return Iteration(base, drain - stage, 1, text) if stage > drain else None

            parts += self.instances.step(at, "epilogue")
        return parts

    def _steady_and_rest(self, steps: int, guarded: bool) -> list[Stmt]:
        """Return a loop of constant length, then the steps that unrolling leaves over."""
        trips, rest = divmod(steps, self.unroll)
        parts = [self._steady(self._const(trips), guarded)] if trips else []
        for k in range(steps - rest, steps):
            parts += self.instances.step(self._constant(k + self.last), "epilogue")
        return parts

    def _steady(self, trips: Expr, guarded: bool) -> Stmt:
        """Return the loop; ``guarded``: iterations past its end must be guarded."""
        var = Var(self.form.var.name, self.form.var.ty)
        base, text = var, str(var.name)
        if self.unroll > 1:
            base, text = var * self._const(self.unroll), f"{var.name} * {self.unroll}"
        parts: list[Stmt] = []
        for copy in range(self.unroll):

            def at(stage: int, copy: int = copy) -> Iteration:
                return Iteration(base, copy + self.last - stage, self.unroll, text)

            step = self.instances.step(at, STEADY, guarded)
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
        annotations = {**kept, PHASE: STEADY}
        return tirx.For(var, self._const(0), trips, ForKind.SERIAL, seq(*parts), None, annotations)

    def _constant(self, step: int) -> StepIterations:
        """Return step ``step``, counted from the first of the prologue."""

        def at(stage: int) -> Iteration | None:
            idle = step < stage or (self.static is not None and step - stage >= self.static)
            return None if idle else Iteration(None, step - stage)

        return at

    def _const(self, value: int) -> Expr:
        return tirx.const(value, self.dtype)


def _whole(regions: Any, own: set[Buffer]) -> list[Any]:
    """Return ``regions`` widened to whole buffers: around the loop its variable has no value."""
    buffers = dict.fromkeys(region.source for region in regions if region.source not in own)
    zero = tirx.const(0, "int32")
    return [
        tirx.BufferRegion(buf, [Range.from_min_extent(zero, extent) for extent in buf.shape])
        for buf in buffers
    ]
