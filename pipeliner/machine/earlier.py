"""GPUs before sm_80: copies pass through registers, and multiplications take the FMA pipe.

Volta and Turing have tensor cores; their mma.sync shapes (m8n8k4, m16n8k8) are not used here.
"""

from __future__ import annotations

from typing import Final

from .values import Machine

GTX_1080_TI: Final = Machine(
    name="GTX 1080 Ti",
    arch="sm_61",
    sms=28,  # [1080Ti] 3584 cores, 128 to an SM
    clock_ghz=1.582,  # [1080Ti] boost
    smem_per_sm=96 * 1024,  # [CC]
    smem_per_cta=48 * 1024,  # [CC]
    smem_reserved=0,  # [OCC] none before sm_80
    smem_granularity=256,  # [OCC]
    max_threads_per_sm=2048,  # [CC]
    max_ctas_per_sm=32,  # [CC]
    l2_bytes=2816 * 1024,  # [1080Ti]
    dram_bytes_per_second=484e9,  # [1080Ti]
    l2_bytes_per_cycle=979e9 / 1.531e9 / 20,  # derived: [Jia] 979 GB/s of a P4, 20 SMs
    accesses_per_cycle=1,  # [1080Ti] 32 load and store units
    fp32_per_cycle=128,  # [CC] arithmetic instructions table
    sfu_per_cycle=32,  # [CC]
    fp32_latency=6,  # [Volta] of Pascal
    shared_latency=23,  # [Jia] P4
    l2_latency=216,  # [Jia] P4
    global_latency=324,  # derived: L2 and the 108 cycles that memory is beyond it on a T4
)

V100: Final = Machine(
    name="V100 SXM2",
    arch="sm_70",
    sms=80,  # [V100]
    clock_ghz=1.53,  # [V100] boost
    smem_per_sm=96 * 1024,  # [CC]
    smem_per_cta=96 * 1024,  # [CC]
    smem_reserved=0,  # [OCC] none before sm_80
    smem_granularity=256,  # [OCC]
    max_threads_per_sm=2048,  # [CC]
    max_ctas_per_sm=32,  # [CC]
    l2_bytes=6144 * 1024,  # [V100]
    dram_bytes_per_second=900e9,  # [V100]
    l2_bytes_per_cycle=2155e9 / 1.38e9 / 80,  # [Volta] 2155 GB/s, a PCIe board at 1.38 GHz
    accesses_per_cycle=1,  # [V100] 32 load and store units
    fp32_per_cycle=64,  # [V100]
    sfu_per_cycle=16,  # [CC]
    fp32_latency=4,  # [Volta]
    shared_latency=19,  # [Volta]
    l2_latency=193,  # [Volta]
    global_latency=375,  # [Volta] a miss in L2 that hits in the TLB
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
    max_threads_per_sm=1024,  # [CC]
    max_ctas_per_sm=16,  # [CC]
    l2_bytes=4 * 1024 * 1024,  # [T4]
    dram_bytes_per_second=320e9,  # [T4]
    l2_bytes_per_cycle=1270e9 / 1.59e9 / 40,  # [Jia] 1270 GB/s measured
    accesses_per_cycle=0.5,  # [T4] 16 load and store units
    fp32_per_cycle=64,  # [T4]
    sfu_per_cycle=16,  # [CC]
    fp32_latency=4,  # [Jia]
    shared_latency=19,  # [Jia]
    l2_latency=188,  # [Jia]
    global_latency=296,  # [Jia]
)
