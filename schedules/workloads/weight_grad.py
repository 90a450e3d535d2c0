"""Gradient of a convolution's weights: the same matmul with other operands.

M counts output channels, and K all pixels:

    dW[k, r, s, c] = sum over n, p, q of dY[n, p, q, k] * X[n, p * stride + r - pad, ..., c]

N counts the channels of one of the kernel's positions, or of a row of them (``weight_runs``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from .base.operand import Axis, Coordinates, Element, Operand
from .contraction import Contraction
from .conv import Conv
from .conv_shape import padded, strided
from .gradient import ConvGradient
from .weight_runs import by_runs, has_short_rows
from .windows import (
    channel_run,
    filter_indices,
    filter_shape,
    forward_by_boxes,
    group_axis,
    image_shape,
    in_group,
    is_masked,
    kernel_axes,
    lie,
    pixel_run,
    pixel_runs,
    position,
    seen,
    split_pixel,
    whole_image,
    windows,
    within_images,
)


@dataclass(frozen=True, slots=True)
class ConvWeightGrad(ConvGradient):
    """``dW`` from ``dY`` and ``X``."""

    of: ClassVar[str] = "weight"

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of dY, X and dW in memory."""
        x, w, y = self.forward.shapes()
        return y, x, w

    def contraction(self, fold: bool = False) -> Contraction:
        """This workload as a matmul; ``fold``: over rows of pixels, one at a time."""
        return _weight_grad(self.forward, self.name, fold)

    def differentiated(self, dy: Any, other: Any) -> Any:
        """Every output times the inputs that it read, summed over the pixels."""
        conv = self.forward
        last = dy if conv.channels_last else np.moveaxis(dy, 1, -1)
        gradients = last.reshape(*last.shape[:-1], conv.groups, -1)
        images = padded(conv, other)
        images = images.reshape(*images.shape[:-1], conv.groups, -1)
        made = np.zeros((conv.k, *conv.kernel, conv.c // conv.groups), dy.dtype)
        pixels = tuple(range(conv.rank + 1))
        for at in itertools.product(*map(range, conv.kernel)):
            seen = images[(slice(None), *strided(conv, at))]
            for g in range(conv.groups):
                part = np.tensordot(gradients[..., g, :], seen[..., g, :], (pixels, pixels))
                rows = slice(g * len(part), (g + 1) * len(part))
                place: Any = (rows, *at)
                made[place] = part
        return made if conv.channels_last else np.moveaxis(made, -1, 1)


def _weight_grad(conv: Conv, name: str, rows: bool) -> Contraction:
    """Over all pixels, or over the rows of the images with ``rows``."""
    each_in, each_out = conv.c // conv.groups, conv.k // conv.groups
    last = conv.out_size[-1]
    own = last if rows else math.prod(conv.out_size)
    steps: tuple[Axis, ...] = (("row", conv.pixels // last),) if rows else ()
    k: Axis = ("q", last) if rows else ("i", conv.pixels)

    def pixel(at: Coordinates) -> tuple[Any, list[Any]]:
        if not rows:
            return split_pixel(at["i"], conv.n, conv.out_size)
        image, places = split_pixel(at["row"], conv.n, conv.out_size[:-1])
        return image, [*places, at["q"]]

    def gradient(at: Coordinates) -> Element:
        image, places = pixel(at)
        channel = in_group(conv, at, at["m"], each_out)
        return list(image_shape(conv, places, channel, image)), []

    def source(at: Coordinates) -> Element:
        image, places = pixel(at)
        found, conditions = windows(conv, places, position(conv, at))
        channel = in_group(conv, at, at["j"], each_in)
        return list(image_shape(conv, found, channel, image)), conditions

    def place(at: Coordinates) -> Sequence[Any]:
        out = in_group(conv, at, at["m"], each_out)
        return filter_indices(conv, out, position(conv, at), at["j"])

    gradients = Operand(
        "dY",
        image_shape(conv, conv.out_size, conv.k),
        not conv.channels_last,
        gradient,
        tile="gradients",
        **lie(conv, math.gcd(conv.k, each_out), None if conv.n > 1 and not rows else own),
        **_outputs_by_boxes(conv, rows),
    )
    pixels = Operand(
        "X",
        image_shape(conv, conv.size, conv.c),
        not conv.channels_last,
        source,
        tile="pixels",
        **lie(conv, channel_run(conv), pixel_run(conv, rows)),
        masked=is_masked(conv),
        seen=seen(conv),
        **({"slides": conv.kernel[-1] > 1} if rows else forward_by_boxes(conv)),
    )
    if rows:
        pixels = _within_rows(conv, pixels)
    else:
        gradients = within_images(
            conv, gradients, conv.out_size, last, math.prod(conv.out_size), as_it_lies=True
        )
        pixels = within_images(conv, pixels, conv.out_size, *pixel_runs(conv))
    found = Contraction(
        name=name,
        types=conv.types,
        batch_axes=(*group_axis(conv), *kernel_axes(conv)),
        m=("m", each_out),
        n=("j", each_in),
        reduction_axes=steps,
        k=k,
        a=gradients,
        b=pixels,
        out=("dW", filter_shape(conv)),
        place=lambda at: list(place(at)),
        channel=lambda at: in_group(conv, at, at["m"], each_out),
        channels=conv.k,
        rows=conv.channels_last,
    )
    return by_runs(conv, found, pixel) if has_short_rows(conv) else found


def _outputs_by_boxes(conv: Conv, rows: bool) -> dict[str, Any]:
    """``sliced`` and ``view`` of the output's gradient."""
    if not conv.channels_last:
        return {"sliced": True} if rows else whole_image(conv)
    dimensions = sum(extent > 1 for extent in (conv.n, *conv.out_size))
    return {"sliced": True, "view": "tensor" if rows or dimensions <= 1 else "flattened"}


def _within_rows(conv: Conv, pixels: Operand) -> Operand:
    """``pixels`` of a row of outputs, told where a tile of them is a box.

    It is where it stays within the row, or where what lies behind the row's outputs is outside of
    the image, and so zero as it has to be.
    """
    step, (low, _), last = conv.stride[-1], conv.pad[-1], conv.out_size[-1]
    if step == 1:
        boxes: dict[str, Any] = {"sliced": True}
    else:
        boxes = {**forward_by_boxes(conv), "counts": ()} if conv.channels_last else {}
    form = replace(pixels, **boxes)
    if last * step - low >= conv.size[-1]:
        return form
    return replace(pixels, within=(("q", last, 1, form),))
