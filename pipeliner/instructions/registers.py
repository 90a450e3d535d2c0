"""Constants of the estimate of a thread's registers, which is made before ptxas is asked.

    mma.sync       accumulators + fragments * (1 or 2) + OVERHEAD_REGISTERS
    simt           accumulators + operands * (1 or 2) + OVERHEAD_REGISTERS (few: FEW_OVERHEAD)
    wgmma          accumulators + operand A in registers + CONSUMER_OVERHEAD
    wgmma by math warps that copy too      accumulators + MATH_WARP_OVERHEAD

The formulas are in ``mma_sync``, ``simt``, ``mapped``, ``wgmma`` and ``warpgroup_registers``.
"""

from __future__ import annotations

from typing import Final

from ..machine.constant import chosen, constant, counted, documented

BASE_REGISTERS: Final = constant(
    "BASE_REGISTERS",
    32,
    "registers",
    "addresses, counters and temporaries of a thread that multiplies nothing",
    formula="registers = BASE_REGISTERS + those of the buffers in registers",
    source=chosen("a round figure; pipeliner.refine counts what ptxas took"),
    date="2026-11-21",
)

OVERHEAD_REGISTERS: Final = constant(
    "OVERHEAD_REGISTERS",
    40,
    "registers",
    "addresses, loop counters and predicates of a tiled loop",
    formula="registers = accumulators + sets * fragments + OVERHEAD_REGISTERS",
    source=counted("the kernels compiled, ptxas", "30 to 50"),
    date="2026-11-21",
)

FEW_ACCUMULATORS: Final = constant(
    "FEW_ACCUMULATORS",
    (16, 32),
    "registers",
    "accumulators of a thread, from and to, with which ptxas takes fewer registers beside them",
    formula="FEW_OVERHEAD where FEW_ACCUMULATORS[0] <= accumulators <= FEW_ACCUMULATORS[1]",
    source=counted(
        "ptxas for sm_90a, 1536x1920x1280 in fp32",
        "56 to 62 in all with 4x4, 77 and 80 with 8x4, but 128 to 142 with 8x8",
    ),
    date="2026-11-22",
)

FEW_OVERHEAD: Final = constant(
    "FEW_OVERHEAD",
    24,
    "registers",
    "overhead of a thread with FEW_ACCUMULATORS",
    formula="registers = accumulators + sets * operands + FEW_OVERHEAD",
    source=counted("as FEW_ACCUMULATORS"),
    date="2026-11-22",
)

MANY_ACCUMULATORS: Final = constant(
    "MANY_ACCUMULATORS",
    128,
    "registers",
    "accumulators of a thread from which on ptxas keeps both sets of fragments of two k-steps",
    formula="sets = 2 where k_steps > 2, or k_steps = 2 and accumulators >= MANY_ACCUMULATORS",
    source=counted(
        "ptxas for sm_90a, four warps",
        "124 to 128 in all with 128x64x32, where both sets would be 152; 238 to 246 with "
        "128x128x32",
    ),
    date="2026-11-22",
)

IM2COL_REGISTERS: Final = constant(
    "IM2COL_REGISTERS",
    8,
    "registers",
    "im2col addresses of a thread that multiplies by FMA and copies for itself",
    formula="registers + IM2COL_REGISTERS",
    source=counted(
        "ptxas for sm_90a, 3x3 filters and 1536x1920x1280 in fp32",
        "74 instead of 64 and 96 instead of 77 to 91 with 8x4 a thread, 146 to 156 instead of 128 "
        "to 149 with 8x8",
    ),
    date="2026-11-22",
)

STAGED_COPY_SAVING: Final = constant(
    "STAGED_COPY_SAVING",
    12,
    "registers",
    "registers fewer, beside accumulators, fragments and staged tiles, of a thread whose copies "
    "for mma.sync are register-staged",
    formula="registers - STAGED_COPY_SAVING, not for implicit GEMM",
    source=counted(
        "ptxas for sm_90a, fp16",
        "151 in all with 128x64x32 and two slots, 128 with 64x64x64; with im2col none fewer, 156 "
        "to 205 and 126 to 205",
    ),
    date="2026-11-22",
)

PRODUCER_REGISTERS: Final = constant(
    "PRODUCER_REGISTERS",
    32,
    "registers",
    "registers that a producer thread keeps: coordinates, slot and phase",
    formula="consumer = (launch * (groups + 1) - PRODUCER_REGISTERS) / groups",
    source=chosen("CUTLASS's sm90 kernels keep 24 to 40; 32 leave 160 to each of three groups"),
    date="2026-11-21",
)

MAX_CONSUMER_REGISTERS: Final = constant(
    "MAX_CONSUMER_REGISTERS",
    240,
    "registers",
    "the most of a consumer thread, below the 255 that an instruction can name",
    formula="consumer = min(MAX_CONSUMER_REGISTERS, ...)",
    source=chosen("as CUTLASS's sm90 kernels"),
    date="2026-11-21",
)

CONSUMER_OVERHEAD: Final = constant(
    "CONSUMER_OVERHEAD",
    32,
    "registers",
    "registers of a consumer thread beside its accumulators: descriptors, slot and phase, "
    "addresses of the result",
    formula="accumulators + operand + CONSUMER_OVERHEAD <= consumer",
    source=chosen("a round figure for what the meaning lists"),
    date="2026-11-21",
)

MATH_WARP_OVERHEAD: Final = constant(
    "MATH_WARP_OVERHEAD",
    28,
    "registers",
    "registers beside the accumulators of a math warp's thread that issues cp.async too",
    formula="registers = accumulators + MATH_WARP_OVERHEAD",
    source=counted("ptxas, most of 282 products", "26 to 32"),
    date="2026-11-21",
)

IM2COL_MATH_WARP_OVERHEAD: Final = constant(
    "IM2COL_MATH_WARP_OVERHEAD",
    40,
    "registers",
    "registers beside the accumulators of a math warp's thread that issues cp.async to im2col "
    "addresses",
    formula="registers = accumulators + IM2COL_MATH_WARP_OVERHEAD",
    source=counted("ptxas, 13 convolutions", "30 to 50"),
    date="2026-11-21",
)

INSTRUCTION_OVERHEAD: Final = constant(
    "INSTRUCTION_OVERHEAD",
    26,
    "registers",
    "registers that ptxas wants beside the accumulators of one wgmma, within those of the launch",
    formula="accumulators of one wgmma + INSTRUCTION_OVERHEAD <= launch",
    source=counted("nvcc 13.0 refuses m64n256 below 154 registers (error C7602)"),
    date="2026-11-21",
)

REGISTER_UNIT: Final = constant(
    "REGISTER_UNIT",
    8,
    "registers",
    "what divides the registers that warpgroups exchange",
    formula="launch and consumer registers are multiples of REGISTER_UNIT",
    source=documented("PTX ISA, setmaxnreg"),
    date="2026-11-21",
)
