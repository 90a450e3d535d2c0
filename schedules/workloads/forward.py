"""Convolutions as matmuls: what the operands are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from ...passes.ir.nodes import i32
from .base.operand import Axis, Coordinates, Element, Operand
from .contraction import Contraction
from .conv_shape import ConvShape
from .windows import (
    arranged,
    channel_run,
    filter_indices,
    filter_shape,
    filters_by_boxes,
    forward_by_boxes,
    group_axis,
    image_axis,
    image_shape,
    in_group,
    is_masked,
    kernel_axes,
    lie,
    pixel_at,
    pixel_run,
    pixel_runs,
    position,
    seen,
    split_pixel,
    windows,
    within_images,
)


def forward(conv: ConvShape, by_image: bool = False) -> Contraction:
    """The matmul over the channels of each position in turn; ``by_image``: one for each image."""
    return contraction_of(
        conv,
        (*image_axis(conv, by_image), *group_axis(conv)),
        conv.pixels // (conv.n if by_image else 1),
        kernel_axes(conv),
        ("c", conv.c // conv.groups),
        _plain(conv, by_image),
        lambda at: pixel_at(conv, at, conv.out_size),
        rows=conv.channels_last,
    )


def contraction_of(
    conv: ConvShape,
    batch_axes: tuple[Axis, ...],
    pixels: int,
    steps: tuple[Axis, ...],
    k: Axis,
    operands: tuple[Operand, Operand],
    output: Callable[[Coordinates], tuple[Any, list[Any]]],
    *,
    rows: bool = False,
) -> Contraction:
    """Pixels by output channels; ``output``: image and place of a pixel.

    ``rows``: pixels are counted as they lie in the output.
    """
    each = conv.k // conv.groups

    def channel(at: Coordinates) -> Any:
        return in_group(conv, at, at["j"], each)

    def place(at: Coordinates) -> list[Any]:
        image, places = output(at)
        return list(image_shape(conv, places, channel(at), image))

    what = Contraction(
        name=conv.name,
        types=conv.types,
        batch_axes=batch_axes,
        m=("i", pixels),
        n=("j", each),
        reduction_axes=steps,
        k=k,
        a=operands[0],
        b=operands[1],
        out=("Y", image_shape(conv, conv.out_size, conv.k)),
        place=place,
        channel=channel,
        channels=conv.k,
        epilogue=conv.epilogue,
        rows=rows,
    )
    return arranged(conv, what)


def _plain(conv: ConvShape, by_image: bool) -> tuple[Operand, Operand]:
    """Rows of one position's channels."""
    each_in, each_out = conv.c // conv.groups, conv.k // conv.groups

    def pixel(at: Coordinates) -> Element:
        image, places = pixel_at(conv, at, conv.out_size)
        found, conditions = windows(conv, places, position(conv, at))
        channel = in_group(conv, at, at["c"], each_in)
        return list(image_shape(conv, found, channel, image)), conditions

    def weight(at: Coordinates) -> Element:
        out = in_group(conv, at, at["j"], each_out)
        return list(filter_indices(conv, out, position(conv, at), at["c"])), []

    images = Operand(
        "X",
        image_shape(conv, conv.size, conv.c),
        conv.channels_last,
        pixel,
        tile="pixels",
        **lie(conv, channel_run(conv), pixel_run(conv, by_image=by_image)),
        masked=is_masked(conv),
        seen=seen(conv),
        **forward_by_boxes(conv, by_image),
    )
    filters = Operand(
        "W",
        filter_shape(conv),
        True,
        weight,
        tile="filters",
        contiguous=conv.channels_last or math.prod(conv.kernel) == 1,
        unit=each_in,
        **filters_by_boxes(conv),
    )
    return within_images(conv, images, conv.out_size, *pixel_runs(conv)), filters


def by_channel(conv: ConvShape) -> Contraction:
    """Over one channel of one group: ``c`` has one value."""
    each = conv.k // conv.groups

    def pixel(at: Coordinates) -> Element:
        image, places = split_pixel(at["i"], conv.n, conv.out_size)
        found, conditions = windows(conv, places, position(conv, at))
        channel = at["j"] if each == 1 else tirx.floordiv(at["j"], i32(each))
        return list(image_shape(conv, found, channel, image)), conditions

    def place(at: Coordinates) -> list[Any]:
        image, places = split_pixel(at["i"], conv.n, conv.out_size)
        return list(image_shape(conv, places, at["j"], image))

    return Contraction(
        name=conv.name,
        types=conv.types,
        batch_axes=(),
        m=("i", conv.pixels),
        n=("j", conv.k),
        reduction_axes=kernel_axes(conv),
        k=("c", 1),
        a=Operand("X", image_shape(conv, conv.size, conv.c), True, pixel, masked=is_masked(conv)),
        b=Operand(
            "W",
            filter_shape(conv),
            True,
            lambda at: (list(filter_indices(conv, at["j"], position(conv, at), at["c"])), []),
        ),
        out=("Y", image_shape(conv, conv.out_size, conv.k)),
        place=place,
        channel=lambda at: at["j"],
        channels=conv.k,
        epilogue=conv.epilogue,
    )
