"""Offer software pipelining as one TVM pass among others, before ``tvm.compile``.

    mod = SoftwarePipeline(depth="auto")(mod)                  # prologue, steady state, epilogue
    ex = tvm.compile(mod, target, tir_pipeline="pipeliner")    # continues after our passes

The pass pipelines every CUDA kernel of a module; the lowering leaves a pipelined kernel as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tvm

from ..errors import TargetError
from ..plan.request import DepthAsked, OptionsBesideDepth, asked
from .ir.kernels import has_kernel
from .ir.marks import is_marked
from .lower import apply_where, is_fresh_kernel, slot_passes, target_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


def SoftwarePipeline(depth: DepthAsked = "auto", **options: Unpack[OptionsBesideDepth]) -> Any:
    """Return a TVM module pass that pipelines every CUDA kernel of a module and marks it.

    It runs TVM's passes that prepare a scheduled function, and then ours. Other functions are
    returned as they are, and a second run changes nothing.

    Parameters
    ----------
    depth, **options
        As for ``Request``.

    Raises
    ------
    TargetError
        A function is bound to GPU threads, but neither it nor the scope has a target.
    PipelinerError
        A request that a kernel cannot have.
    """
    request = asked({"depth": depth, **options})

    @tvm.transform.module_pass(opt_level=0, name="pipeliner.SoftwarePipeline")
    def run(mod: Any, ctx: Any) -> Any:
        for var, func in mod.functions.items():
            _check_target(str(var.name_hint), func)
        return apply_where(mod, is_fresh_kernel, slot_passes(request))

    return run


def _check_target(name: str, func: Any) -> None:
    known = not isinstance(func, tvm.tirx.PrimFunc) or is_marked(func)
    if not known and has_kernel(func) and target_of(func) is None:
        raise TargetError("plan.no_target", function=name)
