"""What wgmma takes: types, rows, columns and layouts of a tile.

One instruction multiplies 64 rows by 8 to 256 columns for one step of K. It reads tiles in shared
memory through descriptors, in column blocks of 32, 64 or 128 bytes.
"""

from __future__ import annotations

from typing import Final

from ..diagnostics import Reason
from ..machine import Machine, MmaRate
from ..machine.constant import constant, documented
from ..values.elements import element, multiplied_as
from ..values.facts import MatmulInfo
from .dtypes import element_bytes

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
    formula="swizzle = the first of SPANS that divides a row along K, the least that another fits",
    source=documented("PTX ISA, wgmma matrix descriptor"),
    date="2026-11-21",
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


def wgmma_rate(info: MatmulInfo, machine: Machine) -> MmaRate | Reason:
    """The rate of wgmma for the types of ``info``, or why it does not multiply them."""
    if not machine.wgmmas:
        return Reason("wgmma.machine", machine=machine.name, arch=machine.arch)
    kind = multiplied_type(info)
    if info.a_dtype != kind and kind not in element(info.a_dtype).converts_to:
        return Reason("mapping.dtypes", a_dtype=info.a_dtype, b_dtype=info.b_dtype)
    rate = machine.wgmma(multiplied_as(element(kind)))
    if rate is None:
        return Reason("wgmma.dtype", dtype=kind)
    if info.acc_dtype not in element(kind).sums:
        return Reason("wgmma.accumulator", dtype=kind, accumulator=info.acc_dtype)
    return rate


def shape_obstacle(info: MatmulInfo, rate: MmaRate, by_lane: bool) -> Reason | None:
    """Why the instruction does not take the tile, or None.

    ``by_lane``: lanes read the first operand.
    """
    k = rate.shape[2]
    if info.m % ROWS or info.n % 8 or info.k % k:
        tile = (info.m, info.n, info.k)
        return Reason("mapping.multiple", tile=tile, m=ROWS, n=8, k=k)
    if element(multiplied_type(info)).integer and info.n % INTEGER_COLUMNS:
        return Reason("wgmma.columns", columns=info.n, multiple=INTEGER_COLUMNS)
    sides = [(info.a, info.a_dtype, info.a_k_major), (info.b, info.b_dtype, info.b_k_major)]
    by_registers = by_lane and is_transposed(info)
    sides = sides[1:] if by_registers or info.computed else sides
    for name, kind, k_major in sides:
        if not element(kind).k_outermost and not k_major:
            if by_registers:
                return Reason("wgmma.k_outermost_but", dtype=kind, operand=info.a)
            return Reason("wgmma.k_outermost", dtype=kind)
        row = info.k * element_bytes(kind)
        if k_major and row % min(SPANS):
            return Reason("wgmma.row", buffer=name, nbytes=row, multiple=min(SPANS))
    return None


def covering_span(row: int) -> int:
    """Bytes that the swizzle of a row covers that need not fill it: the least that it fits into.

    A row that is wider than any lies in blocks of the widest, the last of which may have room to
    spare.
    """
    return min(span for span in SPANS if span >= min(row, max(SPANS)))


def begin_with_blocks(info: MatmulInfo, groups: int) -> bool:
    """Whether the columns of each of some warpgroups side by side begin with a column block.

    One descriptor names where they begin. Along K every column is a row of the tile.
    """
    row = info.n // groups * element_bytes(info.b_dtype)
    return groups == 1 or info.b_k_major or row % max(SPANS) == 0


def multiplied_type(info: MatmulInfo) -> str:
    """The type in which operands are multiplied: the second's, to which the first is converted."""
    return info.b_dtype


def is_integer_width(columns: int) -> bool:
    """Whether an integer wgmma has so many columns."""
    return columns % INTEGER_COLUMNS == 0 and columns <= MAX_INTEGER_COLUMNS


def is_transposed(info: MatmulInfo) -> bool:
    """Whether the first operand is transposed as it is loaded into registers."""
    return must_transpose(info.a_dtype, info.a_k_major)


def must_transpose(dtype: str, k_major: bool) -> bool:
    """Whether an operand of wgmma is transposed as it is loaded into registers, two rows to a lane.

    It lies with K outermost, which wgmma reads of 16-bit types alone, as ldmatrix transposes them.
    """
    return not element(dtype).k_outermost and not k_major
