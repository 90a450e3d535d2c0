"""Gradients of a convolution: the same matmul with other operands.

Of the input, a pixel ``(n, h, w)`` collects from the outputs that read it:

    dX[n, h, w, c] = sum over r, s, k of dY[n, (h + pad - r) / stride, ...] * W[k, r, s, c]

where the division leaves no remainder. Of the weights, M counts output channels, and K all pixels:

    dW[k, r, s, c] = sum over n, p, q of dY[n, p, q, k] * X[n, p * stride + r - pad, ..., c]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from ...errors import WorkloadError
from ...passes.ir import i32
from .contraction import Axis, Contraction, Coordinates, Element, Operand
from .conv import Conv
from .conv_reference import from_channels_last, grouped, padded, strided
from .dtypes import Types, exact, random_array
from .windows import (
    arranged,
    filter_indices,
    filter_shape,
    group_axis,
    image_shape,
    in_group,
    is_masked,
    kernel_axes,
    lie,
    pixel_run,
    position,
    run_unit,
    split_pixel,
    windows,
)


@dataclass(frozen=True, slots=True)
class ConvInputGrad:
    """``dX`` from ``dY`` and ``W`` of the convolution ``forward``, which has no epilogue.

    Types are those of ``forward``: operands are stored as its operands, dX as its output.
    """

    forward: Conv

    def __post_init__(self) -> None:
        """Refuse what has no gradient here."""
        _require_plain(self.forward)

    @property
    def types(self) -> Types:
        """Everything about its types."""
        return self.forward.types

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        return f"input_grad_{self.forward.name}"

    @property
    def title(self) -> str:
        """In words."""
        return f"input gradient of {self.forward.title}"

    @property
    def dtype(self) -> str:
        """Type of the multiplication."""
        return self.forward.dtype

    @property
    def storage(self) -> str:
        """Type of an operand in memory."""
        return self.forward.storage

    @property
    def accumulator(self) -> str:
        """Type of the sums."""
        return self.forward.accumulator

    @property
    def out(self) -> str:
        """Type of dX."""
        return self.forward.out

    def flops(self) -> int:
        """Multiplications and additions: as many as forward."""
        return self.forward.flops()

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of dY, W and dX in memory."""
        x, w, y = self.forward.shapes()
        return y, w, x

    def inputs(self, seed: int = 0) -> tuple[Any, Any]:
        """Operands with standard normal values (integers: uniform over -8..7), as numpy arrays."""
        rng = np.random.default_rng(seed)
        dy, w, _ = self.shapes()
        return random_array(rng, dy, self.storage), random_array(rng, w, self.storage)

    def reference(self, dy: Any, w: Any) -> Any:
        """The exact result for the inputs as stored: float64, or int64 for integers."""
        return self._scattered(exact(dy), exact(w))

    def magnitude(self, dy: Any, w: Any) -> Any:
        """What rounding errors are relative to: ``sum(|dy| |w|)``."""
        return self._scattered(abs(dy.astype(np.float64)), abs(w.astype(np.float64)))

    def contraction(self, fold: bool = False) -> Contraction:
        """This workload as a matmul; there is nothing to fold."""
        if fold:
            raise WorkloadError(f"cannot fold '{self.name}': its kernel runs against its channels")
        return _input_grad(self.forward, self.name)

    def function(self) -> Any:
        """The PrimFunc: gathered operands, block ``matmul``, block ``store``."""
        return self.contraction().function()

    def _scattered(self, dy: Any, w: Any) -> Any:
        conv = self.forward
        last = dy if conv.channels_last else np.moveaxis(dy, 1, -1)
        gradients, filters = grouped(conv, last, w)
        size = [extent + low + high for extent, (low, high) in zip(conv.size, conv.pad)]
        total = np.zeros((conv.n, *size, conv.groups, conv.c // conv.groups), dy.dtype)
        for at in itertools.product(*map(range, conv.kernel)):
            part = np.einsum("n...gk,gkc->n...gc", gradients, filters[(slice(None),) * 2 + at])
            total[(slice(None), *strided(conv, at))] += part
        inside = tuple(slice(low, low + size) for size, (low, _) in zip(conv.size, conv.pad))
        kept = total[(slice(None), *inside)].reshape(conv.n, *conv.size, conv.c)
        return from_channels_last(conv, kept)


@dataclass(frozen=True, slots=True)
class ConvWeightGrad:
    """``dW`` from ``dY`` and ``X`` of the convolution ``forward``, which has no epilogue.

    Types are those of ``forward``: operands are stored as its operands, dW as its output.
    """

    forward: Conv

    def __post_init__(self) -> None:
        """Refuse what has no gradient here."""
        _require_plain(self.forward)

    @property
    def types(self) -> Types:
        """Everything about its types."""
        return self.forward.types

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        return f"weight_grad_{self.forward.name}"

    @property
    def title(self) -> str:
        """In words."""
        return f"weight gradient of {self.forward.title}"

    @property
    def dtype(self) -> str:
        """Type of the multiplication."""
        return self.forward.dtype

    @property
    def storage(self) -> str:
        """Type of an operand in memory."""
        return self.forward.storage

    @property
    def accumulator(self) -> str:
        """Type of the sums."""
        return self.forward.accumulator

    @property
    def out(self) -> str:
        """Type of dW."""
        return self.forward.out

    def flops(self) -> int:
        """Multiplications and additions: as many as forward."""
        return self.forward.flops()

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of dY, X and dW in memory."""
        x, w, y = self.forward.shapes()
        return y, x, w

    def inputs(self, seed: int = 0) -> tuple[Any, Any]:
        """Operands with standard normal values (integers: uniform over -8..7), as numpy arrays."""
        rng = np.random.default_rng(seed)
        dy, x, _ = self.shapes()
        return random_array(rng, dy, self.storage), random_array(rng, x, self.storage)

    def reference(self, dy: Any, x: Any) -> Any:
        """The exact result for the inputs as stored: float64, or int64 for integers."""
        return self._correlated(exact(dy), exact(x))

    def magnitude(self, dy: Any, x: Any) -> Any:
        """What rounding errors are relative to: ``sum(|dy| |x|)``."""
        return self._correlated(abs(dy.astype(np.float64)), abs(x.astype(np.float64)))

    def contraction(self, fold: bool = False) -> Contraction:
        """This workload as a matmul; ``fold``: over rows of pixels, one at a time."""
        return _weight_grad(self.forward, self.name, fold)

    def function(self) -> Any:
        """The PrimFunc: gathered operands, block ``matmul``, block ``store``."""
        return self.contraction().function()

    def _correlated(self, dy: Any, x: Any) -> Any:
        conv = self.forward
        last = dy if conv.channels_last else np.moveaxis(dy, 1, -1)
        gradients = last.reshape(*last.shape[:-1], conv.groups, -1)
        images = padded(conv, x)
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


def _require_plain(conv: Conv) -> None:
    if conv.epilogue:
        raise WorkloadError(
            f"cannot differentiate '{conv.name}': expected no epilogue, got {conv.epilogue[0]}"
        )


def _input_grad(conv: Conv, name: str) -> Contraction:
    each_in, each_out = conv.c // conv.groups, conv.k // conv.groups

    def gradient(at: Coordinates) -> Element:
        image, places = split_pixel(at["i"], conv.n, conv.size)
        found, conditions = [], []
        for dim, (h, r) in enumerate(zip(places, position(conv, at))):
            p, when = _reader(conv, dim, h, r)
            found.append(p)
            conditions += when
        channel = in_group(conv, at, at["k"], each_out)
        return list(image_shape(conv, found, channel, image)), conditions

    def weight(at: Coordinates) -> Element:
        out = in_group(conv, at, at["k"], each_out)
        return list(filter_indices(conv, out, position(conv, at), at["j"])), []

    def place(at: Coordinates) -> list[Any]:
        image, places = split_pixel(at["i"], conv.n, conv.size)
        return list(image_shape(conv, places, in_group(conv, at, at["j"], each_in), image))

    return arranged(
        conv,
        Contraction(
            name=name,
            types=conv.types,
            lead=group_axis(conv),
            m=("i", conv.n * math.prod(conv.size)),
            n=("j", each_in),
            steps=kernel_axes(conv),
            k=("k", each_out),
            a=Operand(
                "dY",
                image_shape(conv, conv.out_size, conv.k),
                conv.channels_last,
                gradient,
                tile="gradients",
                **lie(conv, math.gcd(conv.k, each_out), _gradient_run(conv)),
                masked=any(_reader(conv, dim, i32(0), i32(0))[1] for dim in range(conv.rank)),
            ),
            b=Operand(
                "W",
                filter_shape(conv),
                False,
                weight,
                tile="filters",
                contiguous=conv.channels_last or math.prod(conv.kernel) == 1,
                unit=each_in if conv.channels_last else 1,
            ),
            out=("dX", image_shape(conv, conv.size, conv.c)),
            place=place,
            channel=lambda at: in_group(conv, at, at["j"], each_in),
            channels=conv.c,
        ),
    )


def _gradient_run(conv: Conv) -> int | None:
    """As ``pixel_run``, of the gradients that neighbouring inputs read."""
    if conv.n > 1 or set(conv.stride) != {1} or conv.out_size[1:] != conv.size[1:]:
        return None
    return run_unit(conv, conv.out_size)


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

    return Contraction(
        name=name,
        types=conv.types,
        lead=(*group_axis(conv), *kernel_axes(conv)),
        m=("m", each_out),
        n=("j", each_in),
        steps=steps,
        k=k,
        a=Operand(
            "dY",
            image_shape(conv, conv.out_size, conv.k),
            not conv.channels_last,
            gradient,
            tile="gradients",
            **lie(conv, math.gcd(conv.k, each_out), None if conv.n > 1 and not rows else own),
        ),
        b=Operand(
            "X",
            image_shape(conv, conv.size, conv.c),
            not conv.channels_last,
            source,
            tile="pixels",
            **lie(conv, math.gcd(conv.c, each_in), pixel_run(conv, rows)),
            masked=is_masked(conv),
        ),
        out=("dW", filter_shape(conv)),
        place=lambda at: list(place(at)),
        channel=lambda at: in_group(conv, at, at["m"], each_out),
        channels=conv.k,
    )
