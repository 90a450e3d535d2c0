"""Helpers of the tests of the core passes: loops in op form, their schedules, and running them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlockRealize
from tvm.s_tir import transform as s_tir
from tvm.s_tir.pipeline import finalize_device_passes, finalize_host_passes
from tvm.tirx import transform as TT

from pipeliner.machine import H100
from pipeliner.passes.dependence.graph import dependence
from pipeliner.passes.expand.rewrite import expand
from pipeliner.passes.ir import nodes as ir
from pipeliner.passes.ir.op_form import OpLoop, op_loops, thread_extents
from pipeliner.passes.schedule.modulo import edge_plans, register_unroll
from pipeliner.passes.schedule.modulo_verify import versions_needed
from pipeliner.passes.schedule.op_costs import op_costs
from pipeliner.passes.sync.waits import insert_waits
from pipeliner.plan import KernelPlan, LoopPlan, RingPlan


def wrap_ops(loop: Any, names: list[str] | None = None) -> Any:
    """``loop`` with each statement of its body marked as an op."""
    body = loop.body
    inner = body.block.body if isinstance(body, SBlockRealize) else body
    parts = ir.statements(inner)
    names = names or [f"op{i}" for i in range(len(parts))]
    marked = ir.seq(*[ir.op_stmt(n, s) for n, s in zip(names, parts, strict=True)])
    if isinstance(body, SBlockRealize):
        old = body.block
        marked = ir.block(
            old.name_hint, marked, old.alloc_buffers, old.reads, old.writes, old.annotations
        )
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, marked, None, loop.annotations)


def op_form(func: Any, names: list[str] | None = None, var: str = "k") -> Any:
    """``func`` with its loop over ``var`` in op form."""

    def rewrite(loop: Any, mutator: Any) -> Any:
        if loop.loop_var.name == var:
            return wrap_ops(loop, names)
        return mutator.default_mutate(loop)

    body = tvm_ffi.structural_mutate(func.body, [(tirx.For, rewrite)])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def the_loop(func: Any) -> OpLoop:
    """The only op loop of a function."""
    (form,) = op_loops(func.body)
    return form


def graph_of(func: Any) -> Any:
    """The dependence graph of the only op loop of a function."""
    return dependence(the_loop(func).node, thread_extents(func.body))


def edges_of(graph: Any) -> set[tuple[str, str, str, str, int]]:
    """(src, dst, kind, buffer, distance) of every edge."""
    return {(u, v, e["kind"], e["buffer"], e["distance"]) for u, v, e in graph.edges(data=True)}


def manual_plan(
    graph: Any, stages: list[int], order: list[int], epilogue: Any = "rolled"
) -> LoopPlan:
    """A plan with these stages and orders by program order, and rings as deep as they need."""
    draft = LoopPlan("k", "n", True, epilogue=epilogue)
    ops = [
        dataclasses.replace(op, stage=s, order=o)
        for op, s, o in zip(op_costs(graph, draft, H100), stages, order, strict=True)
    ]
    ops = insert_waits(graph, sorted(ops, key=lambda op: op.order))
    draft = dataclasses.replace(draft, ops=tuple(ops))
    rings = tuple(
        RingPlan(name, str(buf.scope()), versions_needed(graph, draft, name), 0, (), ())
        for name, buf in graph.graph["rings"].items()
    )
    return dataclasses.replace(
        draft, rings=rings, edges=edge_plans(graph, ops), unroll=register_unroll(rings)
    )


def expand_loop(func: Any, plan: LoopPlan) -> Any:
    """``func`` with its op loop expanded by ``plan``."""
    return expand(func, KernelPlan("f", "llvm", "H100", loops=(plan,)))


def compiled(func: Any) -> Any:
    """``func`` compiled for LLVM.

    By the passes after the slot only: TVM's compaction comes before it, and would take the slots of
    a ring for places that nobody reads.
    """
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    return tvm.compile(module, "llvm", tir_pipeline=PIPELINE)["main"]


def _after_the_slot() -> Any:
    steps = [
        s_tir.LowerOpaqueBlock(),
        TT.FlattenBuffer(),
        TT.NarrowDataType(32),
        TT.StmtSimplify(),
        TT.AnnotateEntryFunc(),
        TT.SplitHostDevice(),
        TT.MakePackedAPI(),
    ]
    return tvm.ir.transform.Sequential(steps), finalize_host_passes, finalize_device_passes


PIPELINE = "pipeliner.tests.after_the_slot"
tirx.register_tir_pipeline(PIPELINE, _after_the_slot)


def run(kernel: Any, *arrays: Any) -> list[np.ndarray]:
    """The arrays after running ``kernel`` on copies of them; integers are passed as they are."""
    tensors = [tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for a in arrays]
    kernel(*tensors)
    return [t.numpy() for t in tensors if not isinstance(t, int)]
