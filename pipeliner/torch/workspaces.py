"""Workspaces as arguments: what a kernel allocates at each call is the caller's to allocate.

    def f(A, B, C):                    def f(A, B, C, parts):
      parts = alloc_buffer(..)    =>     for part: parts[..] = ..
      for part: parts[..] = ..           C[..] = parts[0, ..] + ..
      C[..] = parts[0, ..] + ..

TVM takes a workspace from a pool of its thread, whatever the stream: of two calls on two streams,
the second would write what the first still reads. PyTorch's allocator knows streams and graphs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from ..kernel.compiled import Kernel, as_module
from ..passes.ir.kernels import with_block
from ..passes.ir.nodes import SBlockRealize, const_int, seq, statements


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory that a kernel writes and reads, of which nothing stays."""

    shape: tuple[int, ...]
    dtype: str


def with_workspaces(kernel: Kernel) -> Kernel:
    """``kernel``, what it allocates in global memory as further arguments; itself: nothing."""
    function = kernel.function
    found = _allocated(function)
    if not found:
        return kernel
    block = function.body.block
    kept = [buf for buf in block.alloc_buffers if str(buf.scope()) != "global"]
    stmts = [stmt for stmt in statements(block.body) if not isinstance(stmt, tirx.AllocBuffer)]
    body = with_block(function.body, body=seq(*stmts), allocs=kept)
    made = tirx.PrimFunc([*function.params, *found], body, function.ret_type, function.attrs)
    return Kernel(as_module(made), kernel.target, kernel.pipeline, kernel.config, kernel.original)


def workspaces_of(function: Any, own: int) -> tuple[Workspace, ...]:
    """The arguments behind the ``own`` ones of a workload."""
    return tuple(
        Workspace(tuple(int(const_int(extent) or 0) for extent in param.shape), str(param.dtype))
        for param in list(function.params)[own:]
    )


def workspaces_as_text(workspaces: Sequence[Workspace]) -> str:
    """As text that ``workspaces_of_text`` reads."""
    return json.dumps([[one.shape, one.dtype] for one in workspaces])


def workspaces_of_text(text: str) -> tuple[Workspace, ...]:
    """The workspaces that ``workspaces_as_text`` wrote."""
    return tuple(Workspace(tuple(shape), dtype) for shape, dtype in json.loads(text))


def _allocated(function: Any) -> list[Any]:
    if not isinstance(function.body, SBlockRealize):
        return []
    block = function.body.block
    by_stmts = [one.buffer for one in statements(block.body) if isinstance(one, tirx.AllocBuffer)]
    return [buf for buf in (*block.alloc_buffers, *by_stmts) if str(buf.scope()) == "global"]
