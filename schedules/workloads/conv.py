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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from ...errors import WorkloadError
from .base import epilogue as steps
from .base.dtypes import exact, random_array
from .channels_first import channels_first
from .contraction import Contraction
from .conv_shape import ConvShape, convolve
from .folded import folded
from .forward import by_channel, forward
from .windows import filter_shape, image_shape

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ConvOptions(TypedDict, total=False):
    """Options of a convolution that are the same in each dimension."""

    groups: int
    dtype: str
    layout: str
    accumulator: str
    out: str
    epilogue: tuple[str, ...]


class WindowOptions(ConvOptions, total=False):
    """``ConvOptions``, and those of its windows: one number, or one for each dimension."""

    stride: int | Sequence[int]
    pad: int | Sequence[int]
    dilation: int | Sequence[int]


@dataclass(frozen=True, slots=True)
class Conv(ConvShape):
    """A convolution (cross-correlation, as in deep learning) of rank 1, 2 or 3.

    ``conv1d``, ``conv2d`` and ``conv3d`` make one from single numbers. Its fields are ConvShape's.
    """

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
        self,
        fold: bool = False,
        phases: int = 1,
        by_image: bool = False,
        reordered: bool = False,
    ) -> Contraction:
        """This workload as a matmul.

        ``fold``: over runs of ``S * C`` elements, whose outputs are counted in ``phases``.
        ``by_image``: as one for each image, whose pixels then are no other's neighbours.
        ``reordered``: of operands that kernels of their own write with channels innermost.
        WorkloadError: what a folded one cannot have beside that, or only a folded one can.
        """
        if reordered:
            return channels_first(
                self, replace(self, layout="").contraction(fold, phases, by_image)
            )
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


def conv1d(n: int, w: int, c: int, k: int, s: int, **options: Unpack[WindowOptions]) -> Conv:
    """A Conv of rank 1; options as for ``conv2d``."""
    return conv(n, (w,), c, k, (s,), **options)


def conv2d(
    n: int, h: int, w: int, c: int, k: int, r: int, s: int, **options: Unpack[WindowOptions]
) -> Conv:
    """A Conv of rank 2.

    ``stride``, ``dilation``: one number, or one for each dimension. ``pad``: one number, one for
    each dimension, or two (before, after) for each. Other options are Conv's own.
    """
    return conv(n, (h, w), c, k, (r, s), **options)


def conv3d(
    n: int,
    d: int,
    h: int,
    w: int,
    c: int,
    k: int,
    t: int,
    r: int,
    s: int,
    **options: Unpack[WindowOptions],
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
    **options: Unpack[ConvOptions],
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
