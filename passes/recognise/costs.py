"""Count what a statement costs one CTA: bytes by memory, operations, and tensor core work.

    for i in range(8): S[i] = A[i] * 2    =>   Cost(global_bytes=32, shared_bytes=32, flops=8)

``StatementInfo`` has these counts; ``pipeliner/cost/usage`` divides them by rates.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

from ...machine import WARP
from ..analysis.operands import instruction_of
from ..ir.arithmetic import computed, lanes
from ..ir.calls import called
from ..ir.kernels import bodies, thread_tag
from ..ir.nodes import (
    Buffer,
    Expr,
    Stmt,
    const_int,
    dtype_bytes,
    has,
    i32,
    is_global,
    is_shared,
    simplify,
    substitute,
    uses,
    variables,
    walk,
)

_QUOTIENTS: Final = (tirx.FloorDiv, tirx.FloorMod)
_SHAPE: Final = re.compile(r"m(\d+)n(\d+)k(\d+)")
_WMMA_FLOPS: Final = 2 * 16 * 16 * 16


@dataclass(frozen=True, slots=True)
class Cost:
    """What a statement moves and computes, either in one thread or in all threads of a CTA."""

    global_bytes: int = 0
    """Bytes of global memory that it loads and stores."""
    shared_bytes: int = 0
    """Bytes of shared memory that it loads and stores."""
    flops: int = 0
    """Operations on floating-point values, without those below."""
    transcendentals: int = 0
    """Functions that the special function units compute."""
    tensor_flops: int = 0
    """Multiplications and additions of tensor cores."""

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both."""
        return Cost(
            self.global_bytes + other.global_bytes,
            self.shared_bytes + other.shared_bytes,
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.tensor_flops + other.tensor_flops,
        )

    def __mul__(self, times: int) -> Cost:
        """Return the cost of ``times`` executions."""
        return Cost(
            self.global_bytes * times,
            self.shared_bytes * times,
            self.flops * times,
            self.transcendentals * times,
            self.tensor_flops * times,
        )


_Loops: TypeAlias = "tuple[tuple[Any, int], ...]"
"""The variables of the loops around a statement, with how often each repeats it in a thread."""


def cost_of(stmt: Stmt, threads: int) -> Cost:
    """Return the cost of one execution of ``stmt`` by ``threads`` threads.

    A loop of unknown extent counts once. Of two branches the more expensive one counts. An element
    that the inner loops of a nest do not choose is loaded once for them all:

        for i, j: S[i, j] = S[i, j] * F[i]    =>   each F[i] once
    """
    return _per_thread(stmt, ()) * threads


def _per_thread(stmt: Stmt, around: _Loops) -> Cost:
    if isinstance(stmt, tirx.For):
        shared_out = (thread_tag(stmt) or "").startswith("threadIdx")
        times = 1 if shared_out else const_int(stmt.extent) or 1
        return _per_thread(stmt.body, (*around, (stmt.loop_var, times)))
    inner = [_per_thread(part, around) for part in bodies(stmt)]
    if isinstance(stmt, tirx.IfThenElse):
        return max(inner, key=lambda cost: sum((cost.global_bytes, cost.shared_bytes, cost.flops)))
    if inner:
        return sum(inner, Cost())
    if isinstance(stmt, tirx.BufferStore):
        stored = _of_access(stmt.buffer, lanes(stmt.value)) * _times(around)
        return _of_value(stmt.value, around, stmt.buffer) + stored
    return _of_value(stmt.value, around) if hasattr(stmt, "value") else Cost()


def _times(around: _Loops) -> int:
    return math.prod(times for _, times in around)


def _loads(load: Any, around: _Loops) -> int:
    """How often an element is loaded: not again for loops inside those that choose it.

    A word of shared memory that a thread takes several fields of is loaded once, too.
    """
    chosen = [at for at, (var, _) in enumerate(around) if uses(list(load.indices), [var])]
    if not chosen:
        return 1
    inside = around[: chosen[-1] + 1]
    if not is_shared(load.source) or not has(list(load.indices), _QUOTIENTS):
        return _times(inside)
    reached = math.prod(_values(index, inside) for index in load.indices)
    return min(_times(inside), reached)


def _values(index: Expr, around: _Loops) -> int:
    """How many values an index takes at most."""
    used = [(var, times) for var, times in around if times > 1 and uses(index, [var])]
    if len(used) != 1 or not has(index, _QUOTIENTS):
        return _times(tuple(used))
    ((var, times),) = used
    others = {other: i32(0) for other in variables(index) if not other.same_as(var)}
    at = substitute(index, others)
    return len({const_int(simplify(substitute(at, {var: i32(n)}))) for n in range(times)})


def _of_access(buf: Buffer, lanes: int) -> Cost:
    size = dtype_bytes(buf.dtype) * lanes
    if is_global(buf):
        return Cost(global_bytes=size)
    return Cost(shared_bytes=size) if is_shared(buf) else Cost()


def _of_value(value: Expr, around: _Loops, written: Buffer | None = None) -> Cost:
    """The cost of a value that is stored in ``written``, whose elements are loaded each time.

    What stands twice in it is loaded once.
    """
    total = Cost()
    tensor = 0
    loaded: list[Any] = []

    def visit(node: Any) -> None:
        nonlocal total, tensor
        if isinstance(node, TensorLoad):
            if any(tvm_ffi.structural_equal(node, other) for other in loaded):
                return
            loaded.append(node)
            again = written is not None and node.source.same_as(written)
            times = _times(around) if again else _loads(node, around)
            total = total + _of_access(node.source, lanes(node)) * times
        else:
            tensor += _tensor_flops(node)

    walk(value, (TensorLoad, Call), visit)
    found = computed(value)
    each = Cost(flops=found.flops, transcendentals=found.transcendentals, tensor_flops=tensor)
    return total + each * _times(around)


def _tensor_flops(call: Any) -> int:
    """Operations of one thread's share of a warp's matrix instruction: ``2 * m * n * k / 32``."""
    name = called(call)
    if name.endswith("tvm_mma_sync"):
        return _WMMA_FLOPS // WARP
    found = instruction_of(call)
    if found is None or not found.is_mma:
        return 0
    for arg in call.args:
        shape = _SHAPE.search(str(getattr(arg, "value", "")))
        if shape:
            return 2 * math.prod(int(size) for size in shape.groups()) // WARP
    return 0
