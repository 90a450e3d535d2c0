"""The numbers of a convolution, what follows from them, and its sums by numpy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...errors import WorkloadError
from .base import epilogue as steps
from .base.dtypes import Types, check_extent, resolve

CHANNELS_LAST: Final = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
CHANNELS_FIRST: Final = {1: "NCW", 2: "NCHW", 3: "NCDHW"}

DIMENSIONS: Final = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}
"""Names of the spatial dimensions, by rank."""


@dataclass(frozen=True, slots=True)
class ConvShape:
    """The numbers of a convolution of rank 1, 2 or 3, and what follows from them.

    ``n``: images. ``size``: the input's extent in each dimension. ``c``, ``k``: channels in and
    out. ``kernel``, ``stride``, ``dilation``: one number for each dimension. ``pad``: zeros before
    and after each dimension. ``groups``: output channels of each group see only the input channels
    of theirs; with ``groups == c`` it is a depthwise convolution. ``layout``: channels innermost
    (``NWC``, ``NHWC``, ``NDHWC``: filters ``[k, *kernel, c / groups]``, the default) or outside the
    image (``NCW``, ``NCHW``, ``NCDHW``: filters ``[k, c / groups, *kernel]``). Types and
    ``epilogue`` as for Gemm; a bias has one value for each output channel. WorkloadError names what
    makes no sense.
    """

    n: int
    size: tuple[int, ...]
    c: int
    k: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1
    dtype: str = "float16"
    layout: str = ""
    accumulator: str = ""
    out: str = ""
    epilogue: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Resolve the defaults and refuse what makes no sense."""
        if self.rank not in DIMENSIONS:
            raise WorkloadError("conv.dimensions", dimensions=self.rank)
        _check_counts(self)
        _check_channels(self)
        _check_output(self)
        layouts = (CHANNELS_LAST[self.rank], CHANNELS_FIRST[self.rank])
        layout = self.layout or layouts[0]
        if layout not in layouts:
            raise WorkloadError("workload.layout", choices=layouts, value=self.layout)
        types = resolve(self.dtype, self.accumulator, self.out)
        steps.check_epilogue(self.epilogue, types)
        for name, value in (
            ("layout", layout),
            ("dtype", types.dtype),
            ("accumulator", types.accumulator),
            ("out", types.out),
        ):
            object.__setattr__(self, name, value)

    @property
    def rank(self) -> int:
        """Spatial dimensions."""
        return len(self.size)

    @property
    def types(self) -> Types:
        """Everything about its types."""
        return resolve(self.dtype, self.accumulator, self.out)

    @property
    def storage(self) -> str:
        """Type of an operand in memory."""
        return self.types.storage

    @property
    def channels_last(self) -> bool:
        """Whether channels are the innermost dimension."""
        return self.layout == CHANNELS_LAST[self.rank]

    @property
    def depthwise(self) -> bool:
        """Whether every output channel reads one input channel."""
        return self.groups == self.c and self.c > 1

    @property
    def out_size(self) -> tuple[int, ...]:
        """The output's extent in each dimension."""
        return tuple(
            (size + low + high - dilation * (kernel - 1) - 1) // stride + 1
            for size, (low, high), dilation, kernel, stride in zip(
                self.size, self.pad, self.dilation, self.kernel, self.stride
            )
        )

    @property
    def pixels(self) -> int:
        """Output pixels of all images."""
        return self.n * math.prod(self.out_size)

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        parts = [
            f"conv{self.rank}d",
            "x".join(map(str, (self.n, *self.size, self.c))),
            f"k{self.k}",
            "x".join(map(str, self.kernel)),
        ]
        for letter, values, usual in (
            ("s", self.stride, 1),
            ("d", self.dilation, 1),
            ("p", tuple(itertools.chain(*self.pad)), 0),
        ):
            if any(value != usual for value in values):
                parts.append(letter + "x".join(map(str, _shortest(values))))
        if self.groups > 1:
            parts.append(f"g{self.groups}")
        return "_".join([*parts, self.types.suffix, self.layout.lower(), *self.epilogue])

    @property
    def title(self) -> str:
        """In words: ``float16 conv2d 32 x 56 x 56 x 64 NHWC, 64 of 3 x 3, pad 1``."""
        text = (
            f"{self.dtype}{'' if self.out == self.dtype else f' -> {self.out}'} conv{self.rank}d "
            f"{' x '.join(map(str, (self.n, *self.size, self.c)))} {self.layout}, "
            f"{self.k} of {' x '.join(map(str, self.kernel))}"
        )
        for word, values, usual in (
            ("stride", self.stride, 1),
            ("pad", tuple(itertools.chain(*self.pad)), 0),
            ("dilation", self.dilation, 1),
        ):
            if any(value != usual for value in values):
                text += f", {word} {' '.join(map(str, _shortest(values)))}"
        text += f", {self.groups} groups" if self.groups > 1 else ""
        return text + "".join(f" + {step}" for step in self.epilogue)

    def flops(self) -> int:
        """Multiplications and additions, those with padding included."""
        return 2 * self.pixels * self.k * math.prod(self.kernel) * (self.c // self.groups)


def _shortest(values: tuple[int, ...]) -> tuple[int, ...]:
    return values[:1] if len(set(values)) == 1 else values


def _check_counts(conv: ConvShape) -> None:
    for name in ("n", "c", "k", "groups"):
        check_extent(name, getattr(conv, name))
    for name, least in (("size", 1), ("kernel", 1), ("stride", 1), ("dilation", 1), ("pad", 0)):
        values = getattr(conv, name)
        if len(values) != conv.rank:
            raise WorkloadError("conv.extents", name=name, dimensions=conv.rank, found=len(values))
        for value in itertools.chain(*values) if name == "pad" else values:
            check_extent(name, value, least=least)


def _check_channels(conv: ConvShape) -> None:
    for word, channels in (("input", conv.c), ("output", conv.k)):
        if channels % conv.groups:
            raise WorkloadError("conv.groups", channels=channels, side=word, groups=conv.groups)


def _check_output(conv: ConvShape) -> None:
    for name, size, (low, high), dilation, kernel in zip(
        DIMENSIONS[conv.rank], conv.size, conv.pad, conv.dilation, conv.kernel
    ):
        reach = dilation * (kernel - 1) + 1
        if size + low + high < reach:
            raise WorkloadError("conv.empty", name=name, size=size, low=low, high=high, reach=reach)


def convolve(conv: ConvShape, x: Any, w: Any) -> Any:
    """The sums in the type of ``x`` and ``w``, one kernel position at a time."""
    images, filters = grouped(conv, padded(conv, x), w)
    total: Any = 0
    for at in itertools.product(*map(range, conv.kernel)):
        seen = images[(slice(None), *strided(conv, at))]
        total = total + np.einsum("n...gc,gkc->n...gk", seen, filters[(slice(None),) * 2 + at])
    return from_channels_last(conv, total.reshape(conv.n, *conv.out_size, conv.k))


def padded(conv: ConvShape, x: Any) -> Any:
    """``x`` with channels innermost and zeros around it."""
    last = x if conv.channels_last else np.moveaxis(x, 1, -1)
    return np.pad(last, ((0, 0), *conv.pad, (0, 0)))


def grouped(conv: ConvShape, images: Any, w: Any) -> tuple[Any, Any]:
    """Images as ``[n, *size, g, c]`` and filters as ``[g, k, *kernel, c]``."""
    last = w if conv.channels_last else np.moveaxis(w, 1, -1)
    return (
        images.reshape(*images.shape[:-1], conv.groups, -1),
        last.reshape(conv.groups, -1, *last.shape[1:]),
    )


def strided(conv: ConvShape, at: Sequence[int]) -> tuple[slice, ...]:
    """The part of the padded input that all outputs read at kernel position ``at``."""
    return tuple(
        slice(r * dilation, r * dilation + (p - 1) * stride + 1, stride)
        for r, dilation, stride, p in zip(at, conv.dilation, conv.stride, conv.out_size)
    )


def from_channels_last(conv: ConvShape, y: Any) -> Any:
    """``y`` in the layout of the workload."""
    return y if conv.channels_last else np.moveaxis(y, -1, 1)
