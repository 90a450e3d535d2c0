"""Convolutions of few channels: one reduction over a run of a kernel row's positions and channels.

Where channels lie innermost, what output ``q`` reads of an image row is the contiguous run

    x[q * stride * C - pad * C : ... + S * C]

A copy of 16 bytes needs a run that starts at a multiple of 16. ``q`` is therefore counted in
*phases*, ``q = q' * phases + phase``, such that ``phases * stride * C`` is a multiple of it; the
phase is the same for a whole CTA, and its runs begin up to 15 bytes early, at a multiple below.
What they then read in front of the window is multiplied by weights of zero, so it must be finite,
as whatever a convolution reads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from tvm import tirx

from ...diagnostics import Reason, Why, all_of
from ...errors import WorkloadError
from ...machine import VECTOR_BYTES
from ...passes.ir.nodes import i32
from .base.dtypes import numpy_dtype
from .base.operand import Axis, Coordinates, Element, Operand
from .contraction import Contraction
from .conv_shape import ConvShape
from .forward import contraction_of, forward
from .windows import (
    filter_shape,
    image_shape,
    is_masked,
    kernel_axes,
    position,
    seen,
    split_pixel,
    windows,
)

MAX_PHASES: Final = 8


def can_fold(conv: ConvShape) -> bool:
    """Whether positions along the last dimension and channels are one contiguous run."""
    return (
        conv.channels_last and conv.groups == 1 and conv.dilation[-1] == 1 and conv.kernel[-1] > 1
    )


def best_phases(conv: ConvShape) -> int:
    """The fewest phases with the widest copies, of those that divide a row of outputs."""
    counts = [n for n in range(1, MAX_PHASES + 1) if conv.out_size[-1] % n == 0]
    return max(counts, key=lambda n: (_Runs(conv, n).aligned, -n))


def folded(conv: ConvShape, phases: int) -> Contraction:
    """The matmul over runs; WorkloadError where there are none or rows have no such phases."""
    if not can_fold(conv):
        raise WorkloadError("conv.fold", workload=conv.name)
    if phases < 1 or conv.out_size[-1] % phases:
        raise WorkloadError("conv.phases", workload=conv.name, phases=phases, row=conv.out_size[-1])
    runs = _Runs(conv, phases)
    images, filters = _operands(conv, runs)
    batch_axes: tuple[Axis, ...] = (("phase", phases),) if phases > 1 else ()
    return contraction_of(
        conv,
        batch_axes,
        conv.pixels // phases,
        kernel_axes(conv)[:-1],
        ("sc", runs.length + runs.most_early),
        (images, filters),
        lambda at: _output(conv, phases, at),
        rows=phases == 1,
    )


@dataclass(frozen=True)
class _Runs:
    """The runs of one convolution, in elements of an image row.

    ``step``: between the windows of neighbouring outputs. ``before``: of padding in front of the
    first. ``length``: of a window.
    """

    conv: ConvShape
    phases: int

    @property
    def step(self) -> int:
        return self.conv.stride[-1] * self.conv.c

    @property
    def before(self) -> int:
        return self.conv.pad[-1][0] * self.conv.c

    @property
    def length(self) -> int:
        return self.conv.kernel[-1] * self.conv.c

    @property
    def width(self) -> int:
        """Elements of an image row."""
        return self.conv.size[-1] * self.conv.c

    @property
    def aligned(self) -> int:
        """What divides where a run starts: elements of the widest copy, at most."""
        widest = VECTOR_BYTES // numpy_dtype(self.conv.storage).itemsize
        return math.gcd(self.phases * self.step, self.width, widest)

    @property
    def most_early(self) -> int:
        """Elements by which the earliest run begins before its window."""
        return max((phase * self.step - self.before) % self.aligned for phase in range(self.phases))

    @property
    def margin(self) -> int:
        """The padding, rounded up to where a run may start."""
        return -(-self.before // self.aligned) * self.aligned

    def start(self, at: Coordinates) -> tuple[Any, Any]:
        """Where the phase's first run starts, and by how much that is before its window."""
        if self.phases == 1:
            return -self.margin, self.margin - self.before
        first = at["phase"] * self.step + (self.margin - self.before)
        unit = i32(self.aligned)
        return tirx.floordiv(first, unit) * unit - self.margin, tirx.floormod(first, unit)


