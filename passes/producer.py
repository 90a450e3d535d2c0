"""What the producer of a sliced kernel does: one thread issues the copies.

    for k in range(n):
        wait empty[slot]
        A_shared[slot] = box of A, at full[slot]

It keeps the copies of the loops that have channels, and what stands around them: tile loops and
conditions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import tirx

from ..errors import LoweringError
from ..plan import PRODUCER, RolePlan
from .effects import WRITE, effects
from .ir import SBlockRealize, Stmt, Var, block, const_int, i32, seq, with_origin
from .kernels import bodies
from .role_loops import RoleLoop, SlicedKernel, check_condition, origin_at, rolled, with_var


def producer(kernel: SlicedKernel, role: RolePlan, body: Stmt) -> Stmt:
    """What of ``body``, of all threads, the first thread of ``role`` runs.

    LoweringError: nothing is copied, or under a condition that not every thread knows.
    """
    inner = _Producer(kernel).copies(body)
    if inner is None:
        raise LoweringError("cannot slice the kernel by role: nothing is left to copy")
    places = kernel.places(PRODUCER)
    held = [buf for at in places for buf in at.buffers]
    work = block(PRODUCER, seq(*[at.start() for at in places], inner), held)
    return tirx.IfThenElse(tirx.EQ(kernel.thread, i32(role.first)), work, None)


@dataclass(frozen=True)
class _Producer:
    kernel: SlicedKernel

    def copies(self, stmt: Stmt) -> Stmt | None:
        """What of ``stmt`` leads to copies; None when nothing does."""
        if isinstance(stmt, tirx.For) and stmt in self.kernel.loops:
            return self._loop(self.kernel.loops[stmt])
        if isinstance(stmt, tirx.For):
            inner = self.copies(stmt.body)
            if inner is None:
                return None
            var = Var(stmt.loop_var.name, stmt.loop_var.ty)
            return rolled(stmt, var, with_var(inner, stmt.loop_var, var))
        if isinstance(stmt, tirx.IfThenElse):
            parts = [self.copies(part) for part in bodies(stmt)]
            if not any(part is not None for part in parts):
                return None
            check_condition(stmt.condition, self.kernel.thread)
            other = parts[1] if len(parts) > 1 else None
            return tirx.IfThenElse(stmt.condition, seq(parts[0]), other)
        if isinstance(stmt, SBlockRealize) and const_int(stmt.predicate) != 1:
            inner = self.copies(stmt.block.body)
            if inner is None:
                return None
            check_condition(stmt.predicate, self.kernel.thread)
            return tirx.IfThenElse(stmt.predicate, inner, None)
        found = [self.copies(part) for part in bodies(stmt)]
        return seq(*found) if any(part is not None for part in found) else None

    def _loop(self, loop: RoleLoop) -> Stmt:
        form, places = loop.form, loop.positions[PRODUCER]
        var = Var(form.var.name, form.var.ty)
        steps: list[Stmt] = []
        started: set[int] = set()
        for op in sorted(loop.plan.ops, key=lambda op: op.order):
            if op.role != PRODUCER:
                continue
            (filled,) = effects(loop.body(op.name)).buffers(WRITE)
            channel = loop.channel(filled)
            if channel not in started:
                started.add(channel)
                at, barriers = places[channel], loop.barriers[channel]
                full, empty = barriers.plan.full, barriers.plan.empty
                waits = origin_at(loop, op, PRODUCER, channel, [empty])
                waits = replace(waits, op=f"{empty}.wait", kind="wait")
                expects = origin_at(loop, op, PRODUCER, channel, [full])
                expects = replace(expects, op=f"{full}.expect", kind="expect")
                steps.append(with_origin(waits, barriers.wait_empty(at)))
                steps.append(with_origin(expects, barriers.expect(at)))
            steps.append(self.kernel.instance(loop, op, PRODUCER, var))
        steps += [at.advance() for at in places]
        return rolled(form.node, var, seq(*steps))
