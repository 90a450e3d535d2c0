"""Compile a device PrimFunc to one Python generator function over numpy rows of threads.

This file translates statements; ``expressions`` and ``calls`` the rest.  The generated function has
the signature ``kernel(s, args, block, dynamic_bytes)`` with ``s`` the thread group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim
from tvm.tirx import ForKind

from ..errors import EmulatorError
from ..origin import ORIGIN_ATTR, Origin
from . import arith, atomics, calls, grid_barrier, hopper, mathfn, matrix, ptx, tma, warp, wmma
from .buffers import BufferRef, Memory, constant_extent, element_count, is_local_scope, place_shared
from .dtypes import numpy_dtype, split_lanes
from .expressions import Expressions
from .global_uses import GlobalUse
from .intervals import Span, combined, within
from .machine import NOBODY, SiteInfo, narrow
from .memory import GlobalView, LocalView, SharedView
from .requests import Fork, Program
from .source import Val, Writer

_THREAD_AXES: Final = {"threadIdx.x": "s.tx", "threadIdx.y": "s.ty", "threadIdx.z": "s.tz"}
"""Text of each thread axis in generated code."""

_BLOCK_AXES: Final = {
    **{f"blockIdx.{d}": f"block[{i}]" for i, d in enumerate("xyz")},
    **{f"clusterCtaIdx.{d}": f"s.cta.place[{i}]" for i, d in enumerate("xyz")},
}
"""Text of each axis of the grid and of the cluster in generated code."""

_MAX_GRANULE: Final = 16
"""Bytes that one record of shadow state covers at most."""

_ORIGIN_KEYS: Final = (ORIGIN_ATTR, "pipeliner.op")
"""Attributes that carry an origin, the fullest first."""


@dataclass(frozen=True)
class CompiledKernel:
    """A device function ready to run.

    ``by_warp``: its warps wait for each other one by one, so that each is a thread group.
    ``proxies``: it uses asynchronous engines besides cp.async. ``uses``: what it does to the memory
    of its parameters, by position.
    """

    name: str
    entry: Callable[..., Program]
    source: str
    sites: tuple[SiteInfo, ...]
    granule: int
    arena: int  # window offset of the dynamic arena = bytes of static shared memory before it
    shared: tuple[Memory, ...]
    params: tuple[str, ...]
    uses: Mapping[int, GlobalUse]
    by_warp: bool
    proxies: bool


def compile_kernel(func: Any, *, preemptive: bool = False) -> CompiledKernel:
    """Compile one lowered device function; EmulatorError names what it cannot translate.

    ``preemptive``: the program yields before every statement that touches shared memory or
    synchronises.
    """
    return _Compiler(func, preemptive).compile()


class _Compiler(Expressions):
    """Statement translation; state of one compilation."""

    def __init__(self, func: Any, preemptive: bool) -> None:
        super().__init__(Writer())
        self._func = func
        self._preemptive = preemptive
        self._name = str(func.attrs["global_symbol"])
        self._places, self._arena = place_shared(func.body)
        self._calls = _calls(func.body)
        self._matrix_buffers = {b for call in self._calls for b in ptx.matrix_registers(call)}
        self._sites: list[SiteInfo] = []
        self._loops: list[tuple[str, str]] = []  # (printed name, text of the current value)
        self._origin: tuple[int, Origin] | None = None  # (rank of the key, value)
        self._polled: set[str] = set()  # parameters that while loops read, '' for what is not known
        self._number = -1  # of the statement, in preorder, sequences and attributes not counted
        self.namespace.update(
            np=np,
            narrow=narrow,
            NOBODY=NOBODY,
            Fork=Fork,
            arith=arith,
            atomics=atomics,
            mathfn=mathfn,
            warp=warp,
            wmma=wmma,
            hopper=hopper,
            matrix=matrix,
            tma=tma,
            grid_barrier=grid_barrier,
            GlobalView=GlobalView,
            LocalView=LocalView,
            SharedView=SharedView,
        )

    def compile(self) -> CompiledKernel:
        func, w = self._func, self.writer
        with w.block("def kernel(s, args, block, dynamic_bytes):"):
            names = [self._bind_param(i, param) for i, param in enumerate(func.params)]
            self.statement(func.body)
            # A kernel that never blocks is a generator all the same.
            w.emit("if False: yield")
        source = "\n".join(w.scopes[0].body) + "\n"
        exec(compile(source, f"<emulated {self._name}>", "exec"), self.namespace)
        granule = min([_MAX_GRANULE, *self.access_sizes])
        return CompiledKernel(
            self._name,
            self.namespace["kernel"],
            source,
            tuple(self._sites),
            granule,
            self._arena,
            tuple(self._places.values()),
            tuple(p.name for p in func.params),
            {i: self.global_uses[name] for i, name in enumerate(names) if name in self.global_uses},
            any(map(calls.waits_by_warp, self._calls)) or self._polls(),
            any(map(calls.uses_engines, self._calls)),
        )

    def _polls(self) -> bool:
        """Whether a loop may wait for what other threads of the kernel write."""
        written = {name for name, use in self.global_uses.items() if use.writes}
        return not written.isdisjoint(self._polled) or "" in self._polled

    def _bind_param(self, position: int, param: Any) -> str:
        name = self.writer.fresh(param.name)
        self.writer.scopes[1].head.append(f"{name} = args[{position}]")
        if isinstance(param.ty, ir.PointerType):
            self.pointers[param] = Memory("global", param.name, param=name)
            return name
        dtype, _ = split_lanes(param.ty)
        text = name
        if numpy_dtype(dtype).kind == "f" or dtype == "bfloat16":
            text = f"{self.dtype(dtype)}.type({name})"
        self.env[param] = Val(text, dtype, depth=1)
        return name

    # Statements

    def statement(self, stmt: Any) -> None:
        handler = _STATEMENTS.get(type(stmt))
        if handler is None:
            raise EmulatorError("emulator.statement", kind=type(stmt).__name__, statement=str(stmt))
        if not isinstance(stmt, tirx.SeqStmt | tirx.AttrStmt):
            self._number += 1
        handler(self, stmt)

    def step(self, stmt: Any) -> None:
        """Begin a statement: what follows is attributed to it."""
        number = len(self._sites)
        origin = self._origin[1] if self._origin else None
        names = tuple(name for name, _ in self._loops)
        at = None if isinstance(stmt, tirx.AttrStmt) else self._number
        self._sites.append(SiteInfo(lambda: _printed(stmt), origin, names, at))
        if self._preemptive and self._may_interleave(stmt):
            self.writer.emit("yield")
        values = "".join(f", {text}" for _, text in self._loops)
        self.writer.emit(f"s.step(({number}{values},))")

    def _may_interleave(self, stmt: Any) -> bool:
        """Whether what the statement itself does depends on, or affects, other warps."""
        if isinstance(stmt, tirx.BufferStore):
            return stmt.buffer.scope().startswith("shared") or self._reaches_out(stmt.value)
        for part in ("value", "condition"):
            if hasattr(stmt, part):
                return self._reaches_out(getattr(stmt, part))
        return True

    def _reaches_out(self, expr: Any) -> bool:
        found = False

        def load(node: Any) -> None:
            nonlocal found
            found = found or node.source.scope().startswith("shared")

        def call(node: Any) -> None:
            nonlocal found
            found = found or not calls.is_pure(node)

        tvm_ffi.structural_walk(expr, [(ir.TensorLoad, load), (ir.Call, call)])
        return found

    def _sequence(self, stmt: Any) -> None:
        for part in stmt.seq:
            self.statement(part)

    def _bind(self, stmt: Any) -> None:
        if isinstance(stmt.var.ty, ir.PointerType):
            self.env[stmt.var] = self.pointer(stmt.value)
            return
        if self.touches_memory(stmt.value):
            self.step(stmt)
        self.env[stmt.var] = self.settle(self.expr(stmt.value), stmt.var.name)

    def _attribute(self, stmt: Any) -> None:
        key = str(stmt.attr_key)
        if key == "thread_extent":
            self._thread_axis(stmt)
        elif key == "async_commit_queue_scope":
            self.statement(stmt.body)
            self.step(stmt)
            self.writer.emit(f"warp.commit_group(s, {self.mask})")
        elif key == "async_wait_queue_scope":
            self._async_wait(stmt)
        elif key in _ORIGIN_KEYS:
            self._with_origin(_ORIGIN_KEYS.index(key), stmt)
        else:
            # CUDA codegen prints the body of any other attribute and nothing else.
            self.statement(stmt.body)

    def _with_origin(self, rank: int, stmt: Any) -> None:
        outer = self._origin
        text = str(getattr(stmt.value, "value", stmt.value))
        origin = Origin(op=text) if rank else Origin.parse(text)
        # The full origin says more than the op name, whichever of the two is outermost.
        if outer is None or rank <= outer[0]:
            self._origin = (rank, origin)
        self.statement(stmt.body)
        self._origin = outer

    def _thread_axis(self, stmt: Any) -> None:
        iter_var, tag = stmt.node, str(stmt.node.thread_tag)
        dtype, _ = split_lanes(iter_var.var.ty)
        known = _positions(self.const(0, dtype), self.expr(stmt.value))
        if tag in _THREAD_AXES:
            text = _THREAD_AXES[tag]
            if dtype != "int32":
                text = self.writer.hoist(f"{text}.astype({self.dtype(dtype)})", 1)
            value = Val(text, dtype, varying=True, depth=1, known=known)
        elif tag in _BLOCK_AXES:
            value = Val(_BLOCK_AXES[tag], dtype, depth=1, known=known)
        else:
            raise EmulatorError("emulator.thread_axis", axis=tag)
        self.env[iter_var.var] = value
        self.statement(stmt.body)

    def _async_wait(self, stmt: Any) -> None:
        inner = stmt.body
        if not isinstance(inner, tirx.AttrStmt) or inner.attr_key != "async_wait_inflight_count":
            raise EmulatorError("emulator.no_count", attribute=str(stmt.attr_key))
        self.step(stmt)
        count = self.expr(inner.value)
        self.writer.emit(f"warp.wait_group(s, {count.text}, {self.mask})")
        self.statement(inner.body)

    def _alloc(self, stmt: Any) -> None:
        buffer = stmt.buffer
        scope = buffer.scope()
        dtype, lanes = split_lanes(buffer.dtype)
        if buffer in self._places:
            memory = self._places[buffer]
        elif is_local_scope(scope):
            count = element_count(buffer, constant_extent)
            nbytes = count * lanes * numpy_dtype(dtype).itemsize
            memory = Memory("local", buffer.name, nbytes=nbytes)
            if self.writer.depth > 1:
                view = self.view(memory, "uint8")
                self.writer.emit(f"{view}.reset()")
        elif scope.startswith("wmma."):
            memory = Memory("wmma", buffer.name, nbytes=element_count(buffer, constant_extent))
        else:
            raise EmulatorError("emulator.scope", buffer=buffer.name, scope=scope)
        self._own(buffer, BufferRef(memory, buffer.name, dtype, lanes, self.const(0, "int32")))

    def _declare(self, stmt: Any) -> None:
        buffer = stmt.buffer
        base = self.pointer(stmt.data)
        dtype, lanes = split_lanes(buffer.dtype)
        offset = self.units(base, numpy_dtype(dtype).itemsize * lanes)
        if getattr(buffer, "elem_offset", None) is not None:
            offset = self.add(offset, self.expr(buffer.elem_offset))
        self._own(buffer, BufferRef(base.memory, buffer.name, dtype, lanes, offset))

    def _own(self, buffer: Any, ref: BufferRef) -> None:
        self.buffers[buffer] = ref
        if buffer in self._matrix_buffers:
            self.matrix_memories.add(ref.memory)

    def _store(self, stmt: Any) -> None:
        self.step(stmt)
        value = self.expr(stmt.value)
        self.store(stmt.buffer, stmt.indices, value)

    def _evaluate(self, stmt: Any) -> None:
        if isinstance(stmt.value, prim.IntImm):
            return
        if not isinstance(stmt.value, ir.Call):
            raise EmulatorError("emulator.evaluate", expression=str(stmt.value))
        self.step(stmt)
        result = calls.translate(self, stmt.value)
        # The call may be kept for its effect alone, but it must be made.
        if result is not None and not result.pure:
            self.writer.emit(result.text)

    # Control flow

    def _if(self, stmt: Any) -> None:
        if self.touches_memory(stmt.condition):
            self.step(stmt)
        cond = self.settle(self.expr(stmt.condition), "cond")
        self._decide(stmt, cond)
        if not cond.varying:
            with self.writer.block(f"if {cond.text}:"):
                self.statement(stmt.then_case)
            if stmt.else_case is not None:
                with self.writer.block("else:"):
                    self.statement(stmt.else_case)
            return
        branches = [(cond.text, stmt.then_case)]
        if stmt.else_case is not None:
            branches.append((f"~{cond.text}", stmt.else_case))
        if any(_may_block(body) for _, body in branches):
            self._fork(branches)
            return
        for text, body in branches:
            with self.under(text):
                self.statement(body)

    def _decide(self, stmt: Any, value: Val) -> None:
        """Emit a check of the ``value`` that decides how a statement goes on."""
        if value.wraps:
            self.step(stmt)
            self.use(value)

    def _fork(self, branches: list[tuple[str, Any]]) -> None:
        """Run divided branches that may block as thread groups of their own, joined at the end."""
        programs = []
        for text, body in branches:
            mask = self.writer.fresh("mask")
            self.writer.emit(f"{mask} = narrow({self.mask}, {text})")
            part = self.writer.fresh("part")
            outer, self.mask = self.mask, mask
            with self.writer.block(f"def {part}():"):
                self.statement(body)
                self.writer.emit("if False: yield")
            self.mask = outer
            programs.append(f"*(({part}(),) if {mask} is not NOBODY else ())")
        name = self.writer.fresh("branches")
        self.writer.emit(f"{name} = ({', '.join(programs)},)")
        self.writer.emit(f"if {name}: yield Fork({name})")

    @contextmanager
    def _loop(self, name: str, text: str) -> Any:
        self._loops.append((name, text))
        yield
        self._loops.pop()

    def _for(self, stmt: Any) -> None:
        if stmt.kind in (ForKind.THREAD_BINDING, ForKind.PARALLEL):
            name = stmt.loop_var.name
            raise EmulatorError("emulator.loop", name=name, kind=ForKind(stmt.kind).name)
        low = self.settle(self.expr(stmt.min), "low")
        extent = self.settle(self.expr(stmt.extent), "extent")
        stride = getattr(stmt, "step", None)
        step = 1 if stride is None else constant_extent(stride)
        dtype, _ = split_lanes(stmt.loop_var.ty)
        high = self.add(low, extent)
        self._decide(stmt, high)
        known = _positions(low, extent)
        name = self.writer.fresh(stmt.loop_var.name)
        if not low.varying and not extent.varying:
            header = f"for {name} in range({low.text}, {high.text}, {step}):"
            with self.writer.block(header) as depth, self._loop(stmt.loop_var.name, name):
                self.env[stmt.loop_var] = Val(name, dtype, depth=depth, known=known)
                self.statement(stmt.body)
            return
        self._varying_for(stmt, name, low, high, step, known)

    def _varying_for(
        self, stmt: Any, name: str, low: Val, high: Val, step: int, known: Span | None
    ) -> None:
        """Translate a loop that each thread leaves as its own extent ends."""
        w = self.writer
        dtype, _ = split_lanes(stmt.loop_var.ty)
        mask = w.fresh("mask")
        w.emit(
            f"{name} = s.full({low.text}, {self.dtype(dtype)})"
            if not low.varying
            else f"{name} = {low.text}.copy()"
        )
        enter = f"{mask} = narrow({self.mask}, {name} < {high.text})"
        w.emit(enter)
        outer, self.mask = self.mask, mask
        with (
            w.block(f"while {mask} is not NOBODY:") as depth,
            self._loop(stmt.loop_var.name, f"int({name}.max())"),
        ):
            self.env[stmt.loop_var] = Val(name, dtype, varying=True, depth=depth, known=known)
            self.statement(stmt.body)
            w.emit(f"{name} = {name} + {step}")
            w.emit(enter.replace(f"narrow({outer},", f"narrow({mask},"))
        self.mask = outer

    def _while(self, stmt: Any) -> None:
        w = self.writer
        mask = w.fresh("mask")
        w.emit(f"{mask} = {self.mask}")
        outer, self.mask = self.mask, mask
        with w.block("while True:"):
            self.step(stmt)
            cond = self.expr(stmt.condition)
            self.use(cond)
            w.emit(f"{mask} = narrow({mask}, {cond.text})")
            w.emit(f"if {mask} is NOBODY: break")
            self.statement(stmt.body)
            if _spins(stmt):
                self._polled |= self._read_in(stmt)
                w.emit(f"yield s.spin({mask})")
        self.mask = outer

    def _read_in(self, stmt: Any) -> set[str]:
        """The parameters that a statement loads from, '' where it may be any other memory."""
        if any(not calls.is_pure(call) for call in _calls(stmt)):
            return {""}
        refs = (self.buffers.get(buffer) for buffer in _loaded(stmt))
        return {ref.memory.param or "" for ref in refs if ref and ref.memory.space != "local"}

    def _assert(self, stmt: Any) -> None:
        raise EmulatorError("emulator.assertion", condition=str(stmt.condition))


def _positions(low: Val, extent: Val) -> Span | None:
    """Values of a loop variable or an axis; None where nothing is known of its extent."""
    end = combined("+", low.span, extent.span)
    if low.span is None or end is None or not within(end, low.dtype):
        return None
    return low.span[0], max(low.span[0], end[1] - 1)


def _printed(stmt: Any) -> str:
    """The statement as TVMScript, without the variable declarations the printer puts first."""
    if isinstance(stmt, tirx.AttrStmt):
        return str(stmt.attr_key)
    if isinstance(stmt, tirx.IfThenElse | tirx.While):
        return f"if {stmt.condition}" if isinstance(stmt, tirx.IfThenElse) else "while"
    if isinstance(stmt, tirx.For):
        return f"for {stmt.loop_var.name} in {stmt.min}, {stmt.extent}"
    return str(stmt).strip().splitlines()[-1].strip()


def _may_block(stmt: Any) -> bool:
    """Whether a statement contains an operation at which threads wait for each other."""
    found: list[Any] = []
    tvm_ffi.structural_walk(stmt, (tirx.While, found.append))
    return any(map(calls.blocks, _calls(stmt))) or any(map(_spins, found))


def _spins(loop: Any) -> bool:
    """Whether a loop may wait for others: it reads memory, and has no wait of its own."""
    inside = _calls(loop)
    if any(map(calls.waits_by_warp, inside)):
        return False
    outside = (not is_local_scope(buffer.scope()) for buffer in _loaded(loop))
    return any(outside) or not all(map(calls.is_pure, inside))


def _loaded(stmt: Any) -> list[Any]:
    """The buffers that a statement loads from."""
    found: list[Any] = []
    tvm_ffi.structural_walk(stmt, (ir.TensorLoad, lambda load: found.append(load.source)))
    return found


def _calls(stmt: Any) -> list[Any]:
    """All calls in a statement."""
    found: list[Any] = []
    tvm_ffi.structural_walk(stmt, (ir.Call, found.append))
    return found


_STATEMENTS: Final[dict[type, Callable[[Any, Any], None]]] = {
    tirx.SeqStmt: _Compiler._sequence,
    tirx.Bind: _Compiler._bind,
    tirx.AttrStmt: _Compiler._attribute,
    tirx.AllocBuffer: _Compiler._alloc,
    tirx.DeclBuffer: _Compiler._declare,
    tirx.BufferStore: _Compiler._store,
    tirx.Evaluate: _Compiler._evaluate,
    tirx.IfThenElse: _Compiler._if,
    tirx.For: _Compiler._for,
    tirx.While: _Compiler._while,
    tirx.AssertStmt: _Compiler._assert,
}
