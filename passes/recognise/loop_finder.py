"""Find the candidate loops of a function, and bring their bodies into op form.

    for k: { A_shared[..] = A[..]; C[..] += .. }
 => for k: { T.attr("A_shared", "pipeliner.op"): A_shared[..] = A[..]
             T.attr("C", "pipeliner.op"): C[..] += .. }

A serial loop that is no candidate stays as it is, and ``declined`` has the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from tvm import tirx

from ...diagnostics import Reason, Why
from ...machine import WARP
from ...values.facts import CopyInfo, LoopInfo, MatmulInfo, StatementInfo
from ...values.op import Op
from ..analysis.effects import WRITE, effects
from ..analysis.uniform import Uniformity
from ..ir.kernels import bodies, thread_tag, with_block, with_bodies
from ..ir.nodes import (
    Buffer,
    ForKind,
    SBlockRealize,
    Stmt,
    Var,
    block,
    buffer_bytes,
    collect,
    const_int,
    is_global,
    is_shared,
    op_stmt,
    seq,
    statements,
    substitute,
    uses,
)
from ..ir.patterns import Copy, Matmul, Nest, as_copy, as_matmul, as_nest
from .candidates import Context, why_not
from .describe import bound_copy, copy_info, hint, matmul_info, statement_info
from .k_tail import k_in_last
from .normalise import distribute_condition, inline_bindings
from .trips import mean_and_most

DEPTH: Final = "pipeliner.depth"
"""For annotation of a loop with the depth asked for."""

MANY: Final = 1 << 30
"""Bound of a trip count from which on it is taken as unknown."""

ANNOTATED: Final = "software_pipeline_"
"""Prefix of TVM's for annotations that say how to pipeline the loop."""

_Info: TypeAlias = "CopyInfo | MatmulInfo | StatementInfo"


@dataclass
class LoopFinder:
    """Visits a function and collects the candidate loops, and all about them, in its fields.

    ``threads``: extent of each thread axis. ``ranges``: of the variables of the function. ``read``:
    buffers that the function reads. ``fence``: why no producer warp may copy ahead, or None.
    ``loops``: the candidates; ``declined``: the others, with their reasons. ``grid``: extents of
    the blockIdx axes around what is visited; ``launched``: those around the first candidate.
    ``buffers``: what is allocated; ``rings``: those of them that a candidate loop allocates.
    ``ops``: tile copies and matmuls by name. ``before``: tile copies outside of the candidates
    that each CTA makes once, or once in each iteration of a loop around candidates.
    """

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
    before: list[CopyInfo] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    thread_tags: set[str] = field(default_factory=set)

    def registers(self) -> int:
        """Return the registers of a thread's own buffers, in a function that binds its threads."""
        private = sum(_thread_bytes(buf) for buf in self.buffers if not is_shared(buf))
        return private // 4 if self.threads else 0

    def outer_buffers(self) -> tuple[tuple[str, str, int], ...]:
        """Return name, scope and bytes of what is allocated outside the candidate loops."""
        return tuple(
            (str(buf.name), str(buf.scope()), buffer_bytes(buf) or 0)
            for buf in self.buffers
            if buf not in self.rings
        )

    def visit(self, stmt: Stmt, context: Context) -> Stmt:
        """Return ``stmt`` with the candidates below it in op form."""
        tag = thread_tag(stmt)
        if tag is not None:
            self._note_thread(stmt, tag)
        elif isinstance(stmt, tirx.For) and stmt.kind == ForKind.SERIAL:
            return self._visit_loop(stmt, context)
        if isinstance(stmt, SBlockRealize):
            self.buffers += [buf for buf in stmt.block.alloc_buffers if not is_global(buf)]
        if isinstance(stmt, tirx.IfThenElse):
            divergent = context.divergent or not self.uniformity.is_uniform(stmt.condition)
            context = Context(context.loops, divergent, guarded=True)
        elif isinstance(stmt, SBlockRealize) and const_int(stmt.predicate) != 1:
            context = replace(context, guarded=True)
        inner = bodies(stmt)
        done = with_bodies(stmt, [self.visit(part, context) for part in inner]) if inner else stmt
        if tag is not None and tag.startswith("blockIdx"):
            self.grid.pop()
        return done

    def _note_thread(self, stmt: Stmt, tag: str) -> None:
        """Record what is bound to ``tag``; the grid recorded is that of the first candidate."""
        if not tag.startswith("blockIdx"):
            self.thread_tags.add(tag)
            return
        self.grid.append(const_int(stmt.extent if isinstance(stmt, tirx.For) else stmt.value))
        if not self.loops:
            self.launched = tuple(self.grid)

    def _visit_loop(self, loop: Any, context: Context) -> Stmt:
        nest = as_nest(loop)
        if nest is not None and not self.threads and not _is_annotated(loop) and self.grid:
            if not context.divergent and not (context.loops and context.guarded):
                self._note_before(nest, context.loops)
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

    def _note_before(self, nest: Nest, loops: Sequence[Any]) -> None:
        """Record what ``nest`` copies to a tile, by the name of its block.

        It does so once in each CTA or, in ``loops``, in each iteration of the innermost one.
        """
        copy = as_copy(nest)
        if copy is not None and copy.order and nest.name not in self.names:
            found = copy_info(self._unique(nest.name), copy, self.read, self.ranges)
            around = _name(loops[-1]) if loops else ""
            self.before.append(self._in_order(replace(found, around=around)))

    def _holds_tiles(self, body: Stmt) -> bool:
        """Whether a loop of a tile function copies or multiplies tiles, so that it is mapped.

        Of nested ones the innermost is.
        """
        if self.threads or not self.grid:
            return False
        inner = distribute_condition(body)
        parts = statements(inner.block.body if isinstance(inner, SBlockRealize) else inner)
        nests = [as_nest(part) for part in parts]
        if not any(nest is not None and _is_tile_work(nest) for nest in nests):
            return False
        loops = [
            loop for part in parts for loop in collect(part, tirx.For) if as_nest(part) is None
        ]
        return not any(as_nest(loop) is None and self._holds_tiles(loop.body) for loop in loops)

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
        op = op_stmt(Op(name), stmt)
        nest = as_nest(stmt)
        unbound = nest is not None and not uses(stmt, self.threads)
        if unbound and nest is not None:
            copy = as_copy(nest)
            if copy is not None and copy.order:
                self.ops[name] = copy
                return op, copy_info(name, copy, self.read, self.ranges)
            matmul = as_matmul(nest)
            if matmul is not None:
                self.ops[name] = matmul
                return op, matmul_info(name, matmul)
        threads = math.prod(self.threads.values()) if self.threads else 1
        bound = bound_copy(name, stmt, threads, written, self.read, self.ranges)
        if bound is not None:
            return op, bound
        return op, statement_info(name, stmt, threads, written, bound=not unbound)

    def _with_k_tail(self, info: _Info, ops: Sequence[tuple[Stmt, _Info]], loop: Any) -> _Info:
        """Return a matmul's description with what the last iteration of ``loop`` has of K."""
        matmul = self.ops.get(info.op)
        if not isinstance(info, MatmulInfo) or not isinstance(matmul, Matmul):
            return info
        copies = [self.ops.get(other.op) for _, other in ops if isinstance(other, CopyInfo)]
        tiles = [copy for copy in copies if isinstance(copy, Copy)]
        return replace(info, k_last=k_in_last(matmul, tiles, loop))

    def _in_order(self, info: Any) -> Any:
        """Return ``info``, without a producer that would run ahead of what the kernel awaits."""
        if self.fence is None or not isinstance(info, CopyInfo):
            return info
        return replace(info, no_producer=Reason("producer.fence", fence=self.fence))

    def _unique(self, hint: str) -> str:
        count = self.names.get(hint, 0)
        self.names[hint] = count + 1
        return hint if not count else self._unique(f"{hint}_{count}")

    def _most(self, extent: Any) -> int | None:
        """Return the extent of a loop around a candidate, or its upper bound, if known."""
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
        fixed = trip is not None
        mean, longest = (None, None) if fixed else mean_and_most(loop.extent, self.ranges)
        return LoopInfo(
            name=self._unique(_name(loop)),
            trip=trip,
            trip_text=str(loop.extent if trip is None else trip),
            ops=tuple(ops),
            rings=tuple((str(buf.name), str(buf.scope()), buffer_bytes(buf) or 0) for buf in rings),
            depth=None if depth is None else int(depth),
            annotated=_is_annotated(loop),
            outer=outer,
            mean_trip=mean,
            most_trip=longest,
        )


