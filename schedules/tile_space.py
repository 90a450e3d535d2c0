"""What a tile may be: those that are compared for a workload, and what else one may have.

A tile is one more axis of the plan space: its extents, its form, a persistent grid, split-K and the
order in which tiles are computed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from ..errors import WorkloadError
from ..instructions import warpgroup_tiles
from ..instructions.dtypes import LINE_BYTES, element_bytes
from ..instructions.table import multiplied_by
from ..instructions.warpgroup_tiles import up_to
from ..machine import Machine
from ..mechanisms.launch import leaves_room
from ..mechanisms.tma import are_chunks
from ..plan import KernelPlan
from ..plan.request import AccumulateAsked, Instruction, Request
from ..space.axes import AUTOMATIC_CLUSTERS
from ..space.neighbours import AxisValues
from .closed_form import storage_bytes, typical
from .tiles import ConvTile, GemmTile, divisor, grid_of
from .tiles.raster import order_slowdown, raster_group, square_group
from .workloads import (
    LOOPS,
    MAX_SPLITS,
    Contraction,
    Conv,
    ConvInputGrad,
    Convolution,
    ConvWeightGrad,
    Gemm,
    Spec,
    begins_inside_vectors,
    best_phases,
    can_fold,
    has_phases,
    has_short_rows,
    reduction_tiles,
)

_Tile = TypeVar("_Tile", bound=GemmTile)

TILE_EXTENTS: Final = (16, 32, 48, 64, 96, 128, 160, 192, 256)

FEW_COLUMNS: Final = 64
"""Columns of C up to which a tile may be as wide as C, in whole columns of an instruction."""

OF_COLUMNS: Final = 8
"""Columns of the narrowest instruction."""

TILE_K_BYTES: Final = (64, 128)
"""Bytes of K in one step; 128 is one row of the 32 banks of shared memory.

Of 21 pairs of tiles on an H100, 20 took 2 to 32 % longer with 64 bytes than with 128, so 32 bytes
are not compared.
"""

SHORT_K_BYTES: Final = 32
"""Bytes of K in one step of a reduction that has no more: one sector of memory."""

LEAST_STEPS: Final = 4
"""Fewest steps of a split: with fewer, a CTA only fills and drains its rings."""

SHARED_BY: Final = tuple(size for size in sorted(AUTOMATIC_CLUSTERS, reverse=True) if size > 2)
"""CTAs of clusters to compare where rows begin inside lines, beside pairs."""

MOST_WAVES: Final = 2
"""Waves of CTAs up to which such clusters are compared."""

GROUPS: Final = (1, 2, 4, 8, 16, 32)
SPLITS: Final = (1, 2, 3, 4, 6, 8)


def tiles_tried(
    workload: Gemm | Convolution,
    machine: Machine,
    instruction: Instruction,
    accumulate: AccumulateAsked,
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
    for reordered in _forms(workload):
        what = workload.contraction(reordered)
        m, n, k = typical(what)
        for tile_m, tile_n, tile_k in warpgroup_tiles.extents(m, n, k, storage_bytes(what)):
            sides = (tile_m, what.a.k_major), (tile_n, what.b.k_major)
            if not all(warpgroup_tiles.fills_a_box(*side) for side in sides):
                continue
            whole = GemmTile(tile_m, tile_n, tile_k, reordered=reordered)
            for ctas in _grids(what, whole, machine):
                tile = replace(whole, persistent=ctas)
                yield what, in_raster_groups(what, tile, machine)
                if ctas is None and begins_inside_lines(what, tile):
                    yield from ((what, one) for one in in_clusters(what, tile, machine))


def _grids(what: Contraction, tile: GemmTile, machine: Machine) -> list[int | None]:
    """CTAs to compare: one for each tile, or a persistent grid that walks through all tiles."""
    if what.batch_axes and not what.batches_are_alike:
        return [None]
    return warpgroup_tiles.grids(tiles_of(what, tile), machine)


def _forms(workload: Gemm) -> tuple[bool, ...]:
    """Whether operands are read as they are, or are first written with aligned rows."""
    return (False, True) if begins_inside_vectors(workload.contraction()) else (False,)


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
            for ctas in _grids(what, tile, machine) if boxes else [None]:
                persistent = replace(tile, persistent=ctas)
                yield what, in_raster_groups(what, persistent, machine) if boxes else persistent


def _candidates(workload: Gemm | Convolution) -> Iterator[tuple[Contraction, GemmTile]]:
    """Tiles no larger than the padded problem, in every direction, of each form of it."""
    if isinstance(workload, Gemm):
        for reordered in _forms(workload):
            what = workload.contraction(reordered)
            yield from (
                (what, GemmTile(*extents, reordered=reordered)) for extents in _extents(what)
            )
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
    cut rows into tiles is the form to take: over all pixels, each thread divides in each step (the
    gradient of a stem's weights takes 242 us so on an H200, 175 by rows). Runs
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
        rows = replace(plain, fold=True)
        return [rows] if has_short_rows(workload.forward) else [rows, plain]
    if isinstance(workload, ConvInputGrad) and has_phases(workload.forward):
        return [replace(plain, fold=True), plain]
    if not isinstance(workload, Conv):
        return [plain]
    if not workload.channels_last:
        return [*_by_image(workload), *(replace(form, reordered=True) for form in _last(workload))]
    if not can_fold(workload):
        return [plain]
    counts = sorted({1, best_phases(workload)}, reverse=True)
    return [plain, *(replace(plain, fold=True, phases=count) for count in counts)]


def _by_image(conv: Conv) -> list[ConvTile]:
    """Tiles of pixels counted over all images, and of each image's, where there are several."""
    plain = ConvTile(1, 1, 1)
    return [plain, replace(plain, by_image=True)] if conv.n > 1 else [plain]


