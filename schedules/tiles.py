"""The tile of a GEMM: its parameters, what it makes a kernel of, and which one to take.

A tile is judged by the same model that later fixes the pipeline's depth: ``kernel_info`` says in
closed form what recognition will find in the scheduled function, ``choose`` plans it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Final

from ..cost import choose
from ..cost.copies import element_bytes
from ..errors import PipelinerError, WorkloadError
from ..kernel import CopyInfo, KernelInfo, LoopInfo, MatmulInfo
from ..machine import Machine
from ..request import Request
from .workloads import Gemm

TILE_EXTENTS: Final = (16, 32, 64, 128, 256)

TILE_K_BYTES: Final = (32, 64, 128)
"""Bytes of K in one step: a sector of memory at least, a row of shared memory's banks at most."""

TYPICAL_M: Final = 4096
"""Stands for an M known at run time only when tiles are compared."""


@dataclass(frozen=True, slots=True)
class GemmTile:
    """Parameters of a GEMM schedule.

    ``m``, ``n``, ``k``: the tile of one CTA and one step. ``group``: tile rows that neighbouring
    CTAs walk before they move to the next tile column. ``warps``, ``thread_tile``: optional hints
    to the mapping of the matmul tile, see MatmulPlan.
    """

    m: int
    n: int
    k: int
    group: int = 8
    warps: tuple[int, int] | None = None
    thread_tile: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """WorkloadError names a size below 1."""
        for name in ("m", "n", "k", "group"):
            value = getattr(self, name)
            if value < 1:
                raise WorkloadError(f"expected tile {name} of at least 1, not {value}")


def default_tile(gemm: Gemm, machine: Machine) -> GemmTile:
    """The tile with the least predicted time on ``machine``; among equals, the largest.

    Raises WorkloadError when no tile of this workload can be mapped there.
    """
    best: tuple[float, int, GemmTile] | None = None
    for tile in _candidates(gemm):
        try:
            plan = choose(kernel_info(gemm, tile), machine, Request())
        except PipelinerError:  # an instruction that the workload demands does not fit this tile
            continue
        if not plan.matmuls or plan.predicted_us == 0.0:
            continue
        rank = (plan.predicted_us, -tile.m * tile.n * tile.k, tile)
        if best is None or rank[:2] < best[:2]:
            best = rank
    if best is None:
        raise WorkloadError(f"cannot tile '{gemm.name}' for {machine.name}: no candidate maps")
    tile = best[2]
    return replace(tile, group=_group(tile, machine))


def stages_transposed(gemm: Gemm, operand: int) -> bool:
    """Whether A (0) or B (1) lies with K outermost in shared memory although not in memory.

    An FMA needs neighbouring rows of A and columns of B at one k; four of them come in one load if
    they are neighbours. Copying 4 bytes at a time costs 1 % of the arithmetic of a 128 x 128 tile,
    reading along K a fifth of the speed. Tensor cores read either way.
    """
    contiguous_k = gemm.layout[operand] == "NT"[operand]
    return gemm.dtype == "float32" and contiguous_k


def is_ragged(gemm: Gemm, tile: GemmTile) -> tuple[bool, bool, bool]:
    """Whether the tile leaves a remainder along M (also where M is symbolic), N and K."""
    return (gemm.m is None or gemm.m % tile.m != 0, gemm.n % tile.n != 0, gemm.k % tile.k != 0)


