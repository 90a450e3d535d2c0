"""Pipeline a function as a request says, and make a kernel of it: what the front door leads to."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..choice.mapped import uses_wgmma
from ..errors import PlanError
from ..instructions.table import may_be_warpgroup_wide
from ..passes.ir.kernels import has_kernel, why_no_kernel
from ..passes.ir.marks import is_marked
from ..passes.software_pipeline import SoftwarePipeline
from ..plan.request import Request
from ..targets import accelerated, cuda_target
from .compiled import Kernel, as_module, only_function, plan_of


def pipeline_with(func: Any, target: Any, request: Request) -> Any:
    """Return ``func`` pipelined for ``target``; raises what ``pipeline`` raises."""
    function = only_function(as_module(func))
    if is_marked(function):
        if request != Request():
            raise PlanError("plan.again", function=str(function.attrs["global_symbol"]))
        return function
    if not has_kernel(function):
        raise PlanError("plan.no_kernel", why=why_no_kernel(str(function.attrs["global_symbol"])))
    given = cuda_target(function.attrs.get("target") if target is None else target)
    chosen = target_for(given, request)
    bound = "target" in function.attrs
    options = {field.name: getattr(request, field.name) for field in fields(request)}
    with chosen:
        function = function.with_attr("target", chosen) if bound else function
        done = only_function(SoftwarePipeline(**options)(as_module(function)))
    if bound and not uses_wgmma(plan_of(done).matmuls):
        return done.with_attr("target", given)
    return done


def build_with(func: Any, target: Any, request: Request) -> Kernel:
    """``build`` with its options as one value; ``target`` is given."""
    original = only_function(as_module(func))
    function = pipeline_with(original, target, request)
    return Kernel(as_module(function), compiled_for(function, target), original=original)


def target_for(target: Any, request: Request) -> Any:
    """The target that a function is planned for: with wgmma wherever that may be chosen."""
    given = cuda_target(target)
    return accelerated(given) if _may_use_wgmma(request) else given


def _may_use_wgmma(request: Request) -> bool:
    if request.plan is not None:
        return uses_wgmma(request.plan.matmuls)
    return may_be_warpgroup_wide(request.instruction)


def compiled_for(function: Any, target: Any) -> Any:
    """The target that a pipelined function is compiled for."""
    chosen = cuda_target(target)
    return accelerated(chosen) if uses_wgmma(plan_of(function).matmuls) else chosen
