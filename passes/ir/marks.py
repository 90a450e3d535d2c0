"""Say which functions are kernels for us, and which of them carry a plan already."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from ...plan import PLAN_ATTR, KernelPlan
from .kernels import has_kernel


def is_marked(func: Any) -> bool:
    """Whether ``func`` carries a plan, and so has been pipelined already."""
    return isinstance(func, tirx.PrimFunc) and PLAN_ATTR in (func.attrs or {})


def is_left(func: Any) -> bool:
    """Whether the plan of ``func`` leaves its barriers and its shared memory to TVM."""
    return is_marked(func) and KernelPlan.from_json(str(func.attrs[PLAN_ATTR])).sync.by == "tvm"


def is_kernel(func: Any, target: Any) -> bool:
    """Whether ``func`` is ours to pipeline: bound to the threads of a CUDA GPU."""
    return (
        isinstance(func, tirx.PrimFunc)
        and target is not None
        and target.kind.name == "cuda"
        and has_kernel(func)
    )
