"""Find the loops worth pipelining and say what each statement of their bodies is.

A candidate is a serial loop that loads from global memory and has work for those loads to run
under: other statements of the body, or the rest of the same statement. Of nested ones the innermost
is taken. Its body comes out in op form, each statement in ``T.attr(name, "pipeliner.op", name)``;
every other serial loop gets the reason why it is none.

A *tile function* binds nothing to threadIdx: its unbound nests (copies, matmuls, elementwise
blocks) are no loops but work for threads that mapping will make.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from tvm import tirx

from ..diagnostics import Reason, Why
from ..kernel import CopyInfo, ElementwiseInfo, KernelInfo, LoopInfo, MatmulInfo, StatementInfo
from .candidates import Context, why_not
from .clusters import shared_by
from .copies import loop_ranges
from .costs import WARP
from .cta_order import leaves
from .describe import bound_copy, copy_info, hint, matmul_info, statement_info
from .effects import WRITE, Effects, effects
from .elementwise import elementwise_info
from .ir import (
    Buffer,
    ForKind,
    SBlockRealize,
    Stmt,
    Var,
    block,
    buffer_bytes,
    const_int,
    is_global,
    is_shared,
    op_stmt,
    seq,
    statements,
    substitute,
    uses,
    walk,
)
from .kernels import bodies, kernels_of, thread_extents, thread_tag, with_block, with_bodies
from .normalise import distribute_condition, hoist_initialisation, inline_bindings
from .op_form import op_loops
from .overwritten import overwritten
from .patterns import Copy, Matmul, Nest, as_copy, as_matmul, as_nest
from .remainder import k_in_last
from .serial import sharing, why_serial
from .tile_loops import trim_tile_loops
from .tile_stores import store_infos
from .turns import runs_by_tile
from .uniform import Uniformity

DEPTH: Final = "pipeliner.depth"
MANY: Final = 1 << 30
"""Iterations that say nothing about how many there are."""

ANNOTATED: Final = "software_pipeline_"

_Info: TypeAlias = "CopyInfo | MatmulInfo | StatementInfo"


@dataclass(frozen=True)
class Kernel:
    """What one function holds.

    ``info``: the plain values that the cost model chooses from. ``ops``: the tile copies and
    matmuls among the ops, by name. ``thread_var``: threadIdx.x where it is the only thread axis.
    """

    info: KernelInfo
    ops: Mapping[str, Copy | Matmul]
    thread_var: Var | None = None


def recognise(func: Any) -> tuple[Any, Kernel]:
    """``func`` with its candidate loops in op form, and what they hold."""
    threads = {var: extent or 1 for var, extent in thread_extents(func.body).items()}
    hoisted = hoist_initialisation(trim_tile_loops(func.body))
    touched = effects(hoisted)
    ranges, fence = loop_ranges(hoisted), touched.why_fence()
    found = _Finder(func, threads, Uniformity(hoisted), ranges, _read(touched), fence)
    body = found.visit(hoisted, Context())
    axes = [str(tag) for tag in found.thread_tags]
    info = KernelInfo(
        name=str((func.attrs or {}).get("global_symbol", "main")),
        grid=found.launched,
        threads=math.prod(threads.values()) if threads else 0,
        loops=overwritten(_by_tile(found.loops, body), func, body),
        declined=tuple(found.declined),
        registers_hint=found.registers(),
        accumulators=found.outer_buffers(),
        elementwise=_elementwise(body) if found.ops and not threads else (),
        stores=store_infos(body, found.ops, found.ranges),
        kernels=len(kernels_of(body)),
        independent=0 if found.ops or threads else _independent(body),
        alone=_alone(body, mapped=bool(found.ops) and not threads),
    )
    only = next(iter(threads)) if len(threads) == 1 and axes == ["threadIdx.x"] else None
    new = func
    if not body.same_as(func.body):
        new = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    return new, Kernel(info, dict(found.ops), only)


def with_sharing(func: Any, kernel: Kernel, clusters: Sequence[int]) -> Kernel:
    """``kernel`` of ``func``, told which copies the CTAs of ``clusters`` could share."""
    copies = {name: op for name, op in kernel.ops.items() if isinstance(op, Copy)}
    if not clusters or len(copies) == len(kernel.ops):
        return kernel
    shared = shared_by(func.body, clusters, copies)

    def told(loop: LoopInfo) -> LoopInfo:
        ops = (
            replace(op, multicast=shared.get(op.op, ())) if isinstance(op, CopyInfo) else op
            for op in loop.ops
        )
        return replace(loop, ops=tuple(ops))

    info = replace(kernel.info, loops=tuple(map(told, kernel.info.loops)))
    return replace(kernel, info=info)


@dataclass
class _Finder:
    """One walk over a function; results collect in its fields."""

    func: Any
    threads: dict[Var, int]
    uniformity: Uniformity
    ranges: Any
    read: frozenset[Buffer]
    fence: Reason | None = None
    loops: list[LoopInfo] = field(default_factory=list)
    declined: list[tuple[str, Why]] = field(default_factory=list)
    grid: list[int | None] = field(default_factory=list)
    launched: tuple[int | None, ...] = ()
    buffers: list[Buffer] = field(default_factory=list)
    rings: set[Buffer] = field(default_factory=set)
    ops: dict[str, Copy | Matmul] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    thread_tags: set[str] = field(default_factory=set)

    def registers(self) -> int:
        """Registers of a thread's own buffers, in a function that binds its threads."""
        private = sum(_thread_bytes(buf) for buf in self.buffers if not is_shared(buf))
        return private // 4 if self.threads else 0

    def outer_buffers(self) -> tuple[tuple[str, str, int], ...]:
        """Name, scope and bytes of what is allocated outside the candidate loops."""
        return tuple(
            (str(buf.name), str(buf.scope()), buffer_bytes(buf) or 0)
            for buf in self.buffers
            if buf not in self.rings
        )

    def visit(self, stmt: Stmt, context: Context) -> Stmt:
        """``stmt`` with the candidates below it in op form."""
        tag = thread_tag(stmt)
        if tag is not None:
            self._note_thread(stmt, tag)
        elif isinstance(stmt, tirx.For) and stmt.kind == ForKind.SERIAL:
            return self._visit_loop(stmt, context)
        if isinstance(stmt, SBlockRealize):
            self.buffers += [buf for buf in stmt.block.alloc_buffers if not is_global(buf)]
        if isinstance(stmt, tirx.IfThenElse):
            divergent = context.divergent or not self.uniformity.is_uniform(stmt.condition)
            context = Context(context.loops, divergent)
        inner = bodies(stmt)
        done = with_bodies(stmt, [self.visit(part, context) for part in inner]) if inner else stmt
        if tag is not None and tag.startswith("blockIdx"):
            self.grid.pop()
        return done

    def _note_thread(self, stmt: Stmt, tag: str) -> None:
        """Enter what is bound to ``tag``; the grid that counts is that of the first candidates."""
        if not tag.startswith("blockIdx"):
            self.thread_tags.add(tag)
            return
        self.grid.append(const_int(stmt.extent if isinstance(stmt, tirx.For) else stmt.value))
        if not self.loops:
            self.launched = tuple(self.grid)

    def _visit_loop(self, loop: Any, context: Context) -> Stmt:
        nest = as_nest(loop)
        if nest is not None and not self.threads and not _is_annotated(loop) and self.grid:
            return loop  # a tile's own dimensions, not iterations
        before = len(self.loops)
        inside = context
        if const_int(loop.extent) != 1:
            inside = Context((*context.loops, loop), context.divergent)
        if self._holds_tiles(loop.body):
            return self._candidate(loop, context)
        body = self.visit(loop.body, inside)
        if len(self.loops) > before and not _is_annotated(loop):
            self.declined.append((_name(loop), Reason("loop.inner")))
            return with_bodies(loop, [body])
        why = self._why_not(loop, context)
        if why is not None and not _is_annotated(loop):
            self.declined.append((_name(loop), why))
            return with_bodies(loop, [body])
        return self._candidate(with_bodies(loop, [body]), context)

    def _holds_tiles(self, body: Stmt) -> bool:
        """Whether a loop of a tile function copies or multiplies tiles: then its body is mapped."""
        if self.threads or not self.grid:
            return False
        inner = distribute_condition(body)
        parts = statements(inner.block.body if isinstance(inner, SBlockRealize) else inner)
        nests = [as_nest(part) for part in parts]
        return any(nest is not None and _is_tile_work(nest) for nest in nests)

    def _why_not(self, loop: Any, context: Context) -> Reason | None:
        if not self.grid and not self.threads:
            return Reason("loop.on_host")
        return why_not(loop, context, self.threads, self.uniformity)

    def _candidate(self, loop: Any, context: Context) -> Stmt:
        body = distribute_condition(loop.body)
        realize = None
        if (
            isinstance(body, SBlockRealize)
            and not body.block.iter_vars
            and (const_int(body.predicate) == 1)
        ):
            realize = body
            body = body.block.body
        body, extra = inline_bindings(body)
        written = frozenset(effects(body).buffers(WRITE))
        ops = [self._op(part, written) for part in statements(body)]
        rings = [] if realize is None else list(realize.block.alloc_buffers)
        rings += extra
        self.rings.update(rings)
        infos = [self._in_order(self._with_k_tail(found, ops, loop)) for _, found in ops]
        infos = _filled_once(infos, [stmt for stmt, _ in ops])
        info = self._loop_info(loop, infos, rings, context)
        self.loops.append(info)
        new = seq(*[stmt for stmt, _ in ops])
        if realize is not None:
            new = with_block(realize, body=new, allocs=rings)
        elif extra:
            new = block("", new, extra)
        return _renamed(with_bodies(loop, [new]), info.name)

    def _op(self, stmt: Stmt, written: frozenset[Buffer]) -> tuple[Stmt, _Info]:
        name = self._unique(hint(stmt))
        nest = as_nest(stmt)
        unbound = nest is not None and not uses(stmt, self.threads)
        if unbound and nest is not None:
            copy = as_copy(nest)
            if copy is not None and copy.order:
                self.ops[name] = copy
                return op_stmt(name, stmt), copy_info(name, copy, self.read, self.ranges)
            matmul = as_matmul(nest)
            if matmul is not None:
                self.ops[name] = matmul
                return op_stmt(name, stmt), matmul_info(name, matmul)
        threads = math.prod(self.threads.values()) if self.threads else 1
        bound = bound_copy(name, stmt, threads, written, self.read, self.ranges)
        if bound is not None:
            return op_stmt(name, stmt), bound
        return op_stmt(name, stmt), statement_info(name, stmt, threads, written, bound=not unbound)

    def _with_k_tail(self, info: _Info, ops: Sequence[tuple[Stmt, _Info]], loop: Any) -> _Info:
        """A matmul's values with what the last iteration of ``loop`` has of K."""
        matmul = self.ops.get(info.op)
        if not isinstance(info, MatmulInfo) or not isinstance(matmul, Matmul):
            return info
        copies = [self.ops.get(other.op) for _, other in ops if isinstance(other, CopyInfo)]
        tiles = [copy for copy in copies if isinstance(copy, Copy)]
        return replace(info, k_last=k_in_last(matmul, tiles, loop))

    def _in_order(self, info: _Info) -> _Info:
        """``info``; a role that only copies would run ahead of what the kernel waits for."""
        if self.fence is None or not isinstance(info, CopyInfo) or info.no_tma:
            return info
        return replace(info, no_tma=Reason("tma.fence", fence=self.fence))

    def _unique(self, hint: str) -> str:
        count = self.names.get(hint, 0)
        self.names[hint] = count + 1
        return hint if not count else self._unique(f"{hint}_{count}")

    def _most(self, extent: Any) -> int | None:
        """The extent of a loop around a candidate, or the most that it can be, when known."""
        known = const_int(extent)
        if known is not None:
            return known
        most = int(self.ranges.const_int_bound(extent).max_value)
        return most if most < MANY else None

    def _loop_info(
        self,
        loop: Any,
        ops: list[_Info],
        rings: list[Buffer],
        context: Context,
    ) -> LoopInfo:
        depth, trip = loop.annotations.get(DEPTH), const_int(loop.extent)
        outer: int | None = 1
        for around in context.loops:
            extent = self._most(around.extent)
            outer = None if outer is None or extent is None else outer * extent
        return LoopInfo(
            name=self._unique(_name(loop)),
            trip=trip,
            trip_text=str(loop.extent if trip is None else trip),
            ops=tuple(ops),
            rings=tuple((str(buf.name), str(buf.scope()), buffer_bytes(buf) or 0) for buf in rings),
            depth=None if depth is None else int(depth),
            annotated=_is_annotated(loop),
            outer=outer,
        )


