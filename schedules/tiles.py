"""The tile of a matmul: its parameters, what it makes a kernel of, and which one to take.

A tile is judged by the same model that later fixes the pipeline's depth: ``kernel_info`` says in
closed form what recognition will find in the scheduled function, ``choose`` plans it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, overload

from ..cost import choose, warpgroup_tiles
from ..cost.choose import AUTOMATIC_CLUSTERS, may_gain_from_clusters
from ..cost.sizes import element_bytes
from ..cost.warpgroup_tiles import up_to
from ..errors import PipelinerError, WorkloadError
from ..kernel import CopyInfo, KernelInfo, LoopInfo, MatmulInfo, StoreInfo
from ..machine import Machine
from ..request import Instruction, Request
from .total import sum_info
from .workloads import (
    MAX_SPLITS,
    PARTIAL,
    PARTS,
    Contraction,
    Conv,
    Convolution,
    ConvWeightGrad,
    Gemm,
    Operand,
    Spec,
    best_phases,
    can_fold,
    reduction_tiles,
    split,
)

TILE_EXTENTS: Final = (16, 32, 48, 64, 96, 128, 160, 192, 256)

TILE_K_BYTES: Final = (64, 128)
"""Bytes of K in one step, at most a row of shared memory's banks. Of 21 pairs of tiles on an H100,
20 took 2 to 32 % longer with 64 than with 128, so 32 are not worth a try."""

SHORT_K_BYTES: Final = 32
"""Bytes of K in one step where there are no more: a sector of memory."""

ACCESS_BYTES: Final = 16
"""The widest access of a thread."""

DEPTHWISE_PIXELS: Final = 4
"""Outputs of a thread that share a weight; their loads in flight take as many registers."""

GATHERED: Final = "it moves boxes, these elements are gathered"
"""What the closed form says of every operand that is not the matrix itself."""

PART_STEPS: Final = 4
"""Steps of a part at least: fewer do not get beyond filling and draining the rings."""

SCATTERED: Final = "it writes boxes, these elements are scattered"
"""What the closed form says of every result that is not the matrix itself."""

SWIZZLE_ROWS: Final = 8
"""What parts of a tile that CTAs copy for each other are multiples of."""

SAME_TIME: Final = 0.02
"""Relative time below which two tiles count as equal: the model is no better than that."""

TYPICAL_M: Final = 4096
"""Stands for an M known at run time only when tiles are compared."""


@dataclass(frozen=True, slots=True)
class GemmTile:
    """Parameters of a GEMM schedule.

    ``m``, ``n``, ``k``: the tile of one CTA and one step. ``group``: tile rows that neighbouring
    CTAs walk before they move to the next tile column. ``warps``, ``thread_tile``: optional hints
    to the mapping of the matmul tile, see MatmulPlan. ``ctas``: of a grid that walks all tiles, one
    after the other; None: a CTA for each. ``splits``: parts of the reduction, each with CTAs of its
    own; a second kernel adds them in a fixed order. ``held``: B's tiles of all steps are copied
    before the loop and stay, for all tiles of a persistent grid. ``why``: what the plan is to say
    of ``splits``.
    """

    m: int
    n: int
    k: int
    group: int = 8
    warps: tuple[int, int] | None = None
    thread_tile: tuple[int, int] | None = None
    ctas: int | None = None
    splits: int = 1
    held: bool = False
    why: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """WorkloadError names a size below 1."""
        for name in ("m", "n", "k", "group", "ctas", "splits"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise WorkloadError(f"expected tile {name} of at least 1, not {value}")


@dataclass(frozen=True, slots=True)
class ConvTile(GemmTile):
    """Parameters of a convolution's schedule; ``m`` is the tile of pixels, ``n`` of channels.

    Where channels are outside the image, M and N change places; for a gradient they are what its
    ``contraction`` says. ``fold``: reduce over runs of kernel row and channels (a weight gradient:
    over rows of pixels), see the workload's ``contraction``. ``phases``: in which the outputs of
    folded runs are counted. ``by_image``: tiles end where images do.
    """

    fold: bool = False
    phases: int = 1
    by_image: bool = False

    def contraction(self, conv: Convolution) -> Contraction:
        """``conv`` in the form that this tile cuts."""
        if isinstance(conv, Conv):
            return conv.contraction(self.fold, self.phases, self.by_image)
        if self.by_image:
            raise WorkloadError(f"cannot take images of '{conv.name}' apart: it is a gradient")
        if self.phases != 1:
            raise WorkloadError(f"cannot count '{conv.name}' in phases: it reads no runs")
        return conv.contraction(self.fold)


@dataclass(frozen=True, slots=True)
class DepthwiseTile:
    """Parameters of a depthwise convolution's schedule.

    ``pixels``: neighbouring outputs of a thread, each with ``vector`` channels. ``threads``: of a
    CTA.
    """

    pixels: int
    vector: int
    threads: int = 128

    def __post_init__(self) -> None:
        """WorkloadError names a size below 1."""
        for name in ("pixels", "vector", "threads"):
            value = getattr(self, name)
            if value < 1:
                raise WorkloadError(f"expected tile {name} of at least 1, not {value}")


@overload
def default_tile(
    workload: Gemm,
    machine: Machine,
    instruction: Instruction = ...,
    splits: int | None = ...,
) -> GemmTile: ...
@overload
def default_tile(
    workload: Convolution,
    machine: Machine,
    instruction: Instruction = ...,
    splits: int | None = ...,
) -> ConvTile | DepthwiseTile: ...
@overload
def default_tile(
    workload: Spec,
    machine: Machine,
    instruction: Instruction = ...,
    splits: int | None = ...,
) -> GemmTile | DepthwiseTile: ...


def default_tile(
    workload: Spec,
    machine: Machine,
    instruction: Instruction = "auto",
    splits: int | None = None,
) -> GemmTile | DepthwiseTile:
    """The tile with the least predicted time on ``machine``.

    ``instruction``: what is to multiply it. ``splits``: parts of the reduction; None: more than one
    where whole tiles would leave SMs idle and that costs more than to add the parts. A depthwise
    convolution with channels innermost gets a tile that is no matmul's. Raises WorkloadError when
    no tile of this workload can be mapped there, or what kept the last one from ``instruction``.
    """
    if isinstance(workload, Conv) and workload.depthwise and workload.channels_last:
        if splits not in (None, 1):
            raise WorkloadError(f"cannot split the reduction of '{workload.name}': it is no matmul")
        return _depthwise_tile(workload)
    asked = 1 if splits is None else splits
    found: list[_Candidate] = []
    parts: list[_Candidate] = []
    failed: PipelinerError | None = None
    for what, tile, request in _tries(workload, machine, instruction):
        try:
            found += _planned(what, replace(tile, splits=asked), machine, request)
        except PipelinerError as err:  # an instruction that is demanded does not fit this tile
            failed = err
            continue
        for count in _worthwhile_splits(what, tile, machine) if splits is None else ():
            parts += _planned(what, replace(tile, splits=count), machine, request)
    if not found and instruction != "auto" and failed is not None:
        raise failed
    if not found:
        why = "no candidate maps" if failed is None else str(failed)
        raise WorkloadError(f"cannot tile '{workload.name}' for {machine.name}: {why}")
    best = whole = _best(found)
    if parts and _best(parts).us < whole.us:
        best = _best(parts)
        best = replace(best, tile=replace(best.tile, why=_why_split(best, whole, machine)))
    if best.depth:  # its neighbours were part of the comparison
        return best.tile
    return replace(best.tile, group=_group(best.tile, machine))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A tile with its predicted time and the slots of its channels, 0 without any.

    ``tiles``: of all outputs. ``box``: columns that are stored at once by way of shared memory.
    """

    tile: GemmTile
    us: float
    depth: int
    tiles: int
    box: int


