"""Map a matmul tile to the FMA pipe: the tile of each thread.

``passes/matmul/simt.py`` emits it.

A larger thread tile reads each operand from shared memory less often. Registers bound it, and so
does what hides the latency of the pipe: two warps for each scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..diagnostics import Reason, all_of
from ..machine import WARP, Machine
from ..machine.constant import constant, documented
from ..plan import MatmulPlan
from ..plan.kinds import MatmulInstruction
from ..values.facts import MatmulInfo
from .dtypes import element_bytes
from .registers import FEW_ACCUMULATORS, FEW_OVERHEAD, OVERHEAD_REGISTERS
from .warps import Mapping, asked_warps, powers, warp_layouts, with_asked

FP8_CAPABILITY: Final = constant(
    "FP8_CAPABILITY",
    89,
    "1",
    "compute capability before which TVM stores fp8 as float32, in vectors that CUDA lacks",
    formula="no simt of fp8 where capability < FP8_CAPABILITY",
    source=documented("TVM 0.27, codegen of fp8"),
    date="2026-11-27",
)

SIMT: Final = MatmulInstruction("simt", operands="vectors", thread_tile=True)


def map_simt(
    info: MatmulInfo,
    machine: Machine,
    warps: tuple[int, int] | None,
    thread_tile: tuple[int, int] | None,
    threads: int | None,
    why: Reason,
    beside: int = 0,
) -> Mapping | Reason:
    """The warps and thread tiles that bound ``info`` least, or why none do.

    ``why``: what the plan is to say of the instruction. ``beside``: words of other accumulators of
    the CTA.
    """
    for dtype in (info.a_dtype, info.b_dtype):
        if dtype.startswith("float8") and machine.capability < FP8_CAPABILITY:
            return Reason("mapping.no_fp8", machine=machine.name, arch=machine.arch, dtype=dtype)
    best: tuple[tuple[float, ...], tuple[int, int], tuple[int, int], tuple[int, int], int] | None
    best = None
    for layout in warp_layouts(info, warps, threads):
        if info.m % layout[0] or info.n % layout[1]:
            continue
        warp_tile = (info.m // layout[0], info.n // layout[1])
        others = beside // (layout[0] * layout[1] * WARP)
        for tile in _thread_tiles(warp_tile, thread_tile):
            registers = _registers(info, tile, others)
            if registers > machine.max_registers_per_thread:
                continue
            resident = machine.registers_per_sm // (registers * WARP)
            score = (
                float(layout[0] * layout[1] < min(4, info.m * info.n // WARP)),
                float(resident < 8),  # two warps for each scheduler hide the FMA pipe's latency
                float(tile[1] % 2),  # C is stored, and B read, two and more columns at once
                _bound(info, machine, warp_tile, tile, layout[0] * layout[1]),
                _chunks(warp_tile, tile) * layout[0] * layout[1],
                float(tile[1] % 4 != 0) + float(tile[0] % 4 != 0),
                float(abs(tile[0] - tile[1])),
                float(tile[0] > tile[1]),  # rows of C are stored in longer runs
                float(abs(warp_tile[0] - warp_tile[1])),
            )
            if best is None or score < best[0]:
                best = (score, layout, warp_tile, tile, registers)
    if best is None:
        most = machine.max_registers_per_thread
        asked = list(asked_warps(warps))
        if thread_tile:
            asked.append(Reason("mapping.asked_thread_tile", tile=thread_tile))
        if threads:
            asked.append(Reason("mapping.asked_threads", threads=threads))
        tile = (info.m, info.n)
        split = Reason("mapping.simt_split", tile=tile, lanes=WARP, registers=most)
        return with_asked(split, *asked)
    _, layout, warp_tile, tile, registers = best
    step = _k_step(info)
    plan = MatmulPlan(
        op=info.op,
        m=info.m,
        n=info.n,
        k=info.k,
        dtype=info.a_dtype,
        accumulator=info.acc_dtype,
        instruction="simt",
        warps=layout,
        warp_tile=warp_tile,
        thread_tile=tile,
        k_step=step,
        steps=info.k // step,
        reason=all_of((why, _owned(tile, registers, machine))),
    )
    return Mapping(plan, layout[0] * layout[1] * WARP, registers)


def _owned(tile: tuple[int, int], registers: int, machine: Machine) -> Reason:
    """What a thread of simt has to itself."""
    return Reason(
        "mapping.simt",
        tile=tile,
        macs=tile[0] * tile[1],
        operands=tile[0] + tile[1],
        registers=registers,
        most=machine.max_registers_per_thread,
    )


def simt_shared_cycles(
    warp_tile: tuple[int, int], thread_tile: tuple[int, int], k_step: int, at: int
) -> float:
    """Cycles of shared memory of one warp for one k of A (``at`` 0) or B, in words of 4 bytes.

    A load of 16 bytes a lane takes four cycles, two where each two neighbouring lanes read the
    same; of 8 bytes half of that; of 4 bytes one (measured on an H100 with 1 to 32 different
    addresses). Lanes walk the columns of a warp's tile first, so neighbours share rows of A.
    """
    own = thread_tile[at]
    wide = k_step > 1 or own % 2 == 0
    columns = warp_tile[1] // thread_tile[1]
    shared = columns > 1 if at == 0 else columns == 1
    return own / 2 if shared and wide else float(own)


def _bound(
    info: MatmulInfo,
    machine: Machine,
    warp_tile: tuple[int, int],
    thread_tile: tuple[int, int],
    warps: int,
) -> float:
    """Cycles of an SM for one k: ``max(m * n / fp32_per_cycle, shared memory)``."""
    step, words = _k_step(info), element_bytes(info.a_dtype) / 4
    read = sum(simt_shared_cycles(warp_tile, thread_tile, step, at) for at in (0, 1))
    return max(info.m * info.n / machine.fp32_per_cycle, read * warps * words)


def _chunks(warp_tile: tuple[int, int], thread_tile: tuple[int, int]) -> float:
    """Words that a warp reads for one k, each once, over 32, or loads of four words."""
    return float(
        sum(max(wide / WARP, own / 4) for wide, own in zip(warp_tile, thread_tile, strict=True))
    )


def _k_step(info: MatmulInfo) -> int:
    """K of one fragment step: 4 where an operand is contiguous along K, else 1."""
    if (info.a_k_major or info.b_k_major) and info.k % 4 == 0:
        return 4
    return 1


def _registers(info: MatmulInfo, tile: tuple[int, int], others: int) -> int:
    step = _k_step(info)
    buffers = 2 if info.k > step else 1
    sums = tile[0] * tile[1] + others
    beside = FEW_OVERHEAD if _are_few(sums) else OVERHEAD_REGISTERS
    return sums + buffers * (tile[0] + tile[1]) * step + beside


def second_fragments(plan: MatmulPlan) -> int:
    """Registers of a thread for the fragments of a k-step that is read ahead.

    ptxas reads ahead by itself: it took as many with one slot for 8x8 and 8x16 a thread, and one
    set less (64 and 48 registers) for 8x4 and 4x4.
    """
    rows, columns = plan.thread_tile
    return (rows + columns) * plan.k_step if _are_few(rows * columns) else 0


def _are_few(sums: int) -> bool:
    return FEW_ACCUMULATORS[0] <= sums <= FEW_ACCUMULATORS[1]


def _thread_tiles(
    warp_tile: tuple[int, int], asked: tuple[int, int] | None
) -> Iterable[tuple[int, int]]:
    """The tiles of a thread of which 32 fill the warp tile."""
    for rows in powers(WARP):
        columns = WARP // rows
        if warp_tile[0] % rows or warp_tile[1] % columns:
            continue
        tile = (warp_tile[0] // rows, warp_tile[1] // columns)
        if asked is None or tile == asked:
            yield tile