def kernel_info(gemm: Gemm, tile: GemmTile) -> KernelInfo:
    """What recognition finds in ``schedule_gemm(gemm, tile)``, in closed form."""
    ragged_m, ragged_n, ragged_k = is_ragged(gemm, tile)
    m = TYPICAL_M if gemm.m is None else gemm.m
    a = _copy_info(0, gemm, tile, ragged_m or ragged_k)
    b = _copy_info(1, gemm, tile, ragged_n or ragged_k)
    acc = "acc_pad_local" if ragged_m or ragged_n else "acc_local"
    matmul = MatmulInfo(
        op="matmul_update_o",
        acc=acc,
        a=a.dst,
        b=b.dst,
        m=tile.m,
        n=tile.n,
        k=tile.k,
        a_dtype=gemm.storage,
        b_dtype=gemm.storage,
        acc_dtype=gemm.accumulator,
        a_k_major=gemm.layout[0] == "N" and not stages_transposed(gemm, 0),
        b_k_major=gemm.layout[1] == "T" and not stages_transposed(gemm, 1),
        instruction=gemm.instruction,
        warps=tile.warps,
        thread_tile=tile.thread_tile,
    )
    size = element_bytes(gemm.storage)
    trip = math.ceil(gemm.k / tile.k)
    loop = LoopInfo(
        name="k_0",
        trip=trip,
        trip_text=str(trip),
        ops=(a, b, matmul),
        rings=tuple((copy.dst, "shared", copy.elements * size) for copy in (a, b)),
    )
    tiles = math.ceil(m / tile.m) * math.ceil(gemm.n / tile.n)
    return KernelInfo(
        name=gemm.name,
        grid=(tiles,) if gemm.batch is None else (gemm.batch, tiles),
        threads=0,
        loops=(loop,),
        accumulators=((acc, "local", tile.m * tile.n * element_bytes(gemm.accumulator)),),
    )


def _copy_info(operand: int, gemm: Gemm, tile: GemmTile, masked: bool) -> CopyInfo:
    """The copy of the tile of A (0) or B (1) to shared memory."""
    matrix = (
        [(gemm.m, tile.m), (gemm.k, tile.k)]
        if operand == 0
        else [(gemm.k, tile.k), (gemm.n, tile.n)]
    )
    if gemm.layout[operand] == "T":
        matrix.reverse()
    (length, rows), (row, columns) = matrix
    transposed = stages_transposed(gemm, operand)
    lead = () if gemm.batch is None else (None,)
    size = None if length is None or row is None else length * row
    name = "AB"[operand] + ("_pad_shared" if masked else "_shared")
    return CopyInfo(
        op=name,
        src="AB"[operand],
        dst=name,
        src_scope="global",
        dst_scope="shared",
        dtype=gemm.storage,
        shape=(columns, rows) if transposed else (rows, columns),
        src_dims=(*lead, *((1, 0) if transposed else (0, 1))),
        src_strides=(row, 1) if gemm.batch is None else (size, row, 1),
        # Rows start where the row length and the tile's column offset put them; a transposed row
        # of the tile is nowhere contiguous in memory.
        aligned=1 if row is None or transposed else _power_of_two(math.gcd(row, columns)),
        masked=masked,
        bound=False,
    )


def _candidates(gemm: Gemm) -> list[GemmTile]:
    """Tiles no larger than the padded problem, in every direction."""
    size = element_bytes(gemm.storage)
    m = TYPICAL_M if gemm.m is None else gemm.m
    # A SIMT tile is unrolled along K. Eight steps of 128 multiply-adds are 16 KB of code; with
    # sixteen the instruction cache thrashes: 3 to 7 % slower on an H100.
    depths = [8] if gemm.dtype == "float32" else [bytes_ // size for bytes_ in TILE_K_BYTES]
    return [
        GemmTile(*extents)
        for extents in itertools.product(
            _up_to(TILE_EXTENTS, m), _up_to(TILE_EXTENTS, gemm.n), _up_to(depths, gemm.k)
        )
    ]


def _up_to(extents: tuple[int, ...] | list[int], size: int) -> list[int]:
    """The extents below ``size`` and the first that covers it."""
    below = [extent for extent in extents if extent < size]
    return [*below, *[extent for extent in extents if extent >= size][:1]]


def _group(tile: GemmTile, machine: Machine) -> int:
    """Tile rows walked together so that one wave of CTAs covers about a square of C.

    It then reads the fewest rows of A and columns of B from L2.
    """
    side = math.sqrt(machine.sms * tile.n / tile.m)
    return max(1, 1 << round(math.log2(side)))


def _power_of_two(value: int) -> int:
    return value & -value