def _filled_once(infos: Sequence[_Info], stmts: Sequence[Stmt]) -> list[_Info]:
    """``infos`` of the ops ``stmts``; a tile that two of them fill no role can hand over as one."""
    fills: dict[str, list[str]] = {}
    for info, stmt in zip(infos, stmts, strict=True):
        stored: list[Any] = []
        walk(stmt, tirx.BufferStore, stored.append)
        for name in {str(store.buffer.name) for store in stored}:
            fills.setdefault(name, []).append(info.op)

    def told(info: _Info) -> _Info:
        if not isinstance(info, CopyInfo) or info.no_tma:
            return info
        others = [op for op in fills.get(info.dst, ()) if op != info.op]
        if not others:
            return info
        return replace(info, no_tma=Reason("tma.filled_twice", other=others[0], buffer=info.dst))

    return [told(info) for info in infos]


def _by_tile(loops: Sequence[LoopInfo], body: Stmt) -> tuple[LoopInfo, ...]:
    """``loops`` of ``body``, told which are run once by each tile of a loop that is all else."""
    kernels = kernels_of(body)
    once = {
        str(form.var.name)
        for form in op_loops(body)
        if any(runs_by_tile(kernel, form.node) for kernel in kernels)
    }
    return tuple(replace(loop, by_tile=loop.name in once) for loop in loops)


