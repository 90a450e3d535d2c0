"""Choose the instruction of a matmul tile, and the part of each warp and thread.

A larger warp tile reads each operand from shared memory less often. Registers bound it: a warp
holds its accumulators, and two sets of fragments so that the next k-step's loads run under this
one's arithmetic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ..diagnostics import Reason, all_of
from ..errors import PlanError, TargetError
from ..machine import WARP, Machine, MmaRate
from ..machine.constant import constant, documented
from ..plan import MatmulPlan
from ..plan.request import Request
from ..values.facts import MatmulInfo
from .dtypes import element_bytes
from .registers import FEW_ACCUMULATORS, FEW_OVERHEAD, MANY_ACCUMULATORS, OVERHEAD_REGISTERS
from .wgmma import (
    LOW_PRECISION_SUMS,
    asked_warps,
    consumer_groups,
    map_wgmma,
    nothing_to_promote,
    with_asked,
)

TENSOR: Final = "tensor"
"""The annotation of a schedule that wants tensor cores, by whichever instruction."""

MAX_WARPS: Final = constant(
    "MAX_WARPS",
    32,
    "warps",
    "the most of a CTA on every GPU described: 1024 threads",
    formula="warps_m * warps_n <= MAX_WARPS",
    source=documented("CUDA C++ Programming Guide, technical specifications"),
    date="2026-11-21",
)

PTX_TYPES: Final = {
    "float16": "f16",
    "bfloat16": "bf16",
    "tfloat32": "tf32",
    "float32": "f32",
    "int8": "s8",
    "int32": "s32",
}


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapped matmul: its plan, threads of a CTA, and estimated registers of a thread."""

    plan: MatmulPlan
    threads: int
    registers: int


def map_matmul(
    info: MatmulInfo, machine: Machine, request: Request, threads: int | None = None
) -> Mapping | Reason:
    """How ``info`` maps to threads, or why it cannot be mapped.

    ``threads``: those of the CTA where something else has fixed them. An instruction that the
    request or the schedule asks for is used or raises: TargetError when the GPU or the types lack
    it, PlanError when the tile, the warps or the thread tile do not fit.
    """
    wanted = request.instruction if request.instruction != "auto" else info.instruction
    wanted = "mma" if wanted == TENSOR else wanted
    warps = request.warps or info.warps
    thread_tile = request.thread_tile or info.thread_tile
    if wanted in ("mma", "wgmma") and request.thread_tile is not None:
        asked = request.thread_tile
        raise PlanError("mapping.thread_tile", op=info.op, instruction=wanted, tile=asked)
    if wanted == "wgmma":
        return _map_wgmma(info, machine, warps, request)
    _refuse_without_wgmma(info, machine, request)
    if wanted == "auto" and thread_tile is not None:
        wanted = "simt"
    rate = _rate(info, machine, wanted)
    # fp32 keeps its precision unless somebody asks for tf32.
    exact = wanted == "auto" and info.a_dtype == "float32"
    if isinstance(rate, MmaRate) and wanted != "simt" and not exact:
        mapped = _map_mma(info, machine, rate, warps, threads)
        if isinstance(mapped, Mapping) or wanted == "mma":
            return _granted(mapped, info, wanted == "mma" or warps is not None)
        why = mapped
    elif wanted == "mma":
        assert isinstance(rate, Reason)
        raise TargetError("mapping.refused", op=info.op, instruction=wanted, why=rate)
    elif wanted == "simt":
        why = Reason("request.asked")
    elif isinstance(rate, Reason):
        why = rate
    else:
        why = Reason("mapping.exact")
    mapped = _map_simt(info, machine, warps, thread_tile, threads, why)
    explicit = wanted == "simt" or warps is not None or thread_tile is not None
    return _granted(mapped, info, explicit)


def _refuse_without_wgmma(info: MatmulInfo, machine: Machine, request: Request) -> None:
    """Raise for what is asked of another instruction that only wgmma can do.

    PlanError where the machine has wgmma, TargetError where it does not.
    """
    why = Reason("mapping.ask")
    if not machine.wgmmas:
        why = Reason("mapping.needs_sm_90a", machine=machine.name, arch=machine.arch)
    if request.roles not in ("auto", 0):
        refused = Reason("mapping.roles", groups=request.roles, op=info.op, why=why)
    elif request.operand == "registers":
        refused = Reason("mapping.operand", op=info.op, why=why)
    elif request.accumulate == "promoted":
        refused = Reason("mapping.promoted", op=info.op, why=why)
        if info.b_dtype not in LOW_PRECISION_SUMS:
            nothing = nothing_to_promote(info)
            raise PlanError("mapping.nothing_promoted", op=info.op, why=nothing)
    else:
        return
    raise (PlanError if machine.wgmmas else TargetError)(refused)


