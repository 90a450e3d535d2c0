"""What recognition will find in a workload as scheduled with a tile, in closed form.

Tiles are so judged by the model that later fixes the pipeline's depth, without any IR.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from tvm.ir import Range, Var
from tvm.sym import Analyzer

from ..errors import WorkloadError
from ..instructions.dtypes import element_bytes
from ..mechanisms.stores import MOST_PARTS, PART_BYTES
from ..mechanisms.tma import MAX_BOX, are_chunks, window_extents
from ..passes.copy.tensor_views import View, joined
from ..passes.ir.arithmetic import Computed
from ..passes.ir.linear import affine
from ..passes.ir.nodes import Expr, const_int, i32
from ..space.axes import AUTOMATIC_CLUSTERS
from ..values.facts import (
    CopyInfo,
    KernelInfo,
    LoopInfo,
    MatmulInfo,
    StoreInfo,
    TmaView,
)
from .loops.forms import loop_info
from .names import blockized, cached, fused, merged, padded, tiles_of, updating
from .reordered import reordered_infos
from .tiles import (
    ConvTile,
    GemmTile,
    LoopTile,
    divisor,
    grid_of,
    is_ragged,
    power_of_two,
    row_major,
    stages_transposed,
    walks_batches,
)
from .tiles.raster import sharers
from .total import sum_info
from .workloads import (
    GROUP,
    LOOPS,
    PIXELS,
    STORE,
    WORKSPACES,
    Contraction,
    Gemm,
    Operand,
    Spec,
    reduction_tiles,
    split,
)
from .workloads.base.epilogue import computed_by

GATHERED: Final = "it moves boxes, these elements are gathered"
"""What the closed form says of every operand that is not the matrix itself."""

SCATTERED: Final = "it writes boxes, these elements are scattered"
"""What the closed form says of every result that is not the matrix itself."""

TYPICAL_M: Final = 4096
"""Stands for an M known at run time only when tiles are compared."""


def kernel_info(workload: Spec, tile: GemmTile | LoopTile) -> KernelInfo:
    """What recognition will find in ``workload`` as scheduled with ``tile``, in closed form.

    WorkloadError: the tile is another kind's.
    """
    if isinstance(workload, LOOPS):
        return loop_info(workload, tile)
    if not isinstance(tile, GemmTile):
        raise WorkloadError("tile.kind", workload=workload.name, kind=type(tile).__name__)
    if isinstance(workload, Gemm):
        return contraction_info(workload.contraction(tile.reordered), tile)
    form = tile if isinstance(tile, ConvTile) else ConvTile(tile.m, tile.n, tile.k)
    return contraction_info(form.contraction(workload), tile)


def contraction_info(what: Contraction, tile: GemmTile) -> KernelInfo:
    """``kernel_info`` of a workload's contraction."""
    what = split(what, tile.splits, tile.k)
    m, n, _ = typical(what)
    ragged_m, ragged_n, ragged_k = is_ragged(what, tile)
    a, *others = (
        copy_info(which, what, tile, ragged_k or (ragged_n if which else ragged_m))
        for which in range(len(what.operands))
    )
    sums = [
        cached(padded(name) if ragged_m or ragged_n else name, "local") for _, name in what.matmuls
    ]
    batch = math.prod(extent or 1 for _, extent in what.batch_axes)
    walked = walks_batches(what, tile)
    tiles = math.prod(grid_of(m, n, tile)) * (batch if walked else 1)
    ctas = min(tiles, tile.persistent or tiles)
    steps = reduction_tiles(what, tile.k)
    mean, longest = _mean_and_most_steps(what, steps)
    copied = (a,) if tile.stationary else (a, *others)
    streamed = [() if tile.stationary else (b,) for b in others]
    matmuls = tuple(
        MatmulInfo(
            op=blockized(updating(name)) if tile.persistent is None else updating(blockized(name)),
            acc=acc,
            a=a.dst,
            b=b.dst,
            m=tile.m,
            n=tile.n,
            k=tile.k,
            a_dtype=what.storage(0),
            b_dtype=what.storage(which),
            acc_dtype=what.types.accumulator,
            a_k_major=what.a.k_major and not stages_transposed(what, 0),
            b_k_major=what.operands[which].k_major and not stages_transposed(what, which),
            instruction=what.types.instruction,
            warps=tile.warps,
            thread_tile=tile.thread_tile,
            stationary=(b.dst,) if tile.stationary and steps > 1 else (),
            k_last=_k_last(what, which, tile, steps),
        )
        for which, ((name, _), acc, b) in enumerate(zip(what.matmuls, sums, others), 1)
    )
    steps_of = fused([*(name for name, _ in what.reduction_axes), tiles_of(what.k[0])])
    loop = LoopInfo(
        name=steps_of if what.second is None else merged(steps_of),
        trip=steps if mean is None else None,
        trip_text=str(steps),
        mean_trip=mean,
        most_trip=longest,
        ops=(a, *(op for b, matmul in zip(streamed, matmuls) for op in (*b, matmul))),
        rings=tuple(
            (copy.dst, "shared", copy.elements * element_bytes(copy.dtype)) for copy in copied
        ),
        outer=math.ceil(tiles / ctas),
        by_tile=tiles > ctas and not tile.stationary,
    )
    reordered = reordered_infos(what)
    return KernelInfo(
        name=what.name,
        grid=(batch, ctas) if what.batch_axes and not walked else (ctas,),
        threads=0,
        loops=(loop,),
        accumulators=(
            *(
                (acc, "local", tile.m * tile.n * element_bytes(what.types.accumulator))
                for acc in sums
            ),
            *(
                (b.dst, "shared", steps * b.elements * element_bytes(b.dtype))
                for b in (others if tile.stationary else ())
            ),
        ),
        elementwise=(
            *reordered,
            *(() if what.whole is None else (sum_info(what, tile.why),)),
        ),
        stores=_store_infos(what, sums, tile),
        kernels=len(reordered) + (1 if what.whole is None else 2),
        ends_elementwise=what.whole is not None,
    )


