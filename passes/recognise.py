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
from dataclasses import dataclass, field
from typing import Any, Final

from tvm import tirx

from ..kernel import CopyInfo, KernelInfo, LoopInfo, MatmulInfo, StatementInfo
from .costs import Cost, cost_of
from .effects import READ, WRITE, classify, effects
from .indexing import affine, alignment, offset, strides
from .ir import (
    Buffer,
    Call,
    ForKind,
    SBlock,
    SBlockRealize,
    Stmt,
    TensorLoad,
    Var,
    block,
    buffer_bytes,
    const_int,
    dtype_bytes,
    is_global,
    is_shared,
    op_stmt,
    seq,
    statements,
    substitute,
    uses,
    walk,
)
from .kernels import bodies, thread_extents, thread_tag, with_block, with_bodies
from .normalise import distribute_condition, hoist_initialisation, inline_bindings
from .patterns import Copy, Matmul, as_copy, as_matmul, as_nest, is_call, masked_load
from .uniform import Uniformity

DEPTH: Final = "pipeliner.depth"
WARP: Final = 32
ANNOTATED: Final = "software_pipeline_"
SHORT: Final = 4
"""Iterations that nvcc unrolls anyway; the loop around such a loop has more to overlap."""


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
    hoisted = hoist_initialisation(func.body)
    found = _Finder(func, threads, Uniformity(hoisted))
    body = found.visit(hoisted, _Context())
    axes = [str(tag) for tag in found.thread_tags]
    info = KernelInfo(
        name=str((func.attrs or {}).get("global_symbol", "main")),
        grid=tuple(found.grid),
        threads=math.prod(threads.values()) if threads else 0,
        loops=tuple(found.loops),
        declined=tuple(found.declined),
        registers_hint=found.registers(),
        accumulators=found.outer_buffers(),
    )
    only = next(iter(threads)) if len(threads) == 1 and axes == ["threadIdx.x"] else None
    new = func
    if not body.same_as(func.body):
        new = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    return new, Kernel(info, dict(found.ops), only)


@dataclass(frozen=True)
class _Context:
    """Where a statement stands: inside which loops, under a condition that threads disagree on."""

    loops: tuple[Any, ...] = ()
    divergent: bool = False


