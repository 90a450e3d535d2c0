"""Helpers of the tests of the core passes: functions put into op form, and run on LLVM."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlockRealize

from pipeliner.passes import ir
from pipeliner.passes.op_form import OpLoop, op_loops


def wrap_ops(loop: Any, names: list[str] | None = None) -> Any:
    """``loop`` with each statement of its body marked as an op."""
    body = loop.body
    inner = body.block.body if isinstance(body, SBlockRealize) else body
    parts = ir.statements(inner)
    names = names or [f"op{i}" for i in range(len(parts))]
    marked = tirx.SeqStmt([ir.op_stmt(n, s) for n, s in zip(names, parts, strict=True)])
    if len(parts) == 1:
        marked = ir.op_stmt(names[0], parts[0])
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


def run_llvm(func: Any, *arrays: Any) -> list[np.ndarray]:
    """The arrays after running ``func`` on copies of them."""
    exe = tvm.compile(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), "llvm")
    args = [np.array(a) if isinstance(a, np.ndarray) else a for a in arrays]
    tensors = [tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for a in args]
    exe["main"](*tensors)
    return [t.numpy() for t in tensors if not isinstance(t, int)]
