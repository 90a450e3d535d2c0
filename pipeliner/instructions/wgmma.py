"""Map a matmul tile to wgmma: which warpgroup owns which part, and the registers of a thread.

``passes/matmul/wgmma.py`` emits it.

A warpgroup (four warps) multiplies 64 rows by up to 256 columns with one instruction, both operands
in shared memory, or the first in registers. Its accumulators lie in its registers, so a tile of
128x256 needs two warpgroups.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, Literal

from ..diagnostics import Reason, all_of, each_of
from ..machine import WARP, Machine, MmaRate
from ..machine.constant import chosen, constant, documented
from ..plan import Consumers, MatmulPlan, OperandSource
from ..plan.kinds import MatmulInstruction
from ..plan.request import AccumulateAsked, OperandAsked, RolesAsked
from ..values.elements import element, multiplied_as
from ..values.facts import MatmulInfo
from .dtypes import element_bytes
from .registers import (
    CONSUMER_OVERHEAD,
    IM2COL_MATH_WARP_OVERHEAD,
    INSTRUCTION_OVERHEAD,
    MATH_WARP_OVERHEAD,
    MAX_CONSUMER_REGISTERS,
    PRODUCER_REGISTERS,
    REGISTER_UNIT,
)
from .warps import asked_warps, with_asked

WGMMA: Final = MatmulInstruction("wgmma", "descriptor", Machine.wgmma, warpgroup_wide=True)

WARPGROUP: Final = constant(
    "WARPGROUP",
    128,
    "threads",
    "a warpgroup: four warps that multiply with one instruction",
    formula="groups = threads / WARPGROUP",
    source=documented("PTX ISA, warpgroup"),
    date="2026-11-21",
)

ROWS: Final = constant(
    "ROWS",
    64,
    "rows",
    "rows of the result of one wgmma",
    formula="wgmma = m * n * k / (ROWS * columns * k_step)",
    source=documented("PTX ISA, wgmma.mma_async: m64"),
    date="2026-11-21",
)

MAX_COLUMNS: Final = constant(
    "MAX_COLUMNS",
    256,
    "columns",
    "the most columns of one wgmma",
    formula="n / groups along N <= MAX_COLUMNS",
    source=documented("PTX ISA, wgmma.mma_async: n256"),
    date="2026-11-21",
)

SPANS: Final = constant(
    "SPANS",
    (128, 64, 32),
    "bytes",
    "bytes of a row of an operand that a swizzle covers, widest first",
    formula="swizzle = the first of SPANS that divides a row",
    source=documented("PTX ISA, wgmma matrix descriptor"),
    date="2026-11-21",
)

CONSUMERS: Final = constant(
    "CONSUMERS",
    (2, 3, 1, 4),
    "warpgroups",
    "consumer warpgroups to try, best first: with two, one multiplies while the other starts",
    formula="groups = the first of CONSUMERS that the tile and its registers allow",
    source=chosen("two cover each other; more divide the registers"),
    date="2026-11-21",
)

PING_PONG_GROUPS: Final = constant(
    "PING_PONG_GROUPS",
    2,
    "groups",
    "consumer groups with tiles of their own with ping-pong: one multiplies, the other stores",
    formula="groups = PING_PONG_GROUPS",
    source=chosen("while one runs its main loop the other does the rest of its tile"),
    date="2026-11-21",
)

LEFT_REGISTERS: Final = constant(
    "LEFT_REGISTERS",
    4,
    "registers",
    "registers of a thread for 64 rows and one k-step of the first operand",
    formula="operand = m / 64 * k_steps * LEFT_REGISTERS",
    source=documented("PTX ISA, wgmma: fragments of A"),
    date="2026-11-22",
)

INTEGER_COLUMNS: Final = constant(
    "INTEGER_COLUMNS",
    16,
    "columns",
    "what divides the columns of an integer wgmma, but for 8 and 24",
    formula="columns % INTEGER_COLUMNS = 0",
    source=documented("PTX ISA, wgmma.mma_async: .u8, .s8"),
    date="2026-11-21",
)
MAX_INTEGER_COLUMNS: Final = constant(
    "MAX_INTEGER_COLUMNS",
    224,
    "columns",
    "the most columns of an integer wgmma that TVM prints",
    formula="columns <= MAX_INTEGER_COLUMNS",
    source=documented("TVM 0.27, codegen of wgmma"),
    date="2026-11-21",
)


def consumer_groups(consumers: Literal["auto"] | Consumers) -> int:
    """Consumer groups with tiles of their own: 2 with ping-pong, else 1."""
    return PING_PONG_GROUPS if consumers == "ping-pong" else 1


def map_wgmma(
    info: MatmulInfo,
    machine: Machine,
    warps: tuple[int, int] | None,
    roles: RolesAsked,
    ping_pong: int = 1,
    operand: OperandAsked = "auto",
    accumulate: AccumulateAsked = "auto",
    beside: int = 0,
) -> tuple[MatmulPlan, int, int] | Reason:
    """The plan of ``info`` on wgmma, consumer threads and registers of each, or why there is none.

    ``warps``: those asked for along (M, N). ``roles``: consumer warpgroups asked for, ``auto``, or
    0 without a producer warp. ``ping_pong``: groups of those with tiles of their own. ``operand``:
    where the first operand is read from; shared memory unless registers are asked for.
    ``accumulate``: what adds up products of fp8. ``beside``: words of other accumulators of the
    CTA. A tile of few rows swaps A and B: the
    instruction's 64 rows run along N, its columns, 8 at least, along M.
    """
    if info.stationary:
        return Reason("wgmma.stationary", operand=info.stationary[0])
    if info.b in info.computed or (info.computed and info.a_dtype != info.b_dtype):
        return Reason("wgmma.computed", operand=info.computed[0])
    if info.a == info.b:
        return Reason("wgmma.same_sides", operand=info.a)
    if operand == "shared" and info.a_dtype != info.b_dtype:
        return Reason("wgmma.mixed_shared", a_dtype=info.a_dtype, b_dtype=info.b_dtype)
    promotes = accumulate == "promoted"
    if promotes and not element(info.b_dtype).low_precision_sums:
        return nothing_to_promote(info)
    why = _why_not_swap_ab(info, warps, operand)
    if why is None:
        return _map(info, machine, warps, roles, ping_pong, operand, promotes, beside)
    transposed_warps = None if warps is None else warps[::-1]
    found = _map(
        info.transposed(), machine, transposed_warps, roles, ping_pong, operand, promotes, beside
    )
    if isinstance(found, Reason):
        return Reason("wgmma.swap_ab_refused", why=why, found=found)
    plan, threads, registers = found
    swap_ab = replace(
        plan,
        m=info.m,
        n=info.n,
        warps=plan.warps[::-1],
        warp_tile=plan.warp_tile[::-1],
        reason=all_of((*each_of(plan.reason), Reason("wgmma.swap_ab", why=why))),
        swap_ab=True,
    )
    return swap_ab, threads, registers


def nothing_to_promote(info: MatmulInfo) -> Reason:
    """Why no sums of ``info`` are promoted: tensor cores keep all bits of their type."""
    return Reason("wgmma.nothing_to_promote", dtype=info.b_dtype)


def _why_not_swap_ab(
    info: MatmulInfo, warps: tuple[int, int] | None, operand: OperandAsked
) -> Reason | None:
    """Why A and B change sides (swap A/B); None where they do not."""
    if info.computed or info.by_rows:
        return None
    if warps is not None:
        swaps = warps[0] % 4 != 0 and warps[1] % 4 == 0
        return Reason("wgmma.warps_asked", warps=warps) if swaps else None
    if info.a_dtype in element(info.b_dtype).converts_to:
        return Reason("wgmma.converts", operand=info.b)
    if info.m % ROWS and info.n % ROWS == 0:
        return Reason("wgmma.rows", rows=info.m, multiple=ROWS)
    if operand != "shared" and _is_transposed(info.transposed()) and not _is_transposed(info):
        return Reason("wgmma.second_transposed", operand=info.b)
    return None


def _is_transposed(info: MatmulInfo) -> bool:
    """Whether the first operand is transposed as it is loaded into registers."""
    return must_transpose(info.a_dtype, info.a_k_major)


def must_transpose(dtype: str, k_major: bool) -> bool:
    """Whether an operand of wgmma is transposed as it is loaded into registers, two rows to a lane.

    It lies with K outermost, which wgmma reads of 16-bit types alone, as ldmatrix transposes them.
    """
    return not element(dtype).k_outermost and not k_major


def _map(
    info: MatmulInfo,
    machine: Machine,
    warps: tuple[int, int] | None,
    roles: RolesAsked,
    ping_pong: int,
    operand: OperandAsked,
    promotes: bool,
    beside: int,
) -> tuple[MatmulPlan, int, int] | Reason:
    rate = _rate(info, machine)
    if isinstance(rate, Reason):
        return rate
    by_lane = operand == "registers" or info.a_dtype != info.b_dtype
    by_lane = by_lane or (operand == "auto" and _is_transposed(info))
    by_lane = by_lane or bool(info.computed)
    obstacle = _shape_obstacle(info, rate, by_lane)
    if obstacle is not None:
        return obstacle
    best: tuple[tuple[int, int], int, int, int] | None = None
    for rows, columns in _layouts(warps, roles, ping_pong):
        if columns > 1 and info.by_rows:
            continue
        if info.m % (rows * ROWS) or info.n % (columns * 8) or info.n // columns > MAX_COLUMNS:
            continue
        groups = rows * columns
        per_register = _per_register(info.acc_dtype)
        accumulators = info.m * info.n // groups // WARPGROUP // per_register
        one = info.n // columns * ROWS // WARPGROUP // per_register + INSTRUCTION_OVERHEAD
        if element(_multiplied(info)).integer and not _is_integer_width(info.n // columns):
            continue
        # Of the sum of one step, for a block of rows at a time.
        partial = info.n // columns * ROWS // WARPGROUP if promotes else 0
        left = 0
        if by_lane:
            left = info.m // (rows * ROWS) * (info.k // rate.shape[2]) * LEFT_REGISTERS
        # What is converted has been read a step ahead.
        raw = 2 * info.m // (rows * ROWS) * LEFT_REGISTERS if info.a_dtype != info.b_dtype else 0
        others = beside // (groups * WARPGROUP)
        needed = accumulators + others + partial + left + raw + CONSUMER_OVERHEAD
        if needed <= consumer_registers(machine, groups * ping_pong) and one <= launch_registers(
            machine, groups * ping_pong
        ):
            best = (rows, columns), accumulators, others, left
            break
    if best is None:
        asked = list(asked_warps(warps))
        if roles not in ("auto", 0):
            asked.append(Reason("mapping.asked_warpgroups", groups=roles))
        return with_asked(_no_split(info, machine, ping_pong), *asked)
    (rows, columns), accumulators, others, left = best
    wide = info.n // columns
    _, _, k = rate.shape
    kind = _multiplied(info)
    types = f"{element(kind).operand}.{element(info.acc_dtype).ptx}"
    groups = rows * columns
    plan = MatmulPlan(
        op=info.op,
        m=info.m,
        n=info.n,
        k=info.k,
        dtype=rate.dtype,
        accumulator=info.acc_dtype,
        instruction=f"wgmma.m{ROWS}n{wide}k{k}.{types}",
        warps=(4 * rows, columns),
        warp_tile=(info.m // (4 * rows), wide),
        thread_tile=(0, 0),
        k_step=k,
        steps=info.k // k,
        reason=all_of(
            (
                Reason("wgmma.rate", machine=machine.name, ops=rate.ops_per_cycle),
                _read_from(left, info),
                Reason("wgmma.accumulators", groups=groups, registers=accumulators),
                Reason("wgmma.beside", registers=others) if others else None,
                Reason("wgmma.promoted", k=info.k) if promotes else None,
            )
        ),
        in_flight=0 if promotes else 1,
        operand=_operand(left, info),
        promoted=info.k if promotes else 0,
        transposed=by_lane and _is_transposed(info),
    )
    return plan, groups * ping_pong * WARPGROUP, launch_registers(machine, groups * ping_pong)


def _no_split(info: MatmulInfo, machine: Machine, ping_pong: int) -> Reason:
    """Why the tile does not split into warpgroups."""
    tile, extents = (info.m, info.n), {"rows": ROWS, "columns": MAX_COLUMNS}
    if ping_pong == 1:
        return Reason("wgmma.split", tile=tile, groups=max(CONSUMERS), **extents)
    registers = consumer_registers(machine, ping_pong)
    return Reason(
        "wgmma.split_ping_pong", tile=tile, groups=ping_pong, registers=registers, **extents
    )


def _operand(left: int, info: MatmulInfo) -> OperandSource:
    """Where the first operand is read from; ``left``: registers that hold it."""
    if info.computed:
        return "computed"
    return "registers" if left else "shared"


def _read_from(left: int, info: MatmulInfo) -> Reason:
    """Where operands are read from; ``left``: registers that hold the first one."""
    if not left:
        return Reason("wgmma.shared_operands")
    why: list[Reason] = []
    if info.a_dtype != info.b_dtype:
        why.append(Reason("wgmma.converted", source=info.a_dtype, dtype=info.b_dtype))
    if _is_transposed(info):
        why.append(Reason("wgmma.transposed", operand=info.a))
    if info.computed:
        why.append(Reason("wgmma.computed_there"))
    given = tuple(why) or (Reason("wgmma.as_asked"),)
    return Reason("wgmma.register_operand", registers=left, why=given)


def _multiplied(info: MatmulInfo) -> str:
    """The type in which operands are multiplied: the second's, to which the first is converted."""
    return info.b_dtype


