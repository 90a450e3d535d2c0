"""What TVM calls the blocks, buffers and loops that its schedule primitives make.

    cached(padded("A"), "shared")   =>   A_pad_shared      pad_einsum, then cache_read

The closed form names what the schedule will make, so that plans by either say the same.
"""

from __future__ import annotations

from collections.abc import Sequence


def cached(buffer: str, scope: str) -> str:
    """The copy of ``buffer`` in ``scope`` by cache_read, and ``buffer`` itself after set_scope."""
    return f"{buffer}_{scope}"


def padded(buffer: str) -> str:
    """The tiles of ``buffer`` by pad_einsum."""
    return f"{buffer}_pad"


def updating(block: str) -> str:
    """What adds to the sums that decompose_reduction zeroes elsewhere."""
    return f"{block}_update"


def blockized(block: str) -> str:
    """The block around the loops of ``block`` by blockize."""
    return f"{block}_o"


def tiles_of(loop: str) -> str:
    """The outer one of the loops that split makes of ``loop``."""
    return f"{loop}_0"


def merged(loop: str) -> str:
    """The loop that merge makes of ``loop`` and its like in other nests."""
    return f"{loop}_m"


def fused(loops: Sequence[str]) -> str:
    """The loop that fuse makes of several; the loop itself where it is one."""
    return f"{'_'.join(loops)}_fused" if len(loops) > 1 else loops[0]