@dataclass
class _Finder:
    """One walk over a function; results collect in its fields."""

    func: Any
    threads: dict[Var, int]
    uniformity: Uniformity
    loops: list[LoopInfo] = field(default_factory=list)
    declined: list[tuple[str, str]] = field(default_factory=list)
    grid: list[int | None] = field(default_factory=list)
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

    def visit(self, stmt: Stmt, context: _Context) -> Stmt:
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
            context = _Context(context.loops, divergent)
        inner = bodies(stmt)
        return with_bodies(stmt, [self.visit(part, context) for part in inner]) if inner else stmt

    def _note_thread(self, stmt: Stmt, tag: str) -> None:
        if tag.startswith("blockIdx"):
            extent = stmt.extent if isinstance(stmt, tirx.For) else stmt.value
            self.grid.append(const_int(extent))
        else:
            self.thread_tags.add(tag)

    def _visit_loop(self, loop: Any, context: _Context) -> Stmt:
        nest = as_nest(loop)
        if nest is not None and not self.threads and not _is_annotated(loop) and self.grid:
            return loop  # a tile's own dimensions, not iterations
        before = len(self.loops)
        inside = context
        if const_int(loop.extent) != 1:
            inside = _Context((*context.loops, loop), context.divergent)
        body = self.visit(loop.body, inside)
        if len(self.loops) > before and not _is_annotated(loop):
            self.declined.append((_name(loop), "a loop inside it is pipelined instead"))
            return with_bodies(loop, [body])
        why = self._why_not(loop, context)
        if why is not None and not _is_annotated(loop):
            self.declined.append((_name(loop), why))
            return with_bodies(loop, [body])
        return self._candidate(with_bodies(loop, [body]), context)

    def _why_not(self, loop: Any, context: _Context) -> str | None:
        """Why ``loop`` is no candidate, in the words a user reads."""
        if not self.grid and not self.threads:
            return "the loop runs on the CPU: nothing around it is bound to the GPU"
        trip = const_int(loop.extent)
        around = [const_int(other.extent) for other in context.loops]
        if trip is not None and trip <= SHORT and any(n is None or n > SHORT for n in around):
            return f"{trip} iterations inside another loop: too few to overlap"
        if trip in (0, 1):
            return f"{trip} iterations: nothing to overlap"
        for bound in (loop.min, loop.extent):
            if uses(bound, self.threads):
                return "trip count depends on the thread"
            if not self.uniformity.is_uniform(bound):
                return "trip count is loaded from memory: threads may disagree on it"
        found = effects(loop.body)
        reads, writes = found.buffers(READ), found.buffers(WRITE)
        if not any(is_global(buf) for buf in reads):
            return "no statement of the loop loads from global memory"
        if context.divergent and any(is_shared(buf) for buf in reads | writes):
            return "threads disagree on whether the loop runs, so no barrier can stand in it"
        if found.is_fence and _has_barrier(loop.body):
            return "the body places its own barriers"
        if _calls(loop.body, "tvm_thread_allreduce"):
            # Lowered after us, by a pass that wants its result and all uses in one scope.
            return "a reduction across threads in the body, whose uses TVM keeps next to it"
        if not self._is_consumed(loop, reads, writes):
            targets = ", ".join(sorted(str(buf.name) for buf in writes))
            return f"the loop only fills {targets}: it belongs to the loop around it"
        carried = _carried(loop, reads, writes)
        if carried is not None:
            return carried
        indexed = _indexed_registers(loop)
        if indexed is not None:
            return (
                f"the loop variable indexes register buffer '{indexed}', so the loop has to be "
                "unrolled, not pipelined"
            )
        return None

    def _is_consumed(self, loop: Any, reads: set[Buffer], writes: set[Buffer]) -> bool:
        """Whether something in the loop uses what it loads: else it is one big copy."""
        if any(is_global(buf) for buf in writes) or reads & writes:
            return True
        return _allocates(loop.body) or effects(loop.body).is_opaque

    def _candidate(self, loop: Any, context: _Context) -> Stmt:
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
        parts = statements(body)
        ops = [self._op(part, len(parts)) for part in parts]
        rings = [] if realize is None else list(realize.block.alloc_buffers)
        rings += extra
        self.rings.update(rings)
        info = self._loop_info(loop, [found for _, found in ops], rings, context)
        self.loops.append(info)
        new = seq(*[stmt for stmt, _ in ops])
        if realize is not None:
            new = with_block(realize, body=new, allocs=rings)
        elif extra:
            new = block("", new, extra)
        return _renamed(with_bodies(loop, [new]), info.name)

    def _op(self, stmt: Stmt, count: int) -> tuple[Stmt, CopyInfo | MatmulInfo | StatementInfo]:
        name = self._unique(_hint(stmt))
        nest = as_nest(stmt)
        unbound = nest is not None and not uses(stmt, self.threads)
        if unbound and nest is not None:
            copy = as_copy(nest)
            if copy is not None and copy.order:
                self.ops[name] = copy
                return op_stmt(name, stmt), copy_info(name, copy)
            matmul = as_matmul(nest)
            if matmul is not None:
                self.ops[name] = matmul
                return op_stmt(name, stmt), matmul_info(name, matmul)
        threads = math.prod(self.threads.values()) if self.threads else 1
        cost = cost_of(stmt, threads)
        bound = _bound_copy(name, stmt, threads)
        if bound is not None:
            return op_stmt(name, stmt), bound
        return op_stmt(name, stmt), _statement_info(name, stmt, cost, not unbound)

    def _unique(self, hint: str) -> str:
        count = self.names.get(hint, 0)
        self.names[hint] = count + 1
        return hint if not count else self._unique(f"{hint}_{count}")

    def _loop_info(
        self,
        loop: Any,
        ops: list[CopyInfo | MatmulInfo | StatementInfo],
        rings: list[Buffer],
        context: _Context,
    ) -> LoopInfo:
        depth, trip = loop.annotations.get(DEPTH), const_int(loop.extent)
        outer: int | None = 1
        for around in context.loops:
            extent = const_int(around.extent)
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


def copy_info(name: str, copy: Copy) -> CopyInfo:
    """The values of a tile copy."""
    return CopyInfo(
        op=name,
        src=str(copy.src.name),
        dst=str(copy.dst.name),
        src_scope=str(copy.src.scope()) or "global",
        dst_scope=str(copy.dst.scope()),
        dtype=str(copy.dst.dtype),
        shape=copy.shape,
        src_dims=copy.src_dims,
        src_strides=tuple(const_int(stride) for stride in strides(copy.src)),
        aligned=copy.aligned(),
        masked=bool(copy.mask),
        bound=False,
    )