def _k_last(what: Contraction, which: int, tile: GemmTile, steps: int) -> int:
    """Elements of K that the last step has of A or B number ``which``, where one loop covers K.

    Of an operand with padded rows along K, the padding is part of it.
    """
    extent = what.k[1]
    if (
        extent is None
        or what.reduction_axes
        or what.length
        or what.whole is not None
        or tile.stationary
    ):
        return tile.k
    last = extent
    for side in (what.a, what.operands[which]):
        if side.pitch is not None and side.k_major:
            last = max(last, side.pitch)
    return min(tile.k, last - (steps - 1) * tile.k)


def _mean_and_most_steps(what: Contraction, steps: int) -> tuple[float | None, int | None]:
    """The mean over the CTAs of a tile's steps, and the most; None: all take as many."""
    if what.length is None:
        return None, None
    analyzer = Analyzer()
    names, extents = zip(*what.batch_axes)
    taken: list[int] = []
    for values in itertools.product(*(range(extent) for extent in extents)):
        length = what.length({name: i32(value) for name, value in zip(names, values)})
        taken.append(int(analyzer.simplify(length)))
    every = math.prod(extent or 1 for _, extent in what.reduction_axes)
    each = steps // every
    return each * sum(taken) / len(taken), each * max(taken)


def _store_infos(what: Contraction, sums: Sequence[str], tile: GemmTile) -> tuple[StoreInfo, ...]:
    """The stores of the accumulators behind all loops: of the parts of each, or of results."""
    if what.whole is None:
        return (_store_info(what, sums[0], tile),)
    extents = [extent for _, extent in (*what.batch_axes, what.m, what.n)]
    strides = row_major(tuple(extents))
    parts, dtype = extents[0] or 0, what.types.accumulator
    alike = len(extents) == 3 and len(what.out[1]) == 2 and element_bytes(dtype) == PART_BYTES
    together = parts if alike and parts <= MOST_PARTS and what.second is None else 0
    return tuple(
        StoreInfo(name, acc, workspace, dtype, strides, parts=together)
        for (name, workspace), acc in zip(WORKSPACES, sums)
    )


