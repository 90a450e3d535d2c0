"""Find the buffers of which TVM's InjectVirtualThread gives each virtual thread a copy.

    for vthread in 2: S = alloc; S[tx] = A[vthread, tx]    =>   two copies of S

Those are buffers allocated inside a virtual thread's loop whose contents or addresses depend on the
virtual thread; all others are shared. TVM looks at stores and at ``tvm_access_ptr`` with write
access, so a buffer written through any other pointer does not seem to depend on anything.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from ..ir import nodes as ir
from ..ir.calls import ACCESS_PTR, called
from ..ir.kernels import thread_tag


def is_virtual(stmt: Any) -> bool:
    """Whether ``stmt`` binds a virtual thread."""
    return (thread_tag(stmt) or "").startswith(("vthread", "cthread"))


def private_buffers(stmt: Any) -> set[Any]:
    """Return the buffers under ``stmt`` of which some virtual thread has a copy."""
    found: set[Any] = set()

    def visit(loop: Any) -> None:
        if is_virtual(loop):
            found.update(private_to(loop))

    ir.walk(stmt, tirx.For, visit)
    return found


def private_to(vthread: Any) -> set[Any]:
    """Return the buffers under ``vthread``, a virtual thread's loop, of which it has copies."""
    allocated: set[Any] = set()
    ir.walk(vthread.body, ir.SBlock, lambda block: allocated.update(block.alloc_buffers))
    ir.walk(vthread.body, tirx.AllocBuffer, lambda stmt: allocated.add(stmt.buffer))
    return allocated & _touched(vthread)


def _touched(vthread: Any) -> set[Any]:
    """Return every variable and buffer that takes its value from ``vthread``."""
    touched = {vthread.loop_var}

    def depends(*exprs: Any) -> bool:
        return any(ir.uses(expr, touched) for expr in exprs)

    def store(stmt: Any) -> None:
        if depends(stmt.value, *stmt.indices):
            touched.add(stmt.buffer)

    def loop(stmt: Any) -> None:
        if depends(stmt.min, stmt.extent):
            touched.add(stmt.loop_var)

    def bind(stmt: Any) -> None:
        if depends(stmt.value):
            touched.add(stmt.var)

    def evaluate(stmt: Any) -> None:
        if depends(stmt.value):
            ir.walk(stmt, ir.Call, written)

    def written(call: Any) -> None:
        if called(call) == ACCESS_PTR and (ir.const_int(call.args[4]) or 0) & 2:
            data = call.args[1]
            touched.add(data.args[0] if isinstance(data, ir.Call) else data)

    before = 0
    while before != len(touched):
        before = len(touched)
        ir.walk(vthread.body, tirx.BufferStore, store)
        ir.walk(vthread.body, tirx.For, loop)
        ir.walk(vthread.body, tirx.Bind, bind)
        ir.walk(vthread.body, tirx.Evaluate, evaluate)
    return touched
