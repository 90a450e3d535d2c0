"""The tile of a matmul: its parameters, and what they leave over."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ...diagnostics import Why
from ...errors import WorkloadError
from ..workloads import Contraction, Conv, Convolution

MAX_GRID_Z: Final = 65535  # CUDA C++ Programming Guide, technical specifications


@dataclass(frozen=True, slots=True)
class GemmTile:
    """Parameters of a GEMM schedule.

    ``m``, ``n``, ``k``: the tile of one CTA and one step. ``raster_group``: tile rows that
    neighbouring CTAs take before the next tile column (rasterisation, or threadblock swizzle).
    ``warps``, ``thread_tile``: optional hints to the mapping of the matmul tile, see MatmulPlan.
    ``persistent``: CTAs of a persistent kernel, which take all tiles one after the other; None: a
    CTA for each tile. ``splits``: partial sums of the reduction, each with CTAs of its own
    (split-K); a second kernel adds them in a fixed order. ``stationary``: B's tiles of all steps
    are copied before the loop and stay, for all tiles of a persistent kernel. ``reordered``:
    kernels of their own first write operands so that tiles of them are boxes: of a product with
    rows of whole lines of memory. ``grid_multiple``: what divides the rows and the columns of the
    grid, whose last tiles may lie beyond the end of C: whole clusters. ``why``: what the plan is to
    say of ``splits``.
    """

    m: int
    n: int
    k: int
    raster_group: int = 8
    warps: tuple[int, int] | None = None
    thread_tile: tuple[int, int] | None = None
    persistent: int | None = None
    splits: int = 1
    stationary: bool = False
    reordered: bool = False
    grid_multiple: tuple[int, int] = (1, 1)
    why: Why = field(default="", compare=False)

    def __post_init__(self) -> None:
        """WorkloadError names a size that is no number of at least 1."""
        _check_sizes(self, "m", "n", "k", "raster_group", "splits")
        if self.persistent is not None:
            _check_sizes(self, "persistent")
        _check_multiple(self.grid_multiple)


@dataclass(frozen=True, slots=True)
class ConvTile(GemmTile):
    """Parameters of a convolution's schedule; ``m`` is the tile of pixels, ``n`` of channels.

    Where channels are outside the image, M and N change places; for a gradient they are what its
    ``contraction`` says. ``fold``: reduce over runs of kernel row and channels (a weight gradient:
    over rows of pixels; an input gradient: by phases of the stride), see the workload's
    ``contraction``. ``phases``: in which the outputs of folded runs are counted. ``by_image``:
    tiles end where images do. ``reordered``: with channels innermost, where those are outside the
    image.
    """

    fold: bool = False
    phases: int = 1
    by_image: bool = False

    def contraction(self, conv: Convolution) -> Contraction:
        """``conv`` in the form that this tile cuts; WorkloadError: it has no such form."""
        if isinstance(conv, Conv):
            return conv.contraction(self.fold, self.phases, self.by_image, self.reordered)
        if self.reordered:
            raise WorkloadError("conv.reordered", workload=conv.name)
        if self.by_image:
            raise WorkloadError("conv.by_image_gradient", workload=conv.name)
        if self.phases != 1:
            raise WorkloadError("conv.phases_unfolded", workload=conv.name, phases=self.phases)
        return conv.contraction(self.fold)


@dataclass(frozen=True, slots=True)
class DepthwiseTile:
    """Parameters of a depthwise convolution's schedule.

    ``pixels``: neighbouring outputs of a thread, each with ``vector`` channels. ``threads``: of a
    CTA, at most. ``rows``: so many rows of ``pixels`` each, over which a window of input rows
    slides; 0: pixels are counted over all rows, and each reads its inputs by itself.
    """

    pixels: int
    vector: int
    threads: int = 128
    rows: int = 0

    def __post_init__(self) -> None:
        """WorkloadError names a size that is no number of at least 1 (``rows``: 0)."""
        _check_sizes(self, "pixels", "vector", "threads")
        if self.rows != 0:
            _check_sizes(self, "rows")


@dataclass(frozen=True, slots=True)
class GroupTile:
    """Parameters of the schedule of a convolution of small groups of channels.

    ``rows`` x ``pixels`` outputs of ``channels`` channels, of whole groups: those of a CTA. Pixels
    and channels are multiples of 16, of which a warp has 16 channels. ``why``: what the plan is to
    say of it.
    """

    rows: int
    pixels: int
    channels: int = 64
    why: Why = field(default="", compare=False)

    def __post_init__(self) -> None:
        """WorkloadError names a size that is no number of at least 1."""
        _check_sizes(self, "rows", "pixels", "channels")


@dataclass(frozen=True, slots=True)
class NaiveTile:
    """Parameters of the naive schedule: CTAs of ``m`` x ``n`` threads, each with an output."""

    m: int = 16
    n: int = 16

    def __post_init__(self) -> None:
        """WorkloadError names a size that is no number of at least 1."""
        _check_sizes(self, "m", "n")


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Parameters of an attention's schedule: ``m`` queries of a CTA, ``n`` keys of a step.

    ``splits``: of the keys, each with CTAs of its own; a second kernel combines what they have of a
    query (flash decoding). ``grouped``: the rows of a tile are the queries of all heads that share
    a head of K and V. ``persistent``: CTAs of a persistent kernel, which take all tiles one after
    the other; None: a CTA for each tile. ``why``: what the plan is to say of ``splits``.
    """

    m: int
    n: int
    splits: int = 1
    grouped: bool = False
    persistent: int | None = None
    why: Why = field(default="", compare=False)

    def __post_init__(self) -> None:
        """WorkloadError names a size that is no number of at least 1."""
        _check_sizes(self, "m", "n", "splits")
        if self.persistent is not None:
            _check_sizes(self, "persistent")