def _last(conv: Conv) -> list[ConvTile]:
    """The forms of ``conv`` with channels innermost, and of each image's pixels."""
    return [*_by_image(conv), *(form for form in forms(replace(conv, layout="")) if form.fold)]


def _extents(what: Contraction) -> Iterator[tuple[int, int, int]]:
    size = storage_bytes(what)
    m, n, k = typical(what)
    # A SIMT tile is unrolled along K. Eight steps of 128 multiply-adds are 16 KB of code; with
    # sixteen the instruction cache thrashes: 3 to 7 % slower on an H100.
    steps = (SHORT_K_BYTES,) if k * size <= SHORT_K_BYTES else TILE_K_BYTES
    depths = [8] if what.types.dtype == "float32" else [bytes_ // size for bytes_ in steps]
    columns = up_to(TILE_EXTENTS, n)
    if n <= FEW_COLUMNS:
        columns = sorted({*columns, -(-n // OF_COLUMNS) * OF_COLUMNS})
    yield from itertools.product(up_to(TILE_EXTENTS, m), columns, up_to(depths, k))


def in_raster_groups(what: Contraction, tile: _Tile, machine: Machine) -> _Tile:
    """``tile`` with the raster group that is best for its grid; of its own kind."""
    if what.m[1] is None or what.n[1] is None:
        return replace(tile, raster_group=square_group(tile.m, tile.n, machine))
    m, n, _ = typical(what)
    return replace(tile, raster_group=raster_group(tile, machine, grid_of(m, n, tile)))


def ordered_us(spec: Spec, tile: GemmTile, machine: Machine, us: float) -> float:
    """Time of ``tile`` in its order of tiles, which takes ``us`` (microseconds) in the best one."""
    what = contraction_of(spec, tile)
    if what.m[1] is None or what.n[1] is None:
        return us
    m, n, _ = typical(what)
    return us * order_slowdown(tile, machine, grid_of(m, n, tile))


def in_clusters(what: Contraction, tile: _Tile, machine: Machine) -> Iterator[_Tile]:
    """``tile`` in a grid of whole clusters of eight CTAs, or four, that read the least together.

    They are rows by columns of tiles: CTAs of a row share tiles of A, those of a column tiles of B.
    Nothing where such a grid takes another wave, or more than a few: then other orders of tiles
    read less of L2.
    """
    m, n, _ = typical(what)
    waves = math.ceil(math.prod(grid_of(m, n, tile)) / machine.sms)
    if waves > MOST_WAVES:
        return
    for size in SHARED_BY:
        fit = [
            one
            for one in _clustered(what, tile, size)
            if math.ceil(math.prod(grid_of(m, n, one)) / machine.sms_of(size)) <= waves
        ]
        if fit:
            yield min(fit, key=_read)
            return


def in_asked_clusters(what: Contraction, tile: _Tile, machine: Machine, size: int) -> _Tile:
    """``tile`` in a grid of whole clusters of ``size`` CTAs, of the fewest tiles, that read least.

    ``tile`` itself where its own grid is more than a few waves, or where no boxes can be cut.
    """
    if what.m[1] is None or what.n[1] is None:
        return tile
    m, n, _ = typical(what)
    if math.ceil(math.prod(grid_of(m, n, tile)) / machine.sms) > MOST_WAVES:
        return tile
    fit = _clustered(what, tile, size)
    return min(fit, key=lambda one: (math.prod(grid_of(m, n, one)), _read(one)), default=tile)


def _clustered(what: Contraction, tile: _Tile, size: int) -> list[_Tile]:
    """``tile`` in each grid of whole clusters whose boxes can be cut, no cluster without a tile."""
    m, n, _ = typical(what)
    down, across = grid_of(m, n, tile)
    made = [
        replace(tile, raster_group=rows, grid_multiple=(rows, size // rows))
        for rows in (1, 2, 4, 8)
        if size % rows == 0 and rows < 2 * down and size // rows < 2 * across
    ]
    return [one for one in made if _cuts_boxes(what, one)]


def _read(tile: GemmTile) -> float:
    """Rows of A and columns of B that a CTA copies, of those that its cluster has."""
    rows, columns = tile.grid_multiple
    return tile.m / columns + tile.n / rows


def _cuts_boxes(what: Contraction, tile: GemmTile) -> bool:
    """Whether boxes are cut into chunks for a cluster, whose CTAs copy them for each other.

    Those of A into as many as it has columns, of B into as many as rows.
    """
    rows, columns = tile.grid_multiple
    of_a = tile.m if what.a.k_major else tile.k
    of_b = tile.n if what.b.k_major else tile.k
    return are_chunks(of_a, columns) and are_chunks(of_b, rows)


def begins_inside_lines(what: Contraction, tile: GemmTile) -> bool:
    """Whether rows of an operand's tile begin inside lines of L2, so that TMA asks for more."""
    return any(
        math.gcd(side.shape[-1] or 0, tile.k if side.k_major else extent)
        * element_bytes(what.storage(which))
        % LINE_BYTES
        for which, side in enumerate(what.operands)
        for extent in [tile.n if which else tile.m]
    )


def contraction_of(spec: Spec, tile: GemmTile) -> Contraction:
    """``spec`` as the matmul that ``tile`` cuts; WorkloadError: it is none."""
    if isinstance(spec, Gemm):
        return spec.contraction(tile.reordered)
    if isinstance(spec, LOOPS):
        raise WorkloadError("tile.kind", workload=spec.name, kind=type(tile).__name__)
    assert isinstance(tile, ConvTile)
    return tile.contraction(spec)


def tiles_of(what: Contraction, tile: GemmTile) -> int:
    """Tiles of all outputs."""
    m, n, _ = typical(what)
    batch = math.prod(extent or 1 for _, extent in what.batch_axes)
    return batch * math.prod(grid_of(m, n, tile))


def worthwhile_splits(what: Contraction, tile: GemmTile, machine: Machine) -> list[int]:
    """Numbers of splits that fill the SMs once or twice, where whole tiles do not.

    And the most whose parts the CTAs of a cluster may put together.
    """
    if what.length is not None:
        return []
    most = min(MAX_SPLITS, reduction_tiles(what, tile.k) // LEAST_STEPS)
    tiles = tiles_of(what, tile)
    filling = {min(most, rounds * machine.sms // tiles) for rounds in (1, 2)}
    if not what.batch_axes and what.second is None and machine.multiplies_by_warpgroup:
        together = [
            size
            for size in AUTOMATIC_CLUSTERS
            if size <= most and leaves_room((tiles, size), machine) and tile.m % size == 0
        ]
        filling.add(max(together, default=1))
    return sorted(splits for splits in filling if splits > 1 and tile.persistent is None)


def rasterised(spec: Spec, tile: GemmTile) -> GemmTile:
    """``tile`` without what makes no difference to the order in which tiles are computed.

    A group of rows is cut to a divisor of all rows, a column of tiles is one group however it is
    cut, and CTAs for more than all tiles have one each.
    """
    what = contraction_of(spec, tile)
    m, n, _ = typical(what)
    down, across = grid_of(m, n, tile)
    group = divisor(down, tile.raster_group) if across > 1 else 1
    ctas = (
        tile.persistent
        if tile.persistent is not None and tile.persistent < tiles_of(what, tile)
        else None
    )
    return replace(tile, raster_group=group, persistent=ctas, why="")


def tile_neighbours(
    spec: Spec, tile: GemmTile, machine: Machine, plan: KernelPlan
) -> list[AxisValues]:
    """What a tile may have otherwise, option by option; ``plan``: of its kernel."""
    return [
        ("k", _longer(tile, plan)),
        ("warps", _warps(spec, plan)),
        ("raster_group", GROUPS),
        ("splits", SPLITS if tile.persistent is None else ()),
        ("persistent", (None, machine.sms) if tile.splits == 1 else ()),
    ]


def _longer(tile: GemmTile, plan: KernelPlan) -> Sequence[int]:
    """Twice the step of FMA tiles: 128x128x16 was 6 % faster than the 128x128x8 that is chosen."""
    return [2 * tile.k] if any(multiplied_by(one).thread_tile for one in plan.matmuls) else []


def _warps(spec: Spec, plan: KernelPlan) -> Sequence[tuple[int, int]]:
    """Other ways to share a tile out among warps; pixels among warpgroups, the other way round.

    On an H100 the filters of 192 pixels by 128 channels as rows of the instruction took 3 % less
    than as its columns with 3 x 3 filters and steps of two, 2 % less with 28 x 28 pixels.
    """
    if len(plan.matmuls) != 1:
        return ()
    if multiplied_by(plan.matmuls[0]).warpgroup_wide:
        other = (
            None if isinstance(spec, Gemm) else warpgroup_tiles.transposed_warps(plan.matmuls[0])
        )
        return [] if other is None else [other]
    shapes = [(2**m, 2**n) for m in range(4) for n in range(4) if 2 <= m + n <= 3]
    return [shape for shape in shapes if shape != plan.matmuls[0].warps]
