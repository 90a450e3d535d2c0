"""GPUs of sm_80 to sm_89, Ampere and Ada: cp.async, and mma.sync of m16n8."""

from __future__ import annotations

from typing import Final

from .constant import derived, documented, measured
from .described import described, sister
from .values import MmaRate


def tensor_cores(fp16_ops: int, latency: int, int8_ops: int = 0) -> tuple[MmaRate, ...]:
    """mma.sync of sm_80 and later, from the rate of fp16 that is accumulated in fp32.

    The others are fixed multiples of it; ``int8_ops``: where int8 is not twice as fast.
    """
    of_bytes = int8_ops or 2 * fp16_ops
    return (
        MmaRate("float16", (16, 8, 16), fp16_ops, latency),
        MmaRate("bfloat16", (16, 8, 16), fp16_ops, latency),
        MmaRate("tfloat32", (16, 8, 8), fp16_ops // 2, latency),
        MmaRate("int8", (16, 8, 32), of_bytes, latency),
        MmaRate("uint8", (16, 8, 32), of_bytes, latency),
    )


A100: Final = described(
    "A100 SXM4",
    "sm_80",
    "2026-11-21",
    sms=(108, documented("[A100] table 4")),
    clock_ghz=(1.41, documented("[A100] table 4, boost")),
    smem_per_sm=(164 * 1024, documented("[CC]")),
    smem_per_cta=(163 * 1024, documented("[CC]")),
    smem_reserved=(1024, documented("[OCC] kept by the system for each CTA")),
    smem_granularity=(128, documented("[OCC]")),
    max_threads_per_sm=(2048, documented("[CC]")),
    max_ctas_per_sm=(32, documented("[CC]")),
    l2_bytes=(40 * 1024 * 1024, documented("[A100] table 4")),
    dram_bytes_per_second=(1555e9, documented("[A100] table 4, the 40 GB part")),
    l2_bytes_per_cycle=(5120 / 108, documented("[A100] 5120 bytes a cycle, shared by all SMs")),
    accesses_per_cycle=(1, documented("[A100] 32 load and store units")),
    fp32_per_cycle=(64, documented("[A100] table 4")),
    sfu_per_cycle=(16, documented("[CC] arithmetic instructions table")),
    fp32_latency=(4, measured("[Jia] unchanged since Volta")),
    shared_latency=(29, measured("[Luo] table IV")),
    l2_latency=(262, measured("[Luo] table IV")),
    global_latency=(466, measured("[Luo] table IV")),
    mmas=(
        tensor_cores(2048, 33),
        documented("312 TFLOP/s [A100] over SMs and clock; latency [Sun]"),
    ),
)

RTX_3090: Final = described(
    "RTX 3090",
    "sm_86",
    "2026-11-21",
    sms=(82, documented("[3090]")),
    clock_ghz=(1.695, documented("[3090] boost")),
    smem_per_sm=(100 * 1024, documented("[CC]")),
    smem_per_cta=(99 * 1024, documented("[CC]")),
    smem_reserved=(1024, documented("[OCC]")),
    smem_granularity=(128, documented("[OCC]")),
    max_threads_per_sm=(1536, documented("[CC]")),
    max_ctas_per_sm=(16, documented("[CC]")),
    l2_bytes=(6144 * 1024, documented("[3090]")),
    dram_bytes_per_second=(936e9, documented("[3090]")),
    l2_bytes_per_cycle=(1622 / 128, derived("an SM's share on an RTX 4090")),
    accesses_per_cycle=(1, derived("a warp's access of 4 bytes a lane is those 128 bytes")),
    fp32_per_cycle=(128, documented("[3090]")),
    sfu_per_cycle=(16, documented("[CC]")),
    fp32_latency=(4, measured("[Jia] unchanged since Volta")),
    shared_latency=(29, derived("as A100")),
    l2_latency=(262, derived("as A100")),
    global_latency=(466, derived("as A100")),
    mmas=(
        tensor_cores(512, 33, int8_ops=2048),
        documented(
            "[3090] 71 TFLOP/s of fp16 into fp32 and 284 of int8, over SMs and clock. Latency "
            "derived: as A100, and no less than the 32 cycles for which m16n8k16 keeps a quarter "
            "of the SM's busy"
        ),
    ),
)

RTX_4090: Final = described(
    "RTX 4090",
    "sm_89",
    "2026-11-21",
    sms=(128, documented("[4090]")),
    clock_ghz=(2.52, documented("[4090] boost")),
    smem_per_sm=(100 * 1024, documented("[CC]")),
    smem_per_cta=(99 * 1024, documented("[CC]")),
    smem_reserved=(1024, documented("[OCC]")),
    smem_granularity=(128, documented("[OCC]")),
    max_threads_per_sm=(1536, documented("[CC]")),
    max_ctas_per_sm=(24, documented("[CC]")),
    l2_bytes=(72 * 1024 * 1024, documented("[4090]")),
    dram_bytes_per_second=(1008e9, documented("[4090]")),
    l2_bytes_per_cycle=(1622 / 128, measured("[Luo] table V, 1622 bytes a cycle for all SMs")),
    accesses_per_cycle=(1, derived("as RTX 3090")),
    fp32_per_cycle=(128, documented("[4090]")),
    sfu_per_cycle=(16, documented("[CC]")),
    fp32_latency=(4, measured("[Jia] unchanged since Volta")),
    shared_latency=(30, measured("[Luo] table IV")),
    l2_latency=(273, measured("[Luo] table IV")),
    global_latency=(541, measured("[Luo] table IV")),
    mmas=(
        tensor_cores(512, 33, int8_ops=2048),
        documented(
            "[4090] 165.2 TFLOP/s of fp16 into fp32 and 660.6 of int8, over SMs and clock; "
            "latency as derived for the RTX 3090"
        ),
    ),
)

L40S: Final = sister(  # the architecture of the RTX 4090
    RTX_4090,
    "L40S",
    "2026-11-21",
    sms=(142, documented("[L40S]")),
    l2_bytes=(96 * 1024 * 1024, documented("[L40S]")),
    dram_bytes_per_second=(864e9, documented("[L40S]")),
    mmas=(
        tensor_cores(1024, 33),
        documented(
            "[L40S] 362 TFLOP/s of fp16, also into fp32, and 733 of int8, over SMs and clock"
        ),
    ),
)
