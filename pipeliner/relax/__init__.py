"""Relax modules: products and convolutions as our kernels, everything else as TVM has it.

    target = pipeliner.meta.target("h100")
    executable = pipeliner.relax.compile(mod, params, target)       # the whole way

    mod = pipeliner.relax.Schedule(target, db="tuned.sqlite")(mod)  # or the one pass
    executable = tvm.compile(mod, target, tir_pipeline="pipeliner")

``relax.matmul`` of a matrix, or of as many pairs, with any number of rows, and ``relax.nn.conv2d``
with channels innermost become kernels of this library, with the bias, residual and activation that
follow them as their epilogue: the fastest recorded one, or the model's choice; the plan on each
function says which. So do ``relax.nn.attention``, which reads heads of one product where they lie,
and two products of which the first gates the second (SwiGLU). PyTorch's importer leaves attention
whole with ``run_ep_decomposition=False``. What is no workload of ours (another operator, type or
layout, a symbolic batch of images) is legalised and fused by TVM and scheduled by its dlight rules.
"""

from .constants import FoldConstants
from .recipe import compile, prepared
from .schedule import IS_SCHEDULED, Schedule
from .workloads import conv2d_of, matmul_of

__all__ = [
    "IS_SCHEDULED",
    "FoldConstants",
    "Schedule",
    "compile",
    "conv2d_of",
    "matmul_of",
    "prepared",
]
