"""Gradient of a convolution's input by phases of the stride: a dense convolution each.

A pixel ``(n, h, w)`` collects from the outputs that read it, by some kernel positions alone: which
ones depends on the *phase* ``h % stride`` of the pixel. By phases, each is a dense convolution over
its own positions, ``a, a + stride, ...``, and the tiles of a phase take no step for another's:

    h = h' * stride + phase      (phase + pad - a * dilation) % stride == 0
    dX[n, h, ...] = sum over t, u, k of dY[n, h' - .. - t * dilation, ..] * W[k, a + stride * t, ..]

``a`` is what counts phases, so those with most positions come first.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx

from ...diagnostics import Reason
from ...mechanisms.tma import im2col_obstacle
from ...passes.ir.nodes import i32
from .base.operand import Coordinates, Element, Operand
from .contraction import Contraction
from .conv import Conv
from .windows import (
    filter_indices,
    filter_shape,
    group_axis,
    image_shape,
    in_group,
    split_pixel,
)

PHASE: Final = "phase"
"""The axis that counts phases of the stride."""

TAP: Final = "tap"
"""The axis that counts the kernel positions of a phase."""


def has_phases(conv: Conv) -> bool:
    """Whether there are phases, each of as many pixels and of positions at even distances."""
    return (
        conv.channels_last
        and max(conv.stride) > 1
        and all(size % stride == 0 for size, stride in zip(conv.size, conv.stride))
        and all(math.gcd(*pair) == 1 for pair in zip(conv.stride, conv.dilation))
    )


@dataclass(frozen=True)
class _Phases:
    """The phases along one dimension, by the first ``a`` of their kernel positions."""

    conv: Conv
    dim: int

    @property
    def kernel(self) -> int:
        return self.conv.kernel[self.dim]

    @property
    def stride(self) -> int:
        return self.conv.stride[self.dim]

    @property
    def most(self) -> int:
        """Kernel positions of the phase that has most."""
        return -(-self.kernel // self.stride)

    @property
    def each(self) -> int:
        """Pixels of a phase."""
        return self.conv.size[self.dim] // self.stride

    def length(self, a: Any) -> Any:
        """Kernel positions of the phase."""
        if self.kernel % self.stride == 0:
            return i32(self.most)
        return tirx.floordiv(self.kernel - a + (self.stride - 1), i32(self.stride))

    def first(self, a: Any) -> Any:
        """What the phase's first kernel position adds to the padding, negated."""
        return a * self.conv.dilation[self.dim] - self.conv.pad[self.dim][0]

    def moved(self, a: Any) -> Any:
        """How far behind its place a pixel is from the output that reads it first."""
        return _one_of([self.first(n) // self.stride for n in range(self.stride)], a)

    def pixel(self, a: Any, place: Any) -> Any:
        """The coordinate of the phase's pixel ``place``."""
        phase = _one_of([self.first(n) % self.stride for n in range(self.stride)], a)
        return place * self.stride + phase

    def offsets(self, taps: int) -> tuple[int, int]:
        """Least and greatest distance from a place to the outputs at its first ``taps``."""
        moved = [self.first(a) // self.stride for a in range(self.stride)]
        return -max(moved) - self.conv.dilation[self.dim] * (taps - 1), -min(moved)

    def reader(self, a: Any, place: Any, tap: Any, taps: int) -> tuple[Any, list[Any]]:
        """The output that reads the phase's pixel at its position ``tap``; when there is one."""
        least, greatest = self.offsets(taps)
        at = place - self.moved(a) - tap * self.conv.dilation[self.dim]
        conditions = [at >= 0] if least < 0 else []
        if self.each - 1 + greatest >= self.conv.out_size[self.dim]:
            conditions.append(at < self.conv.out_size[self.dim])
        return at, conditions


def _one_of(values: Sequence[int], a: Any) -> Any:
    """``values[a]``, without a division: TVM's FlattenBuffer errs where there are several.

    Of ``(p // 2 - 1) % 2`` and ``(p % 2 - 1) % 2`` in the indices of one access it makes
    ``(p + 2) % 4 // 2`` and ``(p + 2) % 2``: the second takes the first's offset (TVM 0.27).
    """
    if len({after - before for before, after in itertools.pairwise(values)}) <= 1:
        return values[0] + a * (values[1] - values[0] if len(values) > 1 else 0)
    found = i32(values[-1])
    for number, value in reversed(list(enumerate(values[:-1]))):
        found = tirx.Select(tirx.EQ(a, i32(number)), i32(value), found)
    return found


def by_phases(conv: Conv, name: str) -> Contraction:
    """The matmul of all phases; a phase is one of a batch, of as many steps as it has positions."""
    each_in, each_out = conv.c // conv.groups, conv.k // conv.groups
    dims = [_Phases(conv, dim) for dim in range(conv.rank)]
    places = [dim.each for dim in dims]
    every = math.prod(dim.most for dim in dims)
    # Positions are counted through all dimensions; a phase has not all of those of the longest.
    reached = [every if dim.most > 1 else 1 for dim in dims]

    def firsts(at: Coordinates) -> list[Any]:
        """The first kernel position of each dimension."""
        return split_pixel(at[PHASE], 1, conv.stride)[1]

    def taps(at: Coordinates) -> list[Any]:
        """Which of the phase's positions it is, in each dimension."""
        number, found = at.get(TAP, i32(0)), list[Any]()
        left = sum(dim.most > 1 for dim in dims)
        for dim, a in reversed(list(zip(dims, firsts(at)))):
            left -= dim.most > 1
            length = dim.length(a)
            inner = dim.most > 1 and left > 0
            digit = tirx.floormod(number, length) if inner else number
            found.append(digit if dim.most > 1 else i32(0))
            number = tirx.floordiv(number, length) if inner else number
        return found[::-1]

    def gradient(at: Coordinates) -> Element:
        image, pixel = split_pixel(at["i"], conv.n, places)
        found, conditions = [], []
        for dim, a, place, tap, most in zip(dims, firsts(at), pixel, taps(at), reached):
            p, when = dim.reader(a, place, tap, most)
            found.append(p)
            conditions += when
        channel = in_group(conv, at, at["k"], each_out)
        return list(image_shape(conv, found, channel, image)), conditions

    def weight(at: Coordinates) -> Element:
        found = [a + tap * dim.stride for dim, a, tap in zip(dims, firsts(at), taps(at))]
        conditions = [r < dim.kernel for dim, r, ends in zip(dims, found, ends_early) if ends]
        out = in_group(conv, at, at["k"], each_out)
        return list(filter_indices(conv, out, found, at["j"])), conditions

    def place(at: Coordinates) -> list[Any]:
        image, pixel = split_pixel(at["i"], conv.n, places)
        found = [dim.pixel(a, place) for dim, a, place in zip(dims, firsts(at), pixel)]
        return list(image_shape(conv, found, in_group(conv, at, at["j"], each_in), image))

    def length(at: Coordinates) -> Any:
        found = [dim.length(a) for dim, a in zip(dims, firsts(at))]
        return functools.reduce(lambda total, one: total * one, found)

    ends_early = [taps * dim.stride > dim.kernel for dim, taps in zip(dims, reached)]
    taken, phases = math.prod(conv.kernel), math.prod(conv.stride)
    zero = i32(0)
    return Contraction(
        name=name,
        types=conv.types,
        batch_axes=((PHASE, phases), *group_axis(conv)),
        m=("i", conv.n * math.prod(places)),
        n=("j", each_in),
        reduction_axes=((TAP, every),) if every > 1 else (),
        k=("k", each_out),
        a=Operand(
            "dY",
            image_shape(conv, conv.out_size, conv.k),
            True,
            gradient,
            tile="gradients",
            unit=math.gcd(conv.k, each_out),
            masked=any(dim.reader(zero, zero, zero, most)[1] for dim, most in zip(dims, reached)),
            note=Reason("conv.stride_phases", phases=phases, taken=taken, of=taken * phases),
            **_phases_by_boxes(conv, dims, reached),
        ),
        b=Operand(
            "W",
            filter_shape(conv),
            False,
            weight,
            tile="filters",
            unit=each_in,
            masked=any(ends_early),
            sliced=True,
            row_axis=0,
        ),
        out=("dX", image_shape(conv, conv.size, conv.c)),
        place=place,
        channel=lambda at: in_group(conv, at, at["j"], each_in),
        channels=conv.c,
        length=length,
    )


def _phases_by_boxes(conv: Conv, dims: Sequence[_Phases], reached: Sequence[int]) -> dict[str, Any]:
    """As ``seen_by_boxes``: the phase moves pixels as a kernel position does."""
    axes = []
    for dim, taps in zip(dims, reached):
        least, greatest = dim.offsets(taps)
        axes.append((least, least + dim.each - conv.out_size[dim.dim], greatest - least, 1))
    return {
        "slides": axes[-1][2] > 0,
        "sliced": not im2col_obstacle(axes),
        "view": "im2col",
        "counts": (conv.n, *(dim.each for dim in dims)),
    }
