"""What each request needs, written down apart from the product: which cases must be refused, how.

Sources: PTX ISA for shapes, widths and the first architecture of an instruction; CUDA C++
Programming Guide, technical specifications, for shared memory and registers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pipeliner.errors import PipelinerError, PlanError, TargetError

from ..refusals import gives
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


class Refusal(NamedTuple):
    """An error that must be raised, and the reasons that it gives, with arguments of theirs."""

    error: type[PipelinerError]
    reasons: Mapping[str, Mapping[str, Any]]

    def is_of(self, err: PipelinerError) -> bool:
        """Whether ``err`` is what was expected, in one line."""
        given = (gives(err.reason, code, **args) for code, args in self.reasons.items())
        return isinstance(err, self.error) and "\n" not in str(err) and all(given)


def refusal(case: Case) -> Refusal | None:
    """How ``case`` must be refused; None: it must work."""
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
    reasons: dict[str, dict[str, Any]] = {
        "mapping.simt_split": {"tile": case.tile[:2], "lanes": 32},
        "mapping.with_asked": {},
    }
    if case.warps is not None:
        reasons["mapping.asked_warps"] = {"warps": case.warps}
    if case.thread_tile is not None:
        reasons["mapping.asked_thread_tile"] = {"tile": case.thread_tile}
    return Refusal(PlanError, reasons)


def _mma(case: Case) -> Refusal | None:
    if case.thread_tile is not None:
        asked = {"instruction": "mma", "tile": case.thread_tile}
        return Refusal(PlanError, {"mapping.thread_tile": asked})
    if case.target == "sm_75":
        return Refusal(TargetError, {"mapping.no_mma": {"machine": "T4", "arch": "sm_75"}})
    shape = MMA_SHAPES[case.dtype]
    if any(extent % unit for extent, unit in zip(case.tile, shape)):
        unit = dict(zip("mnk", shape, strict=True))
        return Refusal(TargetError, {"mapping.multiple": {"tile": case.tile, **unit}})
    warps = case.warps or (1, 1)
    if any(extent % (unit * count) for extent, unit, count in zip(case.tile, shape, warps)):
        split = {"mapping.mma_split": {}, "mapping.asked_warps": {"warps": warps}}
        return Refusal(PlanError, split)
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
        return Refusal(TargetError, {"cp_async.machine": {"machine": "T4", "arch": "sm_75"}})
    for operand in (0, 1):
        width = _aligned_bytes(case, operand)
        if width < 4:
            copy = f"{'AB'[operand]}{'_pad' * _is_padded(case, operand)}_shared"
            refused = {"copy": copy, "mechanism": "cp_async"}
            width_of = {"cp_async.vector": {"nbytes": width}}
            return Refusal(PlanError, {"mechanism.refused": refused, **width_of})
    return None


def _aligned_bytes(case: Case, operand: int) -> int:
    """Bytes to which every row of an operand's tiles is aligned, at most those of its row."""
    m, n, k = case.extents
    rows = (None if case.symbolic else m, case.tile[0]) if operand == 0 else (n, case.tile[1])
    along_k = case.layout[operand] == "NT"[operand]
    length, columns = (k, case.tile[2]) if along_k else rows
    size = BYTES[case.dtype]
    return size if length is None else size * math.gcd(length, columns, 16)


def _is_padded(case: Case, operand: int) -> bool:
    """Whether the last tiles of an operand reach beyond it."""
    m, n, k = case.extents
    rows = n if operand else None if case.symbolic else m
    return rows is None or bool(rows % case.tile[operand] or k % case.tile[2])


def _shared(case: Case) -> Refusal | None:
    if case.depth == "auto":
        return None
    m, n, k = case.tile
    size = 4 if case.dtype == "bf16" and case.target == "sm_75" else BYTES[case.dtype]
    needs, has = int(case.depth) * (m + n) * k * size, SHARED_BYTES[case.target]
    if needs <= has:
        return None
    return Refusal(PlanError, {"depth.smem": {"smem": needs, "most": has}})


def _epilogue(case: Case) -> Refusal | None:
    wide = any(_aligned_bytes(case, operand) >= 4 for operand in (0, 1))
    asynchronous = case.mechanism in ("auto", "cp_async") and case.target != "sm_75" and wide
    if case.epilogue != "clamped" or asynchronous:
        return None
    return Refusal(PlanError, {"clamped.kernel": {}})