def _map_wgmma(
    info: MatmulInfo, machine: Machine, warps: tuple[int, int] | None, request: Request
) -> Mapping:
    ping_pong = consumer_groups(request.consumers)
    found = map_wgmma(
        info, machine, warps, request.roles, ping_pong, request.operand, request.accumulate
    )
    if isinstance(found, Reason):
        error = PlanError if machine.wgmmas else TargetError
        raise error("mapping.refused", op=info.op, instruction="wgmma", why=found)
    return Mapping(*found)


def _granted(mapped: Mapping | Reason, info: MatmulInfo, explicit: bool) -> Mapping | Reason:
    if isinstance(mapped, Reason) and explicit:
        raise PlanError("mapping.none", op=info.op, why=mapped)
    return mapped


def _rate(info: MatmulInfo, machine: Machine, wanted: str) -> MmaRate | Reason:
    """The tensor core instruction for the operands' type, or why there is none."""
    if info.a_dtype != info.b_dtype:
        return Reason("mapping.dtypes", a_dtype=info.a_dtype, b_dtype=info.b_dtype)
    dtype = "tfloat32" if info.a_dtype == "float32" else info.a_dtype
    rate = machine.mma(dtype)
    if rate is None:
        return Reason("mapping.no_mma", machine=machine.name, arch=machine.arch, dtype=dtype)
    accumulators = {"float16": ("float32", "float16"), "int8": ("int32",)}
    if info.acc_dtype not in accumulators.get(dtype, ("float32",)):
        return Reason("mapping.accumulator", dtype=dtype, accumulator=info.acc_dtype)
    m, n, k = rate.shape
    if info.m % m or info.n % n or info.k % k:
        return Reason("mapping.multiple", tile=(info.m, info.n, info.k), m=m, n=n, k=k)
    return rate