def _store_info(what: Contraction, acc: str, tile: GemmTile) -> StoreInfo:
    """The store of results behind all loops."""
    name, shape = what.out
    gathered = what.a.tile is not None or what.b.tile is not None
    rows = what.rows and not _cuts_groups(what, tile)
    scattered = not rows and (gathered or len(shape) != len(what.batch_axes) + 2)
    by_rows, view = _stores_by_rows(what), None
    if not by_rows:
        by_rows, view = _joined_rows(what, tile.m, tile.n)
    if view is not None and not _cuts_groups(what, tile):
        shape, scattered = view, False
    made = _computed(what)
    return StoreInfo(
        op=STORE,
        acc=acc,
        dst=name,
        dtype=what.types.out,
        dst_strides=row_major(shape),
        by_rows=by_rows,
        no_tma=SCATTERED if scattered else "",
        viewed=not scattered and len(what.out[1]) != len(what.batch_axes) + 2,
        flops=made.flops,
        transcendentals=made.transcendentals,
    )


def _computed(what: Contraction) -> Computed:
    """What is computed of an element of the result: of two sums, then the steps of the epilogue."""
    flops, functions = computed_by(what.epilogue, what.types.accumulator)
    if what.second is not None:
        gate = computed_by((what.activation,), what.types.accumulator)
        flops, functions = flops + gate.flops + 1, functions + gate.transcendentals
    return Computed(flops, functions)


@lru_cache(maxsize=64)  # hundreds of tiles are compared of one contraction
def _stores_by_rows(what: Contraction) -> bool:
    """Whether N alone indexes the last dimension of where elements are stored."""
    axes = [name for name, _ in (*what.batch_axes, what.m, what.n)]
    at = {name: Var(name, "int32") for name in axes}
    last = affine(what.place(at)[-1], [at[what.m[0]], at[what.n[0]]])
    return last is not None and last.coefficients == {at[what.n[0]]: 1}