def matmul_info(name: str, matmul: Matmul) -> MatmulInfo:
    """The values of a tile matmul, with the hints that its blocks carry."""
    hints = matmul.nest.annotations
    return MatmulInfo(
        op=name,
        acc=str(matmul.acc.name),
        a=str(matmul.a.buffer.name),
        b=str(matmul.b.buffer.name),
        m=matmul.extent(matmul.m),
        n=matmul.extent(matmul.n),
        k=matmul.extent(matmul.k),
        a_dtype=str(matmul.a.buffer.dtype),
        b_dtype=str(matmul.b.buffer.dtype),
        acc_dtype=str(matmul.acc.dtype),
        a_k_major=matmul.a.k_major,
        b_k_major=matmul.b.k_major,
        instruction=str(hints.get("pipeliner.mma", "auto")),
        warps=_pair(hints.get("pipeliner.warps")),
        thread_tile=_pair(hints.get("pipeliner.thread_tile")),
    )


def _thread_bytes(buf: Buffer) -> int:
    """What one thread holds of a private buffer; fragments are spread over a warp."""
    size = buffer_bytes(buf) or 0
    return size // WARP if str(buf.scope()).startswith(("warp", "wmma.")) else size


def _statement_info(name: str, stmt: Stmt, cost: Cost, bound: bool) -> StatementInfo:
    return StatementInfo(
        op=name,
        kind=classify(effects(stmt)),
        global_bytes=cost.global_bytes,
        shared_bytes=cost.shared_bytes,
        flops=cost.flops,
        transcendentals=cost.transcendentals,
        tensor_flops=cost.tensor_flops,
        bound=bound,
    )


@dataclass(frozen=True)
class _Move:
    """One store of a loaded element, made ``times`` by each thread, ``lanes`` elements at once."""

    store: Any
    times: int
    lanes: int
    lane: Var | None

    def aligned(self, buf: Buffer, indices: Sequence[Any]) -> int:
        """Elements that divide where a vector starts in ``buf``; 1 when it is not contiguous."""
        start = offset(buf, indices)
        declared = int(buf.data_alignment) // dtype_bytes(buf.dtype)
        if self.lane is None:
            return min(alignment(start), declared)
        known = affine(start, [self.lane])
        if known is None or known.coefficients.get(self.lane) != 1:
            return 1
        return min(alignment(known.base), declared)