def _map_mma(
    info: MatmulInfo,
    machine: Machine,
    rate: MmaRate,
    warps: tuple[int, int] | None,
    threads: int | None,
) -> Mapping | Reason:
    m, n, k = rate.shape
    best: tuple[tuple[float, ...], tuple[int, int], int] | None = None
    fewest = min(4, (info.m // m) * (info.n // n))
    for layout in _warp_layouts(info, warps, threads):
        rows, columns = info.m // layout[0], info.n // layout[1]
        if info.m % layout[0] or info.n % layout[1] or rows % m or columns % n:
            continue
        registers = _mma_registers(info, rate, rows, columns)
        if registers > machine.max_registers_per_thread:
            continue
        count = layout[0] * layout[1]
        score = (
            float(count < fewest),  # a warp scheduler without a warp idles
            float(columns % (2 * n) != 0),  # ldmatrix.x4 fills two B fragments at once
            float(count * (rows + columns)),  # operand rows read from shared memory
            float(abs(rows - columns)),
        )
        if best is None or score < best[0]:
            best = (score, layout, registers)
    if best is None:
        tile = (info.m, info.n, info.k)
        most = machine.max_registers_per_thread
        why = Reason("mapping.mma_split", tile=tile, m=m, n=n, k=k, registers=most)
        return with_asked(why, *asked_warps(warps))
    _, layout, registers = best
    rows, columns = info.m // layout[0], info.n // layout[1]
    types = f"{PTX_TYPES[rate.dtype]}.{PTX_TYPES[info.acc_dtype]}"
    plan = MatmulPlan(
        op=info.op,
        m=info.m,
        n=info.n,
        k=info.k,
        dtype=rate.dtype,
        accumulator=info.acc_dtype,
        instruction=f"mma.m{m}n{n}k{k}.{types}",
        warps=layout,
        warp_tile=(rows, columns),
        thread_tile=(0, 0),
        k_step=k,
        steps=info.k // k,
        reason=Reason(
            "mapping.mma",
            machine=machine.name,
            ops=rate.ops_per_cycle,
            fma=2 * machine.fp32_per_cycle,
            tile=(rows, columns),
            registers=registers,
            most=machine.max_registers_per_thread,
        ),
    )
    return Mapping(plan, layout[0] * layout[1] * WARP, registers)


def _mma_registers(info: MatmulInfo, rate: MmaRate, rows: int, columns: int) -> int:
    """Registers of a thread: accumulators + one or two sets of fragments + OVERHEAD_REGISTERS."""
    bits = {"float16": 16, "bfloat16": 16, "tfloat32": 32, "int8": 8}[rate.dtype]
    accumulator_bits = 16 if info.acc_dtype == "float16" else 32
    lanes = 32 * WARP
    accumulators = rows * columns * accumulator_bits // lanes
    fragments = (rows + columns) * rate.k * bits // lanes
    buffers = 2 if _keeps_second(info.k // rate.k, accumulators) else 1
    return accumulators + buffers * fragments + OVERHEAD_REGISTERS


def _keeps_second(steps: int, sums: int) -> bool:
    """Whether a thread holds fragments of two k-steps; ``sums``: registers of its accumulators.

    With more than two k-steps; of two ptxas keeps both only beside ``MANY_ACCUMULATORS``.
    """
    return steps > 2 or (steps == 2 and sums >= MANY_ACCUMULATORS)


def second_fragments(info: MatmulInfo, plan: MatmulPlan) -> int:
    """Registers of a thread for the fragments of a k-step that is read ahead.

    Where threads multiply ptxas reads ahead by itself: it took as many with one slot for 8x8 and
    8x16 a thread, and one set less (64 and 48 registers) for 8x4 and 4x4.
    """
    if plan.steps == 1 or plan.instruction.startswith("wgmma"):
        return 0
    if plan.instruction == "simt":
        rows, columns = plan.thread_tile
        return (rows + columns) * plan.k_step if _are_few(rows * columns) else 0
    sums = math.prod(plan.warp_tile) * element_bytes(info.acc_dtype) // (4 * WARP)
    if not _keeps_second(plan.steps, sums):
        return 0
    return sum(plan.warp_tile) * plan.k_step * element_bytes(info.a_dtype) // (4 * WARP)


def _map_simt(
    info: MatmulInfo,
    machine: Machine,
    warps: tuple[int, int] | None,
    thread_tile: tuple[int, int] | None,
    threads: int | None,
    why: Reason,
) -> Mapping | Reason:
    best: tuple[tuple[float, ...], tuple[int, int], tuple[int, int], tuple[int, int], int] | None
    best = None
    for layout in _warp_layouts(info, warps, threads):
        if info.m % layout[0] or info.n % layout[1]:
            continue
        warp_tile = (info.m // layout[0], info.n // layout[1])
        for tile in _thread_tiles(warp_tile, thread_tile):
            registers = _simt_registers(info, tile)
            if registers > machine.max_registers_per_thread:
                continue
            resident = machine.registers_per_sm // (registers * WARP)
            score = (
                float(layout[0] * layout[1] < min(4, info.m * info.n // WARP)),
                float(resident < 8),  # two warps for each scheduler hide the FMA pipe's latency
                float(tile[1] % 2),  # C is stored, and B read, two and more columns at once
                _simt_bound(info, machine, warp_tile, tile, layout[0] * layout[1]),
                _simt_chunks(warp_tile, tile) * layout[0] * layout[1],
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
    step = simt_k_step(info)
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


def _simt_bound(
    info: MatmulInfo,
    machine: Machine,
    warp_tile: tuple[int, int],
    thread_tile: tuple[int, int],
    warps: int,
) -> float:
    """Cycles of an SM for one k: ``max(m * n / fp32_per_cycle, shared memory)``."""
    step, words = simt_k_step(info), element_bytes(info.a_dtype) / 4
    read = sum(simt_shared_cycles(warp_tile, thread_tile, step, at) for at in (0, 1))
    return max(info.m * info.n / machine.fp32_per_cycle, read * warps * words)


def _simt_chunks(warp_tile: tuple[int, int], thread_tile: tuple[int, int]) -> float:
    """Words that a warp reads for one k, each once, over 32, or loads of four words."""
    return float(
        sum(max(wide / WARP, own / 4) for wide, own in zip(warp_tile, thread_tile, strict=True))
    )


def simt_k_step(info: MatmulInfo) -> int:
    """K of one fragment step: 4 where an operand is contiguous along K, else 1."""
    if (info.a_k_major or info.b_k_major) and info.k % 4 == 0:
        return 4
    return 1


def _simt_registers(info: MatmulInfo, tile: tuple[int, int]) -> int:
    step = simt_k_step(info)
    buffers = 2 if info.k > step else 1
    sums = tile[0] * tile[1]
    beside = FEW_OVERHEAD if _are_few(sums) else OVERHEAD_REGISTERS
    return sums + buffers * (tile[0] + tile[1]) * step + beside


def _are_few(sums: int) -> bool:
    return FEW_ACCUMULATORS[0] <= sums <= FEW_ACCUMULATORS[1]


def _warp_layouts(
    info: MatmulInfo, warps: tuple[int, int] | None, threads: int | None
) -> Iterator[tuple[int, int]]:
    """Warps along M and N to consider; those that are asked for are the only ones."""
    if warps is not None:
        yield warps
        return
    for rows, columns in itertools.product(_powers(MAX_WARPS), _powers(MAX_WARPS)):
        count = rows * columns
        if count <= MAX_WARPS and (threads is None or count * WARP == threads):
            yield rows, columns


def _thread_tiles(
    warp_tile: tuple[int, int], asked: tuple[int, int] | None
) -> Iterable[tuple[int, int]]:
    """The tiles of a thread of which 32 fill the warp tile."""
    for rows in _powers(WARP):
        columns = WARP // rows
        if warp_tile[0] % rows or warp_tile[1] % columns:
            continue
        tile = (warp_tile[0] // rows, warp_tile[1] // columns)
        if asked is None or tile == asked:
            yield tile


def _powers(at_most: int) -> list[int]:
    return [1 << e for e in range(at_most.bit_length()) if 1 << e <= at_most]
