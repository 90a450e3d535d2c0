"""Peers that torch compiles: Triton's templates as inductor tunes them, and torch.compile."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

from ..errors import ToolError, WorkloadError
from ..measuring import Runner
from ..schedules import BackToBackGemm, Conv, GatedGemm, Gemm, GroupedGemm, PackedGemm
from ..schedules.workloads import SCALE_GROUP, Spec
from .results import CUBLAS, TORCH_PACKED, TRITON
from .vendor.convolutions import plain_convolution, torch_convolution

TRITON_OPTIONS: Final = {
    "max_autotune": True,
    "max_autotune_gemm_backends": "TRITON",
    "max_autotune_conv_backends": "TRITON",
    "triton.enable_persistent_tma_matmul": True,
}
"""Of torch's inductor: try every configuration of its Triton templates and nothing else."""

INT4_DTYPE: Final = "bfloat16"
"""What torch's own kernel takes beside weights of 4 bits."""

_INNER_TILES: Final = 8
"""Of K that torch's packed weights have in a row: the most, and what its users take."""

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
    """A gated GEMM, or a back to back one, as torch.compile makes it of its two products.

    The output is returned.

    WorkloadError: it is something else.
    """
    if isinstance(spec, BackToBackGemm):
        return _back_to_back(spec)
    if not isinstance(spec, GatedGemm):
        raise WorkloadError("peer.torch", workload=spec.name)
    import torch

    activation = getattr(torch.nn.functional, spec.activation)
    product = _product(spec)

    def gated(a: Any, b1: Any, b2: Any) -> Any:
        return activation(product(a, b1)) * product(a, b2)

    compiled = torch.compile(gated, dynamic=False)
    return lambda *arguments: compiled(*arguments[:-1])


def _back_to_back(spec: BackToBackGemm) -> Runner:
    import torch

    activation = getattr(torch.nn.functional, spec.activation)

    def both(a: Any, b: Any, c: Any) -> Any:
        return torch.matmul(activation(torch.matmul(a, b.transpose(-1, -2))), c)

    compiled = torch.compile(both, dynamic=False)
    return lambda *arguments: compiled(*arguments[:-1])


def grouped_by_torch(spec: Spec) -> Runner:
    """A grouped GEMM by ``torch._grouped_mm``, which makes the output and returns it.

    WorkloadError: it is something else. torch raises where it has no kernel of its types.
    """
    if not isinstance(spec, GroupedGemm):
        raise WorkloadError("peer.torch_grouped", workload=spec.name)
    import torch

    def run(a: Any, b: Any, offsets: Any, c: Any) -> Any:
        return torch._grouped_mm(a, b.transpose(-1, -2), offs=offsets[1:], out_dtype=c.dtype)

    return run


def unpacked(spec: Spec) -> Runner:
    """A product with weights of 4 bits by cuBLAS: of weights that are dequantised beforehand.

    WorkloadError: it is something else.
    """
    what = _packed(spec, CUBLAS)
    import torch

    def made(words: Any, scales: Any) -> Any:
        weights = what.dequantised(words.cpu().numpy(), scales.float().cpu().numpy())
        return torch.from_numpy(weights.astype("float32")).cuda().to(scales.dtype)

    known = _Prepared(made)
    return lambda a, words, scales, c: torch.matmul(
        a, known.of(words, scales).transpose(0, 1), out=c
    )


def packed_by_torch(spec: Spec) -> Runner:
    """The same by ``torch._weight_int4pack_mm``, whose words are packed beforehand.

    The output is returned. WorkloadError: it is something else, or not beside bfloat16.
    """
    what = _packed(spec, TORCH_PACKED)
    if what.dtype != INT4_DTYPE:
        raise WorkloadError("peer.torch_packed", workload=spec.name, peer=TORCH_PACKED)
    import torch

    def made(words: Any, scales: Any) -> Any:
        weights = what.weights(words.cpu().numpy())
        pairs = (weights[:, ::2] << 4 | weights[:, 1::2]).astype("uint8")
        packed = torch._convert_weight_to_int4pack(torch.from_numpy(pairs).cuda(), _INNER_TILES)
        zeros = torch.zeros_like(scales)
        return packed, torch.stack([scales, zeros], dim=-1).contiguous()

    known = _Prepared(made)

    def run(a: Any, words: Any, scales: Any, c: Any) -> Any:
        packed, factors = known.of(words, scales)
        return torch._weight_int4pack_mm(a, packed, SCALE_GROUP, factors)

    return run


class _Prepared:
    """What a peer has of its weights: made anew where these are others."""

    def __init__(self, make: Runner) -> None:
        self._make = make
        self._at: tuple[int, ...] = ()
        self._made: Any = None

    def of(self, *arguments: Any) -> Any:
        """What is made of ``arguments``."""
        at = tuple(one.data_ptr() for one in arguments)
        if at != self._at:
            self._made, self._at = self._make(*arguments), at
        return self._made


def _packed(spec: Spec, peer: str) -> PackedGemm:
    if not isinstance(spec, PackedGemm):
        raise WorkloadError("peer.torch_packed", workload=spec.name, peer=peer)
    return spec


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
