"""Which tile to take: the least predicted time among tiles, forms and split-K."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, overload

from ..choice.bound import least_us
from ..diagnostics import Reason
from ..errors import PipelinerError, WorkloadError
from ..instructions import warpgroup_tiles
from ..instructions.dtypes import element_bytes
from ..instructions.warpgroup_tiles import up_to
from ..machine import VECTOR_BYTES, Machine
from ..plan.request import AccumulateAsked, Instruction, Request
from ..space.axes import may_gain_from_clusters
from ..space.ranking import choose
from ..values.facts import KernelInfo
from .closed_form import contraction_info, copy_info, storage_bytes, typical
from .tiles import ConvTile, DepthwiseTile, GemmTile
from .workloads import (
    MAX_SPLITS,
    Contraction,
    Conv,
    Convolution,
    ConvWeightGrad,
    Gemm,
    Spec,
    best_phases,
    can_fold,
    reduction_tiles,
)

TILE_EXTENTS: Final = (16, 32, 48, 64, 96, 128, 160, 192, 256)

TILE_K_BYTES: Final = (64, 128)
"""Bytes of K in one step; 128 is one row of the 32 banks of shared memory.

Of 21 pairs of tiles on an H100, 20 took 2 to 32 % longer with 64 bytes than with 128, so 32 bytes
are not compared.
"""

SHORT_K_BYTES: Final = 32
"""Bytes of K in one step of a reduction that has no more: one sector of memory."""

ONE_WAVE_GROUP: Final = 4
"""Rasterisation group, in tile rows, of small tiles whose CTAs are one wave.

Measured on an H100 with groups of 2, 4, 8 and 16: 1024 x 1000 x 2048 in tiles of 64 x 128 took
12.7, 12.0, 12.5 and 13.6 us. With 4, 8 and 16: 1024 cubed 8.3, 8.4 and 8.5 us, 512 x 768 x 3072 in
64 x 48 10.7, 10.7 and 11.2 us, 512 x 3072 x 768 in 128 x 96 9.7, 9.7 and 9.5 us.
"""

LARGE_TILE: Final = 128 * 128
"""Outputs of the smallest tile that tensor cores bound, for which the group hardly matters.

