"""Which region and channels a thread has, and whose weights its CTA keeps.

    channels innermost   threads side by side have channels side by side of one region
    channels outside     threads side by side have columns side by side of one band of a plane

A *plane* is one channel of one image. Regions of a CTA lie above each other in either case: the
rows that two of them read come from the L1 cache for one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from ..tiles import DepthwiseTile
from .cut import RegionCut
from .sums import Channelwise


@dataclass(frozen=True, slots=True)
class Placing(ABC):
    """Of one schedule. Blocks of channels are ``g``, CTAs ``b``, threads of one ``tx``."""

    what: Channelwise
    tile: DepthwiseTile
    cut: RegionCut

    def region(self, b: Any, tx: Any) -> Any:
        """Counted over all images."""
        return b * self.cut.strips + tx // self.cut.lanes

    def has_region(self, b: Any, tx: Any) -> list[Any]:
        """The condition under which there is such a region, where it is one."""
        ragged = self.cut.regions % self.cut.strips
        return [self.region(b, tx) < self.cut.regions] if ragged else []

    @property
    @abstractmethod
    def side(self) -> int:
        """Neighbouring pixels that one access stores."""

    @abstractmethod
    def image(self, b: Any, tx: Any) -> Any:
        """The image of a thread's region."""

    @abstractmethod
    def top(self, b: Any, tx: Any) -> Any:
        """The first row of its outputs."""

    @abstractmethod
    def first(self, b: Any, tx: Any) -> Any:
        """The first column of its outputs."""

    @abstractmethod
    def column(self, b: Any, tx: Any, v: Any) -> Any:
        """Which of its CTA's weights its channel ``v`` is multiplied by."""

    @abstractmethod
    def channel(self, g: Any, b: Any, column: Any) -> Any:
        """The channel whose weights they are."""

    @abstractmethod
    def is_channel(self, g: Any, b: Any, column: Any) -> list[Any]:
        """The condition under which there is such a channel, where it is one."""

    @abstractmethod
    def exists(self, g: Any, b: Any, tx: Any) -> list[Any]:
        """The conditions under which a thread has outputs."""

    @abstractmethod
    def place(self, image: Any, y: Any, x: Any, channel: Any) -> tuple[Any, ...]:
        """The indices of an element of an image."""

    @abstractmethod
    def weight_place(self, channel: Any, y: Any, x: Any) -> tuple[Any, ...]:
        """The indices of a weight."""


class InLines(Placing):
    """Channels innermost."""

    __slots__ = ()

    @property
    def side(self) -> int:
        """One, of neighbouring channels."""
        return 1

    def image(self, b: Any, tx: Any) -> Any:
        """Regions of an image are neighbours."""
        return self.region(b, tx) // (self.cut.across * self.cut.down)

    def top(self, b: Any, tx: Any) -> Any:
        """Regions above each other are neighbours."""
        return self.region(b, tx) % self.cut.down * self.tile.rows

    def first(self, b: Any, tx: Any) -> Any:
        """Behind them those beside."""
        return self.region(b, tx) // self.cut.down % self.cut.across * self.tile.pixels

    def column(self, b: Any, tx: Any, v: Any) -> Any:
        """Its own, in each CTA."""
        return tx % self.cut.lanes * self.tile.vector + v

    def channel(self, g: Any, b: Any, column: Any) -> Any:
        """Of the block."""
        return g * self.cut.columns + column

    def is_channel(self, g: Any, b: Any, column: Any) -> list[Any]:
        """Not in the last block, where it has fewer."""
        ragged = self.what.conv.c % self.cut.columns
        return [self.channel(g, b, column) < self.what.conv.c] if ragged else []

    def exists(self, g: Any, b: Any, tx: Any) -> list[Any]:
        """The region and the channels."""
        return self.has_region(b, tx) + self.is_channel(g, b, self.column(b, tx, 0))

    def place(self, image: Any, y: Any, x: Any, channel: Any) -> tuple[Any, ...]:
        """As they lie."""
        return (image, y, x, channel)

    def weight_place(self, channel: Any, y: Any, x: Any) -> tuple[Any, ...]:
        """As they lie."""
        return (channel, y, x, 0)


class InPlanes(Placing):
    """Channels outside of the image; a thread has one."""

    __slots__ = ()

    @property
    def side(self) -> int:
        """Two where no column is left over: an access of 32 bits."""
        whole = self.what.out_size[1] % self.tile.pixels == 0
        return 2 if whole and self.tile.pixels % 2 == 0 else 1

    @property
    def each(self) -> int:
        """Regions of a plane."""
        return self.cut.down * self.cut.across

    def plane(self, b: Any, tx: Any) -> Any:
        """Counted over channels and images."""
        return self.region(b, tx) // self.each

    def image(self, b: Any, tx: Any) -> Any:
        """Planes of an image are neighbours."""
        return self.plane(b, tx) // self.what.conv.c

    def top(self, b: Any, tx: Any) -> Any:
        """Bands above each other are neighbours."""
        return self.region(b, tx) % self.cut.down * self.tile.rows

    def first(self, b: Any, tx: Any) -> Any:
        """Of the thread's place in a row, or in a part of a wide one."""
        part = self.region(b, tx) // self.cut.down % self.cut.across
        return (part * self.cut.lanes + tx % self.cut.lanes) * self.tile.pixels

    def column(self, b: Any, tx: Any, v: Any) -> Any:
        """Its plane, of those of the CTA."""
        return self.plane(b, tx) - b * self.cut.strips // self.each

    def channel(self, g: Any, b: Any, column: Any) -> Any:
        """Of the first plane of the CTA, or of one behind it."""
        return (b * self.cut.strips // self.each + column) % self.what.conv.c

    def is_channel(self, g: Any, b: Any, column: Any) -> list[Any]:
        """Always."""
        return []

    def exists(self, g: Any, b: Any, tx: Any) -> list[Any]:
        """The region, and a column."""
        wide, across = self.what.out_size[1], self.cut.lanes * self.cut.across
        ragged = across * self.tile.pixels - wide >= self.tile.pixels
        return self.has_region(b, tx) + ([self.first(b, tx) < wide] if ragged else [])

    def place(self, image: Any, y: Any, x: Any, channel: Any) -> tuple[Any, ...]:
        """As they lie."""
        return (image, channel, y, x)

    def weight_place(self, channel: Any, y: Any, x: Any) -> tuple[Any, ...]:
        """As they lie."""
        return (channel, 0, y, x)


def placing_of(what: Channelwise, tile: DepthwiseTile, cut: RegionCut) -> Placing:
    """As the layout asks."""
    return (InLines if what.conv.channels_last else InPlanes)(what, tile, cut)
