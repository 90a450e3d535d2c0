"""GPUs before sm_80: copies pass through registers, and multiplications take the FMA pipe.

Volta and Turing have tensor cores; their mma.sync shapes (m8n8k4, m16n8k8) are not used here.
"""

from __future__ import annotations

from typing import Final

from .constant import derived, documented, measured
from .described import described

GTX_1080_TI: Final = described(
    "GTX 1080 Ti",
    "sm_61",
    "2026-11-21",
    sms=(28, documented("[1080Ti] 3584 cores, 128 to an SM")),
    clock_ghz=(1.582, documented("[1080Ti] boost")),
    smem_per_sm=(96 * 1024, documented("[CC]")),
    smem_per_cta=(48 * 1024, documented("[CC]")),
    smem_reserved=(0, documented("[OCC] none before sm_80")),
    smem_granularity=(256, documented("[OCC]")),
    max_threads_per_sm=(2048, documented("[CC]")),
    max_ctas_per_sm=(32, documented("[CC]")),
    l2_bytes=(2816 * 1024, documented("[1080Ti]")),
    dram_bytes_per_second=(484e9, documented("[1080Ti]")),
    l2_bytes_per_cycle=(979e9 / 1.531e9 / 20, derived("[Jia] 979 GB/s of a P4, 20 SMs")),
    accesses_per_cycle=(1, documented("[1080Ti] 32 load and store units")),
    fp32_per_cycle=(128, documented("[CC] arithmetic instructions table")),
    sfu_per_cycle=(32, documented("[CC]")),
    fp32_latency=(6, measured("[Volta] of Pascal")),
    shared_latency=(23, measured("[Jia] P4")),
    l2_latency=(216, measured("[Jia] P4")),
    global_latency=(324, derived("L2 and the 108 cycles that memory is beyond it on a T4")),
)

V100: Final = described(
    "V100 SXM2",
    "sm_70",
    "2026-11-21",
    sms=(80, documented("[V100]")),
    clock_ghz=(1.53, documented("[V100] boost")),
    smem_per_sm=(96 * 1024, documented("[CC]")),
    smem_per_cta=(96 * 1024, documented("[CC]")),
    smem_reserved=(0, documented("[OCC] none before sm_80")),
    smem_granularity=(256, documented("[OCC]")),
    max_threads_per_sm=(2048, documented("[CC]")),
    max_ctas_per_sm=(32, documented("[CC]")),
    l2_bytes=(6144 * 1024, documented("[V100]")),
    dram_bytes_per_second=(900e9, documented("[V100]")),
    l2_bytes_per_cycle=(
        2155e9 / 1.38e9 / 80,
        measured("[Volta] 2155 GB/s, a PCIe board at 1.38 GHz"),
    ),
    accesses_per_cycle=(1, documented("[V100] 32 load and store units")),
    fp32_per_cycle=(64, documented("[V100]")),
    sfu_per_cycle=(16, documented("[CC]")),
    fp32_latency=(4, measured("[Volta]")),
    shared_latency=(19, measured("[Volta]")),
    l2_latency=(193, measured("[Volta]")),
    global_latency=(375, measured("[Volta] a miss in L2 that hits in the TLB")),
)

T4: Final = described(
    "T4",
    "sm_75",
    "2026-11-21",
    sms=(40, documented("[T4]")),
    clock_ghz=(1.59, documented("[T4] boost")),
    smem_per_sm=(64 * 1024, documented("[CC]")),
    smem_per_cta=(64 * 1024, documented("[CC]")),
    smem_reserved=(0, documented("[OCC] none before sm_80")),
    smem_granularity=(256, documented("[OCC]")),
    max_threads_per_sm=(1024, documented("[CC]")),
    max_ctas_per_sm=(16, documented("[CC]")),
    l2_bytes=(4 * 1024 * 1024, documented("[T4]")),
    dram_bytes_per_second=(320e9, documented("[T4]")),
    l2_bytes_per_cycle=(1270e9 / 1.59e9 / 40, measured("[Jia] 1270 GB/s measured")),
    accesses_per_cycle=(0.5, documented("[T4] 16 load and store units")),
    fp32_per_cycle=(64, documented("[T4]")),
    sfu_per_cycle=(16, documented("[CC]")),
    fp32_latency=(4, measured("[Jia]")),
    shared_latency=(19, measured("[Jia]")),
    l2_latency=(188, measured("[Jia]")),
    global_latency=(296, measured("[Jia]")),
)
