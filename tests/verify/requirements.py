"""What each request needs, written down apart from the product: which cases must be refused, how.

Sources: PTX ISA for shapes, widths and the first architecture of an instruction; CUDA C++
Programming Guide, technical specifications, for shared memory and registers.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

from pipeliner.errors import PipelinerError, PlanError, TargetError

from .sweep import Case

MMA_SHAPES: Final = {
    "fp32": (16, 8, 8),  # as tf32
    "tf32": (16, 8, 8),
    "fp16": (16, 8, 16),
    "fp16 in fp16": (16, 8, 16),
    "bf16": (16, 8, 16),
    "int8": (16, 8, 32),
}

BYTES: Final = {"fp32": 4, "tf32": 4, "fp16": 2, "fp16 in fp16": 2, "bf16": 2, "int8": 1}

SHARED_BYTES: Final = {"sm_75": 64 * 1024, "sm_80": 163 * 1024, "sm_90": 227 * 1024}

MAX_WARPS: Final = 32

Refusal = tuple[type[PipelinerError], str]


def refusal(case: Case) -> Refusal | None:
    """The error that ``case`` must raise and a pattern of its message; None: it must work."""
    return _mapping(case) or _copies(case) or _shared(case) or _epilogue(case)


def wants_mma(case: Case) -> bool:
    """Whether mma is demanded: tf32 means nothing else."""
    return case.instruction == "mma" or (case.dtype == "tf32" and case.instruction == "auto")


def _mapping(case: Case) -> Refusal | None:
    if wants_mma(case):
        return _mma(case)
    free = case.instruction == "auto" and case.thread_tile is None
    if free and case.dtype != "fp32" and _mma(case) is None:
        return None
    if case.warps is None and case.thread_tile is None:
        return None
    if any(_simt_layouts(case)):
        return None
    m, n, _ = case.tile
    asked = [] if case.warps is None else [f"{_by(case.warps)} warps"]
    if case.thread_tile is not None:
        asked.append(f"thread tile {_by(case.thread_tile)}")
    split = f"tile {m}x{n} does not split into warps of 32 equal thread"
    return PlanError, f"{split}.*asked for: {'; '.join(asked)}"


def _mma(case: Case) -> Refusal | None:
    if case.thread_tile is not None:
        return PlanError, f"mma with thread tile {_by(case.thread_tile)}"
    if case.target == "sm_75":
        return TargetError, r"T4 \(sm_75\) has no mma.sync"
    shape = MMA_SHAPES[case.dtype]
    if any(extent % unit for extent, unit in zip(case.tile, shape)):
        name = "m{}n{}k{}".format(*shape)
        return TargetError, f"tile {_by(case.tile)} is not a multiple of {name}"
    warps = case.warps or (1, 1)
    if any(extent % (unit * count) for extent, unit, count in zip(case.tile, shape, warps)):
        return PlanError, f"tile {_by(case.tile)} does not split.*: {_by(warps)} warps"
    return None


def _simt_layouts(case: Case) -> bool:
    """Whether 32 equal thread tiles, the one asked for, fill each warp's share of the tile."""
    powers = (1, 2, 4, 8, 16, 32)
    layouts = itertools.product(powers, powers) if case.warps is None else [case.warps]
    for rows, columns in layouts:
        if rows * columns > MAX_WARPS or case.tile[0] % rows or case.tile[1] % columns:
            continue
        height, width = case.tile[0] // rows, case.tile[1] // columns
        for lanes in powers:
            if height % lanes == 0 and width % (32 // lanes) == 0:
                own = (height // lanes, width // (32 // lanes))
                if case.thread_tile in (None, own):
                    yield own


def _copies(case: Case) -> Refusal | None:
    if case.mechanism != "cp_async":
        return None
    if case.target == "sm_75":
        return TargetError, r"by cp_async: cp.async needs sm_80, T4 is sm_75"
    for operand in (0, 1):
        width = _aligned_bytes(case, operand)
        if width < 4:
            name = "AB"[operand]
            moves = "cp.async moves 4, 8 or 16 bytes"
            return PlanError, f"'{name}_(pad_)?shared' by cp_async: {moves}, here only {width} are"
    return None


def _aligned_bytes(case: Case, operand: int) -> int:
    """Bytes to which every row of an operand's tiles is aligned, at most those of its row."""
    m, n, k = case.extents
    rows = (None if case.symbolic else m, case.tile[0]) if operand == 0 else (n, case.tile[1])
    along_k = case.layout[operand] == "NT"[operand]
    length, columns = (k, case.tile[2]) if along_k else rows
    size = BYTES[case.dtype]
    return size if length is None else size * math.gcd(length, columns, 16)


def _shared(case: Case) -> Refusal | None:
    if case.depth == "auto":
        return None
    m, n, k = case.tile
    size = 4 if case.dtype == "bf16" and case.target == "sm_75" else BYTES[case.dtype]
    needs, has = int(case.depth) * (m + n) * k * size, SHARED_BYTES[case.target]
    if needs <= has:
        return None
    return PlanError, f"{needs} bytes.*{has}"


def _epilogue(case: Case) -> Refusal | None:
    wide = any(_aligned_bytes(case, operand) >= 4 for operand in (0, 1))
    asynchronous = case.mechanism in ("auto", "cp_async") and case.target != "sm_75" and wide
    if case.epilogue != "clamped" or asynchronous:
        return None
    return PlanError, "cannot clamp the epilogue of 'gemm[^']*': no copy is asynchronous"


def _by(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
