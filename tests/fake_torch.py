"""As much of torch as the benchmark touches, on numpy, with events that tell a made-up time."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

float16, float32, float64, int8, int32 = (
    np.dtype(name) for name in ("float16", "float32", "float64", "int8", "int32")
)
bfloat16 = np.dtype(ml_dtypes.bfloat16)

__version__ = "2.11.0"


class Tensor:
    def __init__(self, data: Any) -> None:
        self.data = np.asarray(data)

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    @property
    def device(self) -> str:
        return "cuda"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    def to(self, dtype: Any) -> Tensor:
        return Tensor(self.data.astype(dtype))

    def double(self) -> Tensor:
        return self.to(float64)

    def float(self) -> Tensor:
        return self.to(float32)

    def uniform_(self, low: Any, high: Any) -> Tensor:
        self.data[...] = np.random.default_rng(0).uniform(low, high, self.data.shape)
        return self

    def long(self) -> Tensor:
        return self.to(np.int64)

    def cpu(self) -> Tensor:
        return self

    cuda = cpu

    def numpy(self) -> Any:
        return self.data

    def data_ptr(self) -> int:
        return int(self.data.ctypes.data)

    def contiguous(self) -> Tensor:
        return Tensor(np.ascontiguousarray(self.data))

    def abs(self) -> Tensor:
        return Tensor(abs(self.data))

    __abs__ = abs

    def transpose(self, first: int, second: int) -> Tensor:
        return Tensor(self.data.swapaxes(first, second))

    def permute(self, order: Sequence[int]) -> Tensor:
        return Tensor(self.data.transpose(order))

    def movedim(self, source: int, destination: int) -> Tensor:
        return Tensor(np.moveaxis(self.data, source, destination))

    def reshape(self, *shape: int) -> Tensor:
        return Tensor(self.data.reshape(shape))

    def is_floating_point(self) -> bool:
        return self.data.dtype.kind in "fV"

    def fill_(self, value: float) -> None:
        self.data[...] = value

    def copy_(self, other: Tensor) -> None:
        self.data[...] = other.data

    def zero_(self) -> None:
        self.data[...] = 0

    def masked_fill_(self, where: Tensor, value: float) -> Tensor:
        self.data[np.broadcast_to(where.data, self.shape)] = value
        return self

    def masked_fill(self, where: Tensor, value: float) -> Tensor:
        return Tensor(np.where(where.data, value, self.data))

    def exp_(self) -> Tensor:
        return Tensor(np.exp(self.data, out=self.data))

    def clamp(self, min: float) -> Tensor:
        return Tensor(np.maximum(self.data, min))

    def square(self) -> Tensor:
        return Tensor(np.square(self.data))

    def log(self) -> Tensor:
        return Tensor(np.log(self.data))

    def sqrt(self) -> Tensor:
        return Tensor(np.sqrt(self.data))

    def amax(self, dim: int, *, keepdim: bool) -> Tensor:
        return Tensor(self.data.max(axis=dim, keepdims=keepdim))

    def sum(self, dim: int, *, keepdim: bool) -> Tensor:
        return Tensor(self.data.sum(axis=dim, keepdims=keepdim))

    def max(self) -> Tensor:
        return Tensor(self.data.max())

    def all(self) -> Tensor:
        return Tensor(self.data.all())

    def __getitem__(self, at: Any) -> Tensor:
        return Tensor(self.data[at])

    def __setitem__(self, at: Any, value: Tensor) -> None:
        self.data[at] = value.data

    def __float__(self) -> Any:
        return self.data.item()

    def __bool__(self) -> bool:
        return bool(self.data)

    def _with(self, other: Any, operation: Any) -> Tensor:
        return Tensor(operation(self.data, getattr(other, "data", other)))

    def __matmul__(self, other: Any) -> Tensor:
        return self._with(other, np.matmul)

    def __sub__(self, other: Any) -> Tensor:
        return self._with(other, np.subtract)

    def __add__(self, other: Any) -> Tensor:
        return self._with(other, np.add)

    def __mul__(self, other: Any) -> Tensor:
        return self._with(other, np.multiply)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Tensor:
        return self._with(other, np.divide)

    def __eq__(self, other: object) -> Any:
        return self._with(other, np.equal)

    def __gt__(self, other: Any) -> Tensor:
        return self._with(other, np.greater)

    def __hash__(self) -> int:
        return id(self)  # as torch's: == compares elements


class Clock:
    """Time moves only when a contender says so."""

    now = 0.0


class Event:
    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = Clock.now

    def elapsed_time(self, other: Event) -> float:
        return other.at - self.at


cuda = types.SimpleNamespace(
    Event=Event,
    synchronize=lambda: None,
    current_stream=lambda: types.SimpleNamespace(cuda_stream=0),
    is_available=lambda: True,
    get_device_name=lambda: "a stand-in",
    get_device_properties=lambda index: types.SimpleNamespace(uuid="1234"),
)
version = types.SimpleNamespace(cuda="13.0")
backends = types.SimpleNamespace(
    cuda=types.SimpleNamespace(matmul=types.SimpleNamespace(allow_tf32=False)),
    cudnn=types.SimpleNamespace(
        benchmark=False,
        benchmark_limit=10,
        deterministic=False,
        allow_tf32=True,
        version=lambda: 91002,
    ),
)
_RNG = np.random.default_rng()


def manual_seed(seed: int) -> None:
    globals()["_RNG"] = np.random.default_rng(seed)


def randn(shape: Any, device: str) -> Tensor:
    return Tensor(_RNG.standard_normal(shape).astype("float32"))


def randint(low: int, high: int, shape: Any, device: str, dtype: Any) -> Tensor:
    return Tensor(_RNG.integers(low, high, shape, dtype=dtype))


def arange(start: int, end: int | None = None, *, device: str) -> Tensor:
    return Tensor(np.arange(start, end) if end is not None else np.arange(start))


def ones(shape: Any, dtype: Any, device: str) -> Tensor:
    return Tensor(np.ones(shape, dtype))


def empty(shape: Any, dtype: Any, device: str) -> Tensor:
    small = 16 if isinstance(shape, int) else shape
    return Tensor(np.empty(small, dtype))


def zeros(shape: Any, dtype: Any, device: str) -> Tensor:
    return Tensor(np.zeros(shape, dtype))


def stack(tensors: Sequence[Tensor]) -> Tensor:
    return Tensor(np.stack([tensor.data for tensor in tensors]))


def from_numpy(array: Any) -> Tensor:
    return Tensor(array)


def matmul(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Summed in float64, rounded once."""
    product = (a.double() @ b.double()).data
    if out is None:
        return Tensor(product.astype(a.data.dtype))
    out.data[...] = product
    return out


