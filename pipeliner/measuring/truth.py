"""Operands on the GPU, what a workload makes of them in float64, and how far a result is from it.

No library is trusted with the truth: a convolution is summed here, one kernel position at a time,
each a product of matrices in float64. Large images come one after the other, so that beside the
operands and two results in float64 about a gigabyte is in use, whatever the batch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..schedules import (
    Attention,
    BackToBackGemm,
    Conv,
    ConvInputGrad,
    ConvWeightGrad,
    GatedGemm,
    Gemm,
    GroupedGemm,
    PackedGemm,
    RowGemm,
    ScaledGemm,
)
from ..schedules.workloads import EPSILON, LOOPS, SCALES, Spec, results_of
from ..schedules.workloads.base.dtypes import integer_range
from ..schedules.workloads.conv_shape import strided
from ..schedules.workloads.gemm import gated_magnitude
from ..verification.accuracy import worst_error

CHUNK_BYTES: Final = 256 * 1024 * 1024
"""Of float64 in one step of a comparison or convolution; a few such tensors live at once."""

_DOUBLE: Final = 8


@dataclass(frozen=True, slots=True)
class Truth:
    """The exact result, and the sums of absolute products that rounding errors are relative to."""

    spec: Spec
    exact: Any
    magnitude: Any
    out: str = ""

    def error(self, got: Any) -> float:
        """The largest error of ``got`` over what rounding allows; NaN where it has a NaN."""
        return float(
            np.max(
                [
                    worst_error(
                        self.spec, got[rows], self.exact[rows], self.magnitude[rows], out=self.out
                    )
                    for rows in _chunks(self.exact.shape)
                ]
            )
        )


def random_inputs(torch: Any, spec: Spec) -> tuple[Any, ...]:
    """Standard normal inputs (integers: uniform over -8..7) on the GPU, drawn there."""
    torch.manual_seed(0)
    shapes = spec.shapes()[: -len(results_of(spec))]
    extras = [spec.out] * (len(shapes) - 2)
    plain = (spec.storage, spec.storage, *extras)
    dtypes = spec.input_dtypes if isinstance(spec, (Gemm, *LOOPS)) else plain
    if isinstance(spec, PackedGemm):
        a, scales = (_random(torch, shapes[at], spec.storage) for at in (0, 2))
        scales.uniform_(*SCALES)
        return a, torch.from_numpy(spec.words()).cuda(), scales
    drawn = [_random(torch, shape, dtype) for shape, dtype in zip(shapes, dtypes)]
    if isinstance(spec, GroupedGemm):
        drawn[2] = torch.from_numpy(spec.offsets()).cuda()
    if isinstance(spec, ScaledGemm):
        for scales in drawn[2:]:
            scales.uniform_(*SCALES)
    return tuple(drawn)


def empty_outputs(torch: Any, spec: Spec, dtype: str) -> list[Any]:
    """Where a contender writes; ``dtype``: its own type, of the first."""
    first, *others = results_of(spec)
    return [
        torch.empty(shape, dtype=getattr(torch, kind), device="cuda")
        for shape, kind in ((first[0], dtype), *others)
    ]


def truths(torch: Any, spec: Spec, inputs: tuple[Any, ...]) -> tuple[Truth, ...]:
    """What each result of ``spec`` must be."""
    if isinstance(spec, RowGemm):
        return tuple(
            Truth(spec, exact, magnitude, dtype)
            for (exact, magnitude), (_, dtype) in zip(
                _with_rows(torch, spec, *inputs), spec.results
            )
        )
    return (truth(torch, spec, inputs),)


def truth(torch: Any, spec: Spec, inputs: tuple[Any, ...]) -> Truth:
    """What ``spec`` must make of ``inputs``: on the GPU for attention, products, convolutions.

    Whatever has an epilogue is worked out by numpy, on the CPU.
    """
    if isinstance(spec, GatedGemm):
        return Truth(spec, *_gated(torch, spec, *inputs))
    if isinstance(spec, Attention):
        return Truth(spec, *attended(torch, spec, *inputs))
    if isinstance(spec, BackToBackGemm):
        return Truth(spec, *_back_to_back(torch, spec, *inputs))
    if isinstance(spec, ScaledGemm):
        return Truth(spec, *_scaled(spec, *inputs))
    if isinstance(spec, GroupedGemm):
        return Truth(spec, *_grouped(torch, spec, *inputs))
    if isinstance(spec, PackedGemm):
        return Truth(spec, *_packed(torch, spec, *inputs))
    if isinstance(spec, Gemm) and not spec.epilogue:
        return Truth(spec, *_product(spec, *inputs))
    if isinstance(spec, Conv) and not spec.epilogue:
        return Truth(spec, *_convolution(torch, spec, *inputs))
    if isinstance(spec, (ConvInputGrad, ConvWeightGrad)):
        of_input = isinstance(spec, ConvInputGrad)
        differentiated = _input_gradient if of_input else _weight_gradient
        return Truth(spec, *differentiated(torch, spec.forward, *inputs))
    arrays = [_as_numpy(tensor) for tensor in inputs]
    made = (spec.reference(*arrays), spec.magnitude(*arrays))
    exact, magnitude = (torch.from_numpy(array).cuda() for array in made)
    return Truth(spec, exact, magnitude)


def _random(torch: Any, shape: tuple[int, ...], dtype: str) -> Any:
    bounds = integer_range(dtype)
    if bounds is not None:
        return torch.randint(*bounds, shape, device="cuda", dtype=getattr(torch, dtype))
    return torch.randn(shape, device="cuda").to(getattr(torch, dtype))


def _as_numpy(tensor: Any) -> Any:
    """Its values; numpy has no bfloat16, and float32 holds every one."""
    wide = tensor.float() if tensor.is_floating_point() else tensor
    return wide.cpu().numpy()


def _chunks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Runs of the first dimension that hold ``CHUNK_BYTES`` of float64 at most, or one row."""
    each = max(1, CHUNK_BYTES // (_DOUBLE * math.prod(shape[1:])))
    for start in range(0, shape[0], each):
        yield slice(start, min(start + each, shape[0]))


def _product(gemm: Gemm, a: Any, b: Any) -> tuple[Any, Any]:
    left = a.double() if gemm.layout[0] == "N" else a.double().transpose(-1, -2)
    right = b.double() if gemm.layout[1] == "N" else b.double().transpose(-1, -2)
    return left @ right, left.abs() @ right.abs()


def _gated(torch: Any, spec: GatedGemm, a: Any, b1: Any, b2: Any) -> tuple[Any, Any]:
    gate, of_gate = _product(spec, a, b1)
    activated = getattr(torch.nn.functional, spec.activation)(gate)
    value, of_value = _product(spec, a, b2)
    return activated * value, gated_magnitude(activated, value, of_gate, of_value)


def _back_to_back(torch: Any, spec: BackToBackGemm, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Some rows at a time: what stands between the products may be larger than all else."""
    activation = getattr(torch.nn.functional, spec.activation)
    first, second = b.double().transpose(0, 1), c.double()
    exact, magnitude = (
        torch.empty(spec.shapes()[-1], dtype=torch.float64, device=a.device) for _ in range(2)
    )
    for some in _chunks((spec.m, spec.n)):
        hidden = activation(a[some].double() @ first)
        exact[some] = hidden @ second
        magnitude[some] = (hidden.square_() @ second.square()).sqrt_()
    return exact, magnitude


def _scaled(spec: ScaledGemm, *inputs: Any) -> tuple[Any, Any]:
    left, right = spec.rescaled(*(tensor.double() for tensor in inputs))
    exact = left @ right.transpose(0, 1)
    return exact, left.abs_() @ right.abs_().transpose(0, 1)


def _grouped(torch: Any, spec: GroupedGemm, a: Any, b: Any, offsets: Any) -> list[Any]:
    """The product and what rounding is relative to, one group after the other."""
    shape = spec.shapes()[-1]
    made = [torch.empty(shape, dtype=torch.float64, device=a.device) for _ in range(2)]
    ends = [int(end) for end in offsets.cpu().numpy()]
    for e, group in enumerate(map(slice, ends, ends[1:])):
        left, right = a[group].double(), b[e].double().transpose(0, 1)
        made[0][group], made[1][group] = left @ right, left.abs() @ right.abs()
    return made


def _packed(torch: Any, spec: PackedGemm, a: Any, words: Any, scales: Any) -> tuple[Any, Any]:
    weights = spec.dequantised(_as_numpy(words), _as_numpy(scales)).astype("float64")
    left, right = a.double(), torch.from_numpy(weights).cuda().transpose(0, 1)
    return left @ right, left.abs() @ right.abs()


def _with_rows(torch: Any, spec: RowGemm, a: Any, b: Any) -> list[tuple[Any, Any]]:
    """The product and what rounding is relative to; behind them those of the statistics."""
    left, right = a.double(), b.double()
    product = left @ right.transpose(0, 1)
    magnitude = left.abs() @ right.abs().transpose(0, 1)
    if spec.statistic == "rms":
        root = (left.square().sum(dim=1, keepdim=True) / spec.k + EPSILON).sqrt()
        return [(product / root, magnitude / root)]
    most, largest = (x.amax(dim=1, keepdim=True) for x in (product, magnitude))
    rows = (spec.m,)
    if spec.statistic == "sum":
        both = [
            torch.stack([x.sum(dim=1, keepdim=True).reshape(*rows), y.reshape(*rows)])
            for x, y in ((product, most), (magnitude, largest))
        ]
        return [(product, magnitude), (both[0], both[1])]
    sums = (product - most).exp_().sum(dim=1, keepdim=True)
    whole = (sums.log() + most).reshape(*rows), (largest + 1).reshape(*rows)
    return [(product, magnitude), whole]


def attended(torch: Any, spec: Attention, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """The exact result and its magnitude, beside the inputs, some queries of a head at a time."""
    shape = spec.shapes()[-1]
    made = [torch.empty(shape, dtype=torch.float64, device=q.device) for _ in range(2)]
    exact, magnitude = (spec.by_heads(3, one) for one in made)
    q, k, v = (spec.by_heads(which, one) for which, one in enumerate((q, k, v)))
    at = torch.arange(spec.keys, device=q.device)
    for b, h in itertools.product(range(spec.batch), range(spec.heads)):
        keys, values = (x[b, h // spec.group].double() for x in (k, v))
        for some in _chunks((spec.queries, spec.keys)):
            scores = q[b, h, some].double() @ keys.transpose(0, 1) * spec.scale
            if spec.causal:
                row = torch.arange(some.start, some.stop, device=q.device)
                scores.masked_fill_(at[None, :] > row[:, None], -math.inf)
            weights = (scores - scores.amax(dim=-1, keepdim=True)).exp_()
            total = weights.sum(dim=-1, keepdim=True)
            exact[b, h, some] = weights @ values / total
            rounded = weights.clamp(min=spec.least_weight).masked_fill(weights == 0, 0)
            magnitude[b, h, some] = (rounded.square() @ values.square()).sqrt() / total
    return made[0], made[1]


def _convolution(torch: Any, conv: Conv, x: Any, w: Any) -> tuple[Any, Any]:
    """The sums and the sums of absolute products, images by images."""
    shape = (conv.n, *conv.out_size, conv.k)
    exact, magnitude = (torch.empty(shape, dtype=torch.float64, device="cuda") for _ in range(2))
    images, filters = _last(conv, x), _last(conv, w).double()
    for some in _image_chunks(conv):
        seen = images[some].double()
        exact[some] = _convolved(torch, conv, seen, filters)
        magnitude[some] = _convolved(torch, conv, seen.abs(), filters.abs())
    return _as_stored(conv, exact), _as_stored(conv, magnitude)


def _input_gradient(torch: Any, conv: Conv, dy: Any, w: Any) -> tuple[Any, Any]:
    """Each output scattered to the inputs that it read, images by images."""
    shape = (conv.n, *conv.size, conv.c)
    made = [torch.empty(shape, dtype=torch.float64, device="cuda") for _ in range(2)]
    gradients, filters = _last(conv, dy), _last(conv, w).double()
    for some in _image_chunks(conv):
        given = gradients[some].double()
        for total, outputs, weights in (
            (made[0], given, filters),
            (made[1], given.abs(), filters.abs()),
        ):
            total[some] = _scattered(torch, conv, outputs, weights)
    return _as_stored(conv, made[0]), _as_stored(conv, made[1])


def _weight_gradient(torch: Any, conv: Conv, dy: Any, x: Any) -> tuple[Any, Any]:
    """The outputs of each position times the inputs that they read, summed over images."""
    each_in, each_out = conv.c // conv.groups, conv.k // conv.groups
    shape = (conv.groups, each_out, *conv.kernel, each_in)
    made = [torch.zeros(shape, dtype=torch.float64, device="cuda") for _ in range(2)]
    gradients, images = _last(conv, dy), _last(conv, x)
    for some in _image_chunks(conv):
        padded = _padded(torch, conv, images[some].double())
        given = gradients[some].double().reshape(-1, conv.groups, each_out)
        outputs = given.transpose(0, 1).transpose(1, 2)
        for at in itertools.product(*map(range, conv.kernel)):
            seen = padded[(slice(None), *strided(conv, at))].reshape(-1, conv.groups, each_in)
            inputs = seen.transpose(0, 1)
            place = (slice(None), slice(None), *at)
            made[0][place] = made[0][place] + outputs @ inputs
            made[1][place] = made[1][place] + outputs.abs() @ inputs.abs()
    whole = (conv.k, *conv.kernel, each_in)
    return _as_stored(conv, made[0].reshape(*whole)), _as_stored(conv, made[1].reshape(*whole))


def _scattered(torch: Any, conv: Conv, outputs: Any, filters: Any) -> Any:
    """What the input's images get of outputs, both with channels innermost."""
    count, groups = outputs.shape[0], conv.groups
    total = _zeros(torch, conv, count)
    given = outputs.reshape(-1, groups, conv.k // groups).transpose(0, 1)
    for at in itertools.product(*map(range, conv.kernel)):
        weights = filters[(slice(None), *at)].reshape(groups, conv.k // groups, -1)
        part = (given @ weights).transpose(0, 1).reshape(count, *conv.out_size, conv.c)
        place = (slice(None), *strided(conv, at))
        total[place] = total[place] + part
    inside = [slice(low, low + size) for size, (low, _) in zip(conv.size, conv.pad)]
    return total[(slice(None), *inside)]


def _last(conv: Conv, tensor: Any) -> Any:
    """An image or a filter with channels innermost."""
    return tensor if conv.channels_last else tensor.movedim(1, -1)


def _as_stored(conv: Conv, tensor: Any) -> Any:
    """The same, with channels where the workload has them."""
    return tensor if conv.channels_last else tensor.movedim(-1, 1)


def _image_chunks(conv: Conv) -> Iterator[slice]:
    """Runs of images, padded or convolved, that are worked on at once."""
    widest = max(math.prod(_padded_size(conv)) * conv.c, math.prod(conv.out_size) * conv.k)
    return _chunks((conv.n, widest))


def _padded_size(conv: Conv) -> list[int]:
    return [size + low + high for size, (low, high) in zip(conv.size, conv.pad)]


def _zeros(torch: Any, conv: Conv, count: int) -> Any:
    shape = (count, *_padded_size(conv), conv.c)
    return torch.zeros(shape, dtype=torch.float64, device="cuda")


def _padded(torch: Any, conv: Conv, images: Any) -> Any:
    """Images with channels innermost and zeros around them."""
    made = _zeros(torch, conv, images.shape[0])
    inside = [slice(low, low + size) for size, (low, _) in zip(conv.size, conv.pad)]
    made[(slice(None), *inside)] = images
    return made


def _convolved(torch: Any, conv: Conv, images: Any, filters: Any) -> Any:
    """Images with channels innermost, convolved: one product of matrices for each position."""
    count, groups = images.shape[0], conv.groups
    padded = _padded(torch, conv, images)
    pixels = count * math.prod(conv.out_size)
    total: Any = 0
    for at in itertools.product(*map(range, conv.kernel)):
        seen = padded[(slice(None), *strided(conv, at))].reshape(pixels, groups, -1)
        weights = filters[(slice(None), *at)].reshape(groups, conv.k // groups, -1)
        total = seen.transpose(0, 1) @ weights.transpose(1, 2) + total
    return total.transpose(0, 1).reshape(count, *conv.out_size, conv.k)
