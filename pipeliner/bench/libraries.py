"""Peers that torch compiles: Triton's templates as inductor tunes them, and torch.compile."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

from ..errors import ToolError, WorkloadError
from ..measuring import Runner
from ..schedules import Conv, GatedGemm, Gemm
from ..schedules.workloads import Spec
from .results import TRITON
from .vendor.convolutions import plain_convolution, torch_convolution

TRITON_OPTIONS: Final = {
    "max_autotune": True,
    "max_autotune_gemm_backends": "TRITON",
    "max_autotune_conv_backends": "TRITON",
    "triton.enable_persistent_tma_matmul": True,
}
"""Of torch's inductor: try every configuration of its Triton templates and nothing else."""

_TEMPLATE: Final = "triton_tem"
"""How inductor names kernels that it made from a template."""


def triton(spec: Spec) -> Runner:
    """The same product or convolution by inductor's Triton templates, autotuned for its shape.

    The output is returned. ToolError: Triton is not installed, or no template was chosen.
    """
    if find_spec("triton") is None:
        raise ToolError("peer.triton_missing")
    import torch
    import torch._inductor
    from torch._inductor.utils import run_and_get_code

    known = set(torch._inductor.list_options())
    options = {name: value for name, value in TRITON_OPTIONS.items() if name in known}
    compiled = torch.compile(_torch_function(spec), options=options, dynamic=False)
    tf32 = spec.dtype == "tfloat32"
    checked = False

    def run(*arguments: Any) -> Any:
        nonlocal checked
        inputs = arguments[:-1]
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        if checked:
            return compiled(*inputs)
        result, sources = run_and_get_code(compiled, *inputs)
        if not any(_TEMPLATE in source for source in sources):
            raise ToolError("peer.triton_template", workload=spec.name)
        checked = True
        return result

    return run


def compiled_by_torch(spec: Spec) -> Runner:
    """A gated GEMM as torch.compile makes it of its two products; the output is returned.

    WorkloadError: it is something else.
    """
    if not isinstance(spec, GatedGemm):
        raise WorkloadError("peer.torch", workload=spec.name)
    import torch

    activation = getattr(torch.nn.functional, spec.activation)
    product = _product(spec)

    def gated(a: Any, b1: Any, b2: Any) -> Any:
        return activation(product(a, b1)) * product(a, b2)

    compiled = torch.compile(gated, dynamic=False)
    return lambda *arguments: compiled(*arguments[:-1])


def _torch_function(spec: Spec) -> Runner:
    """The workload as a function of its inputs that inductor can compile."""
    if isinstance(spec, Conv):
        return torch_convolution(plain_convolution(spec, TRITON))
    if not isinstance(spec, Gemm) or isinstance(spec, GatedGemm):
        raise WorkloadError("peer.triton_plain", workload=spec.name)
    if spec.epilogue or spec.weights or spec.out != spec.storage:
        raise WorkloadError("peer.triton_plain", workload=spec.name)
    return _product(spec)


def _product(spec: Gemm) -> Runner:
    """The product of two matrices that lie as the workload says."""
    import torch

    straight = [letter == "N" for letter in spec.layout]

    def product(a: Any, b: Any) -> Any:
        left = a if straight[0] else a.transpose(-1, -2)
        right = b if straight[1] else b.transpose(-1, -2)
        return torch.matmul(left, right)

    return product
