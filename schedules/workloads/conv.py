"""Convolutions of one, two and three dimensions as matmuls that gather their operands.

Output pixel ``(n, p, q)`` reads input ``(n, p * stride + r * dilation - pad, ...)`` for each
position ``(r, s)`` of the kernel; outside the input it reads zero. As a matmul, M counts pixels, N
output channels, and K is the input channels at each position in turn:

    Y[n, p, q, k] = sum over r, s, c of X[n, p * stride + r - pad, q * stride + s - pad, c]
                                        * W[k, r, s, c]

Where channels lie innermost, neighbouring positions of one kernel row are one contiguous run of
``S * C`` elements, so a *folded* contraction reduces over that run: few channels then make long
rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...errors import WorkloadError
from . import epilogue as steps
from .contraction import Contraction
from .conv_reference import convolve
from .dtypes import Types, check_extent, exact, random_array, resolve
from .folded import folded
from .forward import by_channel, forward
from .windows import filter_shape, image_shape

CHANNELS_LAST: Final = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
CHANNELS_FIRST: Final = {1: "NCW", 2: "NCHW", 3: "NCDHW"}

DIMENSIONS: Final = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}
"""Names of the spatial dimensions, by rank."""


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution (cross-correlation, as in deep learning) of rank 1, 2 or 3.

    ``n``: images. ``size``: the input's extent in each dimension. ``c``, ``k``: channels in and
    out. ``kernel``, ``stride``, ``dilation``: one number for each dimension. ``pad``: zeros before
    and after each dimension. ``groups``: output channels of each group see only the input channels
    of theirs; with ``groups == c`` it is a depthwise convolution. ``layout``: channels innermost
    (``NWC``, ``NHWC``, ``NDHWC``: filters ``[k, *kernel, c / groups]``, the default) or outside the
    image (``NCW``, ``NCHW``, ``NCDHW``: filters ``[k, c / groups, *kernel]``). Types and
    ``epilogue`` as for Gemm; a bias has one value for each output channel.

    ``conv1d``, ``conv2d`` and ``conv3d`` make one from single numbers. WorkloadError names what
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

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of X, W, what the epilogue reads, and Y in memory."""
        y = image_shape(self, self.out_size, self.k)
        extras = steps.extra_shapes(self.epilogue, self.k, y)
        return image_shape(self, self.size, self.c), filter_shape(self), *extras, y

    def inputs(self, seed: int = 0) -> tuple[Any, ...]:
        """Inputs with standard normal values (integers: uniform over -8..7), as numpy arrays."""
        rng = np.random.default_rng(seed)
        x, w, *extras, _ = self.shapes()
        operands = [random_array(rng, shape, self.storage) for shape in (x, w)]
        return (*operands, *[random_array(rng, shape, self.out) for shape in extras])

    def reference(self, x: Any, w: Any, *extras: Any) -> Any:
        """The exact result for the inputs as stored: float64, or int64 for integers."""
        return self._finished(steps.reference, exact(x), exact(w), [exact(e) for e in extras])

    def magnitude(self, x: Any, w: Any, *extras: Any) -> Any:
        """What rounding errors are relative to: ``sum(|x| |w|)`` and what the epilogue adds."""
        wide = [abs(array.astype(np.float64)) for array in (x, w, *extras)]
        return self._finished(steps.magnitude, wide[0], wide[1], wide[2:])

    def contraction(
        self, fold: bool = False, phases: int = 1, by_image: bool = False
    ) -> Contraction:
        """This workload as a matmul.

        ``fold``: over runs of ``S * C`` elements, whose outputs are counted in ``phases``.
        ``by_image``: as one for each image, whose pixels then are no other's neighbours.
        WorkloadError: what a folded one cannot have beside that, or only a folded one can.
        """
        if not fold and phases != 1:
            raise WorkloadError("conv.phases_unfolded", workload=self.name, phases=phases)
        if fold and by_image:
            raise WorkloadError("conv.by_image_folded", workload=self.name)
        return folded(self, phases) if fold else forward(self, by_image)

    def by_channel(self) -> Contraction:
        """A depthwise convolution as it is: nothing is summed over but positions.

        Both operands are read where they are multiplied, each by its output channel. WorkloadError:
        it is not depthwise.
        """
        if not self.depthwise:
            raise WorkloadError("conv.not_depthwise", groups=self.groups, channels=self.c)
        return by_channel(self)

    def function(self) -> Any:
        """The PrimFunc: gathered operands, block ``matmul``, the epilogue, block ``store``."""
        return self.contraction().function()

    def _finished(self, finish: Any, x: Any, w: Any, extras: Sequence[Any]) -> Any:
        sums = convolve(self, x, w)
        operands = iter(extras)
        shaped = []
        for step in self.epilogue:
            if step in (steps.BIAS, steps.SCALE) and not self.channels_last:
                shaped.append(next(operands).reshape(-1, *[1] * self.rank))
            elif step in steps.READING:
                shaped.append(next(operands))
        return finish(self.epilogue, sums, shaped)


