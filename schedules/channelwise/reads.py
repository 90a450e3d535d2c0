"""Which inputs the outputs along one dimension read, and by which position of the kernel.

Forward, output ``q`` reads input ``q * stride + t * dilation - pad`` by position ``t``. The
gradient of the input is the same relation read the other way: pixel ``q`` collects from the outputs
``j`` with ``j * stride + t * dilation - pad == q``. Without a stride these are neighbours, and the
kernel is flipped. With one, a pixel has those positions alone whose phase is its own; where a
region of pixels starts at a multiple of the stride, unrolling tells which positions those are.

    forward, stride 2, kernel 3               gradient, stride 2, kernel 3
    inputs    0 1 2 3 4                       inputs (outputs of the convolution)  0   1   2
    outputs   0: 0 1 2    1: 2 3 4            outputs (its pixels)   0: 0   1: 0 1   2: 1   3: 1 2
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from ..workloads import Conv


@dataclass(frozen=True, slots=True)
class AxisReads(ABC):
    """What the outputs of a region along one dimension read.

    ``size``: the inputs. ``out_size``: the outputs. ``kernel``, ``stride``, ``dilation``: those of
    the convolution. ``low``: its zeros before the first input. Places of a region's inputs are
    counted from the first that it reads.
    """

    size: int
    out_size: int
    kernel: int
    stride: int
    dilation: int
    low: int

    @property
    @abstractmethod
    def unit(self) -> int:
        """What the extent of regions is a multiple of, where there are several."""

    @abstractmethod
    def reach(self, count: int) -> int:
        """How many neighbouring inputs ``count`` neighbouring outputs read."""

    @abstractmethod
    def first(self, start: Any) -> Any:
        """The first input that the region reads whose first output is ``start``."""

    @abstractmethod
    def distance(self, place: Any, output: Any) -> Any:
        """How far into the kernel, holes counted, the input lies for output ``output``."""

    @abstractmethod
    def place(self, output: Any, position: Any) -> Any:
        """The input that an output reads by a position of the kernel."""

    @abstractmethod
    def meets(self, output: Any, position: Any) -> list[Any]:
        """The conditions under which there is such an input."""

    def reads(self, place: Any, output: Any) -> list[Any]:
        """The conditions under which the output reads the input."""
        at = self.distance(place, output)
        apart = self.dilation > 1
        steps = [tirx.EQ(tirx.floormod(at, self.dilation), 0)] if apart else []
        return [at >= 0, at <= (self.kernel - 1) * self.dilation, *steps]

    def position(self, place: Any, output: Any) -> Any:
        """By which position of the kernel it does."""
        return self.distance(place, output) // self.dilation


class ForwardReads(AxisReads):
    """Of a convolution."""

    __slots__ = ()

    @property
    def unit(self) -> int:
        """Regions are of any extent."""
        return 1

    def reach(self, count: int) -> int:
        """From the first position of the first output to the last of the last."""
        return (count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    def first(self, start: Any) -> Any:
        """That of the kernel's first position."""
        return start * self.stride - self.low

    def distance(self, place: Any, output: Any) -> Any:
        """From where the output's window starts."""
        return place - output * self.stride

    def place(self, output: Any, position: Any) -> Any:
        """Within the output's window."""
        return output * self.stride + position * self.dilation

    def meets(self, output: Any, position: Any) -> list[Any]:
        """Always."""
        return []


class GradientReads(AxisReads):
    """Of the gradient of a convolution's input: its inputs are the convolution's outputs."""

    __slots__ = ()

    @property
    def unit(self) -> int:
        """Regions start at the same phase."""
        return self.stride

    @property
    def before(self) -> int:
        """The first input that the first output may read."""
        return -((self.reached - self.low) // self.stride)

    @property
    def reached(self) -> int:
        """How far the kernel's last position is from its first."""
        return (self.kernel - 1) * self.dilation

    @property
    def shift(self) -> int:
        """How far into the kernel the first of a region's inputs lies for its first output."""
        return self.low - self.before * self.stride

    def reach(self, count: int) -> int:
        """To the last input that starts at the last output, or before it; one at least."""
        return max(0, count - 1 + self.shift) // self.stride + 1

    def first(self, start: Any) -> Any:
        """That of the kernel's last position."""
        return tirx.floordiv(start, self.stride) + self.before

    def distance(self, place: Any, output: Any) -> Any:
        """From where the input was multiplied first."""
        return output + self.shift - place * self.stride

    def place(self, output: Any, position: Any) -> Any:
        """The input whose window has the output at that position."""
        return tirx.floordiv(output + self.shift - position * self.dilation, self.stride)

    def meets(self, output: Any, position: Any) -> list[Any]:
        """With a stride, only for positions of the output's phase."""
        if self.stride == 1:
            return []
        at = output + self.shift - position * self.dilation
        return [tirx.EQ(tirx.floormod(at, self.stride), 0)]


def forward_reads(conv: Conv) -> tuple[AxisReads, ...]:
    """Of each dimension of a convolution."""
    return tuple(
        ForwardReads(size, out_size, kernel, stride, dilation, low)
        for size, out_size, kernel, stride, dilation, (low, _) in zip(
            conv.size, conv.out_size, conv.kernel, conv.stride, conv.dilation, conv.pad
        )
    )


def gradient_reads(conv: Conv) -> tuple[AxisReads, ...]:
    """Of each dimension of the gradient of its input."""
    return tuple(
        GradientReads(size, out_size, kernel, stride, dilation, low)
        for size, out_size, kernel, stride, dilation, (low, _) in zip(
            conv.out_size, conv.size, conv.kernel, conv.stride, conv.dilation, conv.pad
        )
    )
