"""GPUs of sm_90: asynchronous copies of boxes, and warpgroups that multiply."""

from __future__ import annotations

from typing import Final

from .ampere import tensor_cores
from .constant import documented, fitted, measured
from .described import described, sister
from .values import MmaRate


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
        MmaRate("uint8", (64, 256, 32), fp16_ops * 2, latency),
        MmaRate("float8_e4m3fn", (64, 256, 32), fp16_ops * 2, latency),
        MmaRate("float8_e5m2", (64, 256, 32), fp16_ops * 2, latency),
    )


H100: Final = described(
    "H100 SXM5",
    "sm_90",
    "2026-11-21",
    later={
        "dram_bytes_per_second": "2026-11-22",
        "l2_bytes_per_second": "2026-11-28",
        "sms_in_clusters": "2026-11-30",
    },
    sms=(132, documented("[H100]")),
    clock_ghz=(
        1.83,
        documented("[H100] 989 TFLOP/s dense fp16 over 132 SMs x 4096; fp32 runs up to 1.98"),
    ),
    smem_per_sm=(228 * 1024, documented("[CC]")),
    smem_per_cta=(227 * 1024, documented("[CC]")),
    smem_reserved=(1024, documented("[OCC]")),
    smem_granularity=(128, documented("[OCC]")),
    max_threads_per_sm=(2048, documented("[CC]")),
    max_ctas_per_sm=(32, documented("[CC]")),
    l2_bytes=(50 * 1024 * 1024, documented("[H100]")),
    dram_bytes_per_second=(3026e9, measured("`pipeliner calibrate`: of 3352 [H100]")),
    l2_bytes_per_cycle=(
        54,
        measured(
            "64x160x64 of a convolution takes 48 bytes a cycle with all that a step does beside; "
            "of 46 (DeepGEMM's sm90 heuristic) to 62 (what boxes get), 54 ranks 150 such tiles "
            "best"
        ),
    ),
    l2_bytes_per_second=(
        10.2e12,
        measured(
            "an H100 and an H200, 3400 kernels of 120 products: none gets more than 9.0 with all "
            "it does beside, those that wait for L2 alone 8.1; of 9 to 11, 10.2 ranks them best. "
            "CTAs that only copy boxes in step get 14"
        ),
    ),
    sms_in_clusters=(
        (132, 132, 117, 120, 110, 102, 105, 120),
        measured("cudaOccupancyMaxActiveClusters of an H200, 200 KB of shared memory a CTA"),
    ),
    accesses_per_cycle=(1, documented("[H100] 32 load and store units")),
    fp32_per_cycle=(128, documented("[H100]")),
    sfu_per_cycle=(16, documented("[CC]")),
    fp32_latency=(4, measured("[Jia]")),
    shared_latency=(
        29,
        measured(
            "`pipeliner calibrate`: 29; it reads 127 of 128 bytes a cycle, 128 by ldmatrix. [Luo] "
            "table IV"
        ),
    ),
    l2_latency=(279, measured("`pipeliner calibrate`, 279 and 284 in two runs; [Luo] 263")),
    global_latency=(680, measured("`pipeliner calibrate`, 680 of 1 GB, 687 of 64 MB; [Luo] 479")),
    mmas=(
        tensor_cores(2580, 33),
        measured("[Luo]: mma.sync reaches 63 % of the 4096 operations a cycle that wgmma reaches"),
    ),
    wgmmas=(_warpgroup_cores(4096), documented("[H100] 989 TFLOP/s over SMs and clock")),
)

H200: Final = sister(  # the chip of the H100 with other memory
    H100,
    "H200 SXM5",
    "2026-11-27",
    later={"launch_us": "2026-12-01", "start_us": "2026-12-01"},
    l2_bytes=(60 * 1024 * 1024, measured("what the driver says of an H200")),
    dram_bytes_per_second=(4411e9, measured("`pipeliner calibrate`: of 4800 [H200]")),
    l2_latency=(287, measured("`pipeliner calibrate`")),
    global_latency=(693, measured("`pipeliner calibrate`")),
    launch_us=(
        1.3,
        fitted(
            "1,896 kernels of 71 drawn workloads, L2 overwritten before each",
            "first choice 1.035 with 1.1 and 1.2, 1.036 with 1.3, 1.039 with 1.5; mean error 6.4 "
            "to 6.5 %",
        ),
    ),
    start_us=(
        2.5,
        fitted(
            "the same 1,896 kernels, each waited for alone",
            "mean error 6.4 %, 6.6 with 2.3 or 2.7; where others were queued behind them, which "
            "takes 0.5 to 0.8 us more, it was 3.1",
        ),
    ),
)
