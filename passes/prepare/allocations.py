"""Move memory that a statement allocates to a block, as TVM's prefix and our passes expect it.

    S = T.alloc_shared((64,))                     with T.sblock():
    for k: S[..] = ..; .. = S[..]        =>           S = T.sblock_alloc_buffer((64,))
                                                      for k: S[..] = ..; .. = S[..]

TensorIR has both forms. Schedules write blocks, whose buffers TVM's prefix may move and make
smaller. TVM's script writes ``T.alloc_shared`` and ``T.alloc_local`` as statements, which are in
scope of the statements that follow. Annotations of the statement become the block's.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from ..ir import nodes as ir
from ..ir.kernels import map_kernels
from ..ir.named_pass import named_pass


@named_pass("GiveToBlocks")
def give_to_blocks(func: Any) -> Any:
    """Return ``func`` with each allocation of its kernels in a block; itself if there is none."""
    return map_kernels(func, _in_blocks)


def _in_blocks(kernel: Any) -> Any:
    if not ir.has(kernel, tirx.AllocBuffer):
        return kernel

    def visit(node: Any, mutator: Any) -> Any:
        return _blocked(mutator.default_mutate(node))

    return tvm_ffi.structural_mutate(kernel, [(tirx.SeqStmt, visit)])


def _blocked(node: Any) -> Any:
    """Return the sequence ``node`` with each allocation a block around what follows it."""
    stmts = list(node.seq)
    first = next((n for n, stmt in enumerate(stmts) if isinstance(stmt, tirx.AllocBuffer)), None)
    if first is None or first + 1 == len(stmts):
        return node
    rest = _blocked(ir.seq(*stmts[first + 1 :])) if len(stmts) > first + 2 else stmts[-1]
    made, own = stmts[first].buffer, dict(stmts[first].annotations)
    return ir.seq(*stmts[:first], ir.block("", rest, [made], annotations=own))
