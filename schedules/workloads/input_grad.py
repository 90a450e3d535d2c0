"""Gradient of a convolution's input: the same matmul with other operands.

A pixel ``(n, h, w)`` collects from the outputs that read it:

    dX[n, h, w, c] = sum over r, s, k of dY[n, (h + pad - r) / stride, ...] * W[k, r, s, c]

where the division is exact. With a stride, it is so for some kernel positions alone; by phases
([phases.py](phases.py)) no step is taken for others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tvm import tirx

from ...errors import WorkloadError
from ...passes.ir.nodes import i32
from .base.operand import Coordinates, Element, Operand
from .contraction import Contraction
from .conv import Conv
from .conv_shape import from_channels_last, grouped, strided
from .gradient import ConvGradient
from .phases import by_phases, has_phases
from .windows import (
    arranged,
    filter_indices,
    filter_shape,
    filters_by_boxes,
    group_axis,
    image_shape,
    in_group,
    is_pointwise,
    kernel_axes,
    lie,
    position,
    run_unit,
    seen_by_boxes,
    split_pixel,
    whole_image,
    within_images,
)


@dataclass(frozen=True, slots=True)
class ConvInputGrad(ConvGradient):
    """``dX`` from ``dY`` and ``W``."""

    of: ClassVar[str] = "input"

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of dY, W and dX in memory."""
        x, w, y = self.forward.shapes()
        return y, w, x

    def contraction(self, fold: bool = False) -> Contraction:
        """This workload as a matmul; ``fold``: by phases, WorkloadError where it has none."""
        if not fold:
            return _input_grad(self.forward, self.name)
        if not has_phases(self.forward):
            raise WorkloadError("conv.fold_gradient", workload=self.name)
        return by_phases(self.forward, self.name)

    def by_channel(self) -> Contraction:
        """That of a depthwise convolution as it is: summed over the outputs of each channel.

        WorkloadError: it is not depthwise.
        """
        conv = self.forward
        if not conv.depthwise:
            raise WorkloadError("conv.not_depthwise", groups=conv.groups, channels=conv.c)
        return _by_channel(conv, self.name)

    def differentiated(self, dy: Any, other: Any) -> Any:
        """Each output scattered to the inputs that it read."""
        conv = self.forward
        last = dy if conv.channels_last else np.moveaxis(dy, 1, -1)
        gradients, filters = grouped(conv, last, other)
        size = [extent + low + high for extent, (low, high) in zip(conv.size, conv.pad)]
        total = np.zeros((conv.n, *size, conv.groups, conv.c // conv.groups), dy.dtype)
        for at in itertools.product(*map(range, conv.kernel)):
            part = np.einsum("n...gk,gkc->n...gc", gradients, filters[(slice(None),) * 2 + at])
            total[(slice(None), *strided(conv, at))] += part
        inside = tuple(slice(low, low + size) for size, (low, _) in zip(conv.size, conv.pad))
        kept = total[(slice(None), *inside)].reshape(conv.n, *conv.size, conv.c)
        return from_channels_last(conv, kept)


def _input_grad(conv: Conv, name: str) -> Contraction:
    each_in, each_out = conv.c // conv.groups, conv.k // conv.groups

    def gradient(at: Coordinates) -> Element:
        image, places = split_pixel(at["i"], conv.n, conv.size)
        found, conditions = _readers(conv, places, position(conv, at))
        channel = in_group(conv, at, at["k"], each_out)
        return list(image_shape(conv, found, channel, image)), conditions

    def weight(at: Coordinates) -> Element:
        out = in_group(conv, at, at["k"], each_out)
        return list(filter_indices(conv, out, position(conv, at), at["j"])), []

    def place(at: Coordinates) -> list[Any]:
        image, places = split_pixel(at["i"], conv.n, conv.size)
        return list(image_shape(conv, places, in_group(conv, at, at["j"], each_in), image))

    gradients = Operand(
        "dY",
        image_shape(conv, conv.out_size, conv.k),
        conv.channels_last,
        gradient,
        tile="gradients",
        **lie(conv, math.gcd(conv.k, each_out), None if conv.n > 1 else _gradient_runs(conv)[1]),
        masked=any(_reader(conv, dim, i32(0), i32(0))[1] for dim in range(conv.rank)),
        **_seen_by_boxes(conv),
    )
    return arranged(
        conv,
        Contraction(
            name=name,
            types=conv.types,
            batch_axes=group_axis(conv),
            m=("i", conv.n * math.prod(conv.size)),
            n=("j", each_in),
            reduction_axes=kernel_axes(conv),
            k=("k", each_out),
            a=within_images(conv, gradients, conv.size, *_gradient_runs(conv)),
            b=Operand(
                "W",
                filter_shape(conv),
                False,
                weight,
                tile="filters",
                contiguous=conv.channels_last or math.prod(conv.kernel) == 1,
                unit=each_in,
                **filters_by_boxes(conv),
            ),
            out=("dX", image_shape(conv, conv.size, conv.c)),
            place=place,
            channel=lambda at: in_group(conv, at, at["j"], each_in),
            channels=conv.c,
            rows=conv.channels_last,
        ),
    )


def _by_channel(conv: Conv, name: str) -> Contraction:
    each = conv.k // conv.c

    def out(at: Coordinates) -> Any:
        return at["j"] * each + at["k"] if each > 1 else at["j"]

    def gradient(at: Coordinates) -> Element:
        image, places = split_pixel(at["i"], conv.n, conv.size)
        found, conditions = _readers(conv, places, position(conv, at))
        return list(image_shape(conv, found, out(at), image)), conditions

    def place(at: Coordinates) -> list[Any]:
        image, places = split_pixel(at["i"], conv.n, conv.size)
        return list(image_shape(conv, places, at["j"], image))

    return Contraction(
        name=name,
        types=conv.types,
        batch_axes=(),
        m=("i", conv.n * math.prod(conv.size)),
        n=("j", conv.c),
        reduction_axes=kernel_axes(conv),
        k=("k", each),
        a=Operand("dY", image_shape(conv, conv.out_size, conv.k), True, gradient, masked=True),
        b=Operand(
            "W",
            filter_shape(conv),
            True,
            lambda at: (list(filter_indices(conv, out(at), position(conv, at), i32(0))), []),
        ),
        out=("dX", image_shape(conv, conv.size, conv.c)),
        place=place,
        channel=lambda at: at["j"],
        channels=conv.c,
    )


def _readers(conv: Conv, places: Sequence[Any], at: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """``_reader`` of each dimension, and all their conditions."""
    found, conditions = [], []
    for dim, (h, r) in enumerate(zip(places, at)):
        p, when = _reader(conv, dim, h, r)
        found.append(p)
        conditions += when
    return found, conditions


def _seen_by_boxes(conv: Conv) -> dict[str, Any]:
    """As ``seen_by_boxes``; the kernel's last position reads the first pixel.

    With a stride, neighbours read other pixels, or none.
    """
    if set(conv.stride) != {1}:
        return {}
    if is_pointwise(conv) and whole_image(conv):
        return whole_image(conv)
    first = [
        low - dilation * (kernel - 1)
        for (low, _), dilation, kernel in zip(conv.pad, conv.dilation, conv.kernel)
    ]
    return seen_by_boxes(conv, conv.out_size, conv.size, first, conv.stride)


def _gradient_runs(conv: Conv) -> tuple[int | None, int | None]:
    """As ``pixel_runs``, of the gradients that neighbouring inputs read."""
    if set(conv.stride) != {1}:
        return None, None
    row = run_unit(conv, conv.out_size, conv.stride[:-1])
    whole = conv.out_size[1:] == conv.size[1:]
    return row, run_unit(conv, conv.out_size) if whole else None


def _reader(conv: Conv, dim: int, h: Any, r: Any) -> tuple[Any, list[Any]]:
    """The output coordinate that reads input ``h`` at kernel position ``r``; when there is one."""
    stride, dilation, (low, _) = conv.stride[dim], conv.dilation[dim], conv.pad[dim]
    reach = dilation * (conv.kernel[dim] - 1)
    at = h + low - r * dilation
    conditions = [at >= 0] if reach > low else []
    if conv.size[dim] - 1 + low >= conv.out_size[dim] * stride:
        conditions.append(at < conv.out_size[dim] * stride)
    if stride == 1:
        return at, conditions
    conditions.append(tirx.EQ(tirx.floormod(at, i32(stride)), i32(0)))
    return tirx.floordiv(at, i32(stride)), conditions
