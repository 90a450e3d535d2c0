"""Emit what the producer warp of a warp-specialised kernel runs: one thread issues the copies.

    for k in range(n):
        wait empty[slot]
        A_shared[slot] = tile of A, at full[slot]

A ring with more slots is filled as many steps further ahead. The consumer releases the slots of one
iteration together, so a wait for the shallower ring is also one for the deeper.

    for k in range(n + 2):
        if 2 <= k: wait empty[slot]; A_shared[slot] = tile of A of k - 2  # 2 slots
        if k < n: B_shared[slot] = tile of B of k                         # 4 slots

The producer keeps the copies of the loops that have mbarriers, and the tile loops and conditions
around them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import tirx
from tvm.script import tirx as T

from ...diagnostics import Reason
from ...errors import LoweringError
from ...machine import WARP
from ...plan import PRODUCER, OpPlan, RolePlan
from ...values.op import Op
from ..analysis.effects import WRITE
from ..ir.kernels import bodies
from ..ir.nodes import (
    Expr,
    SBlockRealize,
    Stmt,
    Var,
    block,
    const_int,
    i32,
    op_of,
    seq,
    with_origin,
)
from .role_loops import RoleLoop, origin_at
from .specialised_kernel import SpecialisedKernel
from .statements import check_condition, rolled, with_var


def producer(kernel: SpecialisedKernel, role: RolePlan, body: Stmt) -> Stmt:
    """Return the statements of ``body`` that one thread of ``role``'s first warp runs.

    Raises LoweringError if nothing is copied, or under a condition that not every thread knows.
    """
    inner = _Producer(kernel, body).copies(body)
    if inner is None:
        raise LoweringError("role.kernel", why=Reason("role.no_copies"))
    places = kernel.places(PRODUCER)
    buffers = [buf for at in places for buf in at.buffers]
    work = block(PRODUCER, seq(*[at.start() for at in places], inner), buffers)
    return _by_one_thread(kernel, role, work)


def _by_one_thread(kernel: SpecialisedKernel, role: RolePlan, work: Stmt) -> Stmt:
    """Return ``work`` for one elected thread of ``role``'s first warp.

    ptxas puts a loop over a warp's threads around each copy by TMA unless it knows that one thread
    is there, as behind elect.sync. Nothing stands behind the roles, so that the other threads exit:
    with one thread left, addresses, coordinates and masks stay in uniform registers. A step of
    736x592x3064 by 64x64 in clusters of eight has 36 instructions of the producer then, 53 in a
    loop of the first thread, of which ten move a register to the uniform ones: 11.2 us for 12.4 on
    an H200, 8.6 for 9.9 back to back. Of seven other products five take 0.6 to 3.7 % less, two 1.3
    and 4.8 % more.
    """
    warp = tirx.EQ(tirx.floordiv(kernel.thread, i32(WARP)), i32(role.first // WARP))
    return tirx.IfThenElse(warp, tirx.IfThenElse(T.cuda.elect_sync(), work, None), None)


@dataclass(frozen=True)
class _Producer:
    """Emits the producer's statements of one kernel, whose threads run ``body``."""

    kernel: SpecialisedKernel
    body: Stmt

    def copies(self, stmt: Stmt) -> Stmt | None:
        """Return ``stmt`` reduced to its copies; None if it has none."""
        op = op_of(stmt)
        if op is not None and op in self.kernel.before:
            return self.kernel.before[op].copied(stmt.body)
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
            check_condition(stmt.condition, self.kernel.thread, self.body)
            other = parts[1] if len(parts) > 1 else None
            return tirx.IfThenElse(stmt.condition, seq(parts[0]), other)
        if isinstance(stmt, SBlockRealize) and const_int(stmt.predicate) != 1:
            inner = self.copies(stmt.block.body)
            if inner is None:
                return None
            check_condition(stmt.predicate, self.kernel.thread, self.body)
            return tirx.IfThenElse(stmt.predicate, inner, None)
        found = [self.copies(part) for part in bodies(stmt)]
        return seq(*found) if any(part is not None for part in found) else None

    def _loop(self, loop: RoleLoop) -> Stmt:
        """Return the loop over the steps of the producer.

        Rings of different depths are filled from different stages. One step fills the deepest ring
        with the iteration that enters it, and the others with earlier ones, in the order in which
        they are due.
        """
        form, ops = loop.form, self._by_pair(loop)
        first = min(op.stage for own in ops.values() for op in own)
        late = {pair: max(op.stage for op in own) - first for pair, own in ops.items()}
        most = max(late.values())
        _check_released(loop, late)
        var = Var(form.var.name, form.var.ty)
        begin = form.node.min
        steps: list[Stmt] = []
        for pair in sorted(ops, key=lambda pair: -late[pair]):
            behind = late[pair]
            fill = self._fill(loop, pair, ops[pair], var - behind if behind else var)
            guards = [begin + behind <= var] if behind else []
            guards += [var < begin + form.extent + behind] if behind < most else []
            for guard in guards:
                fill = tirx.IfThenElse(guard, fill, None)
            steps.append(fill)
        return rolled(form.node, var, seq(*steps), form.extent + most if most else None)

    def _by_pair(self, loop: RoleLoop) -> dict[int, list[OpPlan]]:
        """Return the copies of ``loop`` in order, by the mbarrier pair of the ring they fill."""
        found: dict[int, list[OpPlan]] = {}
        for op in sorted(loop.plan.ops, key=lambda op: op.order):
            if op.role == PRODUCER:
                (filled,) = loop.effects(op.name).buffers(WRITE)
                found.setdefault(loop.pair(filled), []).append(op)
        return found

    def _fill(self, loop: RoleLoop, pair: int, ops: list[OpPlan], iteration: Expr) -> Stmt:
        """Return the filling of one slot: wait until empty, expect bytes, copy, advance."""
        at, barriers = loop.positions[PRODUCER][pair], loop.barriers[pair]
        full, empty = barriers.plan.full, barriers.plan.empty
        waits = origin_at(loop, ops[0], PRODUCER, pair, [empty])
        waits = replace(waits, op=Op.parse(empty).wait(), kind="wait")
        expects = origin_at(loop, ops[0], PRODUCER, pair, [full])
        expects = replace(expects, op=Op.parse(full).adding("expect"), kind="expect")
        wait = barriers.wait_empty(at)
        return seq(
            None if wait is None else with_origin(waits, wait),
            with_origin(expects, barriers.expect(at)),
            *[self.kernel.instance(loop, op, PRODUCER, iteration) for op in ops],
            at.advance(),
        )


def _check_released(loop: RoleLoop, late: dict[int, int]) -> None:
    """Raise LoweringError if slots of a pair without empty mbarriers could be filled too early.

    The slots of pair ``c`` are filled ``late[c]`` steps after the first. The slots that a step
    waits for must be released in the iteration that last used the others', or in a later one.
    """
    plans = {pair: loop.barriers[pair].plan for pair in late}
    least = next(pair for pair, plan in plans.items() if plan.arrivals)
    for pair, plan in plans.items():
        behind = late[least] - late[pair]
        if plan.arrivals:
            continue  # it waits for its own slots
        if behind > plan.depth - plans[least].depth or behind < 0:
            why = Reason(
                "role.steps",
                slots=plan.depth,
                rings=plan.rings,
                steps=behind,
                fewest=plans[least].depth,
                fewest_rings=plans[least].rings,
            )
            raise LoweringError("role.loop", loop=loop.plan.name, why=why)
