"""The GPUs that plans are made for, as frozen values.

Every constant names its source. Capacities are what the vendor states; latencies and sustained
rates come from published microbenchmarks and stand until they are measured on the GPU at hand.

Sources
-------
[A100], [H100], [T4]
    NVIDIA whitepapers: A100 Tensor Core GPU Architecture (2020), H100 Tensor Core GPU Architecture
    (2022) with the product page's peak rates, Turing GPU Architecture (2018).
[CC]
    CUDA C++ Programming Guide, technical specifications for each compute capability.
[OCC]
    ``cuda_occupancy.h`` of the CUDA toolkit: what one CTA is charged.
[Luo]
    Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, arXiv 2402.13499:
    latencies and L2 throughput on A100 and H800 PCIe, mma.sync rates.
[Jia]
    Jia et al., Dissecting the NVidia Turing T4 GPU via Microbenchmarking, arXiv 1903.07486.
[Graphs]
    NVIDIA, Getting Started with CUDA Graphs (2019): 0.9 us between kernels of 2.9 us on a V100.
[Sun]
    Sun et al., Dissecting Tensor Cores via Microbenchmarks, arXiv 2206.02874: mma.sync on A100.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from .errors import TargetError

WARP: Final = 32


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

    ``*_per_sm`` rates are what one SM gets with every SM busy. ``l2_bytes_per_cycle`` is one SM's
    share; ``dram_bytes_per_second`` is the whole GPU's. ``fp32_per_cycle`` counts fused
    multiply-adds of one SM. ``issue_per_cycle``: warp instructions one SM starts in a cycle.
    ``accesses_per_cycle``: those to memory that its load and store units take.
    ``barrier_cycles``: a CTA barrier whose warps arrive together. ``launch_us``: from the end of
    one kernel to the start of the next of its stream.
    """

    name: str
    arch: str
    sms: int
    clock_ghz: float
    smem_per_sm: int
    smem_per_cta: int
    smem_reserved: int
    smem_granularity: int
    registers_per_sm: int
    register_granularity: int
    max_registers_per_thread: int
    max_threads_per_sm: int
    max_threads_per_cta: int
    max_ctas_per_sm: int
    l2_bytes: int
    dram_bytes_per_second: float
    l2_bytes_per_cycle: float
    smem_bytes_per_cycle: int
    accesses_per_cycle: float
    issue_per_cycle: int
    fp32_per_cycle: int
    sfu_per_cycle: int
    fp32_latency: int
    sfu_latency: int
    shared_latency: int
    l2_latency: int
    global_latency: int
    barrier_cycles: int
    launch_us: float
    mmas: tuple[MmaRate, ...] = ()
    wgmmas: tuple[MmaRate, ...] = ()

    @property
    def capability(self) -> int:
        """Compute capability as a number: 80 for sm_80, 90 for sm_90a."""
        return _capability(self.arch)

    @property
    def has_cp_async(self) -> bool:
        """Whether shared memory can be filled asynchronously (PTX ISA: cp.async needs sm_80)."""
        return self.capability >= 80

    @property
    def has_tma(self) -> bool:
        """Whether it has a tensor memory accelerator (PTX ISA: cp.async.bulk needs sm_90)."""
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