def _bound_copy(name: str, stmt: Stmt, threads: int) -> CopyInfo | None:
    """The values of a statement in which the user's threads only move elements to shared memory.

    Its box is what it moves, as rows of one vector each.
    """
    moves: list[_Move] = []
    if not _collect_moves(stmt, 1, 1, None, moves) or not moves:
        return None
    first = moves[0]
    loaded = masked_load(first.store.value)
    if loaded is None or any(m.store.buffer != first.store.buffer for m in moves):
        return None
    load, mask = loaded
    total = sum(move.times * move.lanes for move in moves)
    return CopyInfo(
        op=name,
        src=str(load.source.name),
        dst=str(first.store.buffer.name),
        src_scope="global",
        dst_scope=str(first.store.buffer.scope()),
        dtype=str(first.store.buffer.dtype),
        shape=(threads * total // first.lanes, first.lanes),
        src_dims=(*[None] * (len(load.indices) - 1), 1),
        src_strides=tuple(const_int(stride) for stride in strides(load.source)),
        aligned=min(
            first.aligned(load.source, load.indices),
            first.aligned(first.store.buffer, first.store.indices),
        ),
        masked=bool(mask),
        bound=True,
    )


def _collect_moves(
    stmt: Stmt, times: int, lanes: int, lane: Var | None, moves: list[_Move]
) -> bool:
    """Whether ``stmt`` only moves elements from global to shared memory; collects its stores."""
    if isinstance(stmt, tirx.BufferStore):
        moved = masked_load(stmt.value)
        if moved is None or not is_global(moved[0].source) or not is_shared(stmt.buffer):
            return False
        moves.append(_Move(stmt, times, lanes, lane))
        return str(moved[0].source.dtype) == str(stmt.buffer.dtype)
    if isinstance(stmt, tirx.For):
        extent = const_int(stmt.extent)
        if extent is None:
            return False
        if stmt.kind == ForKind.VECTORIZED:
            return _collect_moves(stmt.body, times, extent, stmt.loop_var, moves)
        shared_out = (thread_tag(stmt) or "").startswith("threadIdx")
        return _collect_moves(stmt.body, times * (1 if shared_out else extent), lanes, lane, moves)
    inner = bodies(stmt)
    return bool(inner) and all(_collect_moves(part, times, lanes, lane, moves) for part in inner)


def _hint(stmt: Stmt) -> str:
    """A name for a statement: of its outermost named block, else of what it stores to."""
    names: list[str] = []
    walk(stmt, SBlock, lambda found: names.append(str(found.name_hint)))
    walk(stmt, tirx.BufferStore, lambda found: names.append(str(found.buffer.name)))
    first = next((name for name in names if name), "stmt")
    return first.replace(".", "_")


def _name(loop: Any) -> str:
    return str(loop.loop_var.name)


def _is_annotated(loop: Any) -> bool:
    """Whether the schedule itself says how to pipeline the loop."""
    return any(str(key).startswith(ANNOTATED) for key in loop.annotations)


def _loads(node: Any) -> list[Any]:
    found: list[Any] = []
    walk(node, TensorLoad, found.append)
    return found


def _allocates(stmt: Stmt) -> bool:
    found: list[Any] = []
    walk(stmt, SBlock, lambda block: found.extend(block.alloc_buffers))
    return bool(found)


def _has_barrier(stmt: Stmt) -> bool:
    found: list[Any] = []

    def visit(call: Any) -> None:
        if is_call(call, "tvm_storage_sync"):
            found.append(call)

    walk(stmt, Call, visit)
    return bool(found)


def _carried(loop: Any, reads: set[Buffer], writes: set[Buffer]) -> str | None:
    """Why no load of the loop can be made before the iteration before it has ended, if so."""
    inner: set[Any] = set()
    walk(loop.body, SBlock, lambda block: inner.update(block.alloc_buffers))
    carried = writes - inner
    loads = [load for load in _loads(loop.body) if is_global(load.source)]
    if not loads:  # only instructions that were handed a pointer load
        return None
    if all(load.source in writes for load in loads):
        names = ", ".join(sorted({f"'{load.source.name}'" for load in loads}))
        return f"every load is loop-carried: it reads {names}, which earlier iterations write"
    followed = [load for load in loads if load.source not in writes]
    if all(any(inside.source in carried for inside in _address(load)) for load in followed):
        return "every load is loop-carried: its address comes from the previous iteration"
    externs = _calls(loop.body, "call_extern")
    if externs:
        return f"opaque call of '{externs[0].args[0].value}': it may touch any memory"
    if len(statements(_bare(loop.body))) == 1 and _calls(loop.body, "atomic"):
        return "the body is one atomic update, whose order with its neighbours has to stay"
    return None


def _address(load: Any) -> list[Any]:
    """The loads in the indices of ``load``."""
    return [inside for index in load.indices for inside in _loads(index)]


def _calls(stmt: Stmt, name: str) -> list[Any]:
    found: list[Any] = []

    def visit(call: Any) -> None:
        called = str(getattr(call.op, "name", "")).rsplit(".", 1)[-1]
        if name in called and "pure" not in called:
            found.append(call)

    walk(stmt, Call, visit)
    return found


def _bare(stmt: Stmt) -> Stmt:
    """``stmt`` without the block around it."""
    return stmt.block.body if isinstance(stmt, SBlockRealize) else stmt


def _indexed_registers(loop: Any) -> str | None:
    """A register buffer from outside the loop that the loop variable indexes."""
    inner: set[Any] = set()
    walk(loop.body, SBlock, lambda block: inner.update(block.alloc_buffers))
    found: list[str] = []

    def visit(access: Any) -> None:
        buf = access.source if isinstance(access, TensorLoad) else access.buffer
        private = not is_global(buf) and not is_shared(buf)
        if private and buf not in inner and uses(list(access.indices), [loop.loop_var]):
            found.append(str(buf.name))

    walk(loop.body, (TensorLoad, tirx.BufferStore), visit)
    return found[0] if found else None


def _renamed(loop: Any, name: str) -> Any:
    """``loop`` with its variable called ``name``: loops of a kernel go by the name of theirs."""
    if _name(loop) == name:
        return loop
    var = Var(name, "int32")
    body = substitute(loop.body, {loop.loop_var: var})
    return tirx.For(var, loop.min, loop.extent, loop.kind, body, None, loop.annotations, loop.step)


def _pair(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    first, second = (int(item) for item in value)
    return first, second
