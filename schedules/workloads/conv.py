"""Convolutions of one, two and three dimensions as matmuls that gather their operands.

Output pixel ``(n, p, q)`` reads input ``(n, p * stride + r * dilation - pad, ...)`` for each
position ``(r, s)`` of the kernel; outside the input it reads zero. As a matmul, M counts pixels, N
output channels, and K is the input channels at each position in turn:

    Y[n, p, q, k] = sum over r, s, c of X[n, p * stride + r - pad, q * stride + s - pad, c]
                                        * W[k, r, s, c]

Where channels lie innermost, neighbouring positions of one kernel row are one contiguous run of
``S * C`` elements, so a *folded* contraction reduces over that run: few channels then make long
rows. A run that starts at an odd place is begun a few elements early, with weights of zero, where
that aligns its copies; those elements must be finite, as any a convolution reads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import tirx

from ...errors import WorkloadError
from ...passes.ir import i32
from . import epilogue as steps
from .contraction import Axis, Contraction, Coordinates, Element, Operand
from .dtypes import Types, check_extent, exact, listed, numpy_dtype, random_array, resolve

CHANNELS_LAST: Final = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
CHANNELS_FIRST: Final = {1: "NCW", 2: "NCHW", 3: "NCDHW"}

DIMENSIONS: Final = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}
"""Names of the spatial dimensions, by rank."""

KERNEL_AXES: Final = {1: ("s",), 2: ("r", "s"), 3: ("t", "r", "s")}

VECTOR_BYTES: Final = 16
"""The widest copy of a thread, which runs are aligned for."""


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
            raise WorkloadError(f"expected 1 to 3 dimensions, got {self.rank}")
        _check_counts(self)
        _check_channels(self)
        _check_output(self)
        layouts = (CHANNELS_LAST[self.rank], CHANNELS_FIRST[self.rank])
        layout = self.layout or layouts[0]
        if layout not in layouts:
            raise WorkloadError(f"expected layout to be {listed(layouts)}, not {self.layout!r}")
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

    def contraction(self, fold: bool = False) -> Contraction:
        """This workload as a matmul; ``fold``: over runs of ``S * C`` (see ``can_fold``)."""
        if fold:
            require_fold(self)
        return _forward(self, fold)

    def by_channel(self) -> Contraction:
        """A depthwise convolution as it is: nothing is summed over but positions.

        Both operands are read where they are multiplied, each by its output channel.
        """
        if not self.depthwise:
            raise WorkloadError(
                f"expected a depthwise convolution, got {self.groups} groups of {self.c} channels"
            )
        return _by_channel(self)

    def function(self) -> Any:
        """The PrimFunc: gathered operands, block ``matmul``, the epilogue, block ``store``."""
        return self.contraction().function()

    def _finished(self, finish: Any, x: Any, w: Any, extras: Sequence[Any]) -> Any:
        sums = convolve(self, x, w)
        operands = iter(extras)
        shaped = []
        for step in self.epilogue:
            if step == steps.BIAS and not self.channels_last:
                shaped.append(next(operands).reshape(-1, *[1] * self.rank))
            elif step in (steps.BIAS, steps.RESIDUAL):
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
        expected = " or ".join(map(str, dict.fromkeys((1, *counts))))
        raise WorkloadError(f"expected {expected} numbers for {name}, got {len(values)}")
    return values


def _shortest(values: tuple[int, ...]) -> tuple[int, ...]:
    return values[:1] if len(set(values)) == 1 else values


def _check_counts(conv: Conv) -> None:
    for name in ("n", "c", "k", "groups"):
        check_extent(name, getattr(conv, name))
    for name, least in (("size", 1), ("kernel", 1), ("stride", 1), ("dilation", 1), ("pad", 0)):
        values = getattr(conv, name)
        if len(values) != conv.rank:
            raise WorkloadError(
                f"expected {name} to have {conv.rank} dimensions as size has, got {len(values)}"
            )
        for value in itertools.chain(*values) if name == "pad" else values:
            check_extent(name, value, least=least)


def _check_channels(conv: Conv) -> None:
    for word, channels in (("input", conv.c), ("output", conv.k)):
        if channels % conv.groups:
            raise WorkloadError(
                f"cannot split {channels} {word} channels into {conv.groups} groups"
            )


def _check_output(conv: Conv) -> None:
    for name, size, (low, high), dilation, kernel in zip(
        DIMENSIONS[conv.rank], conv.size, conv.pad, conv.dilation, conv.kernel
    ):
        reach = dilation * (kernel - 1) + 1
        if size + low + high < reach:
            raise WorkloadError(
                f"cannot convolve to an empty output: {name} is {size} and padded by {low} + "
                f"{high}, the kernel reaches over {reach}"
            )


# Shapes and elements in memory.


def image_shape(conv: Conv, size: Sequence[Any], channels: Any, n: Any = None) -> tuple[Any, ...]:
    """Shape of an image tensor; also the indices of an element, in the same order."""
    images = conv.n if n is None else n
    return (images, *size, channels) if conv.channels_last else (images, channels, *size)


def filter_shape(conv: Conv) -> tuple[int, ...]:
    """Shape of W."""
    return filter_indices(conv, conv.k, conv.kernel, conv.c // conv.groups)


def filter_indices(conv: Conv, k: Any, position: Sequence[Any], c: Any) -> tuple[Any, ...]:
    """Indices of an element of W."""
    return (k, *position, c) if conv.channels_last else (k, c, *position)


def kernel_axes(conv: Conv) -> tuple[Axis, ...]:
    """The kernel's dimensions that have more than one position."""
    return tuple(
        (name, extent) for name, extent in zip(KERNEL_AXES[conv.rank], conv.kernel) if extent > 1
    )