def _planned(
    what: Contraction, tile: GemmTile, machine: Machine, request: Request
) -> list[_Candidate]:
    """``tile`` with the time of what it makes; nothing where it makes nothing."""
    plan = choose(_kernel_info(what, tile), machine, request, accelerated=False)
    if not plan.matmuls or plan.predicted_us <= 0.0:
        return []
    depth = min((channel.depth for channel in plan.channels), default=0)
    box = max((store.box[1] for store in plan.stores), default=0)
    return [_Candidate(tile, plan.predicted_us, depth, _tiles(what, tile), box)]


def _best(found: list[_Candidate]) -> _Candidate:
    """The fastest; of those with channels, what is as fast, runs further ahead and stores wider."""
    best = min(found, key=lambda one: (one.us, -one.tile.m * one.tile.n * one.tile.k))
    if best.depth == 0:
        return best
    equal = [one for one in found if one.depth and one.us <= best.us * (1 + SAME_TIME)]
    return max(equal, key=lambda one: (one.depth, one.box, -one.us))


def _tiles(what: Contraction, tile: GemmTile) -> int:
    """Tiles of all outputs."""
    m, n, _ = _typical(what)
    lead = math.prod(extent or 1 for _, extent in what.lead)
    return lead * math.ceil(m / tile.m) * math.ceil(n / tile.n)


