"""What the regression tests share: pipeline, emulate, compare; and counts over the lowered IR."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import ir, tirx

import pipeliner
from pipeliner.errors import PipelinerError
from pipeliner.passes.ir.nodes import buffer_bytes, const_int, walk
from pipeliner.plan import KernelPlan, LoopPlan

from ..corpus.harness import assert_right, run

Arrays = Mapping[str, Any]


def data(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Values in [-1, 1), or in [-8, 8) for integers."""
    rng = np.random.default_rng(seed)
    if np.issubdtype(np.dtype(dtype), np.integer):
        return rng.integers(-8, 8, shape).astype(dtype)
    return (rng.random(shape) * 2 - 1).astype(dtype)


def check(
    func: Any,
    inputs: Arrays,
    truth: Arrays,
    *,
    target: str = "sm_80",
    tolerance: float = 1e-5,
    **options: Any,
) -> KernelPlan:
    """Pipeline ``func``, emulate it with copies landing late and early, compare; its plan."""
    fast = pipeliner.pipeline(func, target, **options)
    for timing in ("late", "early"):
        assert_right(run(fast, inputs, truth, arch=target, timing=timing), truth, tolerance)
    return pipeliner.plan_of(fast)


def right_or_refused(func: Any, inputs: Arrays, truth: Arrays, names: str) -> None:
    """``func`` gives the truth, or one line that matches ``names``: never a wrong answer."""
    refusal: PipelinerError | None = None
    try:
        check(func, inputs, truth)
    except PipelinerError as err:
        refusal = err
    if refusal is not None:
        assert re.fullmatch(f".*{names}.*", str(refusal)), refusal


def pipelined_loop(plan: KernelPlan) -> LoopPlan:
    """The one loop of the plan that overlaps iterations."""
    loops = [loop for loop in plan.loops if loop.pipelined and loop.stages > 1]
    assert len(loops) == 1, plan.explain()
    return loops[0]


def gemm_inputs(k: int = 64, dtype: str = "float32") -> dict[str, np.ndarray]:
    return {"A": data(32, k, dtype=dtype), "B": data(k, 32, dtype=dtype, seed=1)}


def product(inputs: Arrays, dtype: str = "float32") -> dict[str, np.ndarray]:
    a, b = inputs["A"], inputs["B"]
    wide = "int64" if a.dtype.kind == "i" else "float32"
    return {"C": (a.astype(wide) @ b.astype(wide)).astype(dtype)}


def calls(lowered: Any, part: str) -> list[Any]:
    """The calls of a lowered module whose operator has ``part`` in its name."""
    found: list[Any] = []

    def visit(call: Any) -> None:
        if part in getattr(call.op, "name", ""):
            found.append(call)

    for func in lowered.functions.values():
        walk(func.body, ir.Call, visit)
    return found


def wait_counts(lowered: Any) -> list[int | None]:
    """The argument of each ``cp.async.wait_group``; None where it is not a constant."""
    return [const_int(call.args[0]) for call in calls(lowered, "cp_async_wait_group")]


def shared_allocations(lowered: Any) -> list[tuple[str, int]]:
    """Scope and bytes of every shared allocation of the device functions."""
    found: list[tuple[str, int]] = []

    def visit(node: Any) -> None:
        scope = str(node.buffer.scope())
        if scope.startswith("shared"):
            size = buffer_bytes(node.buffer)
            assert size is not None
            found.append((scope, size))

    for func in lowered.functions.values():
        walk(func.body, tirx.AllocBuffer, visit)
    return found
