"""What the tests of tensor maps and of wgmma share."""

from __future__ import annotations

from math import prod

from pipeliner.emulator.memory.tensor_map import TensorMap


def bytes_of_box(tmap: TensorMap) -> int:
    """Bytes that one copy counts on its mbarrier: the whole box, also where it is out of bounds."""
    return prod(tmap.extent) * tmap.itemsize
