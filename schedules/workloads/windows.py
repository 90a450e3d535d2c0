"""Where a convolution's elements lie in memory, and which window of the input an output reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tvm import tirx

from ...mechanisms.tma import im2col_obstacle
from ...passes.ir.nodes import i32
from .base.operand import Axis, Coordinates, Operand
from .contraction import Contraction
from .conv_shape import ConvShape

KERNEL_AXES: Final = {1: ("s",), 2: ("r", "s"), 3: ("t", "r", "s")}

IMAGE: Final = "n"
"""The axis that counts images where each is tiled by itself."""

PIXELS: Final = "i"
"""The axis that counts the pixels of all images."""

GROUP: Final = "g"
"""The axis that counts groups of channels."""


def image_shape(
    conv: ConvShape, size: Sequence[Any], channels: Any, n: Any = None
) -> tuple[Any, ...]:
    """Shape of an image tensor; also the indices of an element, in the same order."""
    images = conv.n if n is None else n
    return (images, *size, channels) if conv.channels_last else (images, channels, *size)


def filter_shape(conv: ConvShape) -> tuple[int, ...]:
    """Shape of W."""
    return filter_indices(conv, conv.k, conv.kernel, conv.c // conv.groups)


def filter_indices(conv: ConvShape, k: Any, position: Sequence[Any], c: Any) -> tuple[Any, ...]:
    """Indices of an element of W."""
    return (k, *position, c) if conv.channels_last else (k, c, *position)


def kernel_axes(conv: ConvShape) -> tuple[Axis, ...]:
    """The kernel's dimensions that have more than one position."""
    return tuple(
        (name, extent) for name, extent in zip(KERNEL_AXES[conv.rank], conv.kernel) if extent > 1
    )


def position(conv: ConvShape, at: Coordinates) -> list[Any]:
    """The position in the kernel that coordinates name; axes that are left out are at 0."""
    return [at.get(name, i32(0)) for name in KERNEL_AXES[conv.rank]]


def group_axis(conv: ConvShape) -> tuple[Axis, ...]:
    """The leading axis of independent matmuls, where there are groups."""
    return ((GROUP, conv.groups),) if conv.groups > 1 else ()


def in_group(conv: ConvShape, at: Coordinates, channel: Any, each: int) -> Any:
    """A channel of the whole tensor from one of the group's ``each`` channels."""
    return at[GROUP] * each + channel if conv.groups > 1 else channel


def split_pixel(flat: Any, images: int, size: Sequence[int]) -> tuple[Any, list[Any]]:
    """Image and place in it of a pixel counted over all images.

    What is left of a lone image's count, once inner places are divided off, is the outermost place.
    """
    first = next((dim for dim, extent in enumerate(size) if extent > 1), len(size))
    places: list[Any] = []
    for dim, extent in reversed(list(enumerate(size))):
        if extent == 1:
            places.append(i32(0))
        elif images == 1 and dim == first:
            places.append(flat)
        else:
            places.append(tirx.floormod(flat, i32(extent)))
            flat = tirx.floordiv(flat, i32(extent))
    return (flat if images > 1 else i32(0)), places[::-1]


def image_axis(conv: ConvShape, by_image: bool) -> tuple[Axis, ...]:
    """The leading axis of images, where each is a matmul of its own."""
    return ((IMAGE, conv.n),) if by_image else ()


def pixel_at(conv: ConvShape, at: Coordinates, size: Sequence[int]) -> tuple[Any, list[Any]]:
    """Image and place in it of pixel ``i``: of the leading axis' image, or counted over all."""
    if IMAGE not in at:
        return split_pixel(at["i"], conv.n, size)
    _, places = split_pixel(at["i"], 1, size)
    return at[IMAGE], places


def window(conv: ConvShape, dim: int, p: Any, r: Any) -> tuple[Any, list[Any]]:
    """The input coordinate that output ``p`` reads at kernel position ``r``; when it is one."""
    stride, dilation, (low, _) = conv.stride[dim], conv.dilation[dim], conv.pad[dim]
    at = p * stride + r * dilation - low
    conditions = [at >= 0] if low else []
    last = (conv.out_size[dim] - 1) * stride + (conv.kernel[dim] - 1) * dilation - low
    if last >= conv.size[dim]:
        conditions.append(at < conv.size[dim])
    return at, conditions


