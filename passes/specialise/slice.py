"""Specialise warps: a producer warp copies, consumer warpgroups compute, mbarriers between them.

    for k in range(n):                     if threadIdx.x < 256:            # consumer
        A_shared = tile of A                   for k in range(n):
        B_shared = tile of B       =>              wait full[slot]
        acc += A_shared * B_shared                 acc += A_shared[slot] * B_shared[slot]
    C = acc                                        release the slot before
                                               C = acc
                                           elif threadIdx.x == 256:         # producer
                                               for k in range(n):
                                                   wait empty[slot]
                                                   A_shared[slot] = tile of A, at full[slot]
                                                   ...

The producer keeps the copies of the loops that have mbarriers, and the tile loops and conditions
around them. Everything else is the consumers'. Loops of roles are marked to stay rolled, because
nvcc would unroll the producer's by its trip count.

Does not handle: statements in such a loop that write a ring, shared memory other than rings and
staged stores, conditions that depend on what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm_ffi.structural import WalkResult

from ...diagnostics import Reason
from ...errors import LoweringError
from ...instructions.warpgroup_registers import launch_registers
from ...instructions.wgmma_shapes import WARPGROUP
from ...machine import Machine
from ...mechanisms.roles import by_warpgroup
from ...mechanisms.table import moved_by
from ...plan import CONSUMER, PRODUCER, KernelPlan, LoopPlan, RolePlan
from ..analysis.effects import WRITE, effects
from ..copy.clusters import TAG
from ..ir.kernels import bodies, map_kernels, thread_extents, thread_tag, with_bodies
from ..ir.named_pass import named_pass
from ..ir.nodes import (
    Buffer,
    SBlockRealize,
    Stmt,
    StringImm,
    TensorRegion,
    Var,
    block,
    buffer,
    collect,
    i32,
    is_global,
    seq,
)
from ..ir.op_form import op_loop
from ..matmul.descriptors import Descriptors
from ..sync.mbarriers import BEHIND_ROLES, ROLE_ATTR, ROLES_ATTR, Barriers
from .before import copied_before
from .consumer import consumer
from .ping_pong import PingPong, check_ping_pong
from .producer import producer
from .read_ahead import in_one_stage, may_read_ahead
from .role_loops import RoleLoop, op_names, role_loop
from .specialised_kernel import SpecialisedKernel

MIN_BLOCKS: Final = "tirx.launch_bounds_min_blocks_per_sm"
"""Key of the AttrStmt for which TVM prints the second argument of __launch_bounds__."""


@named_pass("Specialise")
def specialise(func: Any, plan: KernelPlan, machine: Machine) -> Any:
    """Return ``func`` with its threads in the roles of ``plan``; the same object without roles.

    Raises LoweringError for a statement that no role can run.
    """
    if not plan.roles:
        return func

    def sliced(kernel: Any) -> Any:
        if not thread_extents(kernel):
            return kernel  # it is beside the loops, mapped later, and has ended before they start
        _check_sources(kernel, plan)
        ranks = (loop.loop_var for loop in collect(kernel, tirx.For) if thread_tag(loop) == TAG)
        return _Specialiser(plan, machine, next(ranks, None)).on_threads(kernel)

    return map_kernels(func, sliced)


def with_roles(plan: KernelPlan) -> KernelPlan:
    """Return ``plan`` with a role for every scheduled op, and mbarriers on edges between roles."""
    if not plan.roles:
        return plan
    copied = set(plan.role(PRODUCER).ops)
    by_warp = not by_warpgroup(plan.matmuls)

    def assigned(loop: LoopPlan) -> LoopPlan:
        ops = tuple(
            replace(op, role=PRODUCER if op.name in copied else CONSUMER) for op in loop.ops
        )
        if by_warp and not may_read_ahead(ops, loop.rings):
            ops = in_one_stage(ops)
        edges = tuple(
            replace(edge, sync="mbarrier") if edge.sync != "none" else edge for edge in loop.edges
        )
        return replace(loop, ops=ops, edges=edges)

    return replace(
        plan, loops=tuple(assigned(loop) if loop.pipelined else loop for loop in plan.loops)
    )


def _check_sources(kernel: Any, plan: KernelPlan) -> None:
    """Check that the kernel does not write what the async proxy copies from.

    Such reads are not ordered with the kernel's writes.
    """
    unordered = [copy for copy in plan.copies if moved_by(copy).async_proxy]
    sources = {copy.src for copy in unordered}
    if sources.isdisjoint(_mentioned(kernel)):
        return  # tensor maps alone know them
    written = {str(buf.name) for buf in effects(kernel).buffers(WRITE) if is_global(buf)}
    for copy in unordered:
        if copy.src in written:
            raise LoweringError(
                "mechanism.refused",
                copy=copy.op,
                mechanism=copy.mechanism,
                why=Reason("producer.written", buffer=copy.src),
            )


def _behind_roles(body: Stmt) -> tuple[Stmt, Stmt | None]:
    """Return a kernel's body without what is to stand behind its roles, and that."""
    if isinstance(body, tirx.SeqStmt):
        *first, last = body.seq
        if isinstance(last, tirx.AttrStmt) and str(last.attr_key) == BEHIND_ROLES:
            return seq(*first), last.body
    return body, None


