"""What the cost model knows of a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from ..errors import TargetError
from .constant import Source, documented, fitted, measured

WARP: Final = 32

VECTOR_BYTES: Final = 16
"""Bytes of the widest access of a thread."""

MEASURED: Final = " as measured"
"""How the name of a GPU ends whose constants were measured: records are of the GPU all the same."""


@dataclass(frozen=True, slots=True)
class MmaRate:
    """One ``mma.sync`` or ``wgmma`` instruction: its shape and what it costs."""

    dtype: str
    """Type of the operands."""
    shape: tuple[int, int, int]
    """M, N and K of one instruction."""
    ops_per_cycle: int
    """Multiplications and additions that one SM sustains in a cycle."""
    latency: int
    """Cycles until a dependent instruction may start."""

    @property
    def k(self) -> int:
        """K extent of one instruction."""
        return self.shape[2]


def _of(unit: str, meaning: str, formula: str, source: Source | None = None) -> dict[str, Any]:
    """What a field of Machine is; ``source``: of its default, the same for every GPU."""
    return {"unit": unit, "meaning": meaning, "formula": formula, "source": source}


_CC: Final = documented("[CC]")


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU: capacities, latencies, and the rates that one SM gets with every SM busy.

    What has a default is the same, as far as is known, on every GPU described here. ``records_of``
    lists values with their sources.
    """

    name: str
    arch: str
    sms: int = field(metadata=_of("SMs", "of the GPU", "rounds = ceil(ctas / sms)"))
    clock_ghz: float = field(metadata=_of("GHz", "clock of the SMs", "us = cycles / clock / 1000"))
    smem_per_sm: int = field(
        metadata=_of("bytes", "shared memory of an SM", "CTAs = smem_per_sm / bytes of a CTA")
    )
    smem_per_cta: int = field(
        metadata=_of("bytes", "the most shared memory of a CTA", "bytes of a CTA <= smem_per_cta")
    )
    smem_reserved: int = field(
        metadata=_of(
            "bytes",
            "shared memory that the system keeps for each CTA",
            "bytes of a CTA = rounded + smem_reserved",
        )
    )
    smem_granularity: int = field(
        metadata=_of(
            "bytes", "unit in which shared memory is given", "rounded up to smem_granularity"
        )
    )
    max_threads_per_sm: int = field(
        metadata=_of("threads", "resident on an SM", "CTAs <= max_threads_per_sm / threads")
    )
    max_ctas_per_sm: int = field(
        metadata=_of("CTAs", "resident on an SM", "CTAs <= max_ctas_per_sm")
    )
    l2_bytes: int = field(metadata=_of("bytes", "L2 cache", "first = min(moved, l2_bytes)"))
    dram_bytes_per_second: float = field(
        metadata=_of(
            "bytes/s",
            "bandwidth of memory, of the whole GPU",
            "compulsory = bytes / dram_bytes_per_second",
        )
    )
    l2_bytes_per_cycle: float = field(
        metadata=_of(
            "bytes/cycle", "what one SM gets from L2", "l2 = tile_bytes / l2_bytes_per_cycle"
        )
    )
    accesses_per_cycle: float = field(
        metadata=_of(
            "accesses/cycle",
            "accesses of a warp that an SM's load and store units take",
            "lsu = accesses / accesses_per_cycle",
        )
    )
    fp32_per_cycle: int = field(
        metadata=_of(
            "FMA/cycle", "fused multiply-adds of one SM", "fma = m * n * k / fp32_per_cycle"
        )
    )
    sfu_per_cycle: int = field(
        metadata=_of(
            "operations/cycle",
            "transcendental functions of one SM",
            "sfu = functions / sfu_per_cycle",
        )
    )
    fp32_latency: int = field(
        metadata=_of("cycles", "until a dependent FMA may start", "latency of an FMA op")
    )
    shared_latency: int = field(
        metadata=_of(
            "cycles",
            "from a load of shared memory to its value",
            "bubble = barrier_cycles + shared_latency + RESTART_CYCLES",
        )
    )
    l2_latency: int = field(
        metadata=_of(
            "cycles",
            "from a load to its value where L2 has it",
            "latency of a ring whose tensor stays in L2 = l2_latency + handshake",
        )
    )
    global_latency: int = field(
        metadata=_of(
            "cycles",
            "from a load to its value where memory has it",
            "latency = global_latency + handshake",
        )
    )
    registers_per_sm: int = field(
        default=65536,
        metadata=_of("registers", "of an SM", "CTAs = registers_per_sm / registers of a CTA", _CC),
    )
    register_granularity: int = field(
        default=256,
        metadata=_of(
            "registers",
            "unit in which a warp gets registers",
            "rounded up to register_granularity",
            documented("[OCC]"),
        ),
    )
    max_registers_per_thread: int = field(
        default=255,
        metadata=_of("registers", "the most of a thread", "registers <= this", _CC),
    )
    max_threads_per_cta: int = field(
        default=1024, metadata=_of("threads", "the most of a CTA", "threads <= this", _CC)
    )
    smem_bytes_per_cycle: int = field(
        default=128,
        metadata=_of(
            "bytes/cycle",
            "what shared memory moves: 32 banks of 4 bytes",
            "lsu = bytes / smem_bytes_per_cycle",
            _CC,
        ),
    )
    issue_per_cycle: int = field(
        default=4,
        metadata=_of(
            "instructions/cycle",
            "warp instructions that the four schedulers of an SM start",
            "issue = instructions / issue_per_cycle",
            _CC,
        ),
    )
    sfu_latency: int = field(
        default=18,
        metadata=_of(
            "cycles",
            "until a dependent transcendental function may start",
            "latency of an op on the SFU",
            measured("[Jia] of a T4; others derived from it"),
        ),
    )
    barrier_cycles: int = field(
        default=30,
        metadata=_of(
            "cycles",
            "a CTA barrier whose warps arrive together",
            "bubble = barrier_cycles + shared_latency + RESTART_CYCLES",
            documented("upper end of the 20 to 30 that fbtriton's modulo scheduler documents"),
        ),
    )
    sms_in_clusters: tuple[int, ...] = field(
        default=(),
        metadata=_of(
            "SMs",
            "that clusters of 1, 2, 3 ... CTAs, one an SM, fill at once; empty: it is not known, "
            "and all are taken to be filled",
            "rounds = ceil(ctas / sms_in_clusters), in such clusters",
            documented("GPCs of a GPU have unlike numbers of SMs"),
        ),
    )
    launch_us: float = field(
        default=0.9,
        metadata=_of(
            "us",
            "from the end of one kernel to the start of the next of its stream",
            "us = launch_us + cycles / clock, elementwise kernels",
            measured("[Graphs]"),
        ),
    )
    l2_bytes_per_second: float = field(
        default=0.0,
        metadata=_of(
            "bytes/s",
            "what all SMs together get from L2 of tiles that neighbours share, once what a cluster "
            "shares; 0: it is not known, and each SM's own rate is the only bound",
            "us >= bytes that all CTAs ask for / l2_bytes_per_second",
            documented("no bound but that of each SM"),
        ),
    )
    start_us: float = field(
        default=2.5,
        metadata=_of(
            "us",
            "until a kernel's first instruction runs and from its last one until the next event: "
            "launch, instructions and descriptors that no cache has, and the end of the grid",
            "us = start_us + (sm_us ^ OVERLAP_NORM + memory_us ^ OVERLAP_NORM) ^ (1 / "
            "OVERLAP_NORM)",
            fitted(
                "candidates below 40 us of an H100's log, in steps of 0.5: 2.0 to 2.5",
                "8 % mean error below 40 us",
            ),
        ),
    )
    mmas: tuple[MmaRate, ...] = ()
    """Rates of mma.sync, by type of the operands."""
    wgmmas: tuple[MmaRate, ...] = ()
    """Rates of wgmma, by type of the operands."""

    @property
    def key(self) -> str:
        """What a person types for it: ``a100``, ``rtx4090``; the same once it is measured."""
        return key_of(self.name.removesuffix(MEASURED))

    @property
    def capability(self) -> int:
        """Compute capability as a number: 80 for sm_80, 90 for sm_90a."""
        return capability_of(self.arch)

    @property
    def has_cp_async(self) -> bool:
        """Whether shared memory can be filled asynchronously (PTX ISA: cp.async needs sm_80)."""
        return self.capability >= 80

    @property
    def has_tma(self) -> bool:
        """Whether it has a tensor memory accelerator (PTX ISA: cp.async.bulk needs sm_90)."""
        return self.capability >= 90

    @property
    def has_tcgen05(self) -> bool:
        """Whether it multiplies in tensor memory (PTX ISA: tcgen05 is of sm_100 to sm_110)."""
        return 100 <= self.capability < 120

    @property
    def has_pdl(self) -> bool:
        """Whether kernels may start before the one before ends (PTX ISA: griddepcontrol, sm_90)."""
        return self.capability >= 90

    def sms_of(self, cluster: int) -> int:
        """SMs that CTAs in clusters of so many fill at once."""
        known = self.sms_in_clusters
        return known[cluster - 1] if 0 < cluster <= len(known) else self.sms

    @property
    def dram_bytes_per_cycle(self) -> float:
        """One SM's share of the memory bandwidth, in bytes a cycle."""
        return self.dram_bytes_per_second / (self.clock_ghz * 1e9) / self.sms

    def mma(self, dtype: str) -> MmaRate | None:
        """The tensor core instruction for operands of ``dtype``, or None."""
        return next((rate for rate in self.mmas if rate.dtype == dtype), None)

    @property
    def multiplies_by_warpgroup(self) -> bool:
        """Whether a warpgroup multiplies by one instruction, of 64 rows at least."""
        return bool(self.wgmmas)

    def wgmma(self, dtype: str) -> MmaRate | None:
        """The widest warpgroup instruction for operands of ``dtype``, or None."""
        return next((rate for rate in self.wgmmas if rate.dtype == dtype), None)

    def cycles_to_us(self, cycles: float) -> float:
        """Microseconds that ``cycles`` take."""
        return cycles / (self.clock_ghz * 1e3)


def key_of(name: str) -> str:
    """``a100`` for ``A100 SXM4``, ``rtx4090`` for ``RTX 4090``."""
    return "".join(word for word in name.lower().split() if not word.startswith("sxm"))


@cache
def capability_of(arch: str) -> int:
    """80 for ``sm_80``, 90 for ``sm_90a``; TargetError: it is no architecture of NVIDIA's."""
    found = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if not found:
        raise TargetError("target.arch", arch=arch)
    return int(found.group(1))