def _int_mm(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    assert a.data.dtype == b.data.dtype == int8
    assert out.data.dtype == int32
    out.data[...] = a.data.astype(int32) @ b.data.astype(int32)
    return out


def _scaled_mm(
    a: Tensor,
    b: Tensor,
    *,
    scale_a: Tensor,
    scale_b: Tensor,
    out_dtype: Any,
    use_fast_accum: bool = False,
) -> Tensor:
    """As torch's: A row by row, B column by column, the sum in float32.

    Scales are numbers, or one for each row of A and each 128 columns of B, and 128 of K.
    """
    assert a.data.flags.c_contiguous
    assert b.data.T.flags.c_contiguous
    left, right = a.data.astype(np.float32), b.data.astype(np.float32)
    of_a, of_b = scale_a.data, scale_b.data
    if of_a.ndim:
        assert of_a.T.flags.c_contiguous
        of_a = of_a.repeat(128, 1)[:, : left.shape[1]]
        of_b = of_b.repeat(128, 0).repeat(128, 1)[: right.shape[0], : right.shape[1]]
        return Tensor(((left * of_a) @ (right * of_b)).astype(out_dtype))
    return Tensor((left @ right * of_a * of_b).astype(out_dtype))


def _conv(rank: int) -> Callable[..., Tensor]:
    def convolve(
        x: Tensor, w: Tensor, *, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> Tensor:
        """Channels first, one output pixel at a time, in float64, rounded once."""
        images = np.pad(x.data.astype(float64), ((0, 0), (0, 0), *((pad, pad) for pad in padding)))
        filters = w.data.astype(float64)
        reach = [step * (extent - 1) + 1 for extent, step in zip(filters.shape[2:], dilation)]
        size = [
            (extent - over) // step + 1
            for extent, over, step in zip(images.shape[2:], reach, stride)
        ]
        each_in, each_out = filters.shape[1], filters.shape[0] // groups
        y = np.zeros((len(images), len(filters), *size))
        for at in itertools.product(*map(range, size)):
            seen = tuple(
                slice(p * step, p * step + over, far)
                for p, step, over, far in zip(at, stride, reach, dilation)
            )
            for g in range(groups):
                some = images[(slice(None), slice(g * each_in, (g + 1) * each_in), *seen)]
                rows = slice(g * each_out, (g + 1) * each_out)
                axes = list(range(1, rank + 2))
                y[(slice(None), rows, *at)] = np.tensordot(some, filters[rows], (axes, axes))
        return Tensor(y.astype(x.data.dtype))

    return convolve


SDPA_ON: dict[str, bool] = {}
"""Which backends of attention are switched on."""

for _name in ("cudnn", "flash", "mem_efficient", "math"):
    setattr(backends.cuda, f"enable_{_name}_sdp", lambda on, name=_name: SDPA_ON.update({name: on}))


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    is_causal: bool,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """As torch's, query by query, in float64, rounded once."""
    made = np.empty(q.shape)
    group = q.shape[1] // k.shape[1]
    assert enable_gqa or group == 1
    for b, h, i in np.ndindex(*q.shape[:3]):
        seen = slice(0, i + 1 if is_causal else None)
        keys, values = (x.data[b, h // group, seen].astype(float64) for x in (k, v))
        scores = keys @ q.data[b, h, i].astype(float64) * (scale or q.shape[3] ** -0.5)
        weights = np.exp(scores - scores.max())
        made[b, h, i] = weights @ values / weights.sum()
    return Tensor(made.astype(q.data.dtype))


def _backward(
    dy: Tensor, x: Tensor, w: Tensor, bias: None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of a convolution, channels first, one output pixel at a time, in float64."""
    assert not transposed
    assert not any(output_padding)
    given, filters = dy.data.astype(float64), w.data.astype(float64)
    around = ((0, 0), (0, 0), *((pad, pad) for pad in padding))
    images = np.pad(x.data.astype(float64), around)
    of_images, of_filters = np.zeros(images.shape), np.zeros(filters.shape)
    each_in, each_out = filters.shape[1], filters.shape[0] // groups
    for at in itertools.product(*map(range, given.shape[2:])):
        seen = tuple(
            slice(p * step, p * step + far * (extent - 1) + 1, far)
            for p, step, extent, far in zip(at, stride, filters.shape[2:], dilation)
        )
        for g in range(groups):
            some = (slice(None), slice(g * each_in, (g + 1) * each_in), *seen)
            rows = slice(g * each_out, (g + 1) * each_out)
            outputs = given[(slice(None), rows, *at)]
            if mask[0]:
                of_images[some] += np.tensordot(outputs, filters[rows], 1)
            if mask[1]:
                of_filters[rows] += np.tensordot(outputs.T, images[some], 1)
    inside = tuple(slice(pad, pad + size) for pad, size in zip(padding, x.shape[2:]))
    made = (of_images[(slice(None), slice(None), *inside)], of_filters)
    kept = [Tensor(one.astype(dy.data.dtype)) for one in made]
    return (*(one if wanted else None for one, wanted in zip(kept, mask)), None)


ops = types.SimpleNamespace(aten=types.SimpleNamespace(convolution_backward=_backward))

nn = types.SimpleNamespace(
    functional=types.SimpleNamespace(
        **{f"conv{rank}d": _conv(rank) for rank in (1, 2, 3)},
        scaled_dot_product_attention=_attention,
    )
)