def _is_integer_width(columns: int) -> bool:
    return columns % INTEGER_COLUMNS == 0 and columns <= MAX_INTEGER_COLUMNS


def launch_registers(machine: Machine, groups: int) -> int:
    """Registers of a thread at launch, with ``groups`` consumer warpgroups and one producer."""
    share = machine.registers_per_sm // ((groups + 1) * WARPGROUP)
    return min(share, machine.max_registers_per_thread) // REGISTER_UNIT * REGISTER_UNIT


def consumer_registers(machine: Machine, groups: int) -> int:
    """Registers of a consumer thread once the producer has given up most of its own.

        (launch * (groups + 1) - PRODUCER_REGISTERS) / groups, at most MAX_CONSUMER_REGISTERS

    Warpgroups exchange what the CTA got at launch (PTX ISA, setmaxnreg). One that computes alone
    has enough, and changes its number all the same: behind that instruction ptxas knows that warps
    run together, and keeps slots and descriptors in uniform registers.
    """
    spare = launch_registers(machine, groups) * (groups + 1) - PRODUCER_REGISTERS
    return min(MAX_CONSUMER_REGISTERS, spare // groups) // REGISTER_UNIT * REGISTER_UNIT


def math_warp_registers(plan: MatmulPlan, gathered: bool, beside: int = 0) -> int:
    """Registers of a math warp's thread that copies too: ``accumulators + MATH_WARP_OVERHEAD``.

    ``beside``: words of other accumulators of the CTA.
    """
    threads = plan.warps[0] * plan.warps[1] * WARP
    overhead = IM2COL_MATH_WARP_OVERHEAD if gathered else MATH_WARP_OVERHEAD
    words = plan.m * plan.n // _per_register(plan.accumulator) + beside
    return words // threads + overhead


def group_accumulators(plan: MatmulPlan) -> int:
    """Registers of a thread for the accumulators of a tile that one warpgroup has for itself."""
    return plan.m * plan.n // WARPGROUP // _per_register(plan.accumulator)


def _per_register(accumulator: str) -> int:
    return 2 if accumulator == "float16" else 1


def _layouts(
    warps: tuple[int, int] | None, roles: RolesAsked, ping_pong: int
) -> list[tuple[int, int]]:
    """Warpgroups along M and N of a tile to consider, best first."""
    asked = roles if isinstance(roles, int) and roles else None
    if warps is not None:
        one = warps[0] // 4, warps[1]
        fits = warps[0] % 4 == 0 and asked in (None, math.prod(one) * ping_pong)
        return [one] if fits else []
    wanted: tuple[int, ...] = CONSUMERS if ping_pong == 1 else (1,)
    if asked is not None:
        wanted = (asked // ping_pong,) if asked % ping_pong == 0 else ()
    # Narrow instructions read A once more for each: N is cut where nothing else fits.
    return [
        (groups // columns, columns)
        for columns in range(1, max(CONSUMERS) + 1)
        for groups in wanted
        if groups % columns == 0 and groups
    ]


def _rate(info: MatmulInfo, machine: Machine) -> MmaRate | Reason:
    if not machine.wgmmas:
        return Reason("wgmma.machine", machine=machine.name, arch=machine.arch)
    kind = _multiplied(info)
    if info.a_dtype != kind and kind not in element(info.a_dtype).converts_to:
        return Reason("mapping.dtypes", a_dtype=info.a_dtype, b_dtype=info.b_dtype)
    rate = machine.wgmma(multiplied_as(element(kind)))
    if rate is None:
        return Reason("wgmma.dtype", dtype=kind)
    if info.acc_dtype not in element(kind).sums:
        return Reason("wgmma.accumulator", dtype=kind, accumulator=info.acc_dtype)
    return rate


def _shape_obstacle(info: MatmulInfo, rate: MmaRate, by_lane: bool) -> Reason | None:
    """Why the instruction does not take the tile, or None.

    ``by_lane``: lanes read the first operand.
    """
    k = rate.shape[2]
    if info.m % ROWS or info.n % 8 or info.k % k:
        tile = (info.m, info.n, info.k)
        return Reason("mapping.multiple", tile=tile, m=ROWS, n=8, k=k)
    if element(_multiplied(info)).integer and info.n % INTEGER_COLUMNS:
        return Reason("wgmma.columns", columns=info.n, multiple=INTEGER_COLUMNS)
    sides = [(info.a, info.a_dtype, info.a_k_major), (info.b, info.b_dtype, info.b_k_major)]
    by_registers = by_lane and _is_transposed(info)
    sides = sides[1:] if by_registers or info.computed else sides
    for name, kind, k_major in sides:
        if not element(kind).k_outermost and not k_major:
            if by_registers:
                return Reason("wgmma.k_outermost_but", dtype=kind, operand=info.a)
            return Reason("wgmma.k_outermost", dtype=kind)
        row = info.k * element_bytes(kind)
        if k_major and row % min(SPANS):
            return Reason("wgmma.row", buffer=name, nbytes=row, multiple=min(SPANS))
    for name, k_major, extent in (("A", info.a_k_major, info.m), ("B", info.b_k_major, info.n)):
        if not k_major and extent % ROWS:
            covered = {"multiple": ROWS, "nbytes": SPANS[0]}
            return Reason("wgmma.column_block", operand=name, columns=extent, **covered)
    return None
