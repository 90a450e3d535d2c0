"""What cp.async requires of a tile copy, the cache that it goes through, and its chunks.

``passes/copy/cp_async.py`` emits it.
"""

from __future__ import annotations

from typing import Final

from ..diagnostics import Reason, Why
from ..instructions.dtypes import SECTOR_BYTES, element_bytes
from ..instructions.table import multiplied_by
from ..machine import WARP, Machine
from ..machine.constant import constant, documented
from ..plan import Cache, MatmulPlan, Mechanism
from ..plan.kinds import CopyMechanism
from ..values.facts import CopyInfo, LoopInfo, MatmulInfo
from .layouts import ROTATED
from .vectors import CHUNK

CP_ASYNC: Final = CopyMechanism("cp_async", "group", names_cache=True)

CP_ASYNC_BYTES: Final = constant(
    "CP_ASYNC_BYTES",
    (16, 8, 4),
    "bytes",
    "what one cp.async moves",
    formula="vector_bytes in CP_ASYNC_BYTES",
    source=documented("PTX ISA, cp.async: cp-size"),
    date="2026-11-21",
)


def cp_async_obstacle(copy: CopyInfo, vector: int, machine: Machine) -> Why | None:
    """The requirement of cp.async that ``copy`` misses, with its numbers; None: none."""
    if not machine.has_cp_async:
        return Reason("cp_async.machine", machine=machine.name, arch=machine.arch)
    if not copy.dst_scope.startswith("shared"):
        return Reason("cp_async.scope", buffer=copy.dst, scope=copy.dst_scope)
    if vector not in CP_ASYNC_BYTES:
        return Reason("cp_async.vector", nbytes=vector)
    return copy.no_cp_async or None


def cp_async_reasons(copy: CopyInfo) -> tuple[Reason, ...]:
    """What a plan says of a copy by cp.async."""
    filled = (Reason("mechanism.zero_filled"),) if copy.masked else ()
    return Reason("mechanism.asynchronous"), *filled


def cache_of(
    copy: CopyInfo, vector: int, mechanism: Mechanism, layout: str
) -> tuple[Cache, Reason | None]:
    """The cache that 16-byte copies go through, and why it is not L2 alone.

    Past L1 each half of a sector is a read of the whole sector from L2. On an H100, rows of 8080
    bytes took 1.76 times the traffic of aligned ones so, through L1 1.23 times, and the GEMM of
    4000x4104x4040 8 % less time.
    """
    aligned = copy.aligned * element_bytes(copy.dtype)
    whole = aligned % SECTOR_BYTES == 0 or layout == ROTATED
    if mechanism != "cp_async" or vector != CHUNK or whole:
        return "L2", None
    return "L1", Reason("cache.l1", aligned=aligned, sector=SECTOR_BYTES)


def chunks_of(
    copy: CopyInfo,
    vector: int,
    mechanism: Mechanism,
    loop: LoopInfo,
    matmuls: tuple[MatmulPlan, ...],
) -> tuple[int, Reason | None]:
    """Chunks that the copy is split into, with the reason: several where accesses are narrow.

    Many copies at once keep the warp's other instructions from issuing; a few behind the fragments
    of each k-step fit in the gaps between multiply-adds.
    """
    used = {op.op for op in loop.ops if isinstance(op, MatmulInfo)}
    plan = next((p for p in matmuls if p.op in used and multiplied_by(p).thread_tile), None)
    if mechanism != "cp_async" or vector == CHUNK or plan is None or copy.bound or plan.steps < 3:
        return 1, None
    threads = plan.warps[0] * plan.warps[1] * WARP
    rounds = -(-copy.elements * element_bytes(copy.dtype) // (vector * threads))
    if rounds == 1:
        return 1, None
    return rounds, Reason("vector.chunks", chunks=rounds, nbytes=vector)