def conv1d(n: int, w: int, c: int, k: int, s: int, **options: Any) -> Conv:
    """A Conv of rank 1; options as for ``conv2d``."""
    return conv(n, (w,), c, k, (s,), **options)


def conv2d(n: int, h: int, w: int, c: int, k: int, r: int, s: int, **options: Any) -> Conv:
    """A Conv of rank 2.

    ``stride``, ``dilation``: one number, or one for each dimension. ``pad``: one number, one for
    each dimension, or two (before, after) for each. Other options are Conv's own.
    """
    return conv(n, (h, w), c, k, (r, s), **options)


def conv3d(
    n: int, d: int, h: int, w: int, c: int, k: int, t: int, r: int, s: int, **options: Any
) -> Conv:
    """A Conv of rank 3; options as for ``conv2d``."""
    return conv(n, (d, h, w), c, k, (t, r, s), **options)


def conv(
    n: int,
    size: Sequence[int],
    c: int,
    k: int,
    kernel: Sequence[int],
    stride: int | Sequence[int] = 1,
    pad: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    **options: Any,
) -> Conv:
    """A Conv of the rank of ``size``; options as for ``conv2d``."""
    rank = len(size)
    pads = _each("pad", pad, rank, 2 * rank)
    if len(pads) == rank:
        pads = tuple(itertools.chain(*zip(pads, pads)))
    return Conv(
        n,
        tuple(size),
        c,
        k,
        tuple(kernel),
        _each("stride", stride, rank),
        tuple(zip(pads[::2], pads[1::2])),
        _each("dilation", dilation, rank),
        **options,
    )


def _each(name: str, value: int | Sequence[int], *counts: int) -> tuple[int, ...]:
    """``value`` for each dimension; one number stands for as many as there are dimensions."""
    values = (value,) * counts[0] if isinstance(value, int) else tuple(value)
    values = values * counts[0] if len(values) == 1 else values
    if len(values) not in counts:
        expected = tuple(dict.fromkeys((1, *counts)))
        raise WorkloadError("conv.numbers", counts=expected, name=name, found=len(values))
    return values


def _shortest(values: tuple[int, ...]) -> tuple[int, ...]:
    return values[:1] if len(set(values)) == 1 else values


def _check_counts(conv: Conv) -> None:
    for name in ("n", "c", "k", "groups"):
        check_extent(name, getattr(conv, name))
    for name, least in (("size", 1), ("kernel", 1), ("stride", 1), ("dilation", 1), ("pad", 0)):
        values = getattr(conv, name)
        if len(values) != conv.rank:
            raise WorkloadError("conv.extents", name=name, dimensions=conv.rank, found=len(values))
        for value in itertools.chain(*values) if name == "pad" else values:
            check_extent(name, value, least=least)


def _check_channels(conv: Conv) -> None:
    for word, channels in (("input", conv.c), ("output", conv.k)):
        if channels % conv.groups:
            raise WorkloadError("conv.groups", channels=channels, side=word, groups=conv.groups)


def _check_output(conv: Conv) -> None:
    for name, size, (low, high), dilation, kernel in zip(
        DIMENSIONS[conv.rank], conv.size, conv.pad, conv.dilation, conv.kernel
    ):
        reach = dilation * (kernel - 1) + 1
        if size + low + high < reach:
            raise WorkloadError("conv.empty", name=name, size=size, low=low, high=high, reach=reach)
