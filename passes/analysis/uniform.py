"""Find which values are the same in every thread of a CTA: where a barrier may stand.

    if blockIdx.x < 4: ..        uniform
    if threadIdx.x < 4: ..       divergent

A value is *divergent* if threads may disagree on it. Threads agree on what they load from shared
memory, or from a buffer that the kernel never writes, if they agree on the address.
"""

from __future__ import annotations

from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.ir import prim
from tvm_ffi.structural import WalkResult

from ..ir import nodes as ir
from .memory import memories, pointed

_PURE: Final = 1
"""Largest ``TCallEffectKind`` of an operator whose result depends only on its arguments."""


class Uniformity:
    """The divergent variables and buffers of one kernel, found by iterating to a fixed point."""

    def __init__(self, kernel: Any) -> None:
        self._written: set[Any] = set()
        self._divergent: set[Any] = set()
        ir.walk(kernel, tirx.BufferStore, lambda s: self._written.add(s.buffer))
        for buffer in pointed(kernel):  # the callee may write it
            self._opaque(buffer)
        for view in memories(kernel).places:
            self._opaque(view)
        before = -1
        while before != len(self._divergent):
            before = len(self._divergent)
            self._visit(kernel, False)

    def is_uniform(self, expr: Any) -> bool:
        """Whether every thread of the CTA computes the same ``expr``."""
        if type(expr) in _CONSTANTS:
            return True
        divergent = False

        def var(found: Any) -> None:
            nonlocal divergent
            divergent = divergent or found in self._divergent

        def load(found: Any) -> None:
            nonlocal divergent
            buffer = found.source
            # Other CTAs may be writing it: two threads can see different values.
            divergent = divergent or self.is_written(buffer)

        def call(found: Any) -> WalkResult | None:
            nonlocal divergent
            kind = getattr(found.op, "get_attr", lambda _: None)("TCallEffectKind")
            divergent = divergent or kind is None or int(kind) > _PURE
            return WalkResult.SKIP if divergent else None

        walkers = [(ir.TensorLoad, load), (ir.Call, call), (ir.Var, var)]
        tvm_ffi.structural_walk(expr, walkers, order="pre")
        return not divergent

    def is_written(self, buffer: Any) -> bool:
        """Whether other CTAs may write ``buffer`` while the kernel runs, as this one does."""
        return ir.is_global(buffer) and buffer in self._written

    def _opaque(self, buffer: Any) -> None:
        """Count ``buffer`` as written with what threads need not agree on."""
        if ir.is_buffer_var(buffer):
            self._written.add(buffer)
            if ir.is_private(buffer):
                self._divergent.add(buffer)

    def _visit(self, stmt: Any, diverged: bool) -> None:
        kind = type(stmt)
        if kind is tirx.SeqStmt:
            for inner in stmt.seq[:]:
                self._visit(inner, diverged)
        elif kind is tirx.For:
            self._visit_for(stmt, diverged)
        elif kind is tirx.AttrStmt:
            self._visit_attr(stmt, diverged)
        elif kind is tirx.BufferStore:
            self._visit_store(stmt, diverged)
        elif kind is tirx.IfThenElse:
            inside = diverged or not self.is_uniform(stmt.condition)
            self._visit(stmt.then_case, inside)
            if stmt.else_case is not None:
                self._visit(stmt.else_case, inside)
        elif kind is tirx.While:
            self._visit(stmt.body, diverged or not self.is_uniform(stmt.condition))
        elif kind is ir.SBlockRealize:
            self._visit_block(stmt, diverged)
        elif kind is tirx.Bind and (diverged or not self.is_uniform(stmt.value)):
            self._divergent.add(stmt.var)

    def _visit_store(self, stmt: Any, diverged: bool) -> None:
        if stmt.buffer in self._divergent or not ir.is_private(stmt.buffer):
            return
        if diverged or not all(self.is_uniform(expr) for expr in (stmt.value, *stmt.indices)):
            self._divergent.add(stmt.buffer)

    def _visit_for(self, stmt: Any, diverged: bool) -> None:
        if stmt.thread_binding is not None:
            self._mark_thread(stmt.loop_var, str(stmt.thread_binding.thread_tag))
        elif diverged or not (self.is_uniform(stmt.min) and self.is_uniform(stmt.extent)):
            self._divergent.add(stmt.loop_var)
            diverged = True
        self._visit(stmt.body, diverged)

    def _visit_block(self, stmt: Any, diverged: bool) -> None:
        inside = diverged or not self.is_uniform(stmt.predicate)
        block = stmt.block
        for axis, value in zip(block.iter_vars, stmt.iter_values):
            if not self.is_uniform(value):
                self._divergent.add(axis.var)
        if block.init is not None:
            self._visit(block.init, True)
        self._visit(block.body, inside)

    def _visit_attr(self, stmt: Any, diverged: bool) -> None:
        if isinstance(stmt.node, tirx.IterVar) and stmt.attr_key in _THREAD_ATTRS:
            self._mark_thread(stmt.node.var, str(stmt.node.thread_tag))
        self._visit(stmt.body, diverged)

    def _mark_thread(self, var: Any, tag: str) -> None:
        if not tag.startswith(("blockIdx", "clusterIdx")):
            self._divergent.add(var)


_CONSTANTS: Final = frozenset({int, float, bool, prim.IntImm, prim.FloatImm})
_THREAD_ATTRS: Final = ("thread_extent", "virtual_thread")