@lru_cache(maxsize=1024)
def _joined_rows(
    what: Contraction, rows: int, columns: int
) -> tuple[bool, tuple[int | None, ...] | None]:
    """Whether columns of a tile alone index the last dimensions of where it is stored.

    And if tiles are boxes by those, the shape with as many joined as it takes, else None.
    """
    ranges, at = Analyzer(), dict[str, Expr]()
    for name, extent in what.batch_axes:
        at[name] = Var(name, "int32")
        ranges.bind(at[name], Range(0, extent or 1))
    inside: dict[Var, int] = {}
    for (name, extent), size in ((what.m, rows), (what.n, columns)):
        tile, var = Var(f"{name}_tile", "int32"), Var(name, "int32")
        ranges.bind(tile, Range(0, -(-(extent or TYPICAL_M) // size)))
        ranges.bind(var, Range(0, size))
        at[name] = tile * size + var
        inside[var] = size
    m, n = inside
    declared = View(
        tuple(i32(extent or TYPICAL_M) for extent in what.out[1]), tuple(what.place(at))
    )
    apart = declared.apart(inside, ranges)
    for view in (apart, *joined(declared, inside, ranges)):
        *outer, last = (affine(index, [m, n]) for index in view.indices)
        if last is not None and last.coefficients == {n: 1}:
            walked = [index.coefficients for index in outer if index is not None]
            moved = [coefficients for coefficients in walked if coefficients]
            box = len(walked) == len(outer) and moved == [{m: 1}]
            return True, tuple(map(const_int, view.shape)) if box else None
    return False, None


def copy_info(which: int, what: Contraction, tile: GemmTile, ragged: bool) -> CopyInfo:
    """The copy of the tile of A (0) or a B (1, 2) to shared memory; ``ragged``: it is padded."""
    extents = {what.m[0]: tile.m, what.n[0]: tile.n, what.k[0]: tile.k}
    side = what.operands[which].cut(extents)
    row, column = tile.n if which else tile.m, tile.k
    if not side.k_major:
        row, column = column, row
    transposed = stages_transposed(what, which)
    shape = (column, row) if transposed else (row, column)
    name = cached(padded(side.name) if ragged else side.name, "shared")
    # Rows start where the row length and the tile's column offset put them; a transposed row of the
    # tile is nowhere contiguous in memory.
    aligned = 1
    if side.unit is not None and side.contiguous and not transposed:
        offset = 0 if _is_lone(which, what, tile) else column
        aligned = power_of_two(math.gcd(side.unit, offset))
    gathered = not side.is_box or _cuts_groups(what, tile) or (transposed and side.view != "tensor")
    view = "tensor" if gathered or transposed else _view(side, row)
    return CopyInfo(
        op=name,
        src=side.source,
        dst=name,
        dst_scope="shared",
        dtype=what.storage(which),
        shape=shape,
        src_dims=_source_dims(side, transposed),
        src_strides=row_major(side.shape if transposed else side.extents),
        aligned=aligned,
        masked=side.masked or (ragged and _reaches_beyond(which, what, tile)),
        bound=False,
        no_tma=GATHERED if gathered else "",
        view=view,
        note=side.note,
        multicast=_shared(which, what, tile, shape[0]),
        src_bytes=(side.seen or math.prod(extent or 0 for extent in side.shape))
        * element_bytes(what.storage(which)),
    )


def _is_lone(which: int, what: Contraction, tile: GemmTile) -> bool:
    """Whether one tile has all columns that operand ``which``, a matrix, has in memory."""
    if (what.whole or what).operands[which].tile is not None:
        return False
    if what.operands[which].k_major:
        return what.whole is None and (what.k[1] or tile.k + 1) <= tile.k
    extent, size = (what.n[1], tile.n) if which else (what.m[1], tile.m)
    return extent is not None and extent <= size


def _reaches_beyond(which: int, what: Contraction, tile: GemmTile) -> bool:
    """Whether tiles reach beyond an operand in memory, given that they do beyond its extents."""
    side = what.operands[which]
    if side.pitch is None:
        return True
    row = (what.n[1], tile.n) if which else (what.m[1], tile.m)
    outer, inner = (row, (what.k[1], tile.k)) if side.k_major else ((what.k[1], tile.k), row)
    walked = math.ceil((inner[0] or 1) / inner[1]) * inner[1]
    return (outer[0] or 1) % outer[1] != 0 or walked > side.pitch


def _view(side: Operand, pixels: int) -> TmaView:
    """What so many rows of a tile are to the tensor memory accelerator."""
    if side.view == "tensor":
        return "window" if side.slides and pixels <= MAX_BOX else "tensor"
    # What does not leave a row has one dimension, as other boxes do.
    several = bool(side.counts) and pixels > side.counts[-1]
    return "window" if several and window_extents(pixels, side.counts) is not None else side.view


def _cuts_groups(what: Contraction, tile: GemmTile) -> bool:
    """Whether tiles reach beyond the channels of a group: what lies there is the next one's."""
    ragged = zip((what.m, what.n, what.k), is_ragged(what, tile))
    return any(name == GROUP for name, _ in what.batch_axes) and any(
        beyond for (name, _), beyond in ragged if name != PIXELS
    )


def _shared(
    which: int, what: Contraction, tile: GemmTile, rows: int
) -> tuple[tuple[int, int], ...]:
    """Clusters that share the tile of A (0) or a B (1, 2), with the bits in which sharers differ.

    ``rows``: of the tile in shared memory.
    """
    m, n = what.m[1], what.n[1]
    if m is None or n is None:
        return ()
    down, across = grid_of(m, n, tile)
    tiles = down * across
    if walks_batches(what, tile):
        tiles *= math.prod(extent or 1 for _, extent in what.batch_axes)
    ctas = min(tiles, tile.persistent or tiles)
    group = divisor(down, tile.raster_group)
    found = []
    for size in AUTOMATIC_CLUSTERS:
        if ctas % size or down * across % size:
            continue
        alike = sharers(group, across, down * across, size)[min(which, 1)]
        fit = [bits for bits in alike if are_chunks(rows, 1 << bits.bit_count())]
        found += [(size, fit[0])] if fit else []
    return tuple(found)


def _source_dims(side: Operand, transposed: bool) -> tuple[int | None, ...]:
    """``src_dims`` of the copy; those of a gathered element change together, but for the last."""
    dims: list[int | None] = [None] * len(side.shape if transposed else side.extents)
    if side.contiguous:
        lane = 0 if transposed else 1
        dims[-1] = lane
        if side.is_box and side.view == "tensor":
            dims[side.row_axis] = 1 - lane
    return tuple(dims)


def typical(what: Contraction) -> tuple[int, int, int]:
    """M, N and K, where one is known at run time only what stands for it."""
    m, n, k = (extent or TYPICAL_M for extent in (what.m[1], what.n[1], what.k[1]))
    return m, n, k


def storage_bytes(what: Contraction) -> int:
    """Of an element of an operand."""
    return element_bytes(what.types.storage)
