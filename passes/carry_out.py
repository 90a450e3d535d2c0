"""Carry out one plan: make the kernel that the plan describes from a recognised function.

    a loop in op form, a plan => threads and instructions, copies, a modulo schedule, prologue and
                                 steady state (or roles), shared memory, barriers

``pipeline`` calls it for one plan after the other until one can be carried out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm.support import nvcc

from ..choice.alone import unpipelined
from ..choice.k_tail import check_skips
from ..choice.mapped import uses_wgmma
from ..diagnostics import Reason, Why
from ..errors import PlanError, TargetError
from ..machine import Machine
from ..mechanisms.table import moved_by
from ..plan import CopyPlan, KernelPlan, LoopPlan, Mechanism
from ..values.facts import KernelInfo
from .copy.copies import lower_copies
from .expand.rewrite import expand
from .ir.op_form import op_loops
from .map.beside import map_beside
from .map.elementwise import map_elementwise
from .map.instructions import map_tiles
from .matmul.descriptors import compute_once
from .recognise.facts import Facts
from .schedule.annotations import async_statements, is_annotated, staged_statements
from .schedule.loops import GIVEN, Failure, schedule_loops
from .smem.place import place
from .smem.vthreads import private_buffers
from .specialise.slice import specialise, with_roles
from .steps import Steps
from .sync.labels import label
from .sync.launch import dependent_launches
from .sync.synchronise import synchronise


def carry_out(
    steps: Steps,
    facts: Facts,
    plan: KernelPlan,
    target: Any,
    machine: Machine,
    given: KernelPlan | None = None,
    *,
    asked: bool = False,
) -> KernelPlan:
    """Carry ``plan`` out on the recognised function; return the plan as it was carried out.

    A loop that cannot be scheduled, or would overlap nothing, is left as it is, unless the plan was
    ``given``. ``asked``: the mechanism of copies was asked for, so such copies stay. Raises
    PlanError if the plan is impossible: why it cannot be pipelined, if it cannot be left either.
    """
    if uses_wgmma(plan.matmuls) and not str(target.arch).endswith("a"):
        raise TargetError("matmul.target", arch=str(target.arch), needed=plan.target)
    check_skips(plan, facts.info)
    plan = _with_legal_copies(steps.func, plan)
    recognised = steps.func
    first: PlanError | None = None
    while True:
        try:
            done = _schedule(steps, facts, plan, machine, given, asked=asked)
            if isinstance(done, KernelPlan):
                return placed(steps, done, target, machine.smem_per_cta)
            err, loop = done.error, done.loop
        except PlanError as failed:
            err, loop = failed, ""
        if given is not None or plan.roles:
            raise err
        first = first or err
        try:
            plan = _without_pipelining(plan, facts.info, machine, err, loop)
        except PlanError as left:  # why it could not be pipelined says more
            raise first from (None if left is first else left)
        steps.func = recognised


def _with_legal_copies(func: Any, plan: KernelPlan) -> KernelPlan:
    """Return ``plan`` with the copy mechanisms that the function itself determines.

    In a loop with TVM's annotations exactly the copies that it marks are asynchronous. A buffer of
    which every virtual thread has a copy must be written by stores, because TVM looks at nothing
    else.
    """
    named: dict[str, bool] = {}
    staged: frozenset[str] = frozenset()
    for form in op_loops(func):
        if is_annotated(form.node):
            wanted = async_statements(form.node)
            named.update((name, name in wanted) for name in form.names)
            staged |= staged_statements(form.node)
    private = {str(buffer.name) for buffer in private_buffers(func.body)}

    def legal(copy: CopyPlan) -> CopyPlan:
        if copy.op in staged:
            return loaded(copy, "register", Reason("annotation.staged"))
        if not named.get(copy.op, True):
            return loaded(copy, "direct", Reason("annotation.not_async"))
        if moved_by(copy).in_groups and copy.dst in private:
            return loaded(copy, "register", Reason("copy.vthread", buffer=copy.dst))
        return copy

    def loaded(copy: CopyPlan, mechanism: Mechanism, why: Reason) -> CopyPlan:
        """``copy`` by loads and stores, which have no cache to choose."""
        return replace(copy, mechanism=mechanism, reason=why, cache="L2")

    return replace(plan, copies=tuple(legal(copy) for copy in plan.copies))


def _schedule(
    steps: Steps,
    facts: Facts,
    plan: KernelPlan,
    machine: Machine,
    given: KernelPlan | None,
    *,
    asked: bool,
) -> KernelPlan | Failure:
    """Map, copy, schedule and expand; return the plan with its loops scheduled."""
    notes: list[Why] = []
    steps.rewrite(map_tiles, facts, plan, notes)
    steps.rewrite(lower_copies, plan)
    plan = replace(plan, reasons=tuple(dict.fromkeys([*plan.reasons, *notes])))
    done = steps.run(schedule_loops, plan, machine, given, asked=asked)
    if not isinstance(done, KernelPlan):
        return done
    if done.roles:
        done = with_roles(done)
        steps.rewrite(specialise, done, machine)
    else:
        steps.rewrite(expand, done)
    steps.rewrite(map_elementwise, done)
    beside: list[Why] = []
    steps.rewrite(map_beside, done, machine, beside)
    return replace(done, reasons=tuple(dict.fromkeys([*done.reasons, *beside])))


def placed(steps: Steps, plan: KernelPlan, target: Any, budget: int) -> KernelPlan:
    """Place shared memory and barriers and order kernel launches; return the plan with those.

    Descriptors are computed once only behind that, because barriers are placed by the buffers that
    they are encoded from. With roles they are computed once already.
    """
    native_bf16 = nvcc.have_bf16(nvcc.get_target_compute_version(target))
    smem = steps.run(place, budget, native_bf16=native_bf16)
    sync = steps.run(synchronise, smem)
    steps.rewrite(label, smem)
    if uses_wgmma(plan.matmuls) and not plan.roles:
        steps.rewrite(compute_once)
    steps.rewrite(dependent_launches, plan.launch)
    return replace(plan, smem=smem, sync=sync)


def _without_pipelining(
    plan: KernelPlan, info: KernelInfo, machine: Machine, err: PlanError, name: str = ""
) -> KernelPlan:
    """Return ``plan`` without loop ``name``, or all automatic ones; raise ``err`` if requested."""
    free = [loop for loop in plan.loops if loop.pipelined and loop.source not in GIVEN]
    if name:
        free = [loop for loop in free if loop.name == name]
    if not free:
        raise err
    copies = {copy.op: copy for copy in plan.copies}
    for loop in free:
        plan = plan.with_loop(LoopPlan(loop.name, loop.trip, False, reasons=(err.reason,)))
        found = next(known for known in info.loops if known.name == loop.name)
        own = [copies.pop(op.op) for op in found.ops if op.op in copies]
        left = unpipelined(found, tuple(own), plan.matmuls, machine)
        copies.update((copy.op, copy) for copy in left)
    return replace(plan, copies=tuple(copies.values()))