def position(conv: Conv, at: Coordinates) -> list[Any]:
    """The position in the kernel that coordinates name; axes that are left out are at 0."""
    return [at.get(name, i32(0)) for name in KERNEL_AXES[conv.rank]]


def group_axis(conv: Conv) -> tuple[Axis, ...]:
    """The leading axis of independent matmuls, where there are groups."""
    return (("g", conv.groups),) if conv.groups > 1 else ()


def in_group(conv: Conv, at: Coordinates, channel: Any, each: int) -> Any:
    """A channel of the whole tensor from one of the group's ``each`` channels."""
    return at["g"] * each + channel if conv.groups > 1 else channel


def split_pixel(flat: Any, images: int, size: Sequence[int]) -> tuple[Any, list[Any]]:
    """Image and place in it of a pixel counted over all images."""
    places: list[Any] = []
    for extent in reversed(size):
        places.append(tirx.floormod(flat, i32(extent)) if extent > 1 else i32(0))
        flat = tirx.floordiv(flat, i32(extent)) if extent > 1 else flat
    return (flat if images > 1 else i32(0)), places[::-1]


def window(conv: Conv, dim: int, p: Any, r: Any) -> tuple[Any, list[Any]]:
    """The input coordinate that output ``p`` reads at kernel position ``r``; when it is one."""
    stride, dilation, (low, _) = conv.stride[dim], conv.dilation[dim], conv.pad[dim]
    at = p * stride + r * dilation - low
    conditions = [at >= 0] if low else []
    last = (conv.out_size[dim] - 1) * stride + (conv.kernel[dim] - 1) * dilation - low
    if last >= conv.size[dim]:
        conditions.append(at < conv.size[dim])
    return at, conditions


# The forward contraction.


def can_fold(conv: Conv) -> bool:
    """Whether positions along the last dimension and channels are one contiguous run."""
    return (
        conv.channels_last and conv.groups == 1 and conv.dilation[-1] == 1 and conv.kernel[-1] > 1
    )


def require_fold(conv: Conv) -> None:
    """WorkloadError where ``can_fold`` does not hold."""
    if not can_fold(conv):
        raise WorkloadError(
            f"cannot fold the kernel's last dimension of '{conv.name}' into its channels: that "
            "takes channels innermost, one group, more than one position and no dilation"
        )


