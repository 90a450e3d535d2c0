"""What the tests of mapping share: a GEMM tile mapped alone, or run whole in the emulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from tvm import tirx

import pipeliner
from pipeliner.emulator import Emulation, emulate, lower_for_emulation
from pipeliner.machine import machine_for
from pipeliner.passes.copy.copies import lower_copies
from pipeliner.passes.ir.indexing import offset
from pipeliner.passes.ir.nodes import Call, TensorLoad, Var, op_of, walk
from pipeliner.passes.lower import PIPELINE
from pipeliner.passes.map.instructions import map_tiles
from pipeliner.passes.recognise.facts import recognise
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.schedules.gemm import GemmTile, schedule_gemm
from pipeliner.schedules.workloads import Gemm, numpy_dtype
from pipeliner.space.ranking import choose

from .lowering_tools import TARGET, prepared


def scheduled(gemm: Gemm, tile: GemmTile, func: Any = None) -> Any:
    """The scheduled function of a GEMM."""
    (function,) = schedule_gemm(gemm, tile, func).mod.functions.values()
    return function


def mapped(
    gemm: Gemm, tile: GemmTile, request: Request | None = None, target: Any = TARGET
) -> tuple[Any, KernelPlan]:
    """A GEMM after recognition, mapping and copies; nothing pipelined, no barrier."""
    func, kernel = recognise(prepared(scheduled(gemm, tile)))
    plan = choose(kernel.info, machine_for(target), request or Request())
    return lower_copies(map_tiles(func, kernel, plan), plan), plan


def ops(func: Any) -> dict[str, Any]:
    """The op statements of a function by name."""
    found: dict[str, Any] = {}

    def visit(stmt: Any) -> None:
        name = op_of(stmt)
        if name is not None:
            found[name] = stmt.body

    walk(func.body, tirx.AttrStmt, visit)
    return found


def calls(stmt: Any, name: str) -> list[Any]:
    """The calls below ``stmt`` of operators with ``name`` in theirs."""
    found: list[Any] = []

    def visit(call: Any) -> None:
        if name in str(getattr(call.op, "name", "")):
            found.append(call)

    walk(stmt, Call, visit)
    return found


def shared_load(call: Any) -> Any:
    """The shared element whose address an instruction is given."""
    found: list[Any] = []
    walk(call, TensorLoad, found.append)
    (load,) = [load for load in found if str(load.source.scope()).startswith("shared")]
    return load


def byte_addresses(func: Any, load: Any, threads: int = 32) -> list[int]:
    """Where in its tile each thread's element lies, in bytes; every loop at its first iteration."""
    row = int(load.source.shape[-1])
    first, second = load.indices
    return _bytes(func, load, first * row + second, threads)


def byte_offsets(func: Any, load: Any, threads: int = 32) -> list[int]:
    """Where in its buffer each thread's element lies, in bytes; every loop as above."""
    return _bytes(func, load, offset(load.source, load.indices), threads)


def _bytes(func: Any, load: Any, element: Any, threads: int) -> list[int]:
    thread: list[Any] = []

    def visit(loop: Any) -> None:
        binding = loop.thread_binding
        if binding is not None and str(binding.thread_tag) == "threadIdx.x":
            thread.append(loop.loop_var)

    walk(func.body, tirx.For, visit)
    values = {thread[0]: np.arange(threads)}
    size = np.dtype(numpy_dtype(str(load.source.dtype))).itemsize
    return list(np.broadcast_to(evaluate(element, values) * size, (threads,)))


_OPERATORS: Final = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.BitwiseXor: np.bitwise_xor,
}


def evaluate(expr: Any, values: dict[Any, Any]) -> Any:
    """An integer expression for all ``values`` at once; other variables are 0."""
    operator = _OPERATORS.get(type(expr))
    if operator is not None:
        return operator(evaluate(expr.a, values), evaluate(expr.b, values))
    return values.get(expr, 0) if isinstance(expr, Var) else int(expr.value)


def conflicts(addresses: list[int], size: int) -> int:
    """Passes that shared memory needs for one access of ``size`` bytes a thread, beyond the fewest.

    Threads are served in groups that move 128 bytes at once; the same word is read once for all.
    """
    lanes = 128 // size
    extra = 0
    for first in range(0, len(addresses), lanes):
        words = {
            (address + byte) // 4
            for address in addresses[first : first + lanes]
            for byte in range(0, size, 4)
        }
        banks = [word % 32 for word in words]
        extra += max(banks.count(bank) for bank in set(banks)) - 1
    return extra


def run(
    gemm: Gemm,
    tile: GemmTile,
    func: Any = None,
    m: int | None = None,
    expect: Callable[[Any], Any] = lambda product: product,
    tolerance: float = 2e-3,
    **options: Any,
) -> Emulation:
    """Emulate a GEMM through our lowering and compare with the exact product."""
    done = pipeliner.pipeline(scheduled(gemm, tile, func), "sm_80", **options)
    with TARGET:
        lowered = lower_for_emulation(done, TARGET, PIPELINE)
    a, b = gemm.inputs(0, m)
    c = np.zeros(gemm.shapes(m)[2], numpy_dtype(gemm.out))
    emulation = emulate(lowered, [a, b, c])
    assert not emulation.hazards, "\n".join(map(str, emulation.hazards))
    want = expect(gemm.reference(a, b).astype("float64"))
    bound = 0 if gemm.storage == "int8" else tolerance * np.abs(want).max()
    got = emulation.outputs["C"].astype("float64")
    np.testing.assert_allclose(got, want, rtol=0, atol=bound)
    return emulation