def _worthwhile_splits(what: Contraction, tile: GemmTile, machine: Machine) -> list[int]:
    """Numbers of parts that fill the SMs once or twice, where whole tiles do not by themselves."""
    most = min(MAX_SPLITS, reduction_tiles(what, tile.k) // PART_STEPS)
    tiles = _tiles(what, tile)
    filling = {min(most, rounds * machine.sms // tiles) for rounds in (1, 2)}
    return sorted(splits for splits in filling if splits > 1 and tile.ctas is None)


def _why_split(best: _Candidate, whole: _Candidate, machine: Machine) -> str:
    """Why a reduction is split, in numbers."""
    share = best.tiles / (math.ceil(best.tiles / machine.sms) * machine.sms)
    tile = f"{whole.tile.m}x{whole.tile.n}x{whole.tile.k}"
    return (
        f"{best.tiles} tiles keep {share:.0%} of {machine.sms} SMs busy; in parts, predicted "
        f"{best.us:.1f} us instead of {whole.us:.1f} with the best whole tile, {tile}"
    )


def _tries(
    workload: Spec, machine: Machine, instruction: Instruction
) -> Iterator[tuple[Contraction, GemmTile, Request]]:
    """The tiles to compare, and what is asked of each."""
    wide = isinstance(workload, Gemm) and warpgroup_tiles.are_compared(machine, instruction)
    asked = Request(instruction=instruction)
    if not wide or asked != warpgroup_tiles.ASKED:
        yield from ((what, tile, asked) for what, tile in _candidates(workload))
    exact = workload.types.dtype == "float32" and instruction == "auto"
    if isinstance(workload, Gemm) and wide and not exact:
        what = workload.contraction()
        m, n, k = _typical(what)
        # Where clusters may pay, they may along a row of tiles too.
        copies = [_copy_info(side, what, GemmTile(64, 64, 64), False) for side in (0, 1)]
        lone = [1] if may_gain_from_clusters(copies) else []
        for tile_m, tile_n, tile_k in warpgroup_tiles.extents(m, n, k, _size(what)):
            tiles = 1 if what.lead else math.ceil(m / tile_m) * math.ceil(n / tile_n)
            for ctas in warpgroup_tiles.grids(tiles, machine):
                tile = GemmTile(tile_m, tile_n, tile_k, ctas=ctas)
                for group in (_group(tile, machine), *lone):
                    yield what, replace(tile, group=group), warpgroup_tiles.ASKED


def _typical(what: Contraction) -> tuple[int, int, int]:
    """M, N and K, where one is known at run time only what stands for it."""
    m, n, k = (extent or TYPICAL_M for extent in (what.m[1], what.n[1], what.k[1]))
    return m, n, k


def _size(what: Contraction) -> int:
    return element_bytes(what.types.storage)


def _depthwise_tile(conv: Conv) -> DepthwiseTile:
    """Vectors of sums as wide as one access, as far as channels go, and pixels that divide all."""
    widest = ACCESS_BYTES // element_bytes(conv.accumulator)
    return DepthwiseTile(math.gcd(conv.pixels, DEPTHWISE_PIXELS), math.gcd(conv.k, widest))


def stages_transposed(what: Contraction, operand: int) -> bool:
    """Whether A (0) or B (1) lies with K outermost in shared memory although not in memory.

    An FMA needs neighbouring rows of A and columns of B at one k; four of them come in one load if
    they are neighbours. Copying 4 bytes at a time costs 1 % of the arithmetic of a 128 x 128 tile,
    reading along K a fifth of the speed. Tensor cores read either way.
    """
    return what.types.dtype == "float32" and (what.a, what.b)[operand].k_major


def is_ragged(what: Contraction, tile: GemmTile) -> tuple[bool, bool, bool]:
    """Whether the tile leaves a remainder along M (also where M is symbolic), N and K."""
    extents = (what.m[1], what.n[1], what.k[1])
    sizes = (tile.m, tile.n, tile.k)
    ragged = [extent is None or extent % size != 0 for extent, size in zip(extents, sizes)]
    return ragged[0], ragged[1], ragged[2]


def kernel_info(workload: Spec, tile: GemmTile) -> KernelInfo:
    """What recognition will find in ``workload`` as scheduled with ``tile``, in closed form."""
    if isinstance(workload, Gemm):
        return _kernel_info(workload.contraction(), tile)
    form = tile if isinstance(tile, ConvTile) else ConvTile(tile.m, tile.n, tile.k)
    return _kernel_info(form.contraction(workload), tile)


def _kernel_info(what: Contraction, tile: GemmTile) -> KernelInfo:
    what = split(what, tile.splits, tile.k)
    m, n, _ = _typical(what)
    ragged_m, ragged_n, ragged_k = is_ragged(what, tile)
    a = _copy_info(0, what, tile, ragged_m or ragged_k)
    b = _copy_info(1, what, tile, ragged_n or ragged_k)
    acc = "acc_pad_local" if ragged_m or ragged_n else "acc_local"
    tiles = math.ceil(m / tile.m) * math.ceil(n / tile.n)
    ctas = min(tiles, tile.ctas or tiles)
    steps = reduction_tiles(what, tile.k)
    copied = (a,) if tile.held else (a, b)
    matmul = MatmulInfo(
        op="matmul_update_o" if tile.ctas is None else "matmul_o_update",
        acc=acc,
        a=a.dst,
        b=b.dst,
        m=tile.m,
        n=tile.n,
        k=tile.k,
        a_dtype=what.types.storage,
        b_dtype=what.types.storage,
        acc_dtype=what.types.accumulator,
        a_k_major=what.a.k_major and not stages_transposed(what, 0),
        b_k_major=what.b.k_major and not stages_transposed(what, 1),
        instruction=what.types.instruction,
        warps=tile.warps,
        thread_tile=tile.thread_tile,
        held=(b.dst,) if tile.held and steps > 1 else (),
    )
    size = _size(what)
    names = [*(name for name, _ in what.steps), f"{what.k[0]}_0"]
    loop = LoopInfo(
        name=f"{'_'.join(names)}_fused" if what.steps else names[0],
        trip=steps,
        trip_text=str(steps),
        ops=(*copied, matmul),
        rings=tuple((copy.dst, "shared", copy.elements * size) for copy in copied),
        outer=math.ceil(tiles / ctas),
    )
    lead = math.prod(extent or 1 for _, extent in what.lead)
    return KernelInfo(
        name=what.name,
        grid=(lead, ctas) if what.lead else (ctas,),
        threads=0,
        loops=(loop,),
        accumulators=(
            (acc, "local", tile.m * tile.n * element_bytes(what.types.accumulator)),
            *([(b.dst, "shared", steps * b.elements * size)] if tile.held else []),
        ),
        elementwise=() if what.whole is None else (sum_info(what, tile.why),),
        stores=(_store_info(what, acc),),
    )


def _store_info(what: Contraction, acc: str) -> StoreInfo:
    """The store of the accumulator behind all loops."""
    if what.whole is not None:
        extents = [extent for _, extent in (*what.lead, what.m, what.n)]
        strides = _row_major(tuple(extents))
        return StoreInfo(PARTIAL, acc, PARTS, what.types.accumulator, strides)
    name, shape = what.out
    gathered = what.a.tile is not None or what.b.tile is not None
    scattered = gathered or len(shape) != len(what.lead) + 2
    return StoreInfo(
        op="store",
        acc=acc,
        dst=name,
        dtype=what.types.out,
        dst_strides=_row_major(shape),
        no_tma=SCATTERED if scattered else "",
    )


def _copy_info(which: int, what: Contraction, tile: GemmTile, ragged: bool) -> CopyInfo:
    """The copy of the tile of A (0) or B (1) to shared memory; ``ragged``: it has to be padded."""
    side = (what.a, what.b)[which]
    row, column = (tile.m, tile.n)[which], tile.k
    if not side.k_major:
        row, column = column, row
    transposed = stages_transposed(what, which)
    name = side.name + ("_pad_shared" if ragged else "_shared")
    # Rows start where the row length and the tile's column offset put them; a transposed row of the
    # tile is nowhere contiguous in memory.
    aligned = 1
    if side.unit is not None and side.contiguous and not transposed:
        aligned = _power_of_two(math.gcd(side.unit, column))
    return CopyInfo(
        op=name,
        src=side.param,
        dst=name,
        src_scope="global",
        dst_scope="shared",
        dtype=what.types.storage,
        shape=(column, row) if transposed else (row, column),
        src_dims=_walkers(side, transposed),
        src_strides=_row_major(side.shape),
        aligned=aligned,
        masked=side.masked or ragged,
        bound=False,
        no_tma="" if side.is_box else GATHERED,
        note=side.note,
        shared=_shared(which, what, tile, row),
        src_bytes=math.prod(extent or 0 for extent in side.shape) * _size(what),
    )


def _shared(which: int, what: Contraction, tile: GemmTile, rows: int) -> tuple[int, ...]:
    """Sizes of clusters that share the tile of A (0) or B (1), which is ``rows`` rows in memory.

    Neighbouring CTAs walk down the rows of a group, or along a row where groups have but one.
    """
    m, n = what.m[1], what.n[1]
    if m is None or n is None or (what.a, what.b)[which].tile is not None:
        return ()
    down, across = math.ceil(m / tile.m), math.ceil(n / tile.n)
    ctas = min(down * across, tile.ctas or down * across)
    walked = divisor(down, tile.group)
    own = 1 if walked > 1 else 0
    return tuple(
        size
        for size in AUTOMATIC_CLUSTERS
        if which == own
        and ctas % size == 0
        and down * across % size == 0
        and (walked if walked > 1 else across) % size == 0
        and rows % (SWIZZLE_ROWS * size) == 0
    )


def divisor(extent: int, at_most: int) -> int:
    """The largest divisor of ``extent`` up to ``at_most``."""
    return max(size for size in range(1, min(extent, at_most) + 1) if extent % size == 0)


def _walkers(side: Operand, transposed: bool) -> tuple[int | None, ...]:
    """``src_dims`` of the copy; those of a gathered element change together, but for the last."""
    lead = (None,) * (len(side.shape) - 2)
    lane = (0 if transposed else 1) if side.contiguous else None
    return (*lead, (1 - lane if side.is_box and lane is not None else None), lane)


def _row_major(shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Elements between neighbours along each dimension; None: known at run time."""
    strides: list[int | None] = [1]
    for extent in reversed(shape[1:]):
        inner = strides[-1]
        strides.append(None if extent is None or inner is None else extent * inner)
    return tuple(reversed(strides))


def _candidates(workload: Spec) -> Iterator[tuple[Contraction, GemmTile]]:
    """Tiles no larger than the padded problem, in every direction, of each form of it."""
    if isinstance(workload, Gemm):
        what = workload.contraction()
        yield from ((what, GemmTile(*extents)) for extents in _extents(what))
        return
    for form in _forms(workload):
        what = form.contraction(workload)
        for m, n, k in _extents(what):
            tile = replace(form, m=m, n=n, k=k)
            if _may_sum_so(workload, tile):
                yield what, tile


def _may_sum_so(workload: Convolution, tile: ConvTile) -> bool:
    """Whether a weight gradient may sum over all pixels: where rows would add an eighth of steps.

    Otherwise to cut rows into tiles is the form to take: over all pixels, each thread divides in
    each step. Of anything else, any form may be.
    """
    if tile.fold or not isinstance(workload, ConvWeightGrad):
        return True
    row = workload.forward.out_size[-1]
    return 8 * math.ceil(row / tile.k) * tile.k > 9 * row


def _forms(workload: Convolution) -> list[ConvTile]:
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
    size = _size(what)
    m, n, k = _typical(what)
    # A SIMT tile is unrolled along K. Eight steps of 128 multiply-adds are 16 KB of code; with
    # sixteen the instruction cache thrashes: 3 to 7 % slower on an H100.
    steps = (SHORT_K_BYTES,) if k * size <= SHORT_K_BYTES else TILE_K_BYTES
    depths = [8] if what.types.dtype == "float32" else [bytes_ // size for bytes_ in steps]
    yield from itertools.product(up_to(TILE_EXTENTS, m), up_to(TILE_EXTENTS, n), up_to(depths, k))


def _group(tile: GemmTile, machine: Machine) -> int:
    """Tile rows walked together so that one wave of CTAs covers about a square of C.

    It then reads the fewest rows of A and columns of B from L2.
    """
    side = math.sqrt(machine.sms * tile.n / tile.m)
    return max(1, 1 << round(math.log2(side)))


def _power_of_two(value: int) -> int:
    return value & -value