def windows(
    conv: ConvShape, places: Sequence[Any], at: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """``window`` of each of the first dimensions, and all their conditions."""
    found, conditions = [], []
    for dim, (p, r) in enumerate(zip(places, at)):
        coordinate, when = window(conv, dim, p, r)
        found.append(coordinate)
        conditions += when
    return found, conditions


def is_masked(conv: ConvShape) -> bool:
    """Whether some output reads outside the input."""
    zero = i32(0)
    return any(window(conv, dim, zero, zero)[1] for dim in range(conv.rank))


def seen(conv: ConvShape) -> int:
    """Elements of the images that windows see: of dimensions that they leap over, one in as many.

    But not of the last: memory comes in sectors.
    """
    leaps = [
        math.gcd(stride, dilation if taps > 1 else 0)
        for stride, dilation, taps in zip(conv.stride, conv.dilation, conv.kernel, strict=True)
    ]
    if not conv.channels_last:
        leaps[-1] = 1
    places = math.prod(-(-size // leap) for size, leap in zip(conv.size, leaps, strict=True))
    return conv.n * places * conv.c


def lie(conv: ConvShape, channels: int, pixels: int | None) -> dict[str, Any]:
    """``contiguous`` and ``unit`` of an image operand.

    ``channels``: what divides where its rows start if they are channels; ``pixels``: if they are
    pixels, or None where those are no run.
    """
    unit = channels if conv.channels_last else pixels
    return {"contiguous": unit is not None, "unit": unit}


def pixel_run(conv: ConvShape, rows: bool = False, by_image: bool = False) -> int | None:
    """What divides where a run of pixels starts that neighbouring outputs read; None: no run.

    With channels outside, the pixels of one image are a run where the windows are as wide as the
    image, or (``rows``) within one row of them; pixels counted over several images are none.
    """
    if rows:
        if conv.stride[-1] != 1:
            return None
    elif (
        (conv.n > 1 and not by_image)
        or set(conv.stride) != {1}
        or conv.out_size[1:] != conv.size[1:]
    ):
        return None
    return run_unit(conv, conv.size, conv.stride[:-1] if rows else ())


def pixel_runs(conv: ConvShape) -> tuple[int | None, int | None]:
    """``pixel_run`` of tiles that stay within a row, and within an image."""
    return pixel_run(conv, rows=True), pixel_run(conv, by_image=True)


def seen_by_boxes(
    conv: ConvShape,
    size: Sequence[int],
    places: Sequence[int],
    first: Sequence[int],
    steps: Sequence[int],
) -> dict[str, Any]:
    """What boxes are of an image operand whose rows are the channels of pixels.

    ``size``: of the image, whose pixel ``first + steps * p`` place ``p`` of ``places`` reads at the
    first of the kernel's positions, as they lie in the image.
    """
    walked = [dim for dim, count in enumerate(places) if count > 1]
    if not walked:
        return {"sliced": conv.n > 1, "row_axis": 0}
    found: dict[str, Any] = {"slides": conv.kernel[walked[-1]] > 1}
    if not conv.channels_last:
        return found
    if conv.n == 1 and len(walked) == 1:
        lone = walked[0]
        # What lies behind the last place has to be outside, where a tile reaches beyond it.
        ends = first[lone] + places[lone] * steps[lone] >= size[lone]
        if ends and steps[lone] == 1:
            return {**found, "sliced": True, "row_axis": 1 + lone}
        if not ends and lone > 0:
            return found
    if set(conv.kernel) == set(steps) == {1} and tuple(places) == tuple(size) and not any(first):
        return {"sliced": True, "view": "flattened"}
    axes = [
        (low, low + (count - 1) * step - (extent - 1), dilation * (kernel - 1), step)
        for extent, count, low, step, dilation, kernel in zip(
            size, places, first, steps, conv.dilation, conv.kernel
        )
    ]
    counts = (conv.n, *places) if set(steps) == {1} else ()
    sliced = not im2col_obstacle(axes)
    return {**found, "sliced": sliced, "view": "im2col", "counts": counts}


def is_pointwise(conv: ConvShape) -> bool:
    """Whether each output reads the one pixel that is at its place."""
    return set(conv.kernel) == set(conv.stride) == {1} and conv.out_size == conv.size


def whole_image(conv: ConvShape, by_image: bool = False) -> dict[str, Any]:
    """What boxes are of an operand that reads pixels of one image as they lie; empty: it does not.

    With channels outside they are one dimension.
    """
    lone = by_image or conv.n == 1
    return {"sliced": True, "joined": conv.rank} if lone and not conv.channels_last else {}


def filters_by_boxes(conv: ConvShape) -> dict[str, Any]:
    """What boxes are of the filters, at one position of the kernel."""
    alone = not conv.channels_last and math.prod(conv.kernel) == 1
    return {"sliced": True, "row_axis": 0, "joined": 1 + conv.rank if alone else 1}


def forward_by_boxes(conv: ConvShape, by_image: bool = False) -> dict[str, Any]:
    """``seen_by_boxes`` of the image that the convolution reads."""
    if is_pointwise(conv) and whole_image(conv, by_image):
        return whole_image(conv, by_image)
    return seen_by_boxes(conv, conv.size, conv.out_size, [-low for low, _ in conv.pad], conv.stride)


def channel_run(conv: ConvShape) -> int:
    """What divides where the channels start that an output reads of a pixel, those innermost."""
    if conv.groups > 1:
        return conv.c // conv.groups
    inner = [math.prod(conv.size[dim + 1 :]) for dim in range(conv.rank)]
    moves = [conv.stride[dim] * inner[dim] for dim in range(conv.rank) if conv.out_size[dim] > 1]
    moves += [conv.dilation[dim] * inner[dim] for dim in range(conv.rank) if conv.kernel[dim] > 1]
    before = sum(low * step for (low, _), step in zip(conv.pad, inner))
    images = math.prod(conv.size) if conv.n > 1 else 0
    return conv.c * math.gcd(before, images, *moves)


def within_images(
    conv: ConvShape,
    operand: Operand,
    places: Sequence[int],
    row: int | None,
    image: int | None,
    *,
    as_it_lies: bool = False,
) -> Operand:
    """``operand``, told what it is to tiles of pixels that stay within a row, or within an image.

    ``places``: of an image, that are walked. ``row`` and ``image``: what divides where a run starts
    in those, with channels outside; None: neighbours are not side by side. ``as_it_lies``: it is
    read without windows, as an image is that is pointwise anyhow.
    """
    runs: list[tuple[str, int, int, Operand]] = []
    if row is not None:
        unit = operand.unit if conv.channels_last else row
        form = replace(operand, contiguous=True, unit=unit, sliced=True, view="tensor", joined=1)
        runs.append((PIXELS, places[-1], 1, form))
    if image is not None and not conv.channels_last:
        plain = as_it_lies or is_pointwise(conv)
        boxes = whole_image(conv, by_image=True) if plain else {}
        form = replace(operand, contiguous=True, unit=image, **boxes)
        runs.append((PIXELS, math.prod(places), places[-1], form))
        if boxes:
            unit = operand.unit if operand.contiguous else 1
            runs.append((PIXELS, math.prod(places), 1, replace(form, unit=unit)))
    return replace(operand, within=tuple(runs))


def run_unit(conv: ConvShape, size: Sequence[int], outer: Sequence[int] = ()) -> int:
    """What divides the offset of a window's start in an image with channels outside.

    ``outer``: steps in the first dimensions that the start also takes.
    """
    inner = [math.prod(size[dim + 1 :]) for dim in range(conv.rank)]
    moves = [conv.dilation[dim] * inner[dim] for dim in range(conv.rank) if conv.kernel[dim] > 1]
    before = sum(low * step for (low, _), step in zip(conv.pad, inner))
    moves += [step * stride for step, stride in zip(inner, outer)]
    return math.gcd(math.prod(size), before, *moves)


def arranged(conv: ConvShape, what: Contraction) -> Contraction:
    """``what``, or with its sides exchanged where pixels are what is contiguous in the output.

    A matmul writes neighbouring columns from neighbouring threads.
    """
    return what if conv.channels_last else what.exchanged()