def lead_in(conv: Conv) -> int:
    """Elements before a folded run that align its start in memory, for the widest copies."""
    element = numpy_dtype(conv.storage).itemsize
    aligned = math.gcd(conv.stride[-1] * conv.c, conv.size[-1] * conv.c, VECTOR_BYTES // element)
    return -conv.pad[-1][0] * conv.c % aligned


def _forward(conv: Conv, fold: bool) -> Contraction:
    images, filters = (_folded if fold else _plain)(conv)
    kernel = kernel_axes(conv)
    k: Axis = ("c", conv.c // conv.groups)
    if fold:
        kernel = kernel[:-1]
        k = ("sc", conv.kernel[-1] * conv.c + lead_in(conv))
    pixels: Axis = ("i", conv.pixels)
    each = conv.k // conv.groups
    channels: Axis = ("j", each)

    def place(at: Coordinates) -> list[Any]:
        image, places = split_pixel(at["i"], conv.n, conv.out_size)
        return list(image_shape(conv, places, in_group(conv, at, at["j"], each), image))

    return arranged(
        conv,
        Contraction(
            name=conv.name,
            types=conv.types,
            lead=group_axis(conv),
            m=pixels,
            n=channels,
            steps=kernel,
            k=k,
            a=images,
            b=filters,
            out=("Y", image_shape(conv, conv.out_size, conv.k)),
            place=place,
            channel=lambda at: in_group(conv, at, at["j"], each),
            channels=conv.k,
            epilogue=conv.epilogue,
        ),
    )


def _by_channel(conv: Conv) -> Contraction:
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

    x, w, *_, y = conv.shapes()
    return Contraction(
        name=conv.name,
        types=conv.types,
        lead=(),
        m=("i", conv.pixels),
        n=("j", conv.k),
        steps=kernel_axes(conv),
        k=("c", 1),
        a=Operand("X", x, True, pixel, masked=is_masked(conv)),
        b=Operand(
            "W",
            w,
            True,
            lambda at: (list(filter_indices(conv, at["j"], position(conv, at), at["c"])), []),
        ),
        out=("Y", y),
        place=place,
        channel=lambda at: at["j"],
        channels=conv.k,
        epilogue=conv.epilogue,
    )


def _plain(conv: Conv) -> tuple[Operand, Operand]:
    """Rows of one position's channels."""
    each_in, each_out = conv.c // conv.groups, conv.k // conv.groups

    def pixel(at: Coordinates) -> Element:
        image, places = split_pixel(at["i"], conv.n, conv.out_size)
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
        **lie(conv, math.gcd(conv.c, each_in), pixel_run(conv)),
        masked=is_masked(conv),
    )
    filters = Operand(
        "W",
        filter_shape(conv),
        True,
        weight,
        tile="filters",
        contiguous=conv.channels_last or math.prod(conv.kernel) == 1,
        unit=each_in,
    )
    return images, filters


def lie(conv: Conv, channels: int, pixels: int | None) -> dict[str, Any]:
    """``contiguous`` and ``unit`` of an image operand.

    ``channels``: what divides where its rows start if they are channels; ``pixels``: if they are
    pixels, or None where those are no run.
    """
    unit = channels if conv.channels_last else pixels
    return {"contiguous": unit is not None, "unit": unit}


def pixel_run(conv: Conv, rows: bool = False) -> int | None:
    """What divides where a run of pixels starts that neighbouring outputs read; None: no run.

    With channels outside, the pixels of one image are a run where the windows are as wide as the
    image, or (``rows``) within one row of them.
    """
    if rows:
        if conv.stride[-1] != 1:
            return None
    elif conv.n > 1 or set(conv.stride) != {1} or conv.out_size[1:] != conv.size[1:]:
        return None
    return run_unit(conv, conv.size, conv.stride[:-1] if rows else ())


def run_unit(conv: Conv, size: Sequence[int], outer: Sequence[int] = ()) -> int:
    """What divides the offset of a window's start in an image with channels outside.

    ``outer``: steps in the first dimensions that the start also takes.
    """
    inner = [math.prod(size[dim + 1 :]) for dim in range(conv.rank)]
    moves = [conv.dilation[dim] * inner[dim] for dim in range(conv.rank) if conv.kernel[dim] > 1]
    before = sum(low * step for (low, _), step in zip(conv.pad, inner))
    moves += [step * stride for step, stride in zip(inner, outer)]
    return math.gcd(math.prod(size), before, *moves)


def _folded(conv: Conv) -> tuple[Operand, Operand]:
    """Rows of one kernel row: all its positions' channels, which lie side by side."""
    early, width = lead_in(conv), conv.size[-1] * conv.c
    step, before = conv.stride[-1] * conv.c, conv.pad[-1][0] * conv.c + early
    run = conv.kernel[-1] * conv.c

    def pixel(at: Coordinates) -> Element:
        image, places = split_pixel(at["i"], conv.n, conv.out_size)
        found, conditions = windows(conv, places[:-1], position(conv, at)[:-1])
        flat = places[-1] * step + at["sc"] - before
        if before:
            conditions.append(flat >= 0)
        if (conv.out_size[-1] - 1) * step + run + early - 1 - before >= width:
            conditions.append(flat < width)
        return [image, *found, *_unfolded(flat, before, conv.c)], conditions

    def weight(at: Coordinates) -> Element:
        flat = at["sc"] - early
        indices = [at["j"], *position(conv, at)[:-1], *_unfolded(flat, early, conv.c)]
        return indices, [flat >= 0] if early else []

    images = Operand(
        "X",
        image_shape(conv, conv.size, conv.c),
        True,
        pixel,
        tile="pixels",
        unit=math.gcd(step, before, width),
        masked=is_masked(conv) or early > 0,
    )
    filters = Operand(
        "W",
        filter_shape(conv),
        True,
        weight,
        tile="filters",
        unit=math.gcd(run, early),
        masked=early > 0,
    )
    return images, filters


def _unfolded(flat: Any, before: int, channels: int) -> list[Any]:
    """Column and channel at place ``flat`` of an image row, at least ``-before``.

    The division is of no negative number, so that the place is found again in the address.
    """
    columns = -(-before // channels)
    shifted = flat + columns * channels
    return [
        tirx.floordiv(shifted, i32(channels)) - columns,
        tirx.floormod(shifted, i32(channels)),
    ]


def windows(conv: Conv, places: Sequence[Any], at: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """``window`` of each of the first dimensions, and all their conditions."""
    found, conditions = [], []
    for dim, (p, r) in enumerate(zip(places, at)):
        coordinate, when = window(conv, dim, p, r)
        found.append(coordinate)
        conditions += when
    return found, conditions


def is_masked(conv: Conv) -> bool:
    """Whether some output reads outside the input."""
    zero = i32(0)
    return any(window(conv, dim, zero, zero)[1] for dim in range(conv.rank))


def arranged(conv: Conv, what: Contraction) -> Contraction:
    """``what``, or with its sides exchanged where pixels are what is contiguous in the output.

    A matmul writes neighbouring columns from neighbouring threads.
    """
    return what if conv.channels_last else what.exchanged()


# numpy.


def convolve(conv: Conv, x: Any, w: Any) -> Any:
    """The sums in the type of ``x`` and ``w``, one kernel position at a time."""
    images, filters = grouped(conv, padded(conv, x), w)
    total: Any = 0
    for at in itertools.product(*map(range, conv.kernel)):
        seen = images[(slice(None), *strided(conv, at))]
        total = total + np.einsum("n...gc,gkc->n...gk", seen, filters[(slice(None),) * 2 + at])
    return from_channels_last(conv, total.reshape(conv.n, *conv.out_size, conv.k))


def padded(conv: Conv, x: Any) -> Any:
    """``x`` with channels innermost and zeros around it."""
    last = x if conv.channels_last else np.moveaxis(x, 1, -1)
    return np.pad(last, ((0, 0), *conv.pad, (0, 0)))


def grouped(conv: Conv, images: Any, w: Any) -> tuple[Any, Any]:
    """Images as ``[n, *size, g, c]`` and filters as ``[g, k, *kernel, c]``."""
    last = w if conv.channels_last else np.moveaxis(w, 1, -1)
    return (
        images.reshape(*images.shape[:-1], conv.groups, -1),
        last.reshape(conv.groups, -1, *last.shape[1:]),
    )


def strided(conv: Conv, at: Sequence[int]) -> tuple[slice, ...]:
    """The part of the padded input that all outputs read at kernel position ``at``."""
    return tuple(
        slice(r * dilation, r * dilation + (p - 1) * stride + 1, stride)
        for r, dilation, stride, p in zip(at, conv.dilation, conv.stride, conv.out_size)
    )


def from_channels_last(conv: Conv, y: Any) -> Any:
    """``y`` in the layout of the workload."""
    return y if conv.channels_last else np.moveaxis(y, -1, 1)
