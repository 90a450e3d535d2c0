"""Find the loops worth pipelining, and say what each statement of their bodies is.

    for k: { A_shared[..] = A[..]; C[..] += .. }
 => for k: { op "A_shared": a copy of 128 x 64 float16; op "C": a matmul of 128 x 256 x 64 }

A candidate is a serial loop that loads from global memory and has work for those loads to run
under: other statements of the body, or the rest of the same statement. Of nested candidates the
innermost is taken. Its body is brought into op form: each statement stands in
``T.attr(name, "pipeliner.op", name)``. Every other serial loop gets the reason why it is no
candidate.

A *tile function* binds nothing to threadIdx. Its unbound nests (copies, matmuls, elementwise
blocks) are not loops to pipeline: they are work that mapping gives to threads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from ...diagnostics import Reason, Why
from ...values.facts import CopyInfo, ElementwiseInfo, KernelInfo, LoopInfo, MatmulInfo
from ..analysis.cta_order import leaves
from ..analysis.effects import Effects, effects
from ..analysis.uniform import Uniformity
from ..copy.clusters import Sharing, shared_by
from ..copy.copies import loop_ranges
from ..dependence.overwritten import overwritten
from ..ir.kernels import COOPERATIVE, kernels_of, launch_tags, thread_extents
from ..ir.named_pass import named_pass
from ..ir.nodes import Buffer, Stmt, Var
from ..ir.op_form import op_loops
from ..ir.patterns import Copy, Matmul
from ..threads.serial import sharing, why_serial
from .by_rows import by_rows
from .by_tile import runs_by_tile
from .candidates import Context
from .elementwise import elementwise_info
from .loop_finder import LoopFinder
from .normalise import hoist_initialisation
from .tile_loops import trim_tile_loops
from .tile_stores import store_infos


@dataclass(frozen=True)
class Facts:
    """What recognition finds in a function.

    ``info``: the plain values that the cost model chooses from. ``ops``: the tile copies and
    matmuls among the ops, by name. ``thread_var``: threadIdx.x if it is the only thread axis.
    """

    info: KernelInfo
    ops: Mapping[str, Copy | Matmul]
    thread_var: Var | None = None


@named_pass("Recognise")
def recognise(func: Any) -> tuple[Any, Facts]:
    """Return ``func`` with its candidate loops in op form, and a description of them."""
    threads = {var: extent or 1 for var, extent in thread_extents(func.body).items()}
    hoisted = hoist_initialisation(trim_tile_loops(func.body))
    touched = effects(hoisted)
    ranges, fence = loop_ranges(hoisted), touched.why_fence()
    found = LoopFinder(func, threads, Uniformity(hoisted), ranges, _read(touched), fence)
    body = found.visit(hoisted, Context())
    axes = [str(tag) for tag in found.thread_tags]
    info = KernelInfo(
        name=str((func.attrs or {}).get("global_symbol", "main")),
        grid=found.launched,
        threads=math.prod(threads.values()) if threads else 0,
        loops=by_rows(overwritten(_by_tile(found.loops, body), func, body), found.ops, body),
        declined=tuple(found.declined),
        registers_hint=found.registers(),
        accumulators=found.outer_buffers(),
        elementwise=_elementwise(body) if found.ops and not threads else (),
        before=() if threads else tuple(copy for copy in found.before if _is_operand(copy, found)),
        stores=store_infos(body, found.ops, found.ranges),
        kernels=len(kernels_of(body)),
        ends_elementwise=_ends_elementwise(body) if found.ops and not threads else False,
        independent=0 if found.ops or threads else _independent(body),
        alone=_alone(body, mapped=bool(found.ops) and not threads),
        cooperative=COOPERATIVE in launch_tags(func),
    )
    only = next(iter(threads)) if len(threads) == 1 and axes == ["threadIdx.x"] else None
    new = func
    if not body.same_as(func.body):
        new = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    return new, Facts(info, dict(found.ops), only)


def with_sharing(func: Any, facts: Facts, clusters: Sequence[int], *, asked: bool = False) -> Facts:
    """Return ``facts`` of ``func`` with the copies that CTAs of ``clusters`` could share.

    LoweringError: ``asked`` for are some whose CTAs would wait for each other forever.
    """
    copies = {name: op for name, op in facts.ops.items() if isinstance(op, Copy)}
    if not clusters or len(copies) == len(facts.ops):
        return facts
    shared: dict[str, Sharing] = {}
    for kernel in kernels_of(func.body):  # each has a grid of its own
        names = {str(name) for form in op_loops(kernel) for name in form.names}
        own = {name: copy for name, copy in copies.items() if name in names}
        shared.update(shared_by(kernel, clusters, own, asked=asked) if own else {})

    def told(loop: LoopInfo) -> LoopInfo:
        ops = (
            replace(op, multicast=shared.get(op.op, ())) if isinstance(op, CopyInfo) else op
            for op in loop.ops
        )
        return replace(loop, ops=tuple(ops))

    info = replace(facts.info, loops=tuple(map(told, facts.info.loops)))
    return replace(facts, info=info)


def _by_tile(loops: Sequence[LoopInfo], body: Stmt) -> tuple[LoopInfo, ...]:
    """Return ``loops`` with those marked that each tile runs once, in a kernel of one tile loop."""
    kernels = kernels_of(body)
    once = {
        str(form.var.name)
        for form in op_loops(body)
        if any(runs_by_tile(kernel, form.node) for kernel in kernels)
    }
    return tuple(replace(loop, by_tile=loop.name in once) for loop in loops)


def _elementwise(body: Stmt) -> tuple[ElementwiseInfo, ...]:
    """Return the descriptions of the kernels beside those with loops."""
    others = [kernel for kernel in kernels_of(body) if next(op_loops(kernel), None) is None]
    infos = [elementwise_info(kernel) for kernel in others]
    return tuple(info for info in infos if info is not None)


def _ends_elementwise(body: Stmt) -> bool:
    """Return whether the last of several kernels is elementwise."""
    kernels = kernels_of(body)
    if len(kernels) < 2 or next(op_loops(kernels[-1]), None) is not None:
        return False
    return elementwise_info(kernels[-1]) is not None


def _is_operand(copy: CopyInfo, found: LoopFinder) -> bool:
    """Whether a matmul of a loop reads all of the tile in each step."""
    ops = [op for loop in found.loops for op in loop.ops if isinstance(op, MatmulInfo)]
    reading = [op for op in ops if copy.dst in (op.a, op.b)]
    return bool(reading) and not any(copy.dst in op.stationary for op in reading)


def _read(found: Effects) -> frozenset[Buffer]:
    """Return the buffers that something with these effects reads, or declares a view of."""
    return frozenset({a.buffer for a in found.accesses if a.reads} | found.viewed)


def _independent(body: Stmt) -> int:
    """Return the most threads of a CTA that may share a nest in the kernels of ``body``."""
    nests = (leaf.nest for kernel in kernels_of(body) for leaf in leaves(kernel))
    return max((sharing(nest) for nest in nests if nest is not None), default=0)


def _alone(body: Stmt, *, mapped: bool) -> Why:
    """Return why one thread runs all of a kernel in ``body``; empty if that is not so.

    ``mapped``: tiles of the kernels with loops are mapped to threads.
    """
    for kernel in kernels_of(body):
        if thread_extents(kernel) or (mapped and next(op_loops(kernel), None) is not None):
            continue
        inside = [leaf for leaf in leaves(kernel) if leaf.nest is not None]
        if inside and all(leaf.nest is None or sharing(leaf.nest) <= 1 for leaf in inside):
            return Reason("share.nothing", why=why_serial(inside))
    return ""
