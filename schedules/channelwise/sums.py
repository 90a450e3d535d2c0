"""A depthwise convolution, or the gradient of its input, as sums over positions of the kernel.

    Y[n, h, w, c] = sum over r, s of X[n, h', w', c] * W[c, r, s]

for the inputs ``h'``, ``w'`` that an output reads ([reads.py](reads.py)). Of the gradient ``Y`` is
dX, and ``X`` dY.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...diagnostics import Reason
from ..workloads import Conv, ConvInputGrad
from .reads import AxisReads, forward_reads, gradient_reads


@dataclass(frozen=True)
class Channelwise:
    """What is summed: ``conv``, or the gradient of its input.

    ``reads``: what outputs read, for each dimension. ``names``: of the parameters, where they are
    not X and Y. ``why``: what the plan is to say of it.
    """

    name: str
    conv: Conv
    reads: tuple[AxisReads, ...]
    shapes: tuple[tuple[int, ...], ...]
    names: Mapping[str, str] = field(default_factory=dict)
    why: Reason | None = None

    @property
    def is_gradient(self) -> bool:
        """Whether it is that of the input."""
        return self.why is not None

    @property
    def size(self) -> tuple[int, ...]:
        """Inputs of an image in each dimension."""
        return tuple(axis.size for axis in self.reads)

    @property
    def out_size(self) -> tuple[int, ...]:
        """Outputs of an image in each dimension."""
        return tuple(axis.out_size for axis in self.reads)

    @property
    def pixels(self) -> int:
        """Outputs of a channel, of all images."""
        return self.conv.n * math.prod(self.out_size)

    @property
    def channels(self) -> int:
        """Of the outputs."""
        return self.conv.c if self.is_gradient else self.conv.k


def channelwise(spec: Conv | ConvInputGrad) -> Channelwise:
    """``spec`` as such sums, whether or not it is depthwise."""
    if isinstance(spec, Conv):
        return Channelwise(spec.name, spec, forward_reads(spec), spec.shapes())
    conv = spec.forward
    flipped = Reason("conv.flipped") if set(conv.stride) == {1} else None
    return Channelwise(
        spec.name,
        conv,
        gradient_reads(conv),
        spec.shapes(),
        {"X": "dY", "Y": "dX"},
        flipped or Reason("conv.own_phase", stride=conv.stride),
    )
