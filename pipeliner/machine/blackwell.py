"""GPUs of sm_100 and sm_120, Blackwell, by what they share with others: TMA, cp.async, mma.sync.

wgmma is sm_90a's alone. tcgen05, which sm_100 has, is not planned for. Nothing was measured on
either GPU: capacities are documented, and what nobody states is derived.
"""

from __future__ import annotations

from typing import Final

from .ampere import RTX_4090, tensor_cores
from .constant import derived, documented
from .described import sister
from .hopper import H100

B200: Final = sister(  # capacities of an SM, latencies and L2's rate: as its predecessor
    H100,
    "B200",
    "2026-11-23",
    arch="sm_100",
    sms=(148, documented("[Props]")),
    clock_ghz=(
        1.855,
        derived("[B200] 2250 TFLOP/s of dense fp16 over 148 SMs x 8192, at twice an H100's rate"),
    ),
    smem_per_sm=(228 * 1024, documented("[CC] 10.0")),
    smem_per_cta=(227 * 1024, documented("[CC] 10.0")),
    max_threads_per_sm=(2048, documented("[CC] 10.0")),
    max_ctas_per_sm=(32, documented("[CC] 10.0")),
    l2_bytes=(126 * 1024 * 1024, documented("[Props] 126.5 MB, of both dies")),
    dram_bytes_per_second=(
        8000e9,
        documented("[B200], up to; [Props] 7672e9 by the width of its bus and its clock"),
    ),
    fp32_per_cycle=(128, derived("[B200] 75 to 80 TFLOP/s over SMs and a clock of 1.98 to 2.11")),
    mmas=(
        tensor_cores(2048, 33),
        derived(
            "as A100: nobody states what mma.sync gets of the 8192 operations a cycle that tcgen05 "
            "gets; no GPU for data centres since the A100 gets less by it"
        ),
    ),
    wgmmas=((), documented("PTX ISA: wgmma is of sm_90a alone")),
)

RTX_5090: Final = sister(  # latencies, and an SM's share of L2: as its predecessor
    RTX_4090,
    "RTX 5090",
    "2026-11-23",
    arch="sm_120",
    sms=(170, documented("[5090]")),
    clock_ghz=(2.407, documented("[5090] boost")),
    smem_per_sm=(100 * 1024, documented("[CC] 12.0")),
    smem_per_cta=(99 * 1024, documented("[CC] 12.0")),
    max_threads_per_sm=(1536, documented("[CC] 12.0")),
    max_ctas_per_sm=(24, documented("[CC] 12.0")),
    l2_bytes=(96 * 1024 * 1024, documented("[5090] 98304 KB")),
    dram_bytes_per_second=(1792e9, documented("[5090]")),
    fp32_per_cycle=(128, documented("[5090]")),
    mmas=(
        tensor_cores(512, 33, int8_ops=2048),
        documented(
            "[5090] 209.5 TFLOP/s of fp16 into fp32 and 838 of int8, over SMs and clock; latency "
            "as derived for the RTX 3090"
        ),
    ),
)
