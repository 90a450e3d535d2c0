"""Compile a device PrimFunc to one Python generator function over numpy rows of threads.

This file translates statements; ``expressions`` and ``calls`` the rest.  The generated function has
the signature ``kernel(s, args, block, dynamic_bytes)`` with ``s`` the thread group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias

import numpy as np
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from ...errors import EmulatorError
from ...values.op import Op
from ...values.origin import ORIGIN_ATTR, Origin
from ..base import arith, mathfn
from ..base.dtypes import numpy_dtype, split_lanes
from ..base.requests import AtHead, Fork
from ..engine import grid_barrier
from ..engine.machine import SiteInfo
from ..engine.thread_group import NOBODY, narrow
from ..launch.global_uses import GlobalUse
from ..memory.spaces import GlobalView, LocalView, SharedView, is_local_scope
from ..units import atomics, hopper, matrix, mma_runs, tma, warp, wmma
from . import calls, ptx
from .buffers import BufferRef, Memory, constant_extent, element_count, place_shared
from .control_flow import ControlFlow, calls_in, positions
from .operation import is_pure
from .source import MAY_INTERLEAVE, Code, Val

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
    code: Code
    sites: tuple[SiteInfo, ...]
    granule: int
    arena: int  # window offset of the dynamic arena = bytes of static shared memory before it
    shared: tuple[Memory, ...]
    params: tuple[str, ...]
    uses: Mapping[int, GlobalUse]
    by_warp: bool
    proxies: bool


Variants: TypeAlias = "Mapping[Any, Sequence[tuple[int, Any]]]"
"""By a statement of a kernel: numbers of variants, from 1, and what stands in its place there."""


def compile_kernel(func: Any, variants: Variants | None = None) -> CompiledKernel:
    """Compile one lowered device function; EmulatorError names what it cannot translate.

    ``variants``: of the same function, of which each run chooses one. They have the statements in
    common that they do not replace; nothing that one of these defines is used outside of it, and
    none is a node that stands in several places.
    """
    return _Compiler(func, variants or {}).compile()


class _Compiler(ControlFlow):
    """Statement translation; state of one compilation."""

    def __init__(self, func: Any, variants: Variants) -> None:
        super().__init__()
        self._func = func
        self._variants = variants
        self._name = str(func.attrs["global_symbol"])
        self._places, self._arena = place_shared(func.body)
        self._calls = calls_in(func.body)
        self._matrix_buffers = {b for call in self._calls for b in ptx.matrix_registers(call)}
        self._sites: list[SiteInfo] = []
        self._origin: tuple[int, Origin] | None = None  # (rank of the key, value)
        self.namespace.update(
            np=np,
            narrow=narrow,
            NOBODY=NOBODY,
            Fork=Fork,
            AtHead=AtHead,
            arith=arith,
            atomics=atomics,
            mathfn=mathfn,
            warp=warp,
            wmma=wmma,
            hopper=hopper,
            matrix=matrix,
            mma_runs=mma_runs,
            tma=tma,
            grid_barrier=grid_barrier,
            GlobalView=GlobalView,
            LocalView=LocalView,
            SharedView=SharedView,
        )

    def call(self, node: Any) -> Val | None:
        return calls.translate(self, node)

    def compile(self) -> CompiledKernel:
        func, w = self._func, self.writer
        with w.block("def kernel(s, args, block, dynamic_bytes, variant):"):
            names = [self._bind_param(i, param) for i, param in enumerate(func.params)]
            self.statement(func.body)
            # A kernel that never blocks is a generator all the same.
            w.emit("if False: yield")
        source = "\n".join(w.scopes[0].body) + "\n"
        granule = min([_MAX_GRANULE, *self.access_sizes])
        return CompiledKernel(
            self._name,
            Code(self._name, source, self.namespace),
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
        return not written.isdisjoint(self.polled) or "" in self.polled

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
        others = self._variants.get(stmt, ()) if self._variants else ()
        number, env = self.number, dict(self.env) if others else {}
        for variant, other in others:
            with self.writer.block(f"if variant == {variant}:"):
                self._translate(other)
            self.number, self.env = number, dict(env)
        if not others:
            self._translate(stmt)
            return
        replaced = ", ".join(str(variant) for variant, _ in others)
        with self.writer.block(f"if variant not in ({replaced},):"):
            self._translate(stmt)
        self.env = env

    def _translate(self, stmt: Any) -> None:
        handler = _STATEMENTS.get(type(stmt))
        if handler is None:
            raise EmulatorError("emulator.statement", kind=type(stmt).__name__, statement=str(stmt))
        if not isinstance(stmt, tirx.SeqStmt | tirx.AttrStmt):
            self.number += 1
        handler(self, stmt)

    def step(self, stmt: Any) -> None:
        """Begin a statement: what follows is attributed to it."""
        number = len(self._sites)
        origin = self._origin[1] if self._origin else None
        names = tuple(name for name, _ in self.loops)
        at = None if isinstance(stmt, tirx.AttrStmt) else self.number
        self._sites.append(SiteInfo(lambda: _printed(stmt), origin, names, at))
        if self._may_interleave(stmt):
            self.writer.emit(MAY_INTERLEAVE)
        values = "".join(f", {text}" for _, text in self.loops)
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
            found = found or not (is_pure(node) or ptx.stays_in_registers(node))

        tvm_ffi.structural_walk(expr, [(ir.TensorLoad, load), (ir.Call, call)])
        return found

    def _sequence(self, stmt: Any) -> None:
        for multiplies, parts in groupby(stmt.seq, ptx.multiplies):
            run = ptx.Products(self)
            for part in parts:
                product = ptx.product(self, part.value) if multiplies else None
                run.take(product)
                if product is None and part.same_as(stmt.seq[-1]):
                    self.statement(part)
                elif product is None:
                    with self.followed():
                        self.statement(part)
                else:
                    self.number += 1
                    self.step(part)
            run.take(None)

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
            with self.followed():
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
        origin = Origin(op=Op.parse(text)) if rank else Origin.parse(text)
        # The full origin says more than the op name, whichever of the two is outermost.
        if outer is None or rank <= outer[0]:
            self._origin = (rank, origin)
        self.statement(stmt.body)
        self._origin = outer

    def _thread_axis(self, stmt: Any) -> None:
        iter_var, tag = stmt.node, str(stmt.node.thread_tag)
        dtype, _ = split_lanes(iter_var.var.ty)
        known = positions(self.const(0, dtype), self.expr(stmt.value))
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
        result = self.call(stmt.value)
        # The call may be kept for its effect alone, but it must be made.
        if result is not None and not result.pure:
            self.writer.emit(result.text)

    def _assert(self, stmt: Any) -> None:
        raise EmulatorError("emulator.assertion", condition=str(stmt.condition))


def _printed(stmt: Any) -> str:
    """The statement as TVMScript, without the variable declarations the printer puts first."""
    if isinstance(stmt, tirx.AttrStmt):
        return str(stmt.attr_key)
    if isinstance(stmt, tirx.IfThenElse | tirx.While):
        return f"if {stmt.condition}" if isinstance(stmt, tirx.IfThenElse) else "while"
    if isinstance(stmt, tirx.For):
        return f"for {stmt.loop_var.name} in {stmt.min}, {stmt.extent}"
    return str(stmt).strip().splitlines()[-1].strip()


_STATEMENTS: Final[dict[type, Callable[[Any, Any], None]]] = {
    tirx.SeqStmt: _Compiler._sequence,
    tirx.Bind: _Compiler._bind,
    tirx.AttrStmt: _Compiler._attribute,
    tirx.AllocBuffer: _Compiler._alloc,
    tirx.DeclBuffer: _Compiler._declare,
    tirx.BufferStore: _Compiler._store,
    tirx.Evaluate: _Compiler._evaluate,
    tirx.IfThenElse: _Compiler.branch,
    tirx.For: _Compiler.loop,
    tirx.While: _Compiler.repeat,
    tirx.AssertStmt: _Compiler._assert,
}