def _filled_once(infos: Sequence[_Info], stmts: Sequence[Stmt]) -> list[_Info]:
    """Return ``infos`` of the ops ``stmts``, without a producer for tiles that two ops fill.

    A producer hands over a tile that one copy fills.
    """
    fills: dict[str, list[str]] = {}
    for info, stmt in zip(infos, stmts, strict=True):
        stored = collect(stmt, tirx.BufferStore)
        for name in {str(store.buffer.name) for store in stored}:
            fills.setdefault(name, []).append(info.op)

    def told(info: _Info) -> _Info:
        if not isinstance(info, CopyInfo) or info.no_producer:
            return info
        others = [op for op in fills.get(info.dst, ()) if op != info.op]
        if not others:
            return info
        why = Reason("producer.filled_twice", other=others[0], buffer=info.dst)
        return replace(info, no_producer=why)

    return [told(info) for info in infos]


def _is_tile_work(nest: Nest) -> bool:
    """Whether ``nest`` is a tile matmul, or a copy of a tile to shared memory."""
    copy = as_copy(nest)
    return as_matmul(nest) is not None or (copy is not None and len(copy.order) > 0)


def _thread_bytes(buf: Buffer) -> int:
    """Return the bytes that one thread has of a private buffer; a warp shares fragments."""
    size = buffer_bytes(buf) or 0
    return size // WARP if str(buf.scope()).startswith(("warp", "wmma.")) else size


def _name(loop: Any) -> str:
    return str(loop.loop_var.name)


def _is_annotated(loop: Any) -> bool:
    """Whether the schedule itself says how to pipeline the loop."""
    return any(str(key).startswith(ANNOTATED) for key in loop.annotations)


def _renamed(loop: Any, name: str) -> Any:
    """Return ``loop`` with its variable called ``name``, by which a kernel's loops are known."""
    if _name(loop) == name:
        return loop
    var = Var(name, "int32")
    body = substitute(loop.body, {loop.loop_var: var})
    return tirx.For(var, loop.min, loop.extent, loop.kind, body, None, loop.annotations, loop.step)