def _mentioned(kernel: Any) -> set[str]:
    """Return the names of the variables in ``kernel``, without those in signatures of blocks."""
    names: set[str] = set()
    visits = [
        (TensorRegion, lambda _: WalkResult.SKIP),
        (Var, lambda var: names.add(str(var.name))),
    ]
    tvm_ffi.structural_walk(kernel, visits, order="pre")
    return names


@dataclass(frozen=True)
class _Specialiser:
    """Splits the threads of a function's kernels into the roles of its plan."""

    plan: KernelPlan
    machine: Machine
    rank: Var | None
    """Of a CTA in its cluster."""

    def on_threads(self, stmt: Stmt) -> Stmt:
        """Return ``stmt`` with the body of its threadIdx loop split into roles."""
        if (thread_tag(stmt) or "").startswith("threadIdx"):
            sliced = self._specialised(stmt.body, stmt.loop_var)
            if not any(role.registers for role in self.plan.roles):
                return with_bodies(stmt, [sliced])
            # Only so does ptxas know how many registers there are for setmaxnreg to exchange.
            one = tirx.AttrStmt(i32(0), MIN_BLOCKS, i32(1), sliced)
            return with_bodies(stmt, [one])
        return with_bodies(stmt, [self.on_threads(body) for body in bodies(stmt)])

    def _specialised(self, body: Stmt, thread: Var) -> Stmt:
        fulls = self._placeholders(body)
        inner = body.block.body if fulls else body
        stages = self._stages(body, fulls) if fulls else []
        inner, last = _behind_roles(inner)
        inner, before = copied_before(inner, self.plan, fulls)
        loops = self._find_loops(inner, fulls)
        # In a cluster consumers release slots of other CTAs.
        remote = buffer([1], "uint32", "remote", "local") if self.plan.cluster > 1 else None
        consuming, producing = self.plan.role(CONSUMER), self.plan.role(PRODUCER)
        ping_pong = PingPong.of(consuming, thread)
        if ping_pong is not None:
            check_ping_pong(inner, list(loops))
        kernel = SpecialisedKernel(
            self.plan,
            thread,
            loops,
            Descriptors(thread),
            self.rank,
            remote,
            stages,
            ping_pong,
            before,
        )
        # Other CTAs of a cluster copy into this one and arrive at its barriers until they are done.
        meets = self.plan.ctas_that_meet > 1
        leave = tirx.Evaluate(T.cuda.cluster_sync()) if meets else None
        consumed = self._branch(consuming, seq(consumer(kernel, inner), leave, last))
        produced = self._branch(producing, producer(kernel, producing, inner))
        rings = [ring for loop in loops.values() for ring in loop.rings.values()]
        ordering: list[Barriers | PingPong] = [b for loop in loops.values() for b in loop.barriers]
        ordering += [one.barriers for one in before.values()]
        ordering += [] if ping_pong is None else [ping_pong]
        branches = tirx.IfThenElse(thread < consuming.threads, consumed, produced)
        allocs = [*[ring.slots for ring in rings], *[one.tile for one in before.values()], *stages]
        allocs += [buf for barriers in ordering for buf in barriers.buffers]
        names = ",".join(str(buf.name) for buf in allocs)
        roles = tirx.AttrStmt(StringImm(names), ROLES_ATTR, StringImm(names), branches)
        return block("roles", seq(self._initialise(thread, ordering), roles), allocs)

    def _branch(self, role: RolePlan, body: Stmt) -> Stmt:
        """Return ``body`` as the threads of ``role`` run it, with their register budget."""
        body = seq(self._registers(role), body)
        return tirx.AttrStmt(StringImm(role.name), ROLE_ATTR, StringImm(role.name), body)

    def _registers(self, role: RolePlan) -> Stmt | None:
        if not role.registers:
            return None
        groups = self.plan.role(CONSUMER).threads // WARPGROUP
        way = "inc" if role.registers > launch_registers(self.machine, groups) else "dec"
        return tirx.Evaluate(T.ptx[f"setmaxnreg.{way}.sync.aligned.u32"](role.registers))

    def _initialise(self, thread: Var, ordering: Sequence[Barriers | PingPong]) -> Stmt:
        init = seq(*[barriers.initialise() for barriers in ordering])
        return seq(
            tirx.IfThenElse(tirx.EQ(thread, i32(0)), init, None),
            tirx.Evaluate(T.ptx.fence.mbarrier_init.release.cluster()),
            *self._started(),
        )

    def _started(self) -> list[Stmt]:
        """Return what lets all threads of a CTA, or of its cluster, know of the mbarriers.

        CTAs of a cluster arrive without releasing more than the fence before did (PTX ISA,
        fence.mbarrier_init): ptxas puts MEMBAR.ALL.GPU before an arrival that releases, .17 us in
        the mean of eight products of 8 to 20 us on an H200.
        """
        if self.plan.ctas_that_meet == 1:
            return [tirx.Evaluate(T.tvm_storage_sync("shared"))]
        arrive = T.ptx["barrier.cluster.arrive.relaxed.aligned"]
        wait = T.ptx["barrier.cluster.wait.acquire.aligned"]
        return [tirx.Evaluate(arrive()), tirx.Evaluate(wait())]

    def _placeholders(self, body: Stmt) -> dict[str, Buffer]:
        """Return the ``full`` mbarriers that copies refer to, by name."""
        names = {pair.full for pair in self.plan.mbarriers}
        if not isinstance(body, SBlockRealize):
            return {}
        found = {str(buf.name): buf for buf in body.block.alloc_buffers}
        return {name: buf for name, buf in found.items() if name in names}

    def _stages(self, body: Any, fulls: dict[str, Buffer]) -> list[Buffer]:
        """Return the shared memory that results are staged through."""
        known = list(fulls.values())
        return [buf for buf in body.block.alloc_buffers if buf not in known]

    def _find_loops(self, body: Stmt, fulls: dict[str, Buffer]) -> dict[Any, RoleLoop]:
        planned = {frozenset(op_names(loop)): loop for loop in self.plan.loops if loop.pipelined}
        loops: dict[Any, RoleLoop] = {}
        for node in collect(body, tirx.For):
            form = op_loop(node)
            loop = None if form is None else planned.get(frozenset(form.names))
            if form is not None and loop is not None:
                loops[node] = role_loop(form, loop, self.plan, fulls)
        if len(loops) < len(planned):
            raise LoweringError("role.kernel", why=Reason("role.lacks_loop"))
        return loops