2048 cubed in tiles of 128 x 256 took 27.7 us in groups of 16, 28.0 us in groups of 4.
"""

DEPTHWISE_PIXELS: Final = 4
"""Neighbouring outputs of a thread, which share each weight that it loads."""

LEAST_STEPS: Final = 4
"""Fewest steps of a split: with fewer, a CTA only fills and drains its rings."""

SAME_TIME: Final = 0.005
"""Relative difference in time below which two tiles count as equally fast."""

SAME_WAVE: Final = 0.025
"""The same for tiles whose CTAs are one wave; also of the outputs that they compute in vain."""

WORTH_A_PLAN: Final = (1 + SAME_WAVE) * (1 + SAME_TIME) + 0.01
"""Times of the fastest tile within which ``_best`` looks for another, with a hundredth to spare."""


@overload
def default_tile(
    workload: Gemm,
    machine: Machine,
    instruction: Instruction = ...,
    splits: int | None = ...,
    accumulate: AccumulateAsked = ...,
) -> GemmTile: ...


@overload
def default_tile(
    workload: Convolution,
    machine: Machine,
    instruction: Instruction = ...,
    splits: int | None = ...,
    accumulate: AccumulateAsked = ...,
) -> ConvTile | DepthwiseTile: ...


@overload
def default_tile(
    workload: Spec,
    machine: Machine,
    instruction: Instruction = ...,
    splits: int | None = ...,
    accumulate: AccumulateAsked = ...,
) -> GemmTile | DepthwiseTile: ...


def default_tile(
    workload: Spec,
    machine: Machine,
    instruction: Instruction = "auto",
    splits: int | None = None,
    accumulate: AccumulateAsked = "auto",
) -> GemmTile | DepthwiseTile:
    """The tile with the least predicted time on ``machine``.

    ``instruction``: what is to multiply it. ``splits``: of the reduction (split-K); None: more than
    one where whole tiles would leave SMs idle and that costs more than to add partial sums.
    ``accumulate``: how products of fp8 are to be summed. A depthwise
    convolution with channels innermost gets a tile that is no matmul's. Raises WorkloadError when
    no tile of this workload can be mapped there, or what kept the last one from ``instruction``.
    """
    if isinstance(workload, Conv) and workload.depthwise and workload.channels_last:
        if splits not in (None, 1):
            raise WorkloadError("split.no_matmul", workload=workload.name)
        return _depthwise_tile(workload)
    found, parts = compare_tiles(
        workload, machine, instruction, splits, accumulate, within=WORTH_A_PLAN
    )
    best = whole = _best(found, machine)
    if parts and _best(parts, machine).us < whole.us:
        best = _best(parts, machine)
        best = replace(best, tile=replace(best.tile, why=_why_split(best, whole, machine)))
    if best.depth:  # its neighbours were part of the comparison
        return best.tile
    return replace(best.tile, raster_group=raster_group(best.tile, machine))


@dataclass(frozen=True, slots=True)
class ComparedTile:
    """A tile with its predicted time, and the depth of its rings with mbarriers (0: none).

    ``tiles``: of all outputs. ``box``: columns of the TMA box that is stored at once.
    """

    tile: GemmTile
    us: float
    depth: int
    tiles: int
    box: int

    @property
    def computed(self) -> int:
        """Outputs of all tiles, with those that lie beyond the ends."""
        return self.tiles * self.tile.m * self.tile.n

    @property
    def ctas(self) -> int:
        """CTAs, where each has one tile or a part of one."""
        return self.tiles * self.tile.splits


def compare_tiles(
    workload: Spec,
    machine: Machine,
    instruction: Instruction = "auto",
    splits: int | None = None,
    accumulate: AccumulateAsked = "auto",
    within: float = math.inf,
) -> tuple[list[ComparedTile], list[ComparedTile]]:
    """The tiles that ``default_tile`` chooses from: whole ones, and those with split-K.

    A tile that provably takes more than ``within`` times as long as the fastest may be left out:
    those come first whose bounds are least. Raises what ``default_tile`` raises.
    """
    asked = 1 if splits is None else splits
    found: dict[int, list[ComparedTile]] = {}
    parts: dict[int, list[ComparedTile]] = {}
    failed: dict[int, PipelinerError] = {}
    tries: list[tuple[float, int, Request, list[_Tile]]] = []
    for at, (what, tile, request) in enumerate(_tries(workload, machine, instruction, accumulate)):
        counts = worthwhile_splits(what, tile, machine) if splits is None else ()
        try:
            tiles = [_tile(what, replace(tile, splits=count)) for count in (asked, *counts)]
        except PipelinerError as err:  # it has not that many parts
            failed[at] = err
        else:
            least = min(least_us(info, machine, request) for _, _, info in tiles)
            tries.append((least, at, request, tiles))
    fastest = math.inf
    for least, at, request, (whole, *split) in sorted(tries, key=lambda one: one[:2]):
        if least > fastest * within:
            break
        try:
            found[at] = _planned(whole, machine, request)
            fastest = min([fastest, *(one.us for one in found[at])])
            for part in split:
                parts.setdefault(at, []).extend(_planned(part, machine, request))
        except PipelinerError as err:  # what is demanded does not fit this tile, or these parts
            failed[at] = err
    compared = [one for at in sorted(found) for one in found[at]]
    if not compared:
        why = failed[max(failed)] if failed else None
        if why is not None and instruction != "auto":
            raise why
        reason = Reason("tile.no_plan") if why is None else why.reason
        name, where = workload.name, machine.name
        if asked > 1:
            raise WorkloadError(
                "tile.none_split", workload=name, splits=asked, machine=where, why=reason
            )
        raise WorkloadError("tile.none", workload=name, machine=where, why=reason)
    return compared, [one for at in sorted(parts) for one in parts[at]]


_Tile: TypeAlias = tuple[GemmTile, int, KernelInfo]
"""A tile to compare, how many there are of it, and what recognition will find."""


def _tile(what: Contraction, tile: GemmTile) -> _Tile:
    return tile, tiles_of(what, tile), contraction_info(what, tile)


def _planned(compared: _Tile, machine: Machine, request: Request) -> list[ComparedTile]:
    """A tile with the time of what it makes; nothing where it makes nothing."""
    tile, tiles, info = compared
    plan = choose(info, machine, request, accelerated=False)
    if not plan.matmuls or plan.predicted_us <= 0.0:
        return []
    depth = min((channel.depth for channel in plan.mbarriers), default=0)
    box = max((store.box[1] for store in plan.stores), default=0)
    return [ComparedTile(tile, plan.predicted_us, depth, tiles, box)]


def _best(found: list[ComparedTile], machine: Machine) -> ComparedTile:
    """The fastest tile; among equally fast ones with mbarriers, the deepest with the widest box.

    Among tiles whose CTAs are one wave, those that waste least, keep most SMs busy and copy least
    come first: memory bounds them all, and their predictions differ by less than 2 %. Measured on
    an H100: 16 x 4096 x 4096 took 18.5 us in tiles of 16 x 64 and 20.2 us in 64 x 32; 256 x 256 x
    65536 took 35.1 us in 16 splits of 64 x 128 and 47.7 us in 8 splits of 64 x 64.
    """
    best = min(found, key=lambda one: (one.us, -one.tile.m * one.tile.n * one.tile.k))
    if best.depth == 0:
        return best
    if best.ctas <= machine.sms and best.tile.persistent is None:
        wave = [one for one in found if one.depth and one.ctas <= machine.sms]
        alike = [one for one in wave if one.us <= best.us * (1 + SAME_WAVE)]
        least = min(one.computed for one in alike) * (1 + SAME_WAVE)
        thrifty = max(_thrift(one) for one in alike if one.computed <= least)
        found = [one for one in alike if one.computed <= least and _thrift(one) == thrifty]
        best = min(found, key=lambda one: one.us)
    equal = [one for one in found if one.depth and one.us <= best.us * (1 + SAME_TIME)]
    return max(equal, key=lambda one: (one.depth, one.box, -one.us))


def why_not_fastest(chosen: GemmTile, found: list[ComparedTile], machine: Machine) -> Reason | None:
    """The tie-break by which ``chosen`` is taken of ``found``; None: it is the fastest.

    Rasterisation makes no difference here.
    """
    alike = [one for one in found if replace(one.tile, raster_group=chosen.raster_group) == chosen]
    fastest = min(found, key=lambda one: one.us, default=None)
    if not alike or fastest is None or min(one.us for one in alike) <= fastest.us:
        return None
    same_outputs = (fastest.tile.m, fastest.tile.n) == (chosen.m, chosen.n)
    one_wave = fastest.ctas <= machine.sms and fastest.tile.persistent is None and not same_outputs
    other = (fastest.tile.m, fastest.tile.n, fastest.tile.k)
    if one_wave:
        return Reason("tile.same_wave", other=other, us=fastest.us, percent=SAME_WAVE)
    return Reason("tile.same_time", other=other, us=fastest.us, percent=SAME_TIME)


def _thrift(one: ComparedTile) -> tuple[int, float]:
    """CTAs, and multiply-adds for each element that they copy."""
    m, n = one.tile.m, one.tile.n
    return one.ctas, m * n / (m + n)


def tiles_of(what: Contraction, tile: GemmTile) -> int:
    """Tiles of all outputs."""
    m, n, _ = typical(what)
    batch = math.prod(extent or 1 for _, extent in what.batch_axes)
    return batch * math.ceil(m / tile.m) * math.ceil(n / tile.n)


def worthwhile_splits(what: Contraction, tile: GemmTile, machine: Machine) -> list[int]:
    """Numbers of splits that fill the SMs once or twice, where whole tiles do not."""
    most = min(MAX_SPLITS, reduction_tiles(what, tile.k) // LEAST_STEPS)
    tiles = tiles_of(what, tile)
    filling = {min(most, rounds * machine.sms // tiles) for rounds in (1, 2)}
    return sorted(splits for splits in filling if splits > 1 and tile.persistent is None)


def _why_split(best: ComparedTile, whole: ComparedTile, machine: Machine) -> Reason:
    """Why a reduction is split, in numbers."""
    return Reason(
        "split.faster",
        tiles=best.tiles,
        busy=best.tiles / (math.ceil(best.tiles / machine.sms) * machine.sms),
        sms=machine.sms,
        us=best.us,
        whole_us=whole.us,
        whole=f"{whole.tile.m}x{whole.tile.n}x{whole.tile.k}",
    )


def _tries(
    workload: Spec, machine: Machine, instruction: Instruction, accumulate: AccumulateAsked
) -> Iterator[tuple[Contraction, GemmTile, Request]]:
    """The tiles to compare, and what is asked of each."""
    wide = warpgroup_tiles.are_compared(machine, instruction)
    asked = Request(instruction=instruction, accumulate=accumulate)
    by_warpgroup = replace(warpgroup_tiles.ASKED, accumulate=accumulate)
    if not wide or asked != by_warpgroup:
        yield from ((what, tile, asked) for what, tile in _candidates(workload))
    exact = workload.types.dtype == "float32" and instruction == "auto"
    if not wide or exact:
        return
    found = _boxed(workload, machine) if isinstance(workload, Gemm) else _images(workload, machine)
    yield from ((what, tile, by_warpgroup) for what, tile in found)


def _boxed(workload: Gemm, machine: Machine) -> Iterator[tuple[Contraction, GemmTile]]:
    """Tiles of a product for warpgroups, whose operands are boxes."""
    what = workload.contraction()
    m, n, k = typical(what)
    # Where clusters may pay, they may along a row of tiles too.
    copies = [copy_info(side, what, GemmTile(64, 64, 64), False) for side in (0, 1)]
    lone = [1] if may_gain_from_clusters(copies) else []
    for tile_m, tile_n, tile_k in warpgroup_tiles.extents(m, n, k, storage_bytes(what)):
        tiles = 1 if what.batch_axes else math.ceil(m / tile_m) * math.ceil(n / tile_n)
        for ctas in warpgroup_tiles.grids(tiles, machine):
            tile = GemmTile(tile_m, tile_n, tile_k, persistent=ctas)
            for group in (
                raster_group(tile, machine, None if what.batch_axes else tiles),
                *lone,
            ):
                yield what, replace(tile, raster_group=group)


def _images(workload: Convolution, machine: Machine) -> Iterator[tuple[Contraction, GemmTile]]:
    """Tiles of a convolution for warpgroups: boxes of pixels, or what threads gather.

    Threads gather where pixels are no boxes. Where they are, boxes were faster in nine of ten
    layers on an H100, by 7 to 35 %, and as fast in the tenth (1x1 of 256 channels: 29.5 and 29.8
    us).
    """
    for form in forms(workload):
        what = form.contraction(workload)
        m, n, k = typical(what)
        boxes = what.a.is_box and what.b.is_box
        extents = warpgroup_tiles.image_extents(m, n, k, storage_bytes(what), boxes=boxes)
        for tile_m, tile_n, tile_k in extents:
            tile = replace(form, m=tile_m, n=tile_n, k=tile_k)
            if not _is_worth_it(workload, tile):
                continue
            tiles = 1 if what.batch_axes else math.ceil(m / tile_m) * math.ceil(n / tile_n)
            for ctas in warpgroup_tiles.grids(tiles, machine) if boxes else [None]:
                persistent = replace(tile, persistent=ctas)
                yield (
                    what,
                    replace(persistent, raster_group=raster_group(persistent, machine, tiles))
                    if boxes
                    else persistent,
                )


def _depthwise_tile(conv: Conv) -> DepthwiseTile:
    """Vectors of sums as wide as one access, as far as channels go, and pixels that divide all."""
    widest = VECTOR_BYTES // element_bytes(conv.accumulator)
    return DepthwiseTile(math.gcd(conv.pixels, DEPTHWISE_PIXELS), math.gcd(conv.k, widest))


def _candidates(workload: Spec) -> Iterator[tuple[Contraction, GemmTile]]:
    """Tiles no larger than the padded problem, in every direction, of each form of it."""
    if isinstance(workload, Gemm):
        what = workload.contraction()
        yield from ((what, GemmTile(*extents)) for extents in _extents(what))
        return
    for form in forms(workload):
        what = form.contraction(workload)
        for m, n, k in _extents(what):
            tile = replace(form, m=m, n=n, k=k)
            if _is_worth_it(workload, tile):
                yield what, tile


def _is_worth_it(workload: Convolution, tile: ConvTile) -> bool:
    """Whether this form is worth a comparison with this tile.

    A weight gradient may sum over all pixels where rows would add an eighth of steps. Otherwise to
    cut rows into tiles is the form to take: over all pixels, each thread divides in each step. Runs
    of channels are worth it where a step is no part of one position. Any other form is.
    """
    if isinstance(workload, Conv) and tile.fold and tile.phases == 1:
        return workload.c % tile.k != 0  # else each step is of one position, as if not folded
    if tile.fold or not isinstance(workload, ConvWeightGrad):
        return True
    row = workload.forward.out_size[-1]
    return 8 * math.ceil(row / tile.k) * tile.k > 9 * row


def forms(workload: Convolution) -> list[ConvTile]:
    """Forms to compare, as tiles of one element, the better of equals first."""
    plain = ConvTile(1, 1, 1)
    if isinstance(workload, ConvWeightGrad):
        return [replace(plain, fold=True), plain]
    if not isinstance(workload, Conv):
        return [plain]
    if not workload.channels_last and workload.n > 1:
        return [plain, replace(plain, by_image=True)]
    if not can_fold(workload):
        return [plain]
    counts = sorted({1, best_phases(workload)}, reverse=True)
    return [plain, *(replace(plain, fold=True, phases=count) for count in counts)]


def _extents(what: Contraction) -> Iterator[tuple[int, int, int]]:
    size = storage_bytes(what)
    m, n, k = typical(what)
    # A SIMT tile is unrolled along K. Eight steps of 128 multiply-adds are 16 KB of code; with
    # sixteen the instruction cache thrashes: 3 to 7 % slower on an H100.
    steps = (SHORT_K_BYTES,) if k * size <= SHORT_K_BYTES else TILE_K_BYTES
    depths = [8] if what.types.dtype == "float32" else [bytes_ // size for bytes_ in steps]
    yield from itertools.product(up_to(TILE_EXTENTS, m), up_to(TILE_EXTENTS, n), up_to(depths, k))


def raster_group(tile: GemmTile, machine: Machine, tiles: int | None = None) -> int:
    """The rasterisation group, in tile rows, with which one wave of CTAs covers a square of C.

    A square of C needs the fewest rows of A and columns of B from L2. ``tiles``: of all outputs;
    where small ones are one wave, all is read at once anyway, and ``ONE_WAVE_GROUP`` is faster.
    """
    if tiles is not None and tiles <= machine.sms and tile.m * tile.n < LARGE_TILE:
        return ONE_WAVE_GROUP
    side = math.sqrt(machine.sms * tile.n / tile.m)
    return max(1, 1 << round(math.log2(side)))
