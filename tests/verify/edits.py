"""Kernels broken on purpose: single statements of the device functions found by their origin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from pipeliner.emulator import Emulation, emulate
from pipeliner.emulator.lower import is_device_function
from pipeliner.kernel.compiled import Kernel
from pipeliner.kernel.cuda_lines import CudaLines, cuda_lines
from pipeliner.passes.ir import nodes as ir
from pipeliner.passes.ir.kernels import bodies, with_bodies
from pipeliner.values.origin import Origin

Edit = Callable[[Any], Any]


class Broken:
    """A kernel with an edit at every statement whose origin is wanted."""

    def __init__(self, kernel: Kernel, wanted: Callable[[Origin], bool], edit: Edit) -> None:
        self._edits = 0

        def visit(stmt: Any) -> Any:
            origin = ir.origin_of(stmt)
            if origin is not None and wanted(origin):
                self._edits += 1
                return with_bodies(stmt, [edit(stmt.body)])
            return with_bodies(stmt, [visit(body) for body in bodies(stmt)])

        functions = {
            gv: tirx.PrimFunc(f.params, visit(f.body), f.ret_type, f.attrs)
            if is_device_function(f)
            else f
            for gv, f in kernel.lowered.functions.items()
        }
        assert self._edits, "no statement has the wanted origin"
        self.module = tvm.IRModule(functions)
        self.lines: CudaLines = cuda_lines(self.module)

    def run(self, *arrays: Any, **options: Any) -> Emulation:
        return emulate(self.module, arrays, lines=self.lines.find, **options)


def removed(_stmt: Any) -> Any:
    """Nothing in place of a statement."""
    return tirx.Evaluate(0)


def shifted(buffer: str, by: int) -> Edit:
    """The elements of ``buffer`` in a statement moved by a number of elements."""

    def load(node: Any) -> Any:
        if str(node.source.name).removesuffix("_ptr") != buffer:
            return node
        return tirx.BufferLoad(node.source, [node.indices[0] + by])

    return lambda stmt: tvm_ffi.structural_map(stmt, [(ir.TensorLoad, load)], order="post")


def only_for(threads: int, tag: str = "threadIdx.x") -> Callable[[Any], Edit]:
    """An edit that leaves a statement to the first ``threads`` threads of ``func``."""

    def edit_of(func: Any) -> Edit:
        axes: list[Any] = []
        ir.walk(
            func.body,
            tirx.AttrStmt,
            lambda s: (
                axes.append(s.node.var)
                if s.attr_key == "thread_extent" and s.node.thread_tag == tag
                else None
            ),
        )
        return lambda stmt: tirx.IfThenElse(axes[0] < threads, stmt, None)

    return edit_of