def _tensor_cores(fp16_ops: int, latency: int) -> tuple[MmaRate, ...]:
    """mma.sync of sm_80 and later, from the fp16 rate; the others are fixed multiples of it."""
    return (
        MmaRate("float16", (16, 8, 16), fp16_ops, latency),
        MmaRate("bfloat16", (16, 8, 16), fp16_ops, latency),
        MmaRate("tfloat32", (16, 8, 8), fp16_ops // 2, latency),
        MmaRate("int8", (16, 8, 32), fp16_ops * 2, latency),
    )


def _warpgroup_cores(fp16_ops: int) -> tuple[MmaRate, ...]:
    """Warpgroup instructions of N = 256, from the fp16 rate (PTX ISA: K is 32 bytes).

    Its latency is that of 64 x 256 x 16: as long as the instruction keeps the tensor cores busy.
    """
    latency = 2 * 64 * 256 * 16 // fp16_ops
    return (
        MmaRate("float16", (64, 256, 16), fp16_ops, latency),
        MmaRate("bfloat16", (64, 256, 16), fp16_ops, latency),
        MmaRate("tfloat32", (64, 256, 8), fp16_ops // 2, latency),
        MmaRate("int8", (64, 256, 32), fp16_ops * 2, latency),
        MmaRate("float8_e4m3fn", (64, 256, 32), fp16_ops * 2, latency),
        MmaRate("float8_e5m2", (64, 256, 32), fp16_ops * 2, latency),
    )


A100: Final = Machine(
    name="A100 SXM4",
    arch="sm_80",
    sms=108,  # [A100] table 4
    clock_ghz=1.41,  # [A100] table 4, boost
    smem_per_sm=164 * 1024,  # [CC]
    smem_per_cta=163 * 1024,  # [CC]
    smem_reserved=1024,  # [OCC] kept by the system for each CTA
    smem_granularity=128,  # [OCC]
    registers_per_sm=65536,  # [CC]
    register_granularity=256,  # [OCC] for each warp
    max_registers_per_thread=255,  # [CC]
    max_threads_per_sm=2048,  # [CC]
    max_threads_per_cta=1024,  # [CC]
    max_ctas_per_sm=32,  # [CC]
    l2_bytes=40 * 1024 * 1024,  # [A100] table 4
    dram_bytes_per_second=1555e9,  # [A100] table 4, the 40 GB part
    l2_bytes_per_cycle=5120 / 108,  # [A100] 5120 bytes a cycle, shared by all SMs
    smem_bytes_per_cycle=128,  # [CC] 32 banks of 4 bytes
    accesses_per_cycle=1,  # [A100] 32 load and store units
    issue_per_cycle=4,  # [A100] four warp schedulers
    fp32_per_cycle=64,  # [A100] table 4
    sfu_per_cycle=16,  # [CC] arithmetic instructions table
    fp32_latency=4,  # [Jia] unchanged since Volta
    sfu_latency=18,  # [Jia]
    shared_latency=29,  # [Luo] table IV
    l2_latency=262,  # [Luo] table IV
    global_latency=466,  # [Luo] table IV
    barrier_cycles=30,  # upper end of the 20 to 30 that fbtriton's modulo scheduler documents
    launch_us=0.9,  # [Graphs]
    mmas=_tensor_cores(2048, 33),  # 312 TFLOP/s [A100] over SMs and clock; latency [Sun]
)

H100: Final = Machine(
    name="H100 SXM5",
    arch="sm_90",
    sms=132,  # [H100]
    clock_ghz=1.83,  # [H100] 989 TFLOP/s dense fp16 over 132 SMs x 4096; fp32 runs up to 1.98
    smem_per_sm=228 * 1024,  # [CC]
    smem_per_cta=227 * 1024,  # [CC]
    smem_reserved=1024,  # [OCC]
    smem_granularity=128,  # [OCC]
    registers_per_sm=65536,  # [CC]
    register_granularity=256,  # [OCC]
    max_registers_per_thread=255,  # [CC]
    max_threads_per_sm=2048,  # [CC]
    max_threads_per_cta=1024,  # [CC]
    max_ctas_per_sm=32,  # [CC]
    l2_bytes=50 * 1024 * 1024,  # [H100]
    dram_bytes_per_second=3352e9,  # [H100]
    l2_bytes_per_cycle=46.6,  # DeepGEMM's sm90 heuristic, 8e6 / 1.3e3 bytes a cycle for 132 SMs
    smem_bytes_per_cycle=128,  # [CC]
    accesses_per_cycle=1,  # [H100] 32 load and store units
    issue_per_cycle=4,  # [H100]
    fp32_per_cycle=128,  # [H100]
    sfu_per_cycle=16,  # [CC]
    fp32_latency=4,  # [Jia]
    sfu_latency=18,  # [Jia]
    shared_latency=29,  # [Luo] table IV
    l2_latency=263,  # [Luo] table IV
    global_latency=479,  # [Luo] table IV
    barrier_cycles=30,  # as A100
    launch_us=0.9,  # [Graphs]
    # mma.sync reaches 63 % of the 4096 operations a cycle that wgmma reaches [Luo].
    mmas=_tensor_cores(2580, 33),
    wgmmas=_warpgroup_cores(4096),  # [H100] 989 TFLOP/s over SMs and clock
)

T4: Final = Machine(
    name="T4",
    arch="sm_75",
    sms=40,  # [T4]
    clock_ghz=1.59,  # [T4] boost
    smem_per_sm=64 * 1024,  # [CC]
    smem_per_cta=64 * 1024,  # [CC]
    smem_reserved=0,  # [OCC] none before sm_80
    smem_granularity=256,  # [OCC]
    registers_per_sm=65536,  # [CC]
    register_granularity=256,  # [OCC]
    max_registers_per_thread=255,  # [CC]
    max_threads_per_sm=1024,  # [CC]
    max_threads_per_cta=1024,  # [CC]
    max_ctas_per_sm=16,  # [CC]
    l2_bytes=4 * 1024 * 1024,  # [T4]
    dram_bytes_per_second=320e9,  # [T4]
    l2_bytes_per_cycle=1270e9 / 1.59e9 / 40,  # [Jia] 1270 GB/s measured
    smem_bytes_per_cycle=128,  # [CC]
    accesses_per_cycle=0.5,  # [T4] 16 load and store units
    issue_per_cycle=4,  # [T4]
    fp32_per_cycle=64,  # [T4]
    sfu_per_cycle=16,  # [CC]
    fp32_latency=4,  # [Jia]
    sfu_latency=18,  # [Jia]
    shared_latency=19,  # [Jia]
    l2_latency=188,  # [Jia]
    global_latency=296,  # [Jia]
    barrier_cycles=30,  # as A100
    launch_us=0.9,  # [Graphs]
)

MACHINES: Final = (T4, A100, H100)


def machine_for(target: Any) -> Machine:
    """The machine that code for ``target`` is planned for.

    ``target``: a TVM target, its text (``nvidia/nvidia-h100``, ``cuda -arch=sm_80``) or an
    architecture such as ``sm_90a``. TargetError names the described ones: a plan for a GPU with
    guessed constants would explain itself with wrong numbers.
    """
    if isinstance(target, Machine):
        return target
    arch = _arch(target)
    for machine in MACHINES:
        if machine.capability == _capability(arch):
            return machine
    known = ", ".join(machine.arch for machine in MACHINES)
    raise TargetError(f"cannot plan for {arch}: its machine is not described, expected {known}")


def _arch(target: Any) -> str:
    if isinstance(target, str):
        found = re.search(r"\bsm_\d+[af]?\b", target)
        if found:
            return found.group()
        from tvm.target import Target

        target = Target(target)
    arch = getattr(target, "arch", None)
    if not arch:
        raise TargetError(f"expected a CUDA target with an architecture, not '{target}'")
    return str(arch)


def _capability(arch: str) -> int:
    found = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if not found:
        raise TargetError(f"expected an architecture such as sm_90, not '{arch}'")
    return int(found.group(1))