@dataclass(frozen=True, slots=True)
class RowTile:
    """Parameters of the schedule of a product with arithmetic on rows.

    ``m``, ``n``: the tile of one CTA; what a step takes of K is the schedule's. ``raster_group``:
    as of a ``GemmTile``. ``persistent``: as there, of a product with statistics of rows.
    ``splits``: as there, of one with packed weights.
    """

    m: int
    n: int
    raster_group: int = 8
    persistent: int | None = None
    splits: int = 1

    def __post_init__(self) -> None:
        """WorkloadError names a size that is no number of at least 1."""
        _check_sizes(self, "m", "n", "raster_group", "splits")
        if self.persistent is not None:
            _check_sizes(self, "persistent")


LoopTile: TypeAlias = "AttentionTile | RowTile"
"""The tile of a workload of several operations a loop, one of ``LOOPS``."""

ChosenTile: TypeAlias = "GemmTile | DepthwiseTile | GroupTile | LoopTile"
"""What is chosen of a workload."""

Tile: TypeAlias = "GemmTile | DepthwiseTile | GroupTile | NaiveTile | LoopTile"
"""The tile of any schedule; a ConvTile is a GemmTile."""


def _check_sizes(tile: Any, *names: str) -> None:
    for name in names:
        _check_size(name, getattr(tile, name))


def _check_size(name: str, value: Any) -> None:
    if not isinstance(value, int):
        raise WorkloadError("tile.integer", name=name, value=repr(value))
    if value < 1:
        raise WorkloadError("tile.least", name=name, value=value)


def _check_multiple(multiple: Any) -> None:
    if not isinstance(multiple, tuple) or len(multiple) != 2:
        raise WorkloadError("tile.pair", name="grid_multiple", value=repr(multiple))
    for value in multiple:
        _check_size("grid_multiple", value)


def stages_transposed(what: Contraction, operand: int) -> bool:
    """Whether A (0) or a B (1, 2) lies with K outermost in shared memory although not in memory.

    An FMA needs neighbouring rows of A and columns of B at one k; four of them come in one load if
    they are neighbours. Copying 4 bytes at a time costs 1 % of the arithmetic of a 128 x 128 tile,
    reading along K a fifth of the speed. Tensor cores read either way.
    """
    return what.types.dtype == "float32" and what.operands[operand].k_major


def walks_batches(what: Contraction, tile: GemmTile) -> bool:
    """Whether the CTAs of a persistent grid walk through the tiles of all of a batch.

    Not where a stationary operand is one of the batch's.
    """
    return tile.persistent is not None and not tile.stationary and what.batches_are_alike


def is_ragged(what: Contraction, tile: GemmTile) -> tuple[bool, bool, bool]:
    """Whether the tile leaves a tail along M (also where M is symbolic), N and K."""
    extents = (what.m[1], what.n[1], what.k[1])
    sizes = (tile.m * tile.grid_multiple[0], tile.n * tile.grid_multiple[1], tile.k)
    ragged = [extent is None or extent % size != 0 for extent, size in zip(extents, sizes)]
    return ragged[0], ragged[1], ragged[2]


def grid_of(m: int, n: int, tile: GemmTile) -> tuple[int, int]:
    """Rows and columns of tiles that cover ``m`` x ``n`` outputs."""
    down, across = (
        math.ceil(extent / (size * multiple)) * multiple
        for extent, size, multiple in zip((m, n), (tile.m, tile.n), tile.grid_multiple)
    )
    return down, across


def divisor(extent: int, at_most: int) -> int:
    """The largest divisor of ``extent`` up to ``at_most``."""
    return max(size for size in range(1, min(extent, at_most) + 1) if extent % size == 0)


def row_major(shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Elements between neighbours along each dimension; None: known at run time."""
    strides: list[int | None] = [1]
    for extent in reversed(shape[1:]):
        inner = strides[-1]
        strides.append(None if extent is None or inner is None else extent * inner)
    return tuple(reversed(strides))


def power_of_two(value: int) -> int:
    """The largest power of two that divides ``value``."""
    return value & -value
