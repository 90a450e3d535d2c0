"""Emit the main loop of consumers that are warps, which multiply by mma.sync.

    for k in range(n):
        wait full[slot]; read fragments; release the slot
        multiply

What orders their reads with the copies is said in ``consumer``.
"""

from __future__ import annotations

from tvm import tirx

from ...plan import CONSUMER, PRODUCER, OpPlan
from ...values.op import Op
from ...values.origin import STEADY
from ..ir.nodes import Expr, Stmt, block, i32, seq
from .role_loops import RoleLoop, awaited, shared_by
from .slots import ConsumerSlots
from .statements import rolled


def loop_of_warps(slots: ConsumerSlots, loop: RoleLoop, *, repeats: bool) -> Stmt:
    """Return the main loop of consumers that are warps; ``repeats``: it may be entered again.

        wait full[slot]; read all    =>   wait full[slot]; read the first k-step
        multiply                          for k in range(n - 1):
        release the slot                      read the rest, multiply; release the slot
                                              wait full[next]; read the first k-step
                                          read the rest, multiply

    On the right ``staged``, as the schedule has it: the stages of the ops say what is read for
    the iteration ahead, and their order when. A slot is released while what was read of it is
    multiplied (``_released_behind``), the last one only if the loop is entered again.
    """
    form, first = loop.form, loop.form.node.min
    ops = sorted((op for op in loop.plan.ops if op.role != PRODUCER), key=lambda op: op.order)
    stage = min(op.stage for op in ops)
    early = [op for op in ops if op.stage == stage]
    late = [op for op in ops if op.stage > stage]
    release = _released_behind(loop, early, late)

    def run(some: list[OpPlan], iterations: tuple[Expr, Expr], phase: str) -> list[Stmt]:
        """The ops ``some`` in order, of the iterations of early and late ones."""
        made: list[Stmt] = []
        for op in some:
            if op.kind == "wait":
                waits = [slots.wait(loop, op, pair) for pair in awaited(loop, op)]
                made += waits
                continue
            slots.check(loop, op)
            behind = op.stage > stage
            made.append(
                slots.kernel.instance(
                    loop,
                    op,
                    CONSUMER,
                    iterations[behind],
                    behind=behind,
                    phase=phase,
                    again=loop.staged,
                )
            )
            if op.name == release and (repeats or phase != "epilogue"):
                made += slots.released(loop, behind=behind)
        return made

    advance = [at.advance() for at in loop.positions[CONSUMER]]
    if not loop.staged:
        steps = seq(*run(ops, (form.var, form.var), STEADY), *advance)
        body = rolled(form.node, form.var, steps)
    else:
        fill = [*run(early, (first, first), "prologue"), *advance]
        steps = seq(*run(ops, (form.var + 1, form.var), STEADY), *advance)
        final = first + form.extent - 1
        drain = run(late, (final, final), "epilogue")
        body = seq(*fill, rolled(form.node, form.var, steps, form.extent - 1), *drain)
        if not form.trip:
            body = tirx.IfThenElse(i32(0) < form.extent, body, None)
    body = seq(body, *slots.released_tiles(loop))
    others = [buf for buf in form.allocs if buf not in loop.rings]
    return block("", body, others) if others else body


def _released_behind(loop: RoleLoop, early: list[OpPlan], late: list[OpPlan]) -> Op:
    """Return the op behind which warps release a slot: ``early`` ones come first.

    The last one that reads it, or the next multiplication behind that: the fence waits for
    reads, which have landed by then. With one slot not so late, because the next iteration's
    ops, which may come between the two, wait for it.
    """
    ops = [*early, *late]
    last = max(at for at, op in enumerate(ops) if shared_by(loop, op))
    if min(barriers.plan.depth for barriers in loop.barriers) > 1:
        later = [op.name for op in ops[last + 1 :] if op.kind == "mma"]
        return later[0] if later else ops[last].name
    return ops[last].name
