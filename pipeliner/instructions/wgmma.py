"""Map a matmul tile to wgmma: which warpgroup owns which part.

``passes/matmul/wgmma.py`` emits it. ``wgmma_shapes`` says what an instruction takes,
``warpgroup_registers`` what registers a thread has.

A warpgroup (four warps) multiplies 64 rows by up to 256 columns with one instruction, both operands
in shared memory, or the first in registers. Its accumulators lie in its registers, so a tile of
128x256 needs two warpgroups.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, Literal

from ..diagnostics import Reason, all_of, each_of
from ..machine import Machine
from ..machine.constant import chosen, constant, documented
from ..plan import Consumers, MatmulPlan, OperandSource
from ..plan.kinds import MatmulInstruction
from ..plan.request import AccumulateAsked, OperandAsked, RolesAsked
from ..values.elements import element
from ..values.facts import MatmulInfo
from .dtypes import element_bytes
from .registers import CONSUMER_OVERHEAD, INSTRUCTION_OVERHEAD
from .warpgroup_registers import consumer_registers, launch_registers, sums_per_register
from .warps import asked_warps, with_asked
from .wgmma_shapes import (
    MAX_COLUMNS,
    ROWS,
    SPANS,
    WARPGROUP,
    begin_with_blocks,
    is_integer_width,
    is_transposed,
    multiplied_type,
    shape_obstacle,
    wgmma_rate,
)

WGMMA: Final = MatmulInstruction("wgmma", "descriptor", Machine.wgmma, warpgroup_wide=True)

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
    CTA. A tile of few rows swaps A and B: the instruction's 64 rows run along N, its columns, 8 at
    least, along M.
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
    why = _why_swap_ab(info, warps, operand)
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


def _why_swap_ab(
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
    if operand != "shared" and is_transposed(info.transposed()) and not is_transposed(info):
        return Reason("wgmma.second_transposed", operand=info.b)
    return None


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
    rate = wgmma_rate(info, machine)
    if isinstance(rate, Reason):
        return rate
    by_lane = operand == "registers" or info.a_dtype != info.b_dtype
    by_lane = by_lane or (operand == "auto" and is_transposed(info))
    by_lane = by_lane or bool(info.computed)
    obstacle = shape_obstacle(info, rate, by_lane)
    if obstacle is not None:
        return obstacle
    best: tuple[tuple[int, int], int, int, int] | None = None
    inside = 0  # columns of warpgroups that would begin inside column blocks
    for rows, columns in _layouts(warps, roles, ping_pong):
        if columns > 1 and info.by_rows:
            continue
        if info.m % (rows * ROWS) or info.n % (columns * 8) or info.n // columns > MAX_COLUMNS:
            continue
        if not begin_with_blocks(info, columns):
            inside = info.n // columns
            continue
        groups = rows * columns
        per_register = sums_per_register(info.acc_dtype)
        accumulators = info.m * info.n // groups // WARPGROUP // per_register
        one = info.n // columns * ROWS // WARPGROUP // per_register + INSTRUCTION_OVERHEAD
        if element(multiplied_type(info)).integer and not is_integer_width(info.n // columns):
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
        why = with_asked(_no_split(info, machine, ping_pong), *asked)
        if inside:
            columns = max(SPANS) // element_bytes(info.b_dtype)
            block = Reason("wgmma.column_block", columns=inside, multiple=columns)
            return Reason("reason.all", reasons=(why, block))
        return why
    (rows, columns), accumulators, others, left = best
    wide = info.n // columns
    _, _, k = rate.shape
    kind = multiplied_type(info)
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
        transposed=by_lane and is_transposed(info),
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
    if is_transposed(info):
        why.append(Reason("wgmma.transposed", operand=info.a))
    if info.computed:
        why.append(Reason("wgmma.computed_there"))
    given = tuple(why) or (Reason("wgmma.as_asked"),)
    return Reason("wgmma.register_operand", registers=left, why=given)


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