def _is_tile_work(nest: Nest) -> bool:
    """Whether ``nest`` is a tile matmul, or a copy of a tile to shared memory."""
    copy = as_copy(nest)
    return as_matmul(nest) is not None or (copy is not None and len(copy.order) > 0)


def _elementwise(body: Stmt) -> tuple[ElementwiseInfo, ...]:
    """The kernels beside those with loops."""
    others = [kernel for kernel in kernels_of(body) if next(op_loops(kernel), None) is None]
    infos = [elementwise_info(kernel) for kernel in others]
    return tuple(info for info in infos if info is not None)


def _read(found: Effects) -> frozenset[Buffer]:
    """The buffers that something with these effects reads, or declares a view of."""
    return frozenset({a.buffer for a in found.accesses if a.reads} | found.viewed)


def _independent(body: Stmt) -> int:
    """The most threads of a CTA that may make a nest in the kernels of ``body`` together."""
    nests = (leaf.nest for kernel in kernels_of(body) for leaf in leaves(kernel))
    return max((sharing(nest) for nest in nests if nest is not None), default=0)


def _alone(body: Stmt, *, mapped: bool) -> Why:
    """Why one thread makes all of a kernel in ``body``; empty: it does so of none.

    ``mapped``: tiles of the function are given to threads.
    """
    kernels = kernels_of(body)
    for kernel in kernels:
        if thread_extents(kernel) or mapped:
            continue
        inside = [leaf for leaf in leaves(kernel) if leaf.nest is not None]
        if any(thread_extents(other) for other in kernels):
            names = tuple(leaf.nest.name for leaf in inside if leaf.nest is not None)
            return Reason("share.unbound", blocks=names)
        if inside and all(leaf.nest is None or sharing(leaf.nest) <= 1 for leaf in inside):
            return Reason("share.nothing", why=why_serial(inside))
    return ""


def _thread_bytes(buf: Buffer) -> int:
    """What one thread holds of a private buffer; fragments are spread over a warp."""
    size = buffer_bytes(buf) or 0
    return size // WARP if str(buf.scope()).startswith(("warp", "wmma.")) else size


def _name(loop: Any) -> str:
    return str(loop.loop_var.name)


def _is_annotated(loop: Any) -> bool:
    """Whether the schedule itself says how to pipeline the loop."""
    return any(str(key).startswith(ANNOTATED) for key in loop.annotations)


def _renamed(loop: Any, name: str) -> Any:
    """``loop`` with its variable called ``name``: loops of a kernel go by the name of theirs."""
    if _name(loop) == name:
        return loop
    var = Var(name, "int32")
    body = substitute(loop.body, {loop.loop_var: var})
    return tirx.For(var, loop.min, loop.extent, loop.kind, body, None, loop.annotations, loop.step)
