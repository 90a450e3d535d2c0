"""What the cost model knows of a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ..errors import TargetError

WARP: Final = 32

MEASURED: Final = " as measured"
"""How the name of a GPU ends whose constants were measured: records are of the GPU all the same."""


@dataclass(frozen=True, slots=True)
class MmaRate:
    """One ``mma.sync`` or ``wgmma`` instruction: its shape and what it costs.

    ``dtype``: type of the operands. ``ops_per_cycle``: multiplications and additions that one SM
    sustains in a cycle. ``latency``: cycles until a dependent mma may start.
    """

    dtype: str
    shape: tuple[int, int, int]
    ops_per_cycle: int
    latency: int

    @property
    def k(self) -> int:
        """K extent of one instruction."""
        return self.shape[2]


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU: capacities in bytes, counts and cycles; rates in bytes or operations a cycle.

    Rates are what one SM gets with every SM busy, but for ``dram_bytes_per_second``, the whole
    GPU's. ``fp32_per_cycle`` counts fused multiply-adds. ``issue_per_cycle``: warp instructions
    that are started. ``accesses_per_cycle``: those to memory that its load and store units take.
    ``barrier_cycles``: a CTA barrier whose warps arrive together. ``launch_us``: from the end of
    one kernel to the start of the next of its stream. What has a default is the same, as far as is
    known, on every GPU described here.
    """

    name: str
    arch: str
    sms: int
    clock_ghz: float
    smem_per_sm: int
    smem_per_cta: int
    smem_reserved: int
    smem_granularity: int
    max_threads_per_sm: int
    max_ctas_per_sm: int
    l2_bytes: int
    dram_bytes_per_second: float
    l2_bytes_per_cycle: float
    accesses_per_cycle: float
    fp32_per_cycle: int
    sfu_per_cycle: int
    fp32_latency: int
    shared_latency: int
    l2_latency: int
    global_latency: int
    registers_per_sm: int = 65536  # [CC]
    register_granularity: int = 256  # [OCC] for each warp
    max_registers_per_thread: int = 255  # [CC]
    max_threads_per_cta: int = 1024  # [CC]
    smem_bytes_per_cycle: int = 128  # [CC] 32 banks of 4 bytes
    issue_per_cycle: int = 4  # [CC] four warp schedulers
    sfu_latency: int = 18  # [Jia] of a T4; others derived from it
    barrier_cycles: int = 30  # upper end of the 20 to 30 that fbtriton's modulo scheduler documents
    launch_us: float = 0.9  # [Graphs]
    mmas: tuple[MmaRate, ...] = ()
    wgmmas: tuple[MmaRate, ...] = ()

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
    def has_early_launch(self) -> bool:
        """Whether kernels may start before the one before ends (PTX ISA: griddepcontrol, sm_90)."""
        return self.capability >= 90

    @property
    def dram_bytes_per_cycle(self) -> float:
        """One SM's share of the memory bandwidth, in bytes a cycle."""
        return self.dram_bytes_per_second / (self.clock_ghz * 1e9) / self.sms

    def mma(self, dtype: str) -> MmaRate | None:
        """The tensor core instruction for operands of ``dtype``, or None."""
        return next((rate for rate in self.mmas if rate.dtype == dtype), None)

    def wgmma(self, dtype: str) -> MmaRate | None:
        """The widest warpgroup instruction for operands of ``dtype``, or None."""
        return next((rate for rate in self.wgmmas if rate.dtype == dtype), None)

    def rate(self, instruction: str, dtype: str) -> MmaRate | None:
        """What an instruction such as ``wgmma.m64n256k16.f16.f32`` of a plan costs."""
        return self.wgmma(dtype) if instruction.startswith("wgmma") else self.mma(dtype)

    def cycles_to_us(self, cycles: float) -> float:
        """Microseconds that ``cycles`` take."""
        return cycles / (self.clock_ghz * 1e3)


def key_of(name: str) -> str:
    """``a100`` for ``A100 SXM4``, ``rtx4090`` for ``RTX 4090``."""
    return "".join(word for word in name.lower().split() if not word.startswith("sxm"))


def capability_of(arch: str) -> int:
    """80 for ``sm_80``, 90 for ``sm_90a``; TargetError: it is no architecture of NVIDIA's."""
    found = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if not found:
        raise TargetError(f"expected an architecture such as sm_90, not '{arch}'")
    return int(found.group(1))