def _operands(conv: ConvShape, runs: _Runs) -> tuple[Operand, Operand]:
    last = (conv.out_size[-1] - 1) * runs.step - runs.before + runs.length + runs.most_early - 1
    ends_early = runs.most_early > 0

    def pixel(at: Coordinates) -> Element:
        image, places = _counted(conv, runs.phases, at)
        found, conditions = windows(conv, places[:-1], position(conv, at)[:-1])
        start, _ = runs.start(at)
        flat = places[-1] * (runs.phases * runs.step) + start + at["sc"]
        if runs.margin:
            conditions.append(flat >= 0)
        if last >= runs.width:
            conditions.append(flat < runs.width)
        return [image, *found, *unfolded(flat, runs.margin, conv.c)], conditions

    def weight(at: Coordinates) -> Element:
        _, early = runs.start(at)
        flat = at["sc"] - early
        conditions = [flat >= 0] if ends_early else []
        if runs.phases > 1:
            conditions.append(flat < runs.length)
        where = unfolded(flat, runs.most_early, conv.c)
        return [at["j"], *position(conv, at)[:-1], *where], conditions

    images = Operand(
        "X",
        image_shape(conv, conv.size, conv.c),
        True,
        pixel,
        tile="pixels",
        unit=runs.aligned,
        masked=is_masked(conv) or ends_early,
        note=_why(conv, runs),
        seen=seen(conv),
    )
    filters = Operand(
        "W",
        filter_shape(conv),
        True,
        weight,
        tile="filters",
        unit=math.gcd(runs.length, runs.step, runs.before, runs.aligned)
        if runs.phases > 1
        else math.gcd(runs.length, runs.most_early),
        masked=ends_early or runs.phases > 1,
        sliced=True,
        row_axis=0,
        joined=2,
    )
    if runs.phases > 1 or ends_early:
        return images, filters
    plain = forward(conv)
    return _by_position(images, plain.a, conv.c), _by_position(filters, plain.b, conv.c)


def _by_position(operand: Operand, plain: Operand, channels: int) -> Operand:
    """``operand``, told what it is to tiles of one position's channels: as if not folded."""
    form = replace(plain, note=operand.note)
    return replace(operand, within=(("sc", channels, 1, form),))


def _why(conv: ConvShape, runs: _Runs) -> Why:
    found = [Reason("conv.runs", positions=conv.kernel[-1], channels=conv.c)]
    if runs.most_early:
        found.append(Reason("conv.runs_early", elements=runs.most_early))
    if runs.phases > 1:
        found.append(Reason("conv.runs_phases", phases=runs.phases))
    if runs.aligned > 1:
        found.append(Reason("conv.runs_aligned", elements=runs.aligned))
    return all_of(found)


def _counted(conv: ConvShape, phases: int, at: Coordinates) -> tuple[Any, list[Any]]:
    """Image and place of an output; the last coordinate counts outputs of its phase."""
    *outer, row = conv.out_size
    return split_pixel(at["i"], conv.n, [*outer, row // phases])


def _output(conv: ConvShape, phases: int, at: Coordinates) -> tuple[Any, list[Any]]:
    image, places = _counted(conv, phases, at)
    if phases > 1:
        places[-1] = places[-1] * phases + at["phase"]
    return image, places


def unfolded(flat: Any, before: int, channels: int) -> list[Any]:
    """Column and channel at place ``flat`` of an image row, at least ``-before``.

    The division is of no negative number, so that the place is found again in the address.
    """
    columns = -(-before // channels)
    shifted = flat + columns * channels
    return [
        tirx.floordiv(shifted, i32(channels)) - columns,
        tirx.floormod(shifted, i32(channels)),
    ]
